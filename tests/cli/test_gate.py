"""`bench gate`: which metrics decide, a run against itself, a first run, and a baseline from a store."""

import json

import pytest
from laboratory import Lab

METERED = """
import os, random
from pathlib import Path
from benchhouse import Context, Metric, experiment

MANY = [Metric(name=f"m{n}", unit="ms", direction="lower") for n in range(20)]


def measure(ctx):
    slow = 1.2 if Path(os.environ["LAB"], "slow").exists() else 1.0
    source = random.Random(ctx.seed)
    for metric in MANY:
        ctx.emit(metric.name, 100 * slow * source.uniform(0.5, 1.5))
    for _ in range(200):
        ctx.emit("latency", 10 * slow * source.gauss(1, 0.002))


@experiment("metered", version="1", metrics=[*MANY, Metric(
    name="latency", unit="ms", direction="lower", primary=True)])
def metered(ctx: Context):
    measure(ctx)


@experiment("unmetered", version="1", metrics=[Metric(name="latency", unit="ms", direction="lower"), *MANY])
def unmetered(ctx: Context):
    measure(ctx)
"""
ENTRIES = "[benchhouse.experiments]\nmetered = metered:metered\nunmetered = metered:unmetered\n"


@pytest.fixture
def metered(lab):
    lab.install("metered", "1", METERED, ENTRIES)
    return lab


def run(lab, seed=0, experiment="metered"):
    lab.bench("run", lab.scenario(experiment, experiment, repetitions=4, seed=seed, monitors=False), "--new")
    return lab.run_id()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Two runs of `metered` and two of `unmetered`, with different noise."""
    lab = Lab(tmp_path_factory.mktemp("metered"))
    lab.install("metered", "1", METERED, ENTRIES)
    lab.runs = {name: [run(lab, seed, name) for seed in (0, 100)] for name in ("metered", "unmetered")}
    return lab


def test_the_primary_metric_decides_and_a_run_against_itself_passes(ran):
    done = ran.bench("gate", "@last-2..@last-2", "--json")
    answer = json.loads(done.stdout)
    assert (answer["judgement"], answer["metrics"]) == ("good", ["latency.mean"])
    assert len(answer["rows"]) == 1
    every = json.loads(ran.bench("gate", "@last-2..@last-2", "--json", *(
        part for number in range(20) for part in ("--metric", f"m{number}"))).stdout)  # fmt: skip
    assert every["judgement"] == "good", "also where single numbers vary by half"


def test_noise_of_other_metrics_does_not_decide(ran):
    """If no metric is declared as primary, the first one decides."""
    for base, new in ran.runs.values():
        ran.bench("gate", f"{base}..{new}", "--mde", "3%")


def test_a_statistic_is_named_by_a_dot(ran):
    gate = "..".join(ran.runs["metered"])
    done = ran.bench("gate", gate, "--metric", "latency.p99", "--metric", "latency.mean", "--json")
    assert {row["stat"] for row in json.loads(done.stdout)["rows"]} == {"p99", "mean"}
    assert "p99" in ran.bench("gate", gate, "--metric", "latency.p42", code=2).stderr


def test_a_run_without_a_baseline_has_an_exit_code_of_its_own(ran):
    done = ran.bench("gate", "@last-9..@last", code=7)
    assert "nothing to compare with" in done.stderr
    passed = ran.bench("gate", "@last-9..@last", "--if-no-baseline", "pass")
    assert "no baseline yet, passed" in passed.stdout
    ran.bench("gate", "nobody..@last", code=2)


def test_a_store_brings_the_baseline_into_another_workspace(metered):
    """As in CI: the main branch pushes, a job in an empty workspace runs and compares."""
    store, main = metered.root / "store", metered.workspace
    pipeline = metered.root / "job"
    pipeline.mkdir()
    metered.workspace = pipeline
    run(metered)
    metered.bench("gate", "--baseline", store, code=7)
    metered.bench("gate", "--baseline", store, "--if-no-baseline", "pass")
    metered.workspace = main
    base = run(metered, seed=50)
    metered.bench("evidence", "push", store, "--run", "@last")
    metered.workspace = pipeline
    same = run(metered, seed=100)
    answer = json.loads(metered.bench("gate", "--baseline", store, "--json").stdout)
    assert (answer["base"], answer["new"], answer["judgement"]) == (base, same, "good")
    (metered.marks / "slow").touch()
    run(metered, seed=150)
    assert "regression" in metered.bench("gate", "--baseline", store, code=3).stdout
    metered.bench("gate", "@last-1..@last", "--baseline", store, code=2)


def test_built_in_experiments_say_what_matters(bench):
    for name in ("command", "vector.search", "serving.load", "serving.infer", "storage.file", "storage.s3"):
        shown = json.loads(bench("show", name, "--json").out)
        assert any(metric["primary"] for metric in shown["metrics"]), name
