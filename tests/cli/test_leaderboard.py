"""`bench leaderboard` and `bench run logical:ID`, over real runs of four small experiments."""

import json
import os
import sys
from pathlib import Path

import pytest
from laboratory import warm_bench

from benchhouse.api.workspace import Workspace
from benchhouse.catalog.entries import installed as what_is_installed
from benchhouse.serve import reading_catalog  # noqa: F401 - declares verbs
from benchhouse.serve.verbs import VERBS

LAB = '''
from pydantic import BaseModel
from benchhouse import Context, Metric, experiment

BASE = {"quick": 10.0, "even": 10.0, "slow": 40.0, "shaky": 5.0, "once": 20.0, "torn": 15.0}
TTFT = Metric(name="ttft", unit="ms", direction="lower")


class Target(BaseModel, extra="forbid"):
    name: str


@experiment("lab.clock", version="2.1.0", metrics=[TTFT, Metric(name="rate", unit="1/s", direction="higher")])
def clock(target: Target, concurrency: int, ctx: Context, mode: str = "prod") -> None:
    """Pretend to serve a model."""
    if target.name == "shaky" and ctx.repetition < 2:
        ctx.invalid("drift", "the clock drifted")
    value = BASE[target.name] * (1 if concurrency < 100 else 3) + (ctx.seed * 7919 % 13) / 13
    for part in (0.9, 1.0, 1.1):
        ctx.emit("ttft", value * part)
    ctx.emit("rate", 1000 / value)


@experiment("lab.meter", version="1.0", metrics=[Metric(name="latency", unit="ms", direction="lower")])
def meter(model_name: str, load: int, ctx: Context) -> None:
    """Pretend to do the same by other means."""
    if model_name == "gone":
        ctx.fail("away", "no such model")
    ctx.emit("latency", BASE[model_name] * (2 if model_name == "torn" else 1) + (ctx.seed * 31 % 7) / 7)


@experiment("lab.seconds", version="1.0", metrics=[Metric(name="latency", unit="s", direction="lower")])
def seconds(model_name: str) -> dict[str, float]:
    return {"latency": BASE[model_name] / 1000}


def bare(model: str) -> dict[str, float]:
    return {"score": {"a": 1.0, "b": 2.0}[model]}
'''

SERVING = """\
logicalBenchmark:
  benchmarkIdentifier: serving
  target: {identifier: model}
  properties:
  - {identifier: workload, propertyDomain: {values: [light, heavy]}}
  metrics: [ttft_ms, rate]
bindings:
- benchmarkIdentifier: serving
  experiment: {actuatorIdentifier: benchhouse, experimentIdentifier: lab.clock, experimentVersion: 2.0.0}
  targetMapping: target
  staticFilters: [{property: {identifier: mode}, value: prod}]
  propertyMapping:
  - categoricalValue: {property: {identifier: workload}, value: light}
    predicate: [{identifier: concurrency, propertyDomain: {domainRange: [1, 10]}}]
  - categoricalValue: {property: {identifier: workload}, value: heavy}
    predicate: [{identifier: concurrency, propertyDomain: {domainRange: [100, 1000]}}]
  metricMapping: [{benchmark: {identifier: ttft_ms}, experiment: {identifier: ttft}}]
- benchmarkIdentifier: serving
  experiment: {actuatorIdentifier: benchhouse, experimentIdentifier: lab.meter}
  targetMapping: model_name
  propertyMapping:
  - categoricalValue: {property: {identifier: workload}, value: light}
    predicate: [{identifier: load, propertyDomain: {values: [1, 2]}}]
  metricMapping: [{benchmark: {identifier: ttft_ms}, experiment: {identifier: latency}}]
"""

MIXED = """\
logicalBenchmark:
  benchmarkIdentifier: mixed
  target: {identifier: model}
  metrics: [latency]
bindings:
- {benchmarkIdentifier: mixed, targetMapping: model_name,
   experiment: {actuatorIdentifier: benchhouse, experimentIdentifier: lab.meter}}
- {benchmarkIdentifier: mixed, targetMapping: model_name,
   experiment: {actuatorIdentifier: benchhouse, experimentIdentifier: lab.seconds}}
"""

SCORES = """\
logicalBenchmark:
  benchmarkIdentifier: scores
  target: {identifier: model}
  metrics: [score]
bindings:
- {benchmarkIdentifier: scores, targetMapping: model,
   experiment: {actuatorIdentifier: benchhouse, experimentIdentifier: lab.bare}}
"""

SCENARIOS = {
    "clock": "experiment: lab.clock\ntargets: [quick, even, slow, shaky, torn]\nrepetitions: 5\n"
    "workload: {concurrency: 1}\n",
    "busy": "experiment: lab.clock\ntargets: [quick, slow]\nrepetitions: 3\naxes:\n"
    "- points: [{concurrency: 50, mode: prod}, {concurrency: 100, mode: prod}, {concurrency: 1, mode: test}]\n",
    "once": "experiment: lab.meter\nworkload: {model_name: [once, gone], load: 1}\n",
    "torn": "experiment: lab.meter\nworkload: {model_name: torn, load: 2}\nrepetitions: 5\n",
    "seconds": "experiment: lab.seconds\nworkload: {model_name: [quick]}\n",
    "bare": "experiment: lab.bare\nworkload: {model: [a, b]}\nrepetitions: 3\n",
}


@pytest.fixture(scope="module")
def lab_folder(tmp_path_factory) -> Path:
    """A workspace in which all scenarios ran, and beside it the packages that they ran with."""
    root = tmp_path_factory.mktemp("leaderboards")
    (root / "ws" / "benchmarks").mkdir(parents=True)
    info = root / "site" / "lab-1.0.dist-info"
    info.mkdir(parents=True)
    (root / "site" / "lab.py").write_text(LAB)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n\nA fake.\n")
    lines = [f"lab.{name} = lab:{name}" for name in ("clock", "meter", "seconds", "bare")]
    (info / "entry_points.txt").write_text("\n".join(["[benchhouse.experiments]", *lines, ""]))
    for name, text in {"serving": SERVING, "mixed": MIXED, "scores": SCORES}.items():
        (root / "ws" / "benchmarks" / f"{name}.yaml").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BENCH_")}
    environment |= {"PYTHONPATH": str(root / "site"), "BENCH_CACHE_DIR": str(root / "cache")}
    for name, text in SCENARIOS.items():
        (root / "ws" / f"{name}.yaml").write_text(f"scenario: {name}\nmonitors: false\n{text}")
        done = warm_bench().call(("run", f"{name}.yaml"), root / "ws", environment, 120)
        assert done.returncode == (1 if name in ("once", "clock") else 0), done.stderr
    return root


@pytest.fixture
def workspace(lab_folder) -> Path:
    return lab_folder / "ws"


@pytest.fixture
def installed(lab_folder, monkeypatch):
    """The packages of the lab, seen as installed."""
    monkeypatch.setenv("BENCH_CACHE_DIR", str(lab_folder / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(lab_folder / "site"))
    monkeypatch.syspath_prepend(lab_folder / "site")
    what_is_installed.cache_clear()
    yield
    monkeypatch.undo()
    what_is_installed.cache_clear()
    sys.modules.pop("lab", None)


@pytest.fixture
def boards(bench, workspace):
    """The boards as JSON, by properties and metric: `boards("serving")["light", "ttft_ms"]`."""

    def ask(*args, code=0):
        done = bench("leaderboard", *args, "--json", cwd=workspace)
        assert done.code == code, done.err
        return {
            (*board["properties"].values(), board["metric"]): board for board in json.loads(done.out)["boards"]
        }  # fmt: skip

    return ask


def ranks(board):
    return {row["target"]: row["rank"] for row in board["standings"]}


def test_results_of_different_experiments_stand_on_one_board(boards):
    light = boards("serving")["light", "ttft_ms"]
    assert [(row["target"], row["experiments"]) for row in light["standings"] if row["target"] in ("slow", "once")] == [
        ("once", ["lab.meter 1.0"]),
        ("slow", ["lab.clock 2.1.0"]),
    ]
    assert (light["unit"], light["direction"]) == ("ms", "lower")


def test_ties_share_a_rank_and_one_trial_has_none(boards):
    found = ranks(boards("serving")["light", "ttft_ms"])
    assert found["quick"] == found["even"]
    assert found["slow"] > found["even"]
    assert found["once"] is None


def test_every_combination_of_properties_is_a_board_of_its_own_in_the_order_of_the_file(boards):
    assert list(boards("serving")) == [
        ("light", "ttft_ms"), ("light", "rate"), ("heavy", "ttft_ms"), ("heavy", "rate"),
    ]  # fmt: skip
    assert list(boards("serving", "--where", "workload=heavy")) == [("heavy", "ttft_ms"), ("heavy", "rate")]


def test_over_http_a_row_names_a_few_trials_and_counts_all(boards, workspace):
    verb, whole = VERBS["leaderboard"], boards("serving")["light", "ttft_ms"]["standings"]
    for asked, most in (({}, 20), ({"named": 2}, 2), ({"named": 0}, 0)):
        answer = verb.call(Workspace(workspace), verb.asks(benchmark="serving", **asked))
        (board, *_) = answer["boards"]
        for row, full in zip(board["standings"], whole, strict=True):
            assert row["trials"] == full["trials"][:most] and row["runs"] == full["runs"][:most]
            assert row["n"] == len(full["trials"]) > 0


def test_a_static_filter_leaves_results_out(boards):
    (quick,) = (row for row in boards("serving")["light", "ttft_ms"]["standings"] if row["target"] == "quick")
    assert (quick["n"], quick["points"]) == (5, 1)  # the three trials with mode=test are not among them


def test_one_trial_is_one_value_the_mean_of_what_it_emitted(boards):
    (slow,) = (row for row in boards("serving")["heavy", "ttft_ms"]["standings"] if row["target"] == "slow")
    assert slow["n"] == 3
    assert 120 <= slow["mean"] <= 121
    assert len(slow["trials"]) == 3


def test_invalid_and_failed_trials_are_left_out_and_counted(bench, workspace, boards):
    (shaky,) = (row for row in boards("serving")["light", "ttft_ms"]["standings"] if row["target"] == "shaky")
    assert (shaky["n"], shaky["invalid"]) == (3, 2)
    said = bench("leaderboard", "serving", cwd=workspace).err
    assert "left out: 2 trials of shaky, INVALID by their own check" in said
    assert "left out: 1 trial of gone that failed" in said
    assert "few repetitions: once has 1" in said


def test_a_result_in_no_region_is_told(bench, workspace):
    said = bench("leaderboard", "serving", cwd=workspace).err
    assert "not of this benchmark: 6 trials of lab.clock, no value of 'workload'" in said


def test_experiments_that_disagree_about_a_target_are_told_and_can_be_asked_for_apart(bench, workspace, boards):
    said = bench("leaderboard", "serving", cwd=workspace).err
    assert "lab.clock 2.1.0 and lab.meter 1.0 disagree about torn" in said
    (torn,) = (row for row in boards("serving")["light", "ttft_ms"]["standings"] if row["target"] == "torn")
    assert (torn["n"], torn["experiments_disagree"]) == (10, True)
    apart = boards("serving", "--experiment", "lab.meter")["light", "ttft_ms"]["standings"]
    assert {row["target"]: row["n"] for row in apart} == {"torn": 5, "once": 1}


def test_units_that_differ_are_refused_and_not_averaged(bench, workspace):
    done = bench("leaderboard", "mixed", cwd=workspace)
    assert done.code == 2
    assert "refused: the unit differs: ms of lab.meter 1.0; s of lab.seconds 1.0" in done.out


def test_a_metric_without_a_direction_is_refused_until_the_file_says_it(bench, workspace, tmp_path):
    done = bench("leaderboard", "scores", cwd=workspace)
    assert done.code == 2
    assert "nobody says which way is better" in done.out
    path = workspace / "benchmarks" / "scores.yaml"
    path.write_text(SCORES.replace("[score]", "[score]\n  metadata: {directions: {score: higher}}"))
    try:
        done = bench("leaderboard", "scores", cwd=workspace)
    finally:
        path.write_text(SCORES)
    assert done.code == 0
    assert "b is better than every other target." in done.out


def test_a_wrong_name_or_property_is_answered_with_what_there_is(bench, workspace):
    for args, part in (
        (["servin"], "did you mean 'serving'?"),
        (["serving", "--where", "workload=hevy"], "did you mean 'heavy'?"),
        (["serving", "--where", "work=heavy"], "'work'"),
        (["serving", "--where", "heavy"], "KEY=VALUE"),
        (["serving", "--experiment", "lab.clok"], "did you mean 'lab.clock'?"),
        (["../serving"], "'../serving'"),
    ):
        done = bench("leaderboard", *args, cwd=workspace)
        assert done.code == 2 and part in done.err, (args, done.err)


@pytest.mark.parametrize("width", [80, 140])
def test_a_board_fits_the_screen(bench, workspace, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    done = bench("leaderboard", "serving", cwd=workspace)
    assert max(map(len, done.out.splitlines())) <= width
    assert "quick" in done.out and "verdict" in done.out


def test_without_an_id_the_logical_benchmarks_are_listed(bench, workspace):
    done = bench("leaderboard", cwd=workspace)
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()[2:]] == ["mixed", "scores", "serving"]


def test_an_empty_workspace_names_the_run_that_fills_it(bench, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "serving.yaml").write_text(SERVING)
    done = bench("leaderboard", "serving")
    assert done.code == 0
    assert "bench run logical:serving --target NAME" in done.err


def test_a_logical_benchmark_runs_by_a_binding_and_its_result_answers_it(bench, boards, workspace, installed):
    done = bench(
        "run", "logical:serving", "--target", "even", "--experiment", "lab.meter", "--where", "workload=light",
        cwd=workspace,
    )  # fmt: skip
    assert done.code == 0, done.err
    (row,) = (item for item in boards("serving")["light", "ttft_ms"]["standings"] if item["target"] == "even")
    assert row["experiments"] == ["lab.clock 2.1.0", "lab.meter 1.0"]


def test_its_plan_is_that_of_the_scenario_that_says_the_same(bench, workspace, installed):
    (workspace / "same.yaml").write_text(
        "scenario: serving\nexperiment: lab.clock\nversion: 2.1.0\ntarget: quick\n"
        "workload: {mode: prod, concurrency: 100}\nrepetitions: 2\n"
    )
    asked = ["--target", "quick", "--where", "workload=heavy", "--repetitions", "2", "--experiment", "lab.clock"]
    plans = [
        json.loads(bench("plan", *args, "--json", cwd=workspace).out)["plan_digest"]
        for args in (["logical:serving", *asked], ["same.yaml"])
    ]
    assert plans[0] == plans[1]


def test_a_plan_without_one_experiment_and_target_is_refused(bench, workspace, installed):
    heavy = ["logical:serving", "--target", "m", "--experiment", "lab.meter", "--where", "workload=heavy"]
    for args, part in (
        (["logical:serving", "--target", "m"], "lab.clock, lab.meter"),
        (["logical:serving", "--experiment", "lab.clock"], "--target NAME"),
        (["logical:nope", "--target", "m"], "'nope'"),
        (["clock.yaml", "--target", "m"], "logical:ID"),
        (heavy, "workload=heavy"),
    ):
        done = bench("plan", *args, cwd=workspace)
        assert done.code == 2 and part in done.err, (args, done.err)


def test_a_file_is_checked_beside_what_is_installed(bench, workspace, installed):
    done = bench("validate", "benchmarks/serving.yaml", cwd=workspace)
    assert (done.code, done.out) == (0, "benchmarks/serving.yaml: valid, 2 bindings\n")
    done = bench("validate", "benchmarks/mixed.yaml", "benchmarks/scores.yaml", cwd=workspace)
    assert done.code == 2
    assert "mixed.yaml:4:13: 'latency' has two units: ms of lab.meter, s of lab.seconds" in done.err
    assert "scores.yaml:4:13: 'score' has no direction" in done.err


def test_an_experiment_that_is_not_installed_never_validates(bench, workspace):
    done = bench("validate", "benchmarks/serving.yaml", cwd=workspace)
    assert done.code == 2
    assert "serving.yaml:9:" in done.err and "no experiment named 'lab.clock' is installed" in done.err


def test_what_is_wrong_with_a_file_and_with_its_experiments_is_told_at_once(bench, workspace, installed, tmp_path):
    text = SERVING.replace("value: light}", "value: ligt}", 1).replace("identifier: latency}", "identifier: latncy}")
    (tmp_path / "serving.yaml").write_text(text)
    done = bench("validate", tmp_path / "serving.yaml", cwd=workspace)
    assert done.code == 2
    assert "did you mean 'light'?" in done.err
    assert "lab.meter has no metric 'latncy'" in done.err
