"""Pruning by age; what a claim is made of stays."""

import json
import os
from datetime import datetime, timedelta

import pytest
from tables import check_table
from trial_maker import START, make_run, make_trial

from benchhouse.api.opening import open_workspace
from benchhouse.documents.problems import ProblemsError
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.retention import Retention
from benchhouse.warehouse.ingest import collect, rebuild
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.retention import prune


def after(days: float) -> datetime:
    return START + timedelta(days=days)


def runs(workspace: WorkspaceFolder) -> list[str]:
    with Warehouse.open(workspace) as warehouse:
        return sorted(run.run_id for run in warehouse.catalog.runs())


@pytest.fixture
def kept(workspace: WorkspaceFolder) -> WorkspaceFolder:
    """Two runs, the second 100 days after the first."""
    collect(workspace, "run-a", make_run(workspace, repetitions=1))
    collect(workspace, "run-b", [make_trial(workspace, "run-b", minute=100 * 24 * 60)])
    return workspace


def told(done) -> list[tuple[str, str, int]]:
    return [(one.tier, one.what, one.trials) for one in done.gone]


def test_nothing_young_goes(kept):
    assert told(prune(kept, Retention(), after(150), dry_run=False)) == []


def test_old_rows_leave_the_tables_and_evidence_brings_them_back(kept):
    done = prune(kept, Retention(), after(200), dry_run=False)
    assert told(done) == [("warm", "run-a", 5)]
    assert runs(kept) == ["run-b"]
    assert not list(kept.warehouse.glob("*/run-a-*"))
    assert rebuild(kept).runs == 2


def test_a_dry_run_says_the_same_and_touches_nothing(kept):
    before = sorted(kept.root.rglob("*"))
    wet, dry = Retention(), prune(kept, Retention(), after(800), dry_run=True)
    assert sorted(kept.root.rglob("*")) == before
    assert told(dry) == told(prune(kept, wet, after(800), dry_run=False))


def test_evidence_goes_last_and_a_set_aside_attempt_with_it(kept):
    (first,) = [path for path in kept.results.glob("*/*") if (path / "manifest.json").is_file()][:1]
    aside = first.with_name(f"{first.name}.attempt-1")
    aside.mkdir()
    prune(kept, Retention(), after(800), dry_run=False)
    left = {json.loads(path.read_bytes())["run_id"] for path in kept.results.glob("*/*/manifest.json")}
    assert left == {"run-b"}
    assert aside.exists() == first.exists()
    assert runs(kept) == []


@pytest.mark.parametrize("named_by", ["run", "trial", "manifest"])
def test_what_a_claim_is_made_of_is_never_pruned(kept, named_by):
    with Warehouse.open(kept) as warehouse:
        sql = "SELECT run_id AS run, trial_id AS trial, artifact_manifest_digest AS manifest FROM trial_fact"
        row = warehouse.query(f"{sql} WHERE run_id = 'run-a' LIMIT 1").dicts()[0]
    claims = kept.root / "claims"
    claims.mkdir()
    (claims / "abc.json").write_text(json.dumps({"evidence": [{"of": row[named_by]}]}))
    before = sorted(kept.results.rglob("*"))
    done = prune(kept, Retention(), after(800), dry_run=False)
    assert done.pinned == ["run-a: claims/abc.json"]
    assert told(done) == [("warm", "run-b", 1)]
    assert sorted(kept.results.rglob("*")) == before
    assert runs(kept) == ["run-a"]


def test_a_claim_that_cannot_be_read_stops_all_pruning(kept):
    (kept.root / "claims").mkdir()
    (kept.root / "claims" / "packet.tar.gz").write_bytes(b"\x1f\x8bhalf")
    with pytest.raises(BenchError, match=r"packet\.tar\.gz can't be read"):
        prune(kept, Retention(), after(800), dry_run=False)
    assert runs(kept) == ["run-a", "run-b"]


def test_a_folder_that_leads_elsewhere_is_not_followed(kept, tmp_path):
    away = tmp_path / "away"
    (first,) = [path.parent for path in kept.results.glob("*/*/manifest.json")][:1]
    first.rename(away)
    first.symlink_to(away)
    prune(kept, Retention(), after(2000), dry_run=False)
    assert (away / "manifest.json").is_file()


def test_old_samples_of_monitors_go_first(kept):
    old, new = (kept.monitors / name for name in ("m1", "m2"))
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "samples.parquet").write_bytes(b"x" * 10)
    for path in (old / "samples.parquet", old):
        os.utime(path, (START.timestamp(), START.timestamp()))
    done = prune(kept, Retention(), after(40), dry_run=False)
    assert told(done) == [("hot", ".bench/monitors/m1", 0)]
    assert (old.exists(), new.exists()) == (False, True)


def test_without_a_policy_file_it_is_only_shown(kept):
    tables = open_workspace(kept.root).warehouse
    assert tables.prune(dry_run=True).policy == Retention()
    with pytest.raises(BenchError, match=r"no retention\.yaml"):
        tables.prune(dry_run=False)


@check_table(
    "text, words",
    [("warm: 10d\n", "must grow"), ("warn: 10d\n", "warm"), ("hot: soon\n", "retention.yaml:1:6")],
)
def test_mistakes_in_the_policy_are_named_with_their_place(tmp_path, text, words):
    (tmp_path / "retention.yaml").write_text(text)
    with pytest.raises(ProblemsError) as refused:
        open_workspace(tmp_path).warehouse.prune(dry_run=True)
    assert words in f"{refused.value.message} {refused.value.hint}"
