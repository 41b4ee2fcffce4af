"""`bench contracts` as a user types it."""

import json
import re
from pathlib import Path

import pytest

from benchhouse.claims import contracts

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart.yaml"


def real(text: str) -> str:
    """A template with everything filled in."""
    text = text.replace("NAME@sha256:...", f"thing@sha256:{'a' * 64}").replace("SHA256", "b" * 64)
    text = re.sub(r"(BASELINE|CANDIDATE)@sha256:\.\.\.", lambda match: f"{match[1].lower()}@sha256:{'c' * 64}", text)
    return text.replace("COMMIT", "d" * 40)


@pytest.fixture
def contract(tmp_path):
    def write(name="publication-inference", *changes):
        text = real(contracts.as_yaml(contracts.template(name)))
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        path = tmp_path / "contract.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("name", list(contracts.templates()))
def test_every_template_is_accepted_once_it_is_filled_in(bench, contract, name):
    done = bench("contracts", "validate", contract(name))
    assert done.code == 0, done.err
    assert f"accepted as {name.partition('-')[0]}_grade" in done.out


def test_placeholders_are_no_promises(bench, tmp_path):
    path = tmp_path / "contract.yaml"
    path.write_text(bench("contracts", "show", "publication-training").out)
    done = bench("contracts", "validate", path)
    assert done.code == 2
    assert "'COMMIT' is still the placeholder" in done.err


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (("dedicatedNodes: true", "dedicatedNodes: false"), "dedicatedNodes"),
        (("stableBackgroundLoad: true", "stableBackgroundLoad: false"), "stableBackgroundLoad"),
        (("fixedTopology: true", "fixedTopology: false"), "fixedTopology"),
        (("exclusiveScheduling: true", "exclusiveScheduling: false"), "exclusiveScheduling"),
        (("    enabled: true\n    method", "    enabled: false\n    method"), "provenance.signing"),
        ((f"candidate@sha256:{'c' * 64}", "candidate:latest"), "comparison.candidate"),
        (("d" * 40, f"{'d' * 40} (dirty)"), "provenance.gitCommit"),
        (("precision: bf16", "precision: unknown"), "workload.precision"),
        ((f"imageDigests:\n  - thing@sha256:{'a' * 64}", "imageDigests: []"), "provenance.imageDigests"),
    ],
)
def test_a_missing_guarantee_downgrades_or_rejects_and_is_always_said(bench, contract, change, missing):
    done = bench("contracts", "validate", contract("publication-inference", change))
    assert done.code == 0
    assert "downgraded from publication_grade to realism_grade" in done.out
    assert missing in done.out
    rejected = bench(
        "contracts",
        "validate",
        contract("publication-inference", change, ("Guarantee: downgrade", "Guarantee: reject")),
    )
    assert rejected.code == 4
    assert f"rejected as publication_grade: it lacks {missing}" in rejected.out


def test_without_the_clusters_context_there_is_nothing_to_downgrade_to(bench, contract):
    lost = ("clusterContextCaptured: true", "clusterContextCaptured: false")
    changes = (("dedicatedNodes: true", "dedicatedNodes: false"), lost)
    assert bench("contracts", "validate", contract("publication-inference", *changes)).code == 4
    assert bench("contracts", "validate", contract("realism-inference", lost)).code == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("minReplicates: 5", "minReplicates: 2"), "minReplicates"),
        (("confidenceLevel: 0.95", "confidenceLevel: 1.0"), "confidenceLevel"),
        (("variableUnderTest: hardware_generation", "variableUnderTest: weather"), "weather"),
        (("compareOneVariableAtATime: true", "compareOneVariableAtATime: false"), "compareOneVariableAtATime"),
        (("fixedAcrossTrials: true", "fixedAcrossTrials: false"), "fixedAcrossTrials"),
        (("benchmarkClass: publication_grade", "benchmarkClas: publication_grade"), "did you mean 'benchmarkClass'"),
        (("onMissingGuarantee: downgrade", "onMissingGuarantee: continue"), "continue"),
        (("  end_to_end:\n    enabled: true", "  end_to_end:\n    enabled: false"), "no layer is enabled"),
        (("    suites:\n    - serving.load", "    suites: []"), "has no suites"),
        (("  - ttft_ms\n", ""), "inference lacks ttft_ms"),
        (("  - cost_per_million_tokens\n", ""), "without a cost"),
        (("weight: 1.0", "weight: 0.7"), "add up to 0.7"),
        (("  - trace_id\n  lineage", "  lineage"), "no trace_id among the join keys"),
        (("querySpecs: true", "querySpecs: false"), "querySpecs is false"),
        (("  - low_gpu_utilization\n", ""), "lacks the playbooks low_gpu_utilization"),
        (("hotDays: 30", "hotDays: 300"), "out of order"),
        (("    - trace_id\n  curatedWarehouse", "  curatedWarehouse"), "a series a request"),
        (("multiTenant: false", "multiTenant: true"), "beside dedicated nodes"),
        (("candidate@", "baseline@"), "the same artifact"),
    ],
)
def test_a_broken_rule_is_told_with_its_place(bench, contract, change, message):
    path = contract("publication-inference", change)
    done = bench("contracts", "validate", path)
    assert done.code == 2
    assert message in done.err
    assert re.search(rf"{re.escape(str(path))}:\d+:\d+: ", done.err)
    (told,) = json.loads(bench("contracts", "validate", path, "--json").out)
    assert told["problems"][0]["line"] > 0


def test_a_scenario_is_rendered_and_nothing_is_invented(bench, tmp_path):
    done = bench("contracts", "render", EXAMPLE)
    assert done.code == 0, done.err
    assert "to confirm: workload.precision: not known from the scenario" in done.err
    path = tmp_path / "rendered.yaml"
    path.write_text(done.out)
    assert "accepted as realism_grade" in bench("contracts", "validate", path).out
    path.write_text(done.out.replace("realism_grade", "publication_grade"))
    assert "downgraded from publication_grade" in bench("contracts", "validate", path).out


def test_contracts_are_listed_and_shown(bench):
    assert [row["contract"] for row in json.loads(bench("contracts", "list", "--json").out)] == list(
        contracts.templates()
    )
    assert "publication-mixed" in bench("contracts", "list").out
    assert json.loads(bench("contracts", "show", "realism-mixed", "--json").out)["kind"] == "BenchmarkRun"
    assert json.loads(bench("contracts", "show", "--schema").out)["title"] == "BenchmarkRun"
    assert "did you mean 'realism-mixed'" in bench("contracts", "show", "realism-mixd").err
    assert bench("contracts", "show").code == 2


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s4://team/raw", "'s4' is none of s3, gs, https, http, file"),
        ("s3:/team/raw", "neither a host nor a bucket is named"),
        ("s3:///raw", "neither a host nor a bucket is named"),
        ("https://host:port/raw", "no address (Port could not be cast"),
        ("https://ada:hidden-word@host/raw", "credentials don't belong into an address"),
        ("file://raw", "a file without its whole path"),
    ],
)
def test_a_sink_that_is_no_address_is_refused_at_its_line(bench, contract, address, message):
    path = contract("realism-inference", ("uri: results/", f"uri: {address}"))
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if address in text)
    done = bench("contracts", "validate", path)
    assert done.code == 2
    assert f"contract.yaml:{line}:" in done.err
    assert "nothing can be kept at " in done.err
    assert message in done.err
    assert "hidden-word" not in done.err


@pytest.mark.parametrize(
    "address", ["s3://team/raw", "https://host:8333/raw", "file:///mnt/raw", "/mnt/raw", "results"]
)
def test_a_sink_may_be_a_folder_or_a_store(bench, contract, address):
    assert bench("contracts", "validate", contract("realism-inference", ("uri: results/", f"uri: {address}"))).code == 0
