"""The tables: outcomes, dimensions, and what is null with a reason."""

import json
import shutil
from dataclasses import replace

import pytest
from tables import check_table
from trial_maker import make_run, make_trial

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.measurement import Measurement
from benchhouse.schema.topology import Cluster, Cpu, GpuTopology, Nic, NumaNode, Topology
from benchhouse.warehouse import rows, tables
from benchhouse.warehouse import table as kinds
from benchhouse.warehouse.ingest import collect, open_catalog, rebuild
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.table import Column, Table

CANONICAL = {
    "benchmark_run_fact", "serving_outcome_fact", "training_outcome_fact", "telemetry_slice_fact",
    "software_version_dim", "hardware_topology_dim", "cluster_region_dim", "workload_dim", "artifact_lineage_dim",
}  # fmt: skip
IDENTITY = ("run_id", "benchmark_case_id", "workload_spec_digest", "artifact_manifest_digest")
NODE = Topology(
    machine="x86_64",
    kernel="6.1",
    cpu=Cpu(model="EPYC", sockets=2, cores=64, threads=128, usable=64, quota=None, governor="performance"),
    numa=[NumaNode(node=0, cpus="0-63", distances=[10, 32]), NumaNode(node=1, cpus="64-127", distances=[32, 10])],
    memory_bytes=1 << 39,
    gpus=[
        GpuTopology(uuid="GPU-a", name="H200", memory_bytes=150_000, numa=0, pcie_width=8, pcie_width_most=16,
            pcie_generation=1, pcie_generation_most=5, nvlinks=18, nvlink_peers=["switch"] * 18),
        GpuTopology(uuid="GPU-b", name="H200", memory_bytes=150_000, numa=1, pcie_width=16, pcie_width_most=16,
            pcie_generation=5, pcie_generation_most=5),
    ],
    gpu_driver="570.1",
    cuda="12.8",
    nics=[Nic(name="ib0", driver="mlx5_core", speed_mbps=400_000, numa=0), Nic(name="veth77")],
    filesystem="lustre",
)  # fmt: skip


def ask(workspace: WorkspaceFolder, sql: str) -> list[dict]:
    with Warehouse.open(workspace) as warehouse:
        return warehouse.query(sql).dicts()


def number(metric: str, value: float, unit: str, stat: str = "value", window: str = "") -> Measurement:
    return Measurement(metric=metric, stat=stat, value=value, unit=unit, direction="lower", window=window)


def test_the_nine_tables_are_there_and_every_row_says_whose_it_is(workspace):
    assert set(tables.TABLES) >= CANONICAL
    collect(workspace, "run-a", [*make_run(workspace, repetitions=1), make_trial(workspace, repetition=7, cores=1.0)])
    with Warehouse.open(workspace) as warehouse:
        for name in tables.EVIDENCE_TABLES:
            for row in warehouse.query(f"SELECT * FROM {name}").dicts():
                assert all(row[key] for key in IDENTITY), name
        (run,) = warehouse.query("SELECT * FROM benchmark_run_fact").dicts()
    assert run["executor"] == "local"
    assert set(json.loads(run["unknown"])) == {
        *("intent", "mode", "cadence", "queue_s", "scheduler_run_id"), *rows.OF_CONTRACT,
    }  # fmt: skip


def test_outcomes_are_means_of_good_trials_in_the_unit_of_the_column(workspace):
    numbers = {
        1: [number("ttft", 0.25, "s", "p99"), number("requests_per_s", 10.0, "1/s")],
        2: [number("ttft", 350.0, "ms", "p99"), number("requests_per_s", 20.0, "requests/s")],
    }
    serving = {"component": "inference", "parameters": {"concurrency": 8}}
    folders = [make_trial(workspace, repetition=at, numbers=given, **serving) for at, given in numbers.items()]
    folders.append(make_trial(workspace, repetition=3, outcome="invalid", numbers=numbers[1], **serving))
    folders.append(make_trial(workspace, repetition=4, outcome="timeout", **serving))
    folders.append(make_trial(workspace, repetition=1, warmup=True, numbers=numbers[2], **serving))
    collect(workspace, "run-a", folders)
    (row,) = ask(workspace, "SELECT * FROM serving_outcome_fact")
    assert (row["trials"], row["succeeded"], row["concurrency"], row["request_rate"]) == (4, 2, 8.0, None)
    assert (row["ttft_p99_ms"], row["requests_per_s"], row["ttft_p50_ms"]) == (300.0, 15.0, None)
    assert json.loads(row["unknown"])["ttft_p50_ms"] == "not measured"
    assert ask(workspace, "SELECT * FROM vector_outcome_fact") == []


def test_an_outcome_takes_valid_figures_only(workspace):
    one, two = number("ttft", 250.0, "ms", "p99"), number("ttft", 9.0, "ms", "p50")
    off = {"error_bound": 50.0, "valid": False}
    given = {1: [one, two.model_copy(update=off)], 2: [item.model_copy(update=off) for item in (one, two)]}
    collect(
        workspace,
        "run-a",
        [make_trial(workspace, repetition=at, component="inference", numbers=own) for at, own in given.items()],
    )
    (row,) = ask(workspace, "SELECT * FROM serving_outcome_fact")
    assert (row["succeeded"], row["ttft_p99_ms"], row["ttft_p50_ms"]) == (2, 250.0, None)
    assert json.loads(row["unknown"])["ttft_p50_ms"] == "INVALID: it can be off by more than is taken"


def test_training_has_a_row_a_phase(workspace):
    numbers = [number("mfu", 0.5, "1"), number("mfu", 40.0, "%", window="steady")]
    numbers.append(number("own_step_time", 7.0, "ms", window="rank:3"))  # of a part, and no outcome of the whole
    collect(workspace, "run-a", [make_trial(workspace, component="training", numbers=numbers)])
    found = ask(workspace, "SELECT phase, mfu, nodes, gpus FROM training_outcome_fact ORDER BY phase")
    assert [tuple(row.values()) for row in found] == [("", 0.5, 1, 0), ("steady", 0.4, 1, 0)]


def test_scaling_efficiency_is_of_points_that_differ_in_their_ranks_alone(workspace):
    points = [(1, 1, 100.0), (4, 1, 360.0), (4, 2, 600.0), (8, 2, 900.0), (2, 3, 50.0)]
    trials = [
        make_trial(
            workspace, component="training", parameters={"ranks": ranks, "threads": threads},
            numbers=[number("tokens_per_s", rate, "tokens/s")],
        )
        for ranks, threads, rate in points
    ]  # fmt: skip
    collect(workspace, "run-a", trials)
    found = ask(workspace, "SELECT * FROM training_outcome_fact ORDER BY tokens_per_s")
    shares = {row["tokens_per_s"]: row["scaling_efficiency"] for row in found}
    assert shares == pytest.approx({50.0: None, 100.0: 1.0, 360.0: 0.9, 600.0: 1.0, 900.0: 0.75})
    assert found[-1]["scaling_efficiency_pct"] == pytest.approx(75.0)
    assert "scaling_efficiency" in json.loads(found[0]["unknown"]), "it has nothing to be compared with"
    assert "scaling_efficiency" not in json.loads(found[-1]["unknown"])


def test_a_unit_that_the_column_is_not_in_is_null_and_said(workspace):
    collect(workspace, "run-a", [make_trial(workspace, numbers=[number("qps", 5.0, "furlongs")])])
    (row,) = ask(workspace, "SELECT qps, unknown FROM vector_outcome_fact")
    assert row["qps"] is None
    assert json.loads(row["unknown"])["qps"] == "measured in furlongs, which is not 1/s"


def test_a_run_without_a_good_trial_has_its_rows_and_no_numbers(workspace):
    collect(
        workspace, "run-a", [make_trial(workspace, outcome="timeout"), make_trial(workspace, ef=64, outcome="error")]
    )
    (run,) = ask(workspace, "SELECT trials, succeeded, failed FROM benchmark_run_fact")
    assert run == {"trials": 2, "succeeded": 0, "failed": 2}
    found = ask(workspace, "SELECT trials, succeeded, qps, unknown FROM vector_outcome_fact")
    assert [(row["trials"], row["succeeded"], row["qps"]) for row in found] == [(1, 0, None)] * 2
    assert {json.loads(row["unknown"])["qps"] for row in found} == {"no good trial"}
    assert ask(workspace, "SELECT * FROM measurement_fact") == []


def test_the_node_becomes_a_row_that_alike_nodes_share(workspace):
    other = NODE.model_copy(update={"nics": [NODE.nics[0].model_copy(update={"name": "ib1"}), Nic(name="veth12")]})
    for run, node in (("run-a", NODE), ("run-b", other), ("run-c", NODE.model_copy(update={"memory_bytes": 1}))):
        collect(workspace, run, [make_trial(workspace, run, topology=node, cores=1.0)])
    first, second = ask(workspace, "SELECT * FROM hardware_topology_dim ORDER BY run_id")
    assert (first["run_id"], second["run_id"]) == ("run-a", "run-c")
    assert (first["cpu_model"], first["cpu_sockets"], first["numa_nodes"], first["gpu_count"]) == ("EPYC", 2, 2, 2)
    assert json.loads(first["pcie_layout"])[0] == {"width": 8, "width_most": 16, "generation_most": 5}
    assert json.loads(first["nvlink_topology"])[0]["up"] == 18
    assert [one["nics"] for one in json.loads(first["gpu_nic_affinity"])] == [[0], []]
    assert first["storage_fabric"] == "lustre"
    assert json.loads(first["unknown"])["cpu_quota"] == "no cgroup limits it"
    joined = "SELECT count(*) AS n FROM benchmark_run_fact JOIN hardware_topology_dim USING (hardware_topology_id)"
    assert ask(workspace, joined) == [{"n": 3}]


def test_the_same_gpu_that_is_idle_once_is_the_same_hardware(workspace):
    idle = NODE.model_copy(update={"gpus": [gpu.model_copy(update={"pcie_generation": 2}) for gpu in NODE.gpus or []]})
    for run, node in (("run-a", NODE), ("run-b", idle)):
        collect(workspace, run, [make_trial(workspace, run, topology=node)])
    assert len(ask(workspace, "SELECT * FROM hardware_topology_dim")) == 1


def test_the_place_is_what_the_site_says_and_silence_is_a_reason(workspace):
    collect(workspace, "run-a", [make_trial(workspace, cluster=Cluster(name="lab", region="eu-1"))])
    (row,) = ask(workspace, "SELECT * FROM cluster_region_dim")
    assert (row["cluster"], row["region"], row["zone"], row["scheduler_path"]) == ("lab", "eu-1", None, "local")
    assert "site profile" in json.loads(row["unknown"])["zone"]


def test_old_evidence_has_dimensions_that_say_what_was_not_read(workspace):
    collect(workspace, "run-a", [make_trial(workspace)])
    (row,) = ask(workspace, "SELECT gpu_count, unknown FROM hardware_topology_dim")
    assert row["gpu_count"] is None
    assert "older" in json.loads(row["unknown"])["gpu_count"]


def test_clocks_that_disagree_give_no_negative_wait(workspace):
    late, early = "2026-03-01T12:00:10+00:00", "2026-03-01T11:59:00+00:00"
    collect(workspace, "run-a", [make_trial(workspace, submitted=late)])
    collect(workspace, "run-b", [make_trial(workspace, "run-b", submitted=early)])
    first, second = ask(workspace, "SELECT queue_s, unknown FROM trial_fact ORDER BY run_id")
    assert first["queue_s"] is None
    assert json.loads(first["unknown"])["queue_s"] == (
        "the clock of node1 is at least 9 s behind that of the submitting machine"
    )
    assert (second["queue_s"], second["unknown"]) == (61.0, None)


@pytest.fixture
def changed(workspace: WorkspaceFolder) -> WorkspaceFolder:
    """A metric that was in ms in one run and in s in the next."""
    for run, unit in (("run-a", "ms"), ("run-b", "s")):
        numbers = [number("latency", 5.0, unit), number("qps", 1.0, "1/s")]
        collect(workspace, run, [make_trial(workspace, run, numbers=numbers)])
    return workspace


@check_table(
    "where",
    ["WHERE metric = 'latency'", "", "WHERE metric LIKE 'lat%'", "WHERE metric IN ('qps', 'latency') GROUP BY metric"],
)
def test_values_in_two_units_are_not_combined(changed, where):
    with pytest.raises(BenchError, match=r"latency was measured in different units: ms \(run run-a\), s \(run run-b\)"):
        ask(changed, f"SELECT avg(value) FROM measurement_fact {where}")


@check_table(
    "sql",
    [
        "SELECT unit, avg(value) FROM measurement_fact WHERE metric = 'latency' GROUP BY unit",
        "SELECT avg(value) FROM measurement_fact WHERE metric = 'qps'",
        "SELECT value FROM measurement_fact WHERE metric = 'latency'",
        "SELECT count(*) FROM measurement_fact -- avg(value) of latency",
    ],
)
def test_queries_that_do_not_mix_units_are_answered(changed, sql):
    assert ask(changed, sql)


def test_one_run_has_one_unit_and_is_averaged(changed):
    with Warehouse.open(changed) as warehouse:
        sql = "SELECT avg(value) FROM measurement_fact WHERE metric = $metric"
        assert warehouse.query(sql, {"metric": "latency"}, runs=["run-a"]).rows == [(5.0,)]
        with pytest.raises(BenchError, match="different units"):
            warehouse.query(sql, {"metric": "latency"})


def test_a_table_is_one_declaration_over_json_files(workspace, monkeypatch):
    columns = (
        Column("run_id", "text", "Run."), Column("at", "time", "When."), Column("value", "number", "Value."),
        Column("why", "text", "An object, as JSON."),
    )  # fmt: skip
    extra = Table("alarm_fact", "Alarms.", columns, ("run_id",), source="alarms/*.json*")
    monkeypatch.setitem(tables.TABLES, "alarm_fact", extra)
    monkeypatch.setattr("benchhouse.warehouse.query._ANY_TABLE", __import__("re").compile("alarm_fact"))
    assert ask(workspace, "SELECT * FROM alarm_fact") == []
    folder = workspace.root / "alarms"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text(
        '{"run_id": "r1", "at": "2026-03-01T14:00:00+02:00", "value": 2}\n{"run_id": "r2", "more": 1}\n'
    )
    (folder / "b.json").write_text('{\n "run_id": "r3", "why": {"x": [1]}\n}\n')
    found = ask(workspace, "SELECT * FROM alarm_fact ORDER BY run_id")
    assert [tuple(row.values()) for row in found] == [
        ("r1", "2026-03-01T12:00:00.000+00:00", 2.0, None), ("r2", None, None, None), ("r3", None, None, '{"x":[1]}'),
    ]  # fmt: skip
    (folder / "a.jsonl").write_text('{"run_id": "r1", "at"')
    with pytest.raises(BenchError, match=r"a\.jsonl"):
        ask(workspace, "SELECT * FROM alarm_fact")


@pytest.fixture
def old(workspace: WorkspaceFolder, monkeypatch: pytest.MonkeyPatch) -> WorkspaceFolder:
    """A lake as version 1 left it: fewer tables, fewer columns."""
    with monkeypatch.context() as patched:
        for module in ("table", "lake", "ingest"):
            patched.setattr(f"benchhouse.warehouse.{module}.SCHEMA_VERSION", 1)
        known = ("benchmark_run_fact", "trial_fact", "measurement_fact")
        for name in known:
            table = tables.TABLES[name]
            few = tuple(one for one in table.columns if one.name not in ("unknown", "queue_s", "custom", "error_bound"))
            patched.setitem(tables.EVIDENCE_TABLES, name, replace(table, columns=few))
        whole = __import__("benchhouse.warehouse.ingest", fromlist=["tabulate"]).tabulate
        patched.setattr(
            "benchhouse.warehouse.ingest.tabulate",
            lambda trials: {name: rows for name, rows in whole(trials).items() if name in known},
        )
        collect(workspace, "run-a", make_run(workspace, repetitions=1))
    with open_catalog(workspace) as catalog:
        assert {entry.schema_version for entry in catalog.files_of("run-a")} == {1}
    return workspace


def test_a_lake_of_version_1_is_made_again_and_that_is_said(old):
    with Warehouse.open(old) as warehouse:
        assert warehouse.query("SELECT count(*) FROM vector_outcome_fact").rows == [(4,)]
        now = f"now version {kinds.SCHEMA_VERSION}"
        assert warehouse.notes == [f"run-a: of an older schema; made again from the evidence, {now}"]
        assert {entry.schema_version for entry in warehouse.catalog.files_of("run-a")} == {kinds.SCHEMA_VERSION}


def test_rebuild_goes_from_version_1_to_the_present_one(old):
    assert rebuild(old).trials == 5
    with Warehouse.open(old) as warehouse:
        assert warehouse.query("SELECT count(unknown) FROM trial_fact").rows == [(5,)]
        assert warehouse.notes == []


def test_a_lake_of_version_1_whose_evidence_is_away_is_read_as_written(old):
    shutil.rmtree(old.results)
    collect(old, "run-b", [make_trial(old, "run-b")])
    with Warehouse.open(old) as warehouse:
        sql = "SELECT run_id, count(*), count(unknown) FROM trial_fact GROUP BY run_id ORDER BY run_id"
        assert warehouse.query(sql).rows == [("run-a", 5, 0), ("run-b", 1, 1)]
        assert warehouse.query(sql, runs=["run-a"]).rows == [("run-a", 5, 0)]
        assert "the evidence is missing: read as written" in warehouse.notes[0]


def test_evidence_that_is_away_is_looked_for_once_and_found_when_it_comes_back(old, monkeypatch, tmp_path):
    def counted(*args: object) -> object:
        looks.append(args[1])
        return collect(*args)

    looks: list[object] = []
    monkeypatch.setattr("benchhouse.warehouse.ingest.collect", counted)
    (old.results / "demo").rename(tmp_path / "away")
    sql = "SELECT count(*), count(unknown) FROM trial_fact"
    for _ in range(3):
        with Warehouse.open(old) as warehouse:
            assert warehouse.query(sql).rows == [(5, 0)]
            assert "the evidence is missing: read as written" in warehouse.notes[0]
    assert looks == ["run-a"]
    (tmp_path / "away").rename(old.results / "demo")
    with Warehouse.open(old) as warehouse:
        assert warehouse.query(sql).rows == [(5, 5)]
        assert "made again from the evidence" in warehouse.notes[0]
