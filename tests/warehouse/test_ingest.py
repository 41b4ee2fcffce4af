import json
import multiprocessing
import os
import shutil
import time

import pytest
from trial_maker import collect_growing, flip_byte, lake_bytes, make_run, make_trial

from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.ingest import collect, open_catalog, rebuild
from benchhouse.warehouse.lake import UNFINISHED
from benchhouse.warehouse.queries import failures, points
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.table import SCHEMA_VERSION
from benchhouse.warehouse.tables import EVIDENCE_TABLES

_FILLED = 9  # tables that a run of vector.search without telemetry has rows for


def rows_of(workspace: WorkspaceFolder, sql: str) -> list[tuple]:
    with Warehouse.open(workspace) as warehouse:
        return warehouse.query(sql).rows


def test_what_monitors_saw_becomes_rows_that_stay_when_more_is_collected(workspace):
    sql = "SELECT avg, growth, phase, end_s, repetition FROM telemetry_slice_fact ORDER BY repetition"
    collect(workspace, "run-a", [make_trial(workspace, cores=0.5)])
    collect(workspace, "run-a", [make_trial(workspace, repetition=2, cores=1.5)])
    assert rows_of(workspace, sql) == [(0.5, 1.0, "trial", 2.0, 1), (1.5, 3.0, "trial", 2.0, 2)]


def test_a_run_becomes_rows_of_every_table(workspace):
    folders = make_run(workspace)
    folders.append(make_trial(workspace, repetition=9, outcome="timeout"))
    done = collect(workspace, "run-a", folders)
    assert (done.run_id, done.trials, done.skipped) == ("run-a", 14, [])
    with Warehouse.open(workspace) as warehouse:
        counts = {table: warehouse.query(f"SELECT count(*) FROM {table}").rows[0][0] for table in EVIDENCE_TABLES}
        run = warehouse.query("SELECT * FROM benchmark_run_fact").dicts()[0]
        failed = warehouse.query("SELECT * FROM trial_fact WHERE outcome <> 'succeeded'").dicts()[0]
        manifests = [row[0] for row in warehouse.query("SELECT artifact_manifest_digest FROM trial_fact").rows]
    assert counts == {"benchmark_run_fact": 1, "trial_fact": 14, "measurement_fact": 52, "telemetry_slice_fact": 0,
                      "workload_dim": 2, "artifact_lineage_dim": 1, "software_version_dim": 1,
                      "hardware_topology_dim": 1, "cluster_region_dim": 1, "serving_outcome_fact": 0,
                      "training_outcome_fact": 0, "storage_outcome_fact": 0, "vector_outcome_fact": 4}  # fmt: skip
    assert done.rows == sum(counts.values())
    assert (run["trials"], run["succeeded"], run["failed"], run["warmups"]) == (14, 13, 1, 1)
    assert (run["cases"], run["instances"], run["hosts"]) == (2, 4, ["node1"])
    assert run["started"] == "2026-03-01T12:00:01.000+00:00"
    assert run["artifact_manifest_digest"] == digest(sorted(manifests))
    assert (failed["failure_code"], failed["failure_message"]) == ("boom", "it broke")
    assert failed["point"] == "name=hnsw ef=16"
    assert json.loads(failed["axes"]) == {"target.name": "hnsw", "ef": 16}
    assert failed["warnings"] == ["small-n: few samples"]
    assert failed["peak_memory_bytes"] == 1 << 20
    assert (workspace.root / failed["folder"]).is_dir()


def test_an_invalid_trial_keeps_its_rows_with_its_outcome_and_enters_no_point(workspace):
    folders = [make_trial(workspace), make_trial(workspace, repetition=2, value=9e9, outcome="invalid")]
    collect(workspace, "run-a", folders)
    with Warehouse.open(workspace) as warehouse:
        found = warehouse.query("SELECT DISTINCT outcome, count(*) FROM measurement_fact GROUP BY outcome").rows
        assert sorted(found) == [("invalid", 4), ("succeeded", 4)]
        assert {row["n"] for row in points(warehouse, ["run-a"]).dicts()} == {1}
        (run,) = warehouse.query("SELECT succeeded, failed FROM benchmark_run_fact").rows
        assert run == (1, 1)
        (refused,) = failures(warehouse, ["run-a"]).dicts()
    assert (refused["outcome"], refused["failure_message"]) == ("invalid", "it broke")


def test_collecting_again_gives_the_same_bytes(workspace):
    folders = make_run(workspace)
    collect(workspace, "run-a", folders)
    before = lake_bytes(workspace)
    collect(workspace, "run-a", list(reversed(folders)))
    assert lake_bytes(workspace) == before
    assert len(before) == _FILLED


def test_unsealed_and_unreadable_folders_are_named_and_the_others_go_on(workspace):
    good = make_run(workspace, repetitions=1)
    unsealed = make_trial(workspace, repetition=7, sealed=False)
    changed = make_trial(workspace, repetition=8)
    flip_byte(changed / "metrics.json", at=40)
    other = make_trial(workspace, "run-b")
    gone = workspace.results / "demo" / "nowhere"
    done = collect(workspace, "run-a", [*good, unsealed, changed, other, gone])
    assert done.trials == len(good)
    assert len(done.skipped) == 4
    for folder, reason in ((unsealed, "no manifest"), (changed, "metrics.json is not what was sealed"),
                           (other, "belongs to run run-b"), (gone, "no manifest")):  # fmt: skip
        assert any(str(folder) in line and reason in line for line in done.skipped)


def test_tables_only_grow(workspace):
    open_catalog(workspace).close()
    folders = make_run(workspace)
    assert collect(workspace, "run-a", folders[:5]).trials == 5
    assert collect(workspace, "run-a", folders[5:]).trials == len(folders)
    assert collect(workspace, "run-a", folders[:1]).trials == len(folders)
    grown = lake_bytes(workspace)
    collect(workspace, "run-a", folders)
    assert lake_bytes(workspace) == grown


def test_collecting_again_keeps_rows_whose_evidence_was_moved_away(workspace):
    folders = make_run(workspace)
    collect(workspace, "run-a", folders)
    before = lake_bytes(workspace)
    shutil.rmtree(folders[0])
    collect(workspace, "run-a", folders)
    assert lake_bytes(workspace) == before


def test_rebuild_drops_trials_whose_evidence_is_gone_or_damaged_and_says_which(workspace):
    folders = make_run(workspace)
    collect(workspace, "run-a", folders)
    shutil.rmtree(folders[1])
    flip_byte(folders[2] / "metrics.json", at=40)
    done = rebuild(workspace)
    gone, changed = sorted(done.dropped, key=lambda line: "sealed" in line)
    assert gone == f"{folders[1]}: its folder is gone"
    assert changed == f"{folders[2]}: not what was sealed: metrics.json changed"
    assert (done.trials, done.skipped) == (len(folders) - 2, [])
    kept = sorted(folder.name for folder in folders if folder not in folders[1:3])
    assert [row[0] for row in rows_of(workspace, "SELECT trial_id FROM trial_fact ORDER BY 1")] == kept
    left = lake_bytes(workspace)
    shutil.rmtree(workspace.warehouse)
    assert rebuild(workspace).dropped == [], "nothing in the tables knew of them"
    assert lake_bytes(workspace) == left


@pytest.mark.parametrize("lost", ["nothing", "catalog", "table"])
def test_rebuild_forgets_a_run_of_which_no_evidence_is_left(workspace, lost):
    kept = make_run(workspace, "run-b")
    collect(workspace, "run-b", kept)
    collect(workspace, "run-a", make_run(workspace, scenario="gone"))
    shutil.rmtree(workspace.results / "gone")
    if lost == "catalog":
        (workspace.warehouse / "catalog.sqlite").unlink()
    if lost == "table":
        flip_byte(next(workspace.warehouse.glob("trial_fact/run-a-*")), at=100)
    done = rebuild(workspace)
    assert (done.runs, done.trials, len(done.dropped)) == (1, 13, 13)
    assert {name for name in lake_bytes(workspace) if "run-a" in name} == set()
    with Warehouse.open(workspace) as warehouse:
        assert [run.run_id for run in warehouse.catalog.runs()] == ["run-b"]
        assert warehouse.query("SELECT DISTINCT run_id FROM measurement_fact").rows == [("run-b",)]


def test_rebuild_from_evidence_is_byte_equal(workspace):
    for run in ("run-a", "run-b"):
        collect(workspace, run, make_run(workspace, run))
    before = lake_bytes(workspace)
    make_trial(workspace, "run-a", 30, sealed=False)
    superseded = make_trial(workspace, "run-c")
    superseded.rename(superseded.with_name(superseded.name + ".attempt-1"))
    shutil.rmtree(workspace.warehouse)
    told = []
    done = rebuild(workspace, lambda at, total, run: told.append((at, total, run)))
    assert lake_bytes(workspace) == before
    assert (done.runs, done.trials, done.skipped, done.removed) == (2, 26, [], [])
    assert told == [(1, 2, "run-a"), (2, 2, "run-b")]


def test_rebuild_removes_what_nothing_refers_to(workspace):
    collect(workspace, "run-a", make_run(workspace))
    before = lake_bytes(workspace)
    orphan = workspace.warehouse / "trial_fact" / "run-x-0123456789ab.parquet"
    orphan.write_bytes(b"PAR1 half")
    stale = workspace.warehouse / "trial_fact" / ".run-x-0123456789ab.parquet.1.tmp"
    stale.write_bytes(b"PAR1")
    os.utime(stale, (time.time() - 9999,) * 2)
    stranger = workspace.warehouse / "trial_fact" / "notes.parquet"
    stranger.write_bytes(b"mine")
    done = rebuild(workspace)
    assert lake_bytes(workspace) == before | {"trial_fact/notes.parquet": b"mine"}
    assert done.removed == [f"trial_fact/{orphan.name}", f"trial_fact/{stale.name}"]
    assert [line for line in done.skipped if "notes.parquet" in line]
    assert [line for line in done.skipped if orphan.name in line and "half-written" in line]


def test_a_missing_catalog_is_made_again_and_that_is_said(workspace):
    collect(workspace, "run-a", make_run(workspace))
    before = lake_bytes(workspace)
    (workspace.warehouse / "catalog.sqlite").unlink()
    said = []
    with Warehouse.open(workspace, said.append) as warehouse:
        assert [run.run_id for run in warehouse.catalog.runs()] == ["run-a"]
    assert said == ["the warehouse has no catalog; it is made again from the evidence"]
    assert lake_bytes(workspace) == before


def test_without_catalog_and_evidence_the_lake_is_enough(workspace):
    collect(workspace, "run-a", make_run(workspace))
    before = lake_bytes(workspace)
    (workspace.warehouse / "catalog.sqlite").unlink()
    shutil.rmtree(workspace.results)
    with Warehouse.open(workspace, print) as warehouse:
        assert [run.run_id for run in warehouse.catalog.runs()] == ["run-a"]
    assert lake_bytes(workspace) == before


@pytest.mark.parametrize("content", [b"", b"this is no database, but it is long enough to be looked at" * 40])
def test_a_damaged_catalog_is_made_again_and_kept_aside(workspace, content):
    collect(workspace, "run-a", make_run(workspace))
    before = lake_bytes(workspace)
    for path in workspace.warehouse.glob("catalog.sqlite*"):
        path.unlink()
    (workspace.warehouse / "catalog.sqlite").write_bytes(content)
    said = []
    with Warehouse.open(workspace, said.append) as warehouse:
        assert [run.run_id for run in warehouse.catalog.runs()] == ["run-a"]
    assert len(said) == 1
    assert lake_bytes(workspace) == before
    assert (workspace.warehouse / "catalog.sqlite.damaged").read_bytes() == content


def test_a_rebuild_that_was_killed_is_done_again(workspace):
    collect(workspace, "run-a", make_run(workspace))
    (workspace.warehouse / "catalog.sqlite").unlink()

    def stop(at, total, run):
        raise KeyboardInterrupt

    collect_b = make_run(workspace, "run-b")
    with pytest.raises(KeyboardInterrupt):
        rebuild(workspace, stop)
    with Warehouse.open(workspace, print) as warehouse:
        assert len(warehouse.catalog.runs()) == 2, collect_b


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "foreign"])
def test_a_damaged_table_file_is_made_again_before_it_is_read(workspace, harm):
    collect(workspace, "run-a", make_run(workspace))
    before = lake_bytes(workspace)
    name = next(name for name in before if name.startswith("measurement_fact"))
    path = workspace.warehouse / name
    match harm:
        case "truncate":
            path.write_bytes(path.read_bytes()[:-100])
        case "flip":
            flip_byte(path, at=100)
        case "remove":
            path.unlink()
        case "foreign":
            shutil.copy(next(workspace.warehouse.glob("trial_fact/*")), path)
    with Warehouse.open(workspace) as warehouse:
        assert warehouse.query("SELECT count(*) FROM measurement_fact").rows == [(52,)]
        assert name in warehouse.notes[0]
    assert lake_bytes(workspace) == before


def test_a_damaged_table_file_without_evidence_is_an_error_that_names_it(workspace):
    collect(workspace, "run-a", make_run(workspace))
    shutil.rmtree(workspace.results)
    path = next(workspace.warehouse.glob("trial_fact/*"))
    flip_byte(path, at=100)
    with Warehouse.open(workspace) as warehouse, pytest.raises(BenchError, match=path.name):
        warehouse.query("SELECT * FROM trial_fact")


def test_what_a_repair_had_to_leave_out_is_noted(workspace):
    folders = make_run(workspace)
    collect(workspace, "run-a", folders)
    shutil.rmtree(folders[3])
    flip_byte(next(workspace.warehouse.glob("trial_fact/*")), at=100)
    with Warehouse.open(workspace) as warehouse:
        assert warehouse.query("SELECT count(*) FROM trial_fact").rows == [(12,)]
        assert folders[3].name in warehouse.notes[1]


def test_readers_are_not_disturbed_by_a_collector(workspace):
    open_catalog(workspace).close()
    folders = make_run(workspace)
    collect(workspace, "run-a", folders[:1])
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    worker = context.Process(target=collect_growing, args=(workspace.root, "run-a", folders, barrier))
    worker.start()
    barrier.wait()
    seen = []
    with Warehouse.open(workspace) as warehouse:
        while worker.is_alive():
            seen.append(
                warehouse.query("SELECT count(*) FROM trial_fact JOIN measurement_fact USING (trial_id)").rows[0][0]
            )
        assert warehouse.notes == []
    assert seen == sorted(seen)
    assert worker.exitcode == 0


def test_a_file_of_an_older_schema_is_made_again_from_evidence(workspace):
    import pyarrow as pa
    import pyarrow.parquet as pq

    collect(workspace, "run-a", make_run(workspace))
    before = lake_bytes(workspace)
    old = workspace.warehouse / "trial_fact" / "run-a-old.parquet"
    schema = pa.schema([("trial", pa.string())], metadata={"benchhouse.schema_version": "0"})
    pq.write_table(pa.table([["x"]], schema=schema), old)
    with open_catalog(workspace) as catalog:
        catalog._db.execute(
            "UPDATE files SET file = ?, sha256 = ?, schema_version = 0 WHERE table_name = 'trial_fact'",
            ["trial_fact/run-a-old.parquet", file_digest(old)],
        )
    for path in workspace.warehouse.glob("trial_fact/run-a-*[0-9a-f].parquet"):
        if path != old:
            path.unlink()
    with Warehouse.open(workspace) as warehouse:
        assert warehouse.query("SELECT count(*) FROM trial_fact").rows == [(13,)]
        assert "older schema" in warehouse.notes[0]
        assert {entry.schema_version for entry in warehouse.catalog.files(EVIDENCE_TABLES)} == {SCHEMA_VERSION}
    assert lake_bytes(workspace) == before


def test_four_collectors_at_once_lose_nothing(workspace):
    """Two processes have each seen half of one run, and two collect a run each. The catalog does not exist yet."""
    folders = make_run(workspace, repetitions=2)
    parts = [("run-a", folders[::2]), ("run-a", folders[1::2])]
    parts += [(run, make_run(workspace, run, repetitions=1)) for run in ("run-b", "run-c")]
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    workers = [context.Process(target=collect_growing, args=(workspace.root, *part, barrier)) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    expected = sorted(folder.name for _, folders in parts for folder in folders)
    assert [row[0] for row in rows_of(workspace, "SELECT trial_id FROM trial_fact ORDER BY 1")] == expected
    before = lake_bytes(workspace)
    assert len(before) == _FILLED * 3, "every file is used"
    shutil.rmtree(workspace.warehouse)
    rebuild(workspace)
    assert lake_bytes(workspace) == before


def test_three_hundred_trials_collect_within_three_seconds_of_cpu(workspace):
    collect(workspace, "warm", [make_trial(workspace, "warm")])
    folders = [make_trial(workspace, repetition=at) for at in range(300)]
    start = time.process_time()
    assert collect(workspace, "run-a", folders).trials == 300
    assert time.process_time() - start < 3.0


def test_published_files_are_kept_when_the_tables_grow(workspace):
    open_catalog(workspace).close()
    folders = make_run(workspace)
    collect(workspace, "run-a", folders[:5])
    with Warehouse.open(workspace) as warehouse:
        pinned = {one.file for one in points(warehouse, ["run-a"]).spec.inputs}
        warehouse.catalog.publish("reports/x/report.json", ["abcdef"], pinned)
    collect(workspace, "run-a", folders)
    names = set(lake_bytes(workspace))
    assert pinned <= names
    assert len(names) == _FILLED + len(pinned)
    rebuild(workspace)
    assert set(lake_bytes(workspace)) == names


def leftovers(workspace):
    return [path.name for path in workspace.warehouse.rglob(".*.tmp")]


def refuse(*_, **__):
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("call", ["os.fsync", "os.replace", "os.write"])
def test_tables_that_can_not_be_written_leave_nothing_and_are_written_the_next_time(workspace, monkeypatch, call):
    collect(workspace, "run-b", [make_trial(workspace, "run-b")])
    before, folders = lake_bytes(workspace), make_run(workspace)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr(call, refuse)
        collect(workspace, "run-a", folders)
    assert lake_bytes(workspace).items() >= before.items() and leftovers(workspace) == []
    assert collect(workspace, "run-a", folders).trials == len(folders)


@pytest.mark.parametrize("act", [lambda workspace: collect(workspace, "run-a", make_run(workspace)), rebuild])
def test_what_a_killed_collector_left_unfinished_goes_with_the_next(workspace, leave_behind, act):
    leave_behind(workspace.warehouse / UNFINISHED, "trial_fact-run-a.parquet")
    act(workspace)
    assert leftovers(workspace) == []


def test_a_trial_that_can_not_be_read_just_now_is_told_from_a_damaged_one(workspace, monkeypatch):
    folders = make_run(workspace)
    flip_byte(folders[0] / "meta.json", 20)
    assert collect(workspace, "run-a", folders).refused == []
    monkeypatch.setattr("benchhouse.warehouse.rows._sealed_bytes", refuse)
    done = collect(workspace, "run-a", folders[1:2])
    assert done.refused == done.unread == [f"{folders[1]}: [Errno 5] Input/output error"]


def test_a_rebuild_that_can_not_read_what_was_published_removes_nothing(workspace, monkeypatch):
    collect(workspace, "run-a", make_run(workspace))
    before = lake_bytes(workspace)
    report = workspace.reports / "demo" / "published" / "0.json"
    report.parent.mkdir(parents=True)
    report.write_text("{}")
    for path in workspace.warehouse.glob("catalog.sqlite*"):
        path.unlink()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr("pathlib.Path.read_bytes", refuse)
        rebuild(workspace)
    assert lake_bytes(workspace) == before
