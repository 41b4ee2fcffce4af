"""What a contract demands of a trial, seen from its node: each with a trial that has it and one that lacks it."""

import pytest
from tables import check_rows

from benchhouse.claims.contracts import template
from benchhouse.schema import guarantees as names
from benchhouse.schema.resources import Limits, Resources, RuntimeSettings
from benchhouse.schema.telemetry import NodeSummary, OwnCost, ScopeSummary, SeriesSummary, Stats, TelemetrySummary
from benchhouse.schema.trial import ExperimentRef, TrialSpec
from benchhouse.worker.guarantees import TrialObservations, observe, refusal

COMMIT, IMAGE, DATA, LOCK = "d" * 40, "a" * 64, "e" * 64, "b" * 64


def contract(on_missing="downgrade"):
    document = template("publication-inference").model_dump(mode="json", by_alias=True, exclude_none=True)
    document["provenance"] |= {
        "gitCommit": COMMIT, "imageDigests": [f"server@sha256:{IMAGE}"], "packageLockDigest": f"sha256:{LOCK}",
    }  # fmt: skip
    document["workload"]["datasetRef"] = f"prompts@sha256:{DATA}"
    document["executionPolicy"]["onMissingGuarantee"] = on_missing
    return document


def busy(cores):
    stats = Stats(n=5, avg=cores)
    return SeriesSummary(unit="1", kind="counter", family="node", phases={"trial": stats})


def telemetry(node=2.1, trial=1.5, servers=0.5, other=()):
    """`other` is what is busy at a second node, and what the trial uses there."""
    scopes = {
        "node": ScopeSummary(file=None, samples=5, series={"cpu_busy": busy(node)}),
        "trial": ScopeSummary(file=None, samples=5, series={"cpu": busy(trial)}),
        "service:db": ScopeSummary(file=None, samples=5, series={"cpu": busy(servers)}),
    }
    for name, cores in zip(("node", "trial"), other, strict=False):
        series = {"cpu_busy" if name == "node" else "cpu": busy(cores)}
        scopes[f"n2/{name}"] = ScopeSummary(file=None, samples=5, node="n2", series=series)
    cost = OwnCost(samples=5, cpu_s=0.0, cpu_us_per_sample=0.0, cores=0.0)
    return TelemetrySummary(
        schema_version=1, started="2026-01-01T00:00:00+00:00", duration_s=5.0, interval_s=1.0, ticks_missed=0,
        cost=cost, energy_j=None, phases=[], scopes=scopes, nodes=[NodeSummary(name="n2")] if other else [],
    )  # fmt: skip


def trial(changes):
    ref = ExperimentRef(name="x", version="1", object="x:y", distribution="d", distribution_version="1")
    fields = {
        "trial_id": "t", "run_id": "r", "scenario": "s", "plan_digest": "p", "instance_digest": "i",
        "benchmark_case_id": "c", "workload_spec_digest": DATA, "experiment": ref, "component": "x", "service": "x",
        "target": {}, "parameters": {}, "repetition": 1, "seed": 0, "resources": Resources(), "limits": Limits(),
        "executor": "local", "runtime": RuntimeSettings(), "cache": "", "final": "/ws/results/s/t",
        "contract": contract(),
        "source": {"commit": COMMIT, "dirty": False},
        "services": {"db": {"use": {"recipe": "postgres", "mode": "attached"}, "folder": "/ws/.bench/services/db"}},
    } | changes  # fmt: skip
    return TrialSpec(**fields)


def seen(**changes):
    custom = {"services": {"vllm": {"image": IMAGE}}}
    values = {
        "spec": trial({}), "telemetry": telemetry(), "threads": 8, "lock_digest": LOCK, "custom": custom,
        "slurm": {}, "shared": False, "not_enforced": "",
    }  # fmt: skip
    return TrialObservations(**values | changes)


def test_a_trial_that_has_everything_proves_each_guarantee():
    items = observe(seen())
    assert {item.name for item in items} == {
        names.DEDICATED, names.STABLE, names.EXCLUSIVE, names.ISOLATION, names.CONTEXT, names.COMMIT, names.LOCK,
        names.IMAGES, names.DATASET, names.ARTIFACTS,
    }  # fmt: skip
    assert [item.name for item in items if not item.observed] == []
    (dedicated,) = (item for item in items if item.name == names.DEDICATED)
    assert dedicated.value == pytest.approx(0.1 / 8)  # 2.1 cores busy, of which 1.5 the trial's and 0.5 its server's


TWO = trial({"resources": Resources(nodes=2)})


def test_what_is_lacking_is_named_with_what_was_seen():
    rows = [
        ({"telemetry": telemetry(node=4.0)}, {names.DEDICATED}, "others used 25.0% of its processors"),
        ({"telemetry": telemetry(other=(5.0, 1.0)), "spec": TWO}, {names.DEDICATED}, "50.0% of its processors at n2"),
        ({"telemetry": telemetry(other=(1.1, 1.0)), "spec": TWO}, set(), ""),
        ({"telemetry": telemetry(other=(1.1,)), "spec": TWO}, {names.DEDICATED, names.STABLE}, "not sampled at n2"),
        ({"spec": TWO}, {names.DEDICATED, names.STABLE}, "not sampled at all its nodes"),
        ({"telemetry": None}, {names.DEDICATED, names.STABLE, names.CONTEXT}, "nothing was sampled"),
        ({"spec": trial({"parallel": 2})}, {names.EXCLUSIVE}, "trials at a time on this machine: 2"),
        ({"spec": trial({"executor": "ray"})}, {names.EXCLUSIVE}, "the executor ray does not say"),
        ({"spec": trial({"executor": "slurm"}), "slurm": {"cpus_on_node": "4"}}, {names.EXCLUSIVE}, "the job 4 of"),
        ({"spec": trial({"executor": "slurm"}), "slurm": {"cpus_on_node": "8"}}, set(), ""),
        ({"shared": True}, {names.ISOLATION}, "had run other trials before"),
        ({"not_enforced": "memory"}, {names.ISOLATION}, "memory"),
        ({"lock_digest": "f" * 64}, {names.LOCK}, "ffffffffffff"),
        ({"custom": {}}, {names.IMAGES}, "ran in none"),
        ({"custom": {"services": {"vllm": {"image": "9" * 64}}}}, {names.IMAGES}, "999999999999"),
        ({"custom": {"services": {"vllm": {"image": "9" * 64, "reference": f"a:1@sha256:{IMAGE}"}}}}, set(), ""),
        ({"spec": trial({"source": {"commit": COMMIT, "dirty": True}})}, {names.COMMIT}, "(dirty)"),
        ({"spec": trial({"source": {}})}, {names.COMMIT}, "ran at unknown"),
        ({"spec": trial({"workload_spec_digest": "7" * 64})}, {names.DATASET}, "777777777777"),
        ({"spec": trial({"final": "/elsewhere/t"})}, {names.ARTIFACTS}, "not results"),
    ]  # fmt: skip

    def check(changes, missing, says):
        lacking = [item for item in observe(seen(**changes)) if not item.observed]
        assert {item.name for item in lacking} == missing
        assert all(says in item.says for item in lacking)

    check_rows(check, rows)


def test_a_trial_counts_unless_its_contract_rejects_what_lacks_something():
    lacking = observe(seen(lock_digest="f" * 64))
    assert refusal(seen().spec, lacking) is None
    rejecting = trial({"contract": contract("reject")})
    assert refusal(rejecting, observe(seen())) is None
    failure = refusal(rejecting, lacking)
    assert failure.code == "guarantee_missing"
    assert "provenance.packageLockDigest" in failure.message
