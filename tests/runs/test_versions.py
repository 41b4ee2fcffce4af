"""`version: [1.0, 2.0]`: versions of an experiment as an axis of one run."""

import json

import pytest

VERSIONED = """
from benchhouse import Context, Metric, experiment

SCORE = [Metric(name="score", unit="1", direction="higher")]


@experiment("graded", version="1.0", metrics=SCORE)
def old(ctx: Context, n: int = 1):
    ctx.emit("score", 10 * n + ctx.repetition)


@experiment("graded", version="2.0", metrics=SCORE)
def new(ctx: Context, n: int = 1, extra: int = 0):
    ctx.emit("score", 20 * n + ctx.repetition)
"""


@pytest.fixture
def graded(lab):
    lab.install("graded", "3", VERSIONED, "[benchhouse.experiments]\ngraded = graded\n")
    return lab


def scenario(lab, text):
    path = lab.workspace / "s.yaml"
    path.write_text(f"scenario: s\nexperiment: graded\n{text}")
    return path


def test_each_trial_runs_the_version_of_its_point_and_versions_are_compared(graded):
    path = scenario(graded, "version: [1.0, 2.0]\nworkload: {n: [1, 2]}\nrepetitions: 2\norder: random\n")
    planned = json.loads(graded.bench("plan", path, "--json").stdout)
    assert (planned["points"], planned["trials"], planned["version"]) == (4, 8, "1.0, 2.0")
    assert planned["axes"] == ["experiment.version", "n"]
    assert {"experiment.version": "2.0", "n": 1} in planned["first_points"]
    graded.bench("run", path)
    scores = {
        (trial.spec["experiment"]["version"], trial.spec["parameters"]["n"], trial.spec["repetition"]):
        trial.metrics["benchhouse"]["measurements"][0]["value"] for trial in graded.trials()
    }  # fmt: skip
    assert scores == {(v, n, r): 10 * int(v[0]) * n + r for v in ("1.0", "2.0") for n in (1, 2) for r in (0, 1)}
    assert len({trial.spec["benchmark_case_id"] for trial in graded.trials()}) == 4
    done = graded.bench("compare", "@last:version=1.0", "@last:version=2.0")
    assert "score" in done.stdout
    assert "version=1.0" in graded.bench("show", "@last").stdout
    cases = json.loads(graded.bench("history", "--json").stdout)
    assert {(case["case"], case["version"]) for case in cases} == {
        (f"s/version={version} n={n}", version) for version in ("1.0", "2.0") for n in (1, 2)
    }


def test_a_single_version_keeps_its_plan_and_a_list_of_one_has_the_same_instances(graded):
    plain = json.loads(graded.bench("plan", scenario(graded, "version: '1.0'\n"), "--json").stdout)
    number = json.loads(graded.bench("plan", scenario(graded, "version: 1.0\n"), "--json").stdout)
    assert plain["plan_digest"] == number["plan_digest"]


def test_a_run_over_versions_is_resumed(graded):
    path = scenario(graded, "version: [1.0, 2.0]\nrepetitions: 2\nbudget: {trials: 3}\n")
    graded.bench("run", path, code=1)
    ledger = graded.workspace / ".bench" / "runs" / graded.run_id() / "scenario.yaml"
    ledger.write_text(ledger.read_text().replace("budget: {trials: 3}\n", ""))
    graded.bench("run", "--resume", graded.run_id())
    assert len(graded.trials()) == 4


def test_an_input_that_one_version_lacks_is_told(graded):
    done = graded.bench("plan", scenario(graded, "version: [1.0, 2.0]\nworkload: {extra: 1}\n"), code=2)
    assert "unknown key 'extra'" in done.stderr and "s.yaml:4:" in done.stderr
