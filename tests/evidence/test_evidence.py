"""The sealed folder: what is in it, and that no byte of it can change unseen."""

import csv
import json
import os
import random
import shutil
from datetime import datetime
from importlib.metadata import version

import pytest

from benchhouse.evidence.folder import list_sealed, read_manifest, read_spec, seal, sealed_outcome
from benchhouse.evidence.metrics_check import check_metrics
from benchhouse.evidence.verify import verify
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.warehouse.rows import NotCollectable, read_folder

SEED_KEYS = [
    "trial_id", "timestamp", "component", "service", "config", "throughput", "latency_ms", "resource", "errors",
    "notes",
]  # fmt: skip
META_KEYS = {
    "schema_version", "trial_id", "run_id", "scenario", "outcome", "failure", "warnings", "attempts", "started",
    "ended", "duration_s", "timestamp", "host", "partition", "slurm_job_id", "slurm_node_list", "container_digest",
    "git_commit", "git_dirty", "seed", "experiment", "package_lock_digest", "packages", "python", "hardware",
    "drivers", "limits", "usage", "custom",
}  # fmt: skip


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    """One trial with samples and odd artifacts, and one that raised."""
    from laboratory import Lab

    lab = Lab(tmp_path_factory.mktemp("evidence"))
    lab.bench("run", lab.scenario("mischief", workload={"act": ["samples", "odd_artifacts", "raise"]}), code=1)
    return lab


@pytest.fixture
def trial(sealed):
    return sealed.by("act")["samples"]


@pytest.fixture
def copy(sealed, tmp_path):
    """Folders that may be spoilt."""

    def make(act="samples", name="copy"):
        return TrialFolder(shutil.copytree(sealed.by("act")[act].folder, tmp_path / name))

    return make


def test_metrics_json_has_the_common_keys_and_ours_under_one(trial):
    assert list(trial.metrics) == [*SEED_KEYS, "benchhouse"]
    assert {"gpus", "batch", "concurrency", "nodes"} <= set(trial.metrics["config"])
    assert set(trial.metrics["throughput"]) == {"value", "unit"}
    assert set(trial.metrics["latency_ms"]) == {"p50", "p90", "p99"}
    assert set(trial.metrics["resource"]) == {"gpu_util", "gpu_mem_mb", "cpu_util", "ram_mb"}
    assert set(trial.metrics["errors"]) == {"rate", "timeouts"}
    assert isinstance(trial.metrics["notes"], str)
    assert trial.metrics["latency_ms"]["p50"] == 50.5
    assert check_metrics(trial.folder / "metrics.json") == len(trial.metrics["benchhouse"]["measurements"])


def test_metrics_csv_equals_the_measurements(trial):
    with (trial.folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    measured = trial.metrics["benchhouse"]["measurements"]
    assert len(rows) == len(measured) == 9
    for row, item in zip(rows, measured, strict=True):
        assert (row["trial_id"], row["run_id"]) == (trial.meta["trial_id"], trial.meta["run_id"])
        assert float(row["value"]) == item["value"]
        assert int(row["n"]) == item["n"] == 100
        assert all(row[key] == (item[key] or "") for key in ("metric", "stat", "unit", "direction", "scope", "window"))


def test_samples_csv_has_every_value_in_order(trial):
    with (trial.folder / "samples.csv").open(newline="") as file:
        assert [float(row["value"]) for row in csv.DictReader(file)] == list(range(1, 101))


def test_meta_json_says_under_which_circumstances(trial):
    meta = trial.meta
    assert set(meta) >= META_KEYS
    assert meta["experiment"]["distribution"] == "mischief"
    assert trial.packages["mischief"] == "1.0"
    assert len(meta["package_lock_digest"]) == 64
    assert meta["hardware"]["cpus_usable"] >= 1
    assert set(meta["drivers"]) >= {"nvidia", "cuda"}
    assert meta["usage"]["cpu_s"] > 0
    assert datetime.fromisoformat(meta["started"]) <= datetime.fromisoformat(meta["ended"])


def test_the_effective_config_runs_this_very_trial_again(sealed, trial):
    sealed.bench("run", trial.folder / "effective_config.yaml", "--new")
    again = [item for item in sealed.trials() if item.meta["run_id"] == sealed.run_id()]
    assert [item.spec["instance_digest"] for item in again] == [trial.spec["instance_digest"]]


def test_every_line_of_the_log_carries_trial_and_time(sealed):
    trial = sealed.by("act")["raise"]
    lines = [json.loads(line) for line in (trial.folder / "logs" / "trial.jsonl").read_text().splitlines()]
    assert {line["trial_id"] for line in lines} == {trial.meta["trial_id"]}
    times = [datetime.fromisoformat(line["time"]) for line in lines]
    assert times == sorted(times)
    assert "last words on stdout" in [line.get("line") for line in lines]
    assert [line["message"] for line in lines if line["component"] == "worker"] == ["trial started", "trial ended"]


def test_the_packages_are_on_disk_once_for_the_trials_of_a_worker_and_sealed_in_each(sealed):
    folders = [TrialFolder(trial.folder) for trial in sealed.by("act").values()]
    assert max(folder.packages.stat().st_nlink for folder in folders) > 1, "a worker that dies takes its copy with it"
    assert len({read_manifest(folder).files["packages.json"].sha256 for folder in folders}) == 1
    assert [trial.meta["packages"] for trial in sealed.by("act").values()] == [{}] * len(folders)


def test_packages_are_collected_from_a_folder_that_stands_alone(sealed, copy):
    folder = copy()
    assert folder.packages.stat().st_nlink == 1
    software = read_folder(WorkspaceFolder(sealed.workspace), folder).dimensions["software_version_dim"]
    assert software["benchhouse"] == version("benchhouse")
    folder.packages.write_text("{}")
    with pytest.raises(NotCollectable, match=r"packages\.json is not what was sealed"):
        read_folder(WorkspaceFolder(sealed.workspace), folder)


@pytest.mark.parametrize("act", ["samples", "odd_artifacts", "raise"])
def test_one_flipped_bit_anywhere_is_found_and_named(copy, act):
    folder = copy(act)
    assert verify(folder) == []
    dice = random.Random(5)
    for path in sorted(path for path in folder.path.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        name = path.relative_to(folder.path).as_posix()
        for at in {0, len(whole) - 1, *(dice.randrange(len(whole)) for _ in range(30))} if whole else ():
            changed = bytearray(whole)
            changed[at] ^= 1 << dice.randrange(8)
            path.write_bytes(changed)
            assert name in {item.file for item in verify(folder)}, (name, at)
        path.write_bytes(whole)
    assert verify(folder) == []


def test_every_byte_of_the_manifest_counts(copy):
    folder = copy()
    whole = folder.manifest.read_bytes()
    for at in range(len(whole)):
        folder.manifest.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert "manifest.json" in {item.file for item in verify(folder)}, at
    for other in (whole + b"\n", whole[:-1], whole.replace(b"  ", b" "), b""):
        folder.manifest.write_bytes(other)
        assert verify(folder)


def test_missing_added_and_replaced_files_are_named(copy, tmp_path):
    folder = copy()
    folder.samples.unlink()
    (folder.path / "more.txt").write_text("")
    (folder.path / "artifacts").symlink_to("/etc")
    elsewhere = tmp_path / "elsewhere"
    shutil.move(folder.metrics_csv, elsewhere)
    folder.metrics_csv.symlink_to(elsewhere)
    assert {(item.file, item.kind) for item in verify(folder)} == {
        ("samples.csv", "missing"),
        ("more.txt", "added"),
        ("artifacts", "added"),
        ("metrics.csv", "changed"),
    }


def test_a_folder_without_manifest_is_not_sealed(copy):
    folder = copy()
    folder.manifest.unlink()
    assert sealed_outcome(folder) is None
    assert [item.kind for item in verify(folder)] == ["unsealed"]


def test_a_manifest_that_is_consistently_forged_is_found_by_the_ledger(sealed, tmp_path):
    """Change a file and its manifest alike: the folder agrees with itself, the ledger does not."""
    import hashlib

    from benchhouse.evidence.folder import read_manifest
    from benchhouse.evidence.manifest import describe_file, list_files

    folder = TrialFolder(sealed.by("act")["raise"].folder)
    kept = folder.manifest.read_bytes(), folder.metrics.read_bytes()
    folder.metrics.write_bytes(kept[1].replace(b"1.0", b"9.9"))
    files = {name: describe_file(f"{folder.path}/{name}") for name in list_files(folder.path)}
    manifest = read_manifest(folder).model_copy(update={"files": files, "self_digest": ""}).signed_off()
    folder.manifest.write_text(manifest.text())
    run_id = json.loads(kept[0])["run_id"]
    try:
        assert verify(folder) == []
        assert [item.file for item in verify(folder, hashlib.sha256(kept[0]).hexdigest())] == ["manifest.json"]
        done = sealed.bench("verify", run_id, "--json", code=1)
        assert [item["file"] for item in json.loads(done.stdout)["damage"]] == ["manifest.json"]
    finally:
        folder.manifest.write_bytes(kept[0])
        folder.metrics.write_bytes(kept[1])


def refuse(monkeypatch, call, name):
    """From now on the system does not let this folder be listed."""
    real = getattr(os, call)

    def listed(path="."):
        if os.fspath(path).rstrip("/").endswith(name):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, call, listed)


def test_nothing_is_sealed_of_which_a_part_can_not_be_read(copy, monkeypatch):
    folder = copy()
    spec = read_spec(folder).model_copy(update={"final": f"{folder.path}-sealed"})
    refuse(monkeypatch, "scandir", "/logs")
    with pytest.raises(PermissionError):
        seal(folder, spec, "succeeded")
    assert folder.path.is_dir()


def test_a_folder_that_can_not_be_listed_is_not_taken_for_an_empty_one(sealed, monkeypatch):
    results = WorkspaceFolder(sealed.workspace).results
    assert list_sealed(results) == list_sealed(results, "s") != []
    assert list_sealed(results, "another") == list_sealed(results / "gone") == []
    refuse(monkeypatch, "listdir", "/s")
    with pytest.raises(PermissionError):
        list_sealed(results)
