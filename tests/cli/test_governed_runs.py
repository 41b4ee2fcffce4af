"""A run under a contract, as a user types it: what is contradicted, downgraded and rejected, and what stays."""

import json
import re

import pytest

from benchhouse.claims import contracts

REALISM = "realism-inference"


def filled(name: str, *changes: tuple[str, str]) -> str:
    """A template for the experiment `slow`, which pins nothing."""
    text = contracts.as_yaml(contracts.template(name)).replace("NAME@sha256:...", "unknown")
    text = text.replace("BASELINE@sha256:...", "before").replace("CANDIDATE@sha256:...", "after")
    text = text.replace("COMMIT", "unknown").replace("SHA256", "unknown").replace("Path: slurm", "Path: local")
    text = re.sub(r"imageDigests:\n\s+- unknown", "imageDigests: []", text).replace("serving.load", "slow")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.fixture
def write(lab):
    def write(name=REALISM, *changes):
        path = lab.workspace / "contract.yaml"
        path.write_text(filled(name, *changes))
        return path

    return write


def governed(lab, code=0, **more):
    return lab.scenario("slow", workload={"seconds": 0.3, "n": [0]}, repetitions=3, **more)


def claim_id(lab):
    return next((lab.workspace / "claims").glob("*.json")).stem


def run_row(lab):
    return json.loads(lab.bench("query", "SELECT * FROM benchmark_run_fact", "--json").stdout)["rows"][-1]


def test_a_contract_enters_the_evidence_and_the_run(lab, write):
    write()
    done = lab.bench("run", governed(lab, contract="contract.yaml"), "--json")
    shown = json.loads(done.stdout)["contract"]
    assert (shown["verdict"], shown["mode"], shown["missing"]) == ("accepted", "realism", [])
    row = run_row(lab)
    assert (row["intent"], row["mode"], row["cadence"]) == ("inference: hardware_generation", "realism", "nightly")
    assert (row["contract"], row["contract_digest"]) == (REALISM, shown["digest"])
    assert json.loads(row["sinks"])["hotMetrics"]["seriesBudget"] == 10_000
    seen = {item["name"]: item["observed"] for item in json.loads(row["guarantees"])}
    assert seen == dict.fromkeys(("clusterContextCaptured", "sinks.rawArtifacts", "trials.minReplicates"), True)
    for trial in lab.trials():
        assert json.loads((trial.folder / "trial.json").read_text())["contract"]["name"] == REALISM
    assert "realism_contract: " in lab.bench("claim", "make", "@last:x", code=4).stderr
    lab.bench("claim", "make", "@last:x", "--realism")
    (claim,) = (json.loads(path.read_text()) for path in (lab.workspace / "claims").glob("*.json"))
    assert [(item["digest"], item["mode"]) for item in claim["contracts"]] == [(shown["digest"], "realism")]
    assert f"contract {REALISM}" in lab.bench("claim", "verify", claim_id(lab)).stdout
    sql = "SELECT name, bool_and(ok) AS ok, count(*) AS n FROM raw_evidence_fact WHERE kind = 'validation_probe'"
    probes = json.loads(lab.bench("query", f"{sql} GROUP BY 1 ORDER BY 1", "--json").stdout)["rows"]
    assert [tuple(row.values()) for row in probes] == [
        ("clusterContextCaptured", True, 3), ("sinks.rawArtifacts", True, 3),
    ]  # fmt: skip


def test_an_unobserved_guarantee_downgrades_the_run_by_name(lab, write):
    path = write(REALISM, ("realism_grade", "publication_grade"), ("isolation: false", "isolation: true"))
    done = lab.bench("run", governed(lab, runtime={"shared": True}), "--contract", path)
    assert "downgraded from publication_grade to realism_grade: it lacks" in done.stderr
    assert "dedicatedNodes (dedicated nodes)" in done.stderr  # what the contract itself does not promise
    row = run_row(lab)
    assert (row["asked_mode"], row["mode"]) == ("publication", "realism")
    assert any(line.startswith("isolation (2 of 3 trials") for line in row["missing_guarantees"])


def test_a_guarantee_that_rejects_makes_its_trials_invalid(lab, write):
    path = write(REALISM, ("packageLockDigest: unknown", f"packageLockDigest: {'b' * 64}"), ("downgrade", "reject"))
    done = lab.bench("run", governed(lab), "--contract", path, code=4)
    assert {trial.outcome for trial in lab.trials()} == {"invalid"}
    assert "provenance.packageLockDigest" in done.stderr
    assert "rejected as realism_grade" in done.stderr
    assert run_row(lab)["mode"] == "rejected"


def test_a_contradiction_is_refused_before_anything_runs_with_both_places(lab, write):
    for change, scenario, says in (
        (("minReplicates: 3", "minReplicates: 5"), {}, "repetitions: 3 a point"),
        (("minWarmups: 0", "minWarmups: 1"), {}, "warmup: 0 a point"),
        (("schedulerPath: local", "schedulerPath: slurm"), {}, "executor: local"),
        (("- slow", "- fast"), {}, "experiment: slow"),
        (("realism", "realism"), {"monitors": False}, "monitors: false"),
    ):
        path = write(REALISM, change)
        done = lab.bench("run", governed(lab, **scenario), "--contract", path, code=2)
        assert f"{says}, but the contract demands" in done.stderr
        assert re.search(r"s\.yaml:\d+:\d+: ", done.stderr), change
        assert re.search(r"contract\.yaml:\d+:\d+\)", done.stderr), change
    assert not lab.trials()


def test_ids_of_requests_need_their_records(lab, write):
    target = {"endpoint": "postgresql://nobody@127.0.0.1:1/none"}
    path = write(REALISM, ("- slow", "- storage.postgres"), ("open_loop", "closed_loop"))
    for records in (None, False, [True, False], True):
        load = {"operation": "lookup", "concurrency": 1} | ({} if records is None else {"records": records})
        scenario = lab.scenario("storage.postgres", workload=load, target=target, repetitions=3)
        done = lab.bench("run", scenario, "--contract", path, "--dry-run", code=0 if records is True else 2)
        if records is not True:
            assert "records" in done.stderr and "observability.joinKeys" in done.stderr, records
            assert "expected: records: true" in done.stderr, records


def test_a_pinned_commit_that_is_not_checked_out_is_refused_first(lab, write):
    path = write(REALISM, ("gitCommit: unknown", f"gitCommit: {'d' * 40}"), ("downgrade", "reject"))
    done = lab.bench("run", governed(lab), "--contract", path, code=4)
    assert f"contract.yaml:{path.read_text()[: path.read_text().index('gitCommit')].count(chr(10)) + 1}:" in done.stderr
    assert not lab.trials()


def test_another_contract_is_another_run_and_a_resumed_one_keeps_its_own(lab, write):
    path = write()
    lab.bench("run", governed(lab, budget={"trials": 1}), "--contract", path, code=1)
    first = lab.run_id()
    write(REALISM, ("nightly", "weekly"))
    lab.bench("run", "--resume", first, code=None)
    assert run_row(lab)["cadence"] == "nightly"
    done = lab.bench("run", "s.yaml", "--contract", path, code=1)
    assert "another contract" in done.stderr
    assert lab.run_id() != first


def test_a_contract_that_is_not_there_is_named_at_its_line(lab):
    done = lab.bench("run", governed(lab, contract="gone.yaml"), code=2)
    assert re.search(r"s\.yaml:\d+:\d+: there is no contract .*gone\.yaml", done.stderr)
