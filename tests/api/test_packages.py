"""`ws.packages`, `ws.leaderboards` and `ws.new`: a nexus from its first file to a ranking."""

import json

import pytest

from benchhouse.api.screen import plain
from benchhouse.api.workspace import Workspace
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.errors import BenchError, Exit

LOGICAL = """\
logicalBenchmark:
  benchmarkIdentifier: waiting
  target: {identifier: program}
  properties:
  - {identifier: runs, propertyDomain: {values: [few]}}
  metrics: [wall]
bindings:
- benchmarkIdentifier: waiting
  experiment: {actuatorIdentifier: benchhouse, experimentIdentifier: command}
  targetMapping: target
  propertyMapping:
  - categoricalValue: {property: {identifier: runs}, value: few}
    predicate: [{identifier: executions, propertyDomain: {domainRange: [1, 10]}}]
  metricMapping: [{benchmark: {identifier: wall}, experiment: {identifier: wall_ms}}]
"""
SCENARIO = """\
scenario: waits
experiment: command
targets: [{name: short, argv: [sleep, "0.01"]}, {name: long, argv: [sleep, "0.4"]}]
workload: {executions: 3}
repetitions: 5
"""


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Workspace(tmp_path)


@pytest.fixture
def nexus(workspace):
    """Made by the scaffolds: a package with a benchmark, and a model that uses it."""
    workspace.new.package("lab")
    workspace.new.model("lab", "org/tiny", owner="me")
    workspace.new.benchmark("smoke", package="lab")
    workspace.new.benchmark("smoke", package="lab", model="org/tiny", uses="lab/smoke")
    return workspace


def test_packages_are_listed_and_shown_as_typed_values(nexus):
    (summary,) = nexus.packages.list()
    assert (summary.package, summary.models, summary.benchmarks, summary.broken) == ("lab", 1, 2, [])
    details = nexus.packages.show("lab")
    assert [(model.model, model.owner) for model in details.models] == [("org/tiny", "me")]
    assert [item.benchmark for item in details.benchmarks] == ["lab/smoke"]
    assert details.models[0].benchmarks[0].uses == "lab/smoke"
    document = plain(details)
    assert json.loads(json.dumps(document)) == document
    with pytest.raises(BenchError, match="has no package 'labb'") as caught:
        nexus.packages.show("labb")
    assert "did you mean 'lab'?" in caught.value.hint


def test_without_a_nexus_every_method_says_how_to_start_one(workspace):
    with pytest.raises(BenchError, match="no nexus here") as caught:
        workspace.packages.list()
    assert "bench new package NAME" in caught.value.hint


def test_what_the_scaffolds_make_is_proven_and_its_mistakes_are_found(nexus):
    proof = nexus.packages.validate(static=True)
    assert (proof.exit_code, proof.packages, proof.benchmarks, proof.failure) == (Exit.GOOD, 1, 2, None)
    path = nexus.root / "packages" / "lab" / "benchmark_instances" / "smoke" / "benchmark.yaml"
    path.write_text(path.read_text().replace("executions", "executoins"))
    proof = nexus.packages.validate("lab", static=True)
    assert proof.exit_code == Exit.BAD_INPUT and "unknown key 'executoins'" in proof.problems[0].message
    assert proof.to_dict()["exit_code"] == 2 and proof.failure
    assert nexus.packages.validate_benchmarks().exit_code == Exit.BAD_INPUT
    with pytest.raises(BenchError, match="not both"):
        nexus.packages.validate(static=True, install=True)


def test_what_could_not_be_checked_is_good_only_for_a_static_look(nexus):
    folder = nexus.root / "packages" / "lab"
    needs = "[{requirement_specifier: far-evals, experiments: [far]}]"
    (folder / "nexus.yaml").write_text(f"package: {{name: lab, benchmark_packages: {needs}}}\n")
    static, strict = nexus.packages.validate(static=True), nexus.packages.validate_benchmarks()
    assert [item.what for item in static.unchecked] == ["experiment far"] == [item.what for item in strict.unchecked]
    assert (static.exit_code, strict.exit_code) == (Exit.GOOD, Exit.TRIAL_FAILED)


def test_requirements_are_listed_as_lines_for_pip_with_what_is_wrong(nexus):
    path = nexus.root / "packages" / "lab" / "nexus.yaml"
    needs = "[{requirement_specifier: 'evals>=1', experiments: [a]}]"
    path.write_text(f"package: {{name: lab, benchmark_packages: {needs}}}\n")
    (requirement,) = nexus.packages.requirements()
    assert (requirement.package, requirement.requirement_specifier, requirement.experiments) == (
        "lab", "evals>=1", ["a"],
    )  # fmt: skip
    lines = nexus.packages.requirement_lines("lab")
    assert (lines.lines, lines.errors) == (["evals>=1"], [])
    other = nexus.root / "packages" / "odd" / "nexus.yaml"
    other.parent.mkdir()
    other.write_text("package: [\n")
    (error,) = nexus.packages.broken()
    assert "not valid YAML" in error.message and nexus.packages.broken("lab") == []
    assert [item.message for item in nexus.packages.requirement_lines().errors] == [error.message]


def test_a_benchmark_of_a_model_can_be_run_by_its_file(nexus):
    (item,) = nexus.packages.runnable("lab", model="org/tiny")
    assert (item.benchmark, item.kind, item.model) == ("lab/tiny/smoke", "scenario", "org/tiny")
    (plan,) = nexus.plan(item.file)
    assert plan.trials == 5
    with pytest.raises(BenchError, match="no benchmark to run of the model 'org/tin'") as caught:
        nexus.packages.runnable(model="org/tin")
    assert "did you mean 'org/tiny'?" in caught.value.hint


def test_scaffolds_go_into_the_workspace_wherever_one_stands(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    workspace = Workspace(tmp_path / "home")
    assert workspace.new.scenario("mine") == tmp_path / "home" / "mine.yaml"
    assert load_yaml(tmp_path / "home" / "mine.yaml").data["experiment"] == "command"
    assert workspace.new.experiment("sort", into="deep") == tmp_path / "home" / "deep" / "bench-sort"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    with pytest.raises(BenchError, match="exists already"):
        workspace.new.scenario("mine")


@pytest.mark.starts
def test_a_logical_benchmark_becomes_a_scenario_and_ranks_its_targets(workspace):
    (workspace.root / "benchmarks").mkdir()
    (workspace.root / "benchmarks" / "waiting.yaml").write_text(LOGICAL)
    (workspace.root / "waits.yaml").write_text(SCENARIO)
    (listed,) = workspace.leaderboards.list()
    assert (listed.benchmark, listed.target, listed.experiments) == ("waiting", "program", ["command"])
    assert [item.good for item in workspace.leaderboards.validate()] == [True]
    assert workspace.leaderboards.rank("waiting").boards == []
    workspace.run("waits.yaml")
    (board,) = workspace.leaderboards.rank("waiting", where={"runs": "few"}).boards
    assert [(row.standing.rank, row.standing.target) for row in board.rows] == [(1, "short"), (2, "long")]
    assert board.rows[0].against_best == "" and board.rows[1].against_best.startswith("+")
    path = workspace.leaderboards.scenario("waiting", targets=["short"], where={"runs": "few"}, repetitions=2)
    assert load_yaml(path).data["repetitions"] == 2
    with pytest.raises(BenchError, match="has no binding"):
        workspace.leaderboards.rank("waiting", experiment="vector.search")


def test_a_logical_benchmark_that_cannot_be_read_is_listed_as_broken(workspace):
    (workspace.root / "benchmarks").mkdir()
    (workspace.root / "benchmarks" / "waiting.yaml").write_text(LOGICAL.replace("metrics: [wall]", "metrics: []"))
    (listed,) = workspace.leaderboards.list()
    assert listed.broken and listed.file.endswith("waiting.yaml")
    (checked,) = workspace.leaderboards.validate()
    assert not checked.good
