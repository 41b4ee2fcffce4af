"""Monitors of a trial, through `bench run`, as a user meets them."""

import json

import pyarrow.parquet as pq
import pytest
from laboratory import Lab

from benchhouse.processes.quotas import usable_cores
from benchhouse.schema.telemetry import TelemetrySummary

WORK = """
import os, time
from benchhouse import Context, Metric, experiment


@experiment("work", version="1", metrics=[Metric(name="x")])
def work(seconds: float = 2.0, idle: float = 1.0, hold_mb: int = 0, ctx: Context = None) -> None:
    held = bytearray(b"x") * (hold_mb * 1_000_000)
    time.sleep(idle)
    begin = time.monotonic_ns()
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    if seconds:
        ctx.phase("steady", begin, time.monotonic_ns())
    with open(ctx.artifacts / "file", "wb") as file:
        file.write(bytes(5_000_000))
    time.sleep(idle / 2)
    ctx.emit("x", len(held))
"""


@pytest.fixture
def lab(tmp_path):
    lab = Lab(tmp_path)
    lab.install("work", "1.0", WORK, "[benchhouse.experiments]\nwork = work:work\n")
    return lab


def run(lab, **more):
    lab.run("work", **more)
    (trial,) = lab.trials()
    return trial


def summary_of(trial) -> TelemetrySummary:
    return TelemetrySummary.model_validate_json((trial.folder / "telemetry" / "summary.json").read_bytes())


def slices(lab) -> int:
    done = lab.bench("query", "SELECT count(*) AS n FROM telemetry_slice_fact", "--json")
    return json.loads(done.stdout)["rows"][0]["n"]


@pytest.fixture(scope="module")
def burnt(tmp_path_factory):
    """A trial that is idle for a second, burns two CPU seconds, writes, and is idle for half a second."""
    lab = Lab(tmp_path_factory.mktemp("burnt"))
    lab.install("work", "1.0", WORK, "[benchhouse.experiments]\nwork = work:work\n")
    return lab, run(lab, workload={"hold_mb": 200}, monitors={"interval": "0.1s"})


def test_the_steady_phase_is_told_apart_from_what_came_before_and_after(burnt):
    _, trial = burnt
    seen = summary_of(trial)
    phases = {phase.name: phase for phase in seen.phases}
    assert list(phases) == ["trial", "warmup", "steady", "teardown"]
    steady_s = phases["steady"].end_s - phases["steady"].begin_s
    cpu = {name: seen.stats("trial", "cpu", name) for name in phases}
    assert cpu["steady"].growth == pytest.approx(2.0, rel=0.1)
    assert cpu["steady"].avg == pytest.approx(2.0 / steady_s, rel=0.1)
    assert cpu["warmup"].avg < cpu["steady"].avg
    assert cpu["trial"].growth == pytest.approx(trial.meta["usage"]["cpu_s"], abs=0.1)


def test_memory_and_bytes_written_are_those_of_the_experiment(burnt):
    _, trial = burnt
    seen = summary_of(trial)
    assert 200e6 < seen.stats("trial", "rss", "steady").max < 300e6
    assert seen.stats("trial", "io_written", "trial").growth == pytest.approx(5_000_000, rel=0.02)
    assert seen.stats("node", "memory_used", "trial").max > 200e6


def test_metrics_json_tells_the_resources_of_the_steady_phase(burnt):
    _, trial = burnt
    seen = summary_of(trial)
    cores = seen.stats("trial", "cpu", "steady").avg
    assert trial.metrics["resource"]["cpu_util"] == pytest.approx(min(cores / usable_cores(), 1.0))
    assert trial.metrics["resource"]["ram_mb"] == seen.stats("trial", "rss", "steady").max / 1e6
    assert trial.metrics["resource"]["gpu_util"] is None


def test_series_are_sealed_as_parquet_with_the_time_of_the_start(burnt):
    lab, trial = burnt
    table = pq.read_table(trial.folder / "telemetry" / "trial.parquet")
    times = table["time_s"].to_pylist()
    assert times == sorted(times)
    assert len(times) == summary_of(trial).scopes["trial"].samples > 20
    assert table.schema.metadata[b"started"].decode() == trial.meta["started"]
    manifest = json.loads((trial.folder / "manifest.json").read_bytes())
    assert {"telemetry/summary.json", "telemetry/node.parquet", "telemetry/trial.parquet"} <= set(manifest["files"])
    assert lab.damage() == []


def test_own_cost_and_energy_are_told(burnt):
    _, trial = burnt
    seen = summary_of(trial)
    assert seen.interval_s == 0.1
    assert 0 < seen.cost.cpu_us_per_sample < 5000
    assert seen.energy_j is None or seen.energy_j > 0  # where there is no meter it is not zero, but unknown


def test_the_warehouse_has_a_row_for_each_phase_scope_and_series(burnt):
    lab, trial = burnt
    sql = "SELECT phase, growth, unit, n FROM telemetry_slice_fact WHERE scope='trial' AND series='cpu' ORDER BY phase"
    rows = json.loads(lab.bench("query", sql, "--json").stdout)["rows"]
    seen = summary_of(trial)
    assert [row["phase"] for row in rows] == ["steady", "teardown", "trial", "warmup"]
    for row in rows:
        stats = seen.stats("trial", "cpu", row["phase"])
        assert (row["growth"], row["unit"], row["n"]) == (stats.growth, "1", stats.n)
    before = slices(lab)
    lab.bench("warehouse", "rebuild")
    lab.bench("collect", "@last")
    assert slices(lab) == before > 100


def test_a_trial_of_milliseconds_has_no_telemetry(lab):
    """The kernel counts time in ticks of 10 ms: over a few of them, each would look like cores."""
    trial = run(lab, workload={"seconds": 0, "idle": 0})
    assert trial.meta["usage"]["cpu_s"] > 0
    assert trial.meta["duration_s"] > 0.1 or not (trial.folder / "telemetry").exists()


def test_a_trial_shorter_than_its_interval_has_a_summary_and_no_series(lab):
    trial = run(lab, workload={"seconds": 0, "idle": 0.2}, monitors={"interval": "60s"})
    assert [path.name for path in (trial.folder / "telemetry").iterdir()] == ["summary.json"]
    assert summary_of(trial).phases[0].name == "trial"
    assert slices(lab) == 0


def test_monitors_can_be_left_out(lab):
    trial = run(lab, workload={"seconds": 0, "idle": 0}, monitors=False)
    assert not (trial.folder / "telemetry").exists()
    assert trial.spec["monitors"] is False
    lab.bench("plan", trial.folder / "effective_config.yaml")
    assert "monitors: false" in (trial.folder / "effective_config.yaml").read_text()


def test_what_is_sampled_does_not_change_what_is_measured(lab):
    """Neither plan nor instances know of monitors: a run may be resumed with other ones."""
    digests = set()
    for monitors in (False, {}, {"interval": "0.5s"}):
        lab.scenario("work", monitors=monitors)
        digests.add(json.loads(lab.bench("plan", "s.yaml", "--json").stdout)["plan_digest"])
    assert len(digests) == 1


@pytest.mark.parametrize("interval", ["0.05s", "-1s", "often"])
def test_an_interval_that_is_too_short_is_refused_with_its_line(lab, interval):
    lab.scenario("work", monitors={"interval": interval})
    assert "s.yaml:1" in lab.bench("validate", "s.yaml", code=2).stderr


def test_a_file_of_the_experiment_in_place_of_the_telemetry_folder_is_removed(lab):
    code = WORK.replace("    time.sleep(idle)\n", "    (ctx.artifacts.parent / 'telemetry').write_text('')\n", 1)
    lab.install("rival", "1.0", code.replace('"work"', '"rival"'), "[benchhouse.experiments]\nrival = rival:work\n")
    lab.run("rival", workload={"seconds": 0.1, "idle": 0})
    (trial,) = lab.trials()
    assert trial.outcome == "succeeded"
    assert [one["code"] for one in trial.meta["warnings"]] == ["artifacts_changed"]
    assert (trial.folder / "telemetry" / "summary.json").is_file()
