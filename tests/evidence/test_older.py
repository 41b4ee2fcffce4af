"""What older versions sealed is read for good: whole workspaces of earlier commits, and documents of other versions."""

import json
import tarfile
from pathlib import Path

import pytest
from pydantic import ValidationError

from benchhouse.api.opening import open_workspace
from benchhouse.api.verification import Verification, verify_all, verify_run
from benchhouse.evidence import older
from benchhouse.evidence.folder import read_manifest, read_spec
from benchhouse.evidence.manifest import Manifest, describe_file, list_files
from benchhouse.evidence.verify import is_as_signed, verify
from benchhouse.runs.ledger import list_runs
from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.experiment import Data
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.trial import Meta, TrialSpec
from benchhouse.warehouse.ingest import rebuild
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.table import SCHEMA_VERSION

ARCHIVES = sorted((Path(__file__).parents[1] / "data" / "workspaces").glob("*.tar.xz"))
OLDEST = ARCHIVES[0]


def unpack(archive: Path, folder: Path) -> WorkspaceFolder:
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return WorkspaceFolder(folder)


def sealed(workspace: WorkspaceFolder) -> list[TrialFolder]:
    return [TrialFolder(path.parent) for path in sorted(workspace.results.glob("*/*/manifest.json"))]


def bytes_of(workspace: WorkspaceFolder) -> dict[str, str]:
    return {str(path): file_digest(path) for path in workspace.results.rglob("*") if path.is_file()}


def published(workspace: WorkspaceFolder) -> list[str]:
    """Some numbers of the report that the old version wrote, from its beginning to its end."""
    (report,) = workspace.reports.glob("*/report.json")
    refs = [cell["ref"] for cell in json.loads(report.read_bytes())["cells"]]
    return [refs[0], refs[len(refs) // 2], refs[-1]]


def change(folder: TrialFolder, name: str, **fields: object) -> None:
    """Write fields into a document and seal the folder anew, as another version would have."""
    path = folder.path / name
    path.write_text(json.dumps(json.loads(path.read_bytes()) | fields))
    files = {name: describe_file(f"{folder.path}/{name}") for name in list_files(folder.path)}
    again = read_manifest(folder).model_copy(update={"files": files}).signed_off()
    folder.manifest.write_text(again.text())


@pytest.fixture
def oldest(tmp_path):
    return unpack(OLDEST, tmp_path)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_a_workspace_of_an_older_version_is_whole_is_rebuilt_with_all_trials_and_its_numbers_trace(archive, tmp_path):
    workspace = unpack(archive, tmp_path)
    folders, before, refs = sealed(workspace), bytes_of(workspace), published(workspace)
    checked = [verify_run(workspace, run) for run in list_runs(workspace)]
    assert sum(item.checked for item in checked) == len(folders)
    assert [damage for item in checked for damage in item.damage] == []

    done = rebuild(workspace)
    assert (done.sealed, done.trials, done.unread, done.skipped, done.dropped) == (
        len(folders),
        len(folders),
        [],
        [],
        [],
    )
    with Warehouse.open(workspace) as warehouse:
        told = warehouse.query("SELECT trial_id, outcome FROM trial_fact").rows
        numbers = warehouse.query("SELECT DISTINCT trial_id FROM measurement_fact").rows
        runs = [run.run_id for run in warehouse.catalog.runs()]
    assert dict(told) == {folder.path.name: read_manifest(folder).outcome for folder in folders}
    assert {trial for trial, outcome in told if outcome == "succeeded"} <= {row[0] for row in numbers}
    assert verify_all(workspace) == Verification(len(folders), [], [])

    open_workspace(workspace.root).report(runs[0])  # takes the place of the old one, whose numbers stay
    assert [ref for ref in refs if not open_workspace(workspace.root).trace(ref).ok] == []
    assert verify_all(workspace) == Verification(len(folders), [], [])
    assert bytes_of(workspace) == before, "sealed bytes are only read"


def test_a_runtime_that_was_a_text_is_the_kind_of_runtime(oldest):
    folder = sealed(oldest)[0]
    assert json.loads(folder.spec.read_bytes())["runtime"] == "process"
    assert read_spec(folder).runtime.kind == "process"


def test_a_document_of_today_is_read_as_it_is_and_one_of_nobody_is_refused(oldest):
    folder = sealed(oldest)[0]
    today = read_spec(folder)
    assert older.read(TrialSpec, today.model_dump_json().encode()) == today
    for content in (b"{", b"[]", b"{}", folder.meta.read_bytes()):
        with pytest.raises(ValidationError):
            older.read(TrialSpec, content)
    with pytest.raises(ValidationError):
        older.read(Meta, folder.spec.read_bytes())


@pytest.mark.parametrize(
    ("model", "content", "why"),
    [
        (Manifest, b"{", "manifest.json can't be read: Invalid JSON: "),
        (Meta, b"[]", "meta.json can't be read: "),
        (TrialSpec, b'{"trial_id": 3}', "trial.json can't be read: trial_id: Input should be a valid string"),
        (TrialSpec, b'{"runtime": 3}', "trial.json can't be read: trial_id: Field required"),
        (Data, b'{"name": 3}', "Data can't be read: name: Input should be a valid string"),
    ],
)
def test_why_a_document_is_not_read_is_told_with_its_place(model, content, why):
    with pytest.raises(ValidationError) as refused:
        older.read(model, content)
    assert older.misread(refused.value).startswith(why)
    assert "newer benchhouse" not in older.misread(refused.value)


@pytest.mark.parametrize("change", [{"flavour": 1}, {"schema_version": 7}])
def test_a_document_of_a_later_shape_is_told_as_that(oldest, change):
    folder = sealed(oldest)[0]
    text = json.dumps(json.loads(folder.manifest.read_bytes()) | change).encode()
    with pytest.raises(ValidationError) as refused:
        older.read(Manifest, text)
    assert older.misread(refused.value).endswith("; a newer benchhouse may have written it: use that one")
    old = json.loads(folder.spec.read_bytes())
    assert older.read(TrialSpec, json.dumps(old | {"runtime": "venv"}).encode()).runtime.kind == "venv"
    with pytest.raises(ValidationError):
        older.read(TrialSpec, json.dumps(old | change).encode())


def test_every_sealed_document_says_the_version_of_its_shape(oldest):
    for folder in sealed(oldest):
        for name in ("trial.json", "meta.json", "manifest.json"):
            assert json.loads((folder.path / name).read_bytes())["schema_version"] == 1
        if folder.metrics.is_file():
            assert json.loads(folder.metrics.read_bytes())["benchhouse"]["schema_version"] == 1


def test_a_manifest_is_held_against_its_own_digest_as_it_stands_whatever_fields_it_has(oldest):
    folder = sealed(oldest)[0]
    found = json.loads(folder.manifest.read_bytes())
    del found["self_digest"]
    found["later"] = "é"
    whole = found | {"self_digest": digest(found)}
    assert is_as_signed((json.dumps(whole, indent=2, ensure_ascii=False) + "\n").encode())
    for spoilt in (
        json.dumps(whole) + "\n",  # another text
        json.dumps(whole | {"later": "e"}, indent=2) + "\n",  # another content
        json.dumps(found, indent=2) + "\n",  # no digest
        "[]\n",
        "{",
    ):
        assert not is_as_signed(spoilt.encode())


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        ("trial.json", {"flavour": "new"}, "trial.json can't be read: flavour: Extra inputs are not permitted"),
        ("meta.json", {"schema_version": 7}, "meta.json can't be read: schema_version: Input should be 1"),
    ],
)
def test_a_rebuild_fails_and_says_which_sealed_folders_it_did_not_read(bench, oldest, name, fields, why):
    folders = sealed(oldest)
    change(folders[0], name, **fields)
    assert verify(folders[0]) == [], "whole, but of a version that is not known here"
    done = bench("warehouse", "rebuild")
    assert done.code == 1
    assert (
        f"{len(folders) - 1} trials" in done.out
        and f"{len(folders) - 1} of {len(folders)} sealed folders read" in done.out
    )
    assert f"{folders[0].path}: {why}; a newer benchhouse may have written it" in done.err
    assert f"bench verify {folders[0].path}" in done.err.splitlines()[-1]
    told = bench("warehouse", "rebuild", "--json")
    assert told.code == 1
    found = json.loads(told.out)
    assert (found["sealed"], len(found["unread"])) == (len(folders), 1)


def test_collecting_reporting_and_pulling_tell_of_a_trial_that_is_not_read(bench, oldest, tmp_path):
    hello = [folder for folder in sealed(oldest) if folder.path.parent.name == "hello"]
    change(hello[0], "trial.json", flavour="new")
    run = read_manifest(hello[0]).run_id
    collected = bench("collect", run)
    assert collected.code == 1 and f"not collected: {hello[0].path}" in collected.err
    assert f"left out: {hello[0].path}" in bench("report", run).err
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert bench("evidence", "push", store, "--run", run).code == 0
    pulled = bench("evidence", "pull", store, cwd=elsewhere)
    assert pulled.code == 1
    assert f"in no table: hello/{hello[0].path.name}: trial.json can't be read" in pulled.err


def test_a_lost_catalog_made_again_says_how_many_trials_are_in_no_table(oldest):
    change(sealed(oldest)[0], "trial.json", flavour="new")
    for path in oldest.warehouse.rglob("*"):
        if path.is_file():
            path.unlink()
    said: list[str] = []
    Warehouse.open(oldest, said.append).close()
    assert f"1 of {len(sealed(oldest))} sealed trials are not in the tables: bench warehouse rebuild" in said


def test_tables_that_an_older_version_wrote_without_arrow_are_read_as_they_are(tmp_path):
    workspace = unpack(next(path for path in ARCHIVES if "cb25481" in path.name), tmp_path)
    files = {path: path.read_bytes() for path in workspace.warehouse.rglob("*.parquet")}
    assert sum(b"parquet-cpp-arrow" not in content for content in files.values()) > 10
    workspace.results.rename(tmp_path / "away")  # so that nothing can be made again from evidence
    with Warehouse.open(workspace) as warehouse:
        told = warehouse.query("SELECT outcome, count(*) FROM trial_fact GROUP BY ALL ORDER BY ALL").rows
        texts = warehouse.query("SELECT count(*) FROM trial_fact WHERE warnings = [] AND started < ended").rows
        numbers = warehouse.query("SELECT count(*), count(DISTINCT metric) FROM measurement_fact").rows
        bounds = warehouse.query("SELECT count(*), count(error_bound) FROM points").rows
    assert (told, texts, numbers) == ([("failed", 1), ("succeeded", 11)], [(12,)], [(315, 8)])
    added = f"read as written, what version {SCHEMA_VERSION} added is null"
    assert warehouse.notes and all(note.endswith(added) for note in warehouse.notes)
    assert bounds[0][0] > 0 == bounds[0][1]
    assert {path: path.read_bytes() for path in workspace.warehouse.rglob("*.parquet")} == files


def test_a_document_that_was_sealed_with_a_secret_is_read_and_one_that_is_written_is_refused():
    words = {"name": "db", "program": ["db"], "command": ["db"], "endpoint": "http://127.0.0.1:1"}
    content = json.dumps(words | {"environment": {"DB_PASSWORD": "hunter2"}}).encode()
    with pytest.raises(ValidationError, match="secret in plain text"):
        Recipe.model_validate_json(content)
    assert older.read(Recipe, content).environment == {"DB_PASSWORD": "hunter2"}
