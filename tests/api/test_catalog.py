"""`ws.catalog`: what is installed, registered and was measured, as typed values."""

import dataclasses
import json

import pytest

from benchhouse.api.catalog import FILE_FORMATS
from benchhouse.api.screen import plain
from benchhouse.api.workspace import Workspace
from benchhouse.schema.errors import BenchError

SCENARIO = """\
scenario: tiny
uses: small
targets: [{name: nothing, argv: ["true"]}, {name: echo, argv: [echo, hi]}]
repetitions: 2
"""
BENCHMARK = """\
benchmark: small
description: A few executions of nearly nothing.
experiment: command
workload: {executions: 2}
"""


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Workspace(tmp_path)


@pytest.fixture
def with_benchmark(workspace):
    (workspace.root / "benchmarks").mkdir()
    (workspace.root / "benchmarks" / "small.yaml").write_text(BENCHMARK)
    (workspace.root / "tiny.yaml").write_text(SCENARIO)
    return workspace


def test_experiments_are_frozen_values_that_say_whether_they_are_installed(workspace):
    listed = {item.name: item for item in workspace.catalog.experiments()}
    command = listed["command"]
    assert (command.installed, command.registered_by, command.distribution) == (True, [], "benchhouse")
    with pytest.raises(dataclasses.FrozenInstanceError):
        command.name = "other"


def test_what_only_a_nexus_registers_is_listed_unless_installed_ones_are_wanted(workspace):
    folder = workspace.root / "packages" / "lab"
    folder.mkdir(parents=True)
    needs = "[{requirement_specifier: far-evals, experiments: [far, command]}]"
    (folder / "nexus.yaml").write_text(f"package: {{name: lab, benchmark_packages: {needs}}}\n")
    listed = {item.name: item for item in workspace.catalog.experiments()}
    assert (listed["far"].installed, listed["far"].registered_by) == (False, ["lab"])
    assert (listed["command"].installed, listed["command"].registered_by) == (True, ["lab"])
    assert "far" not in {item.name for item in workspace.catalog.experiments(installed_only=True)}
    elsewhere = Workspace(workspace.root / "packages").catalog
    assert "far" in {item.name for item in elsewhere.experiments(nexus=workspace.root)}


def test_show_has_typed_inputs_metrics_and_resources(workspace):
    details = workspace.catalog.show("vector.search")
    inputs = {item.name: item for item in details.workload}
    assert inputs["data"].variants and {"synthetic", "file"} <= {variant.kind for variant in inputs["data"].variants}
    assert not inputs["vectors"].required
    qps = next(metric for metric in details.metrics if metric.name == "qps")
    assert (qps.direction, qps.primary) == ("higher", True)
    assert details.resources.nodes == 1 and details.benchmark is None and details.deprecated is None


def test_what_show_says_is_plain_data_for_json(workspace):
    document = workspace.catalog.show("vector.search").to_dict()
    assert json.loads(json.dumps(document)) == document
    assert {item["name"] for item in document["workload"]} >= {"vectors", "data"}
    assert {"name", "unit", "direction", "formula", "role"} <= document["metrics"][0].keys()


def test_show_of_a_benchmark_has_what_it_fixes_and_its_experiment(with_benchmark):
    catalog = with_benchmark.catalog
    details = catalog.show("small")
    assert details.benchmark and details.name == "command"
    assert (details.benchmark.name, details.benchmark.origin) == ("small", "workspace")
    assert details.benchmark.workload == {"executions": 2}
    assert details.to_dict()["benchmark"]["file"].endswith("benchmarks/small.yaml")
    assert catalog.is_listed("small") and catalog.is_listed("command") and not catalog.is_listed("smal")


def test_an_unknown_name_or_version_is_a_bench_error_with_a_hint(workspace):
    with pytest.raises(BenchError, match="no experiment named 'comand'") as caught:
        workspace.catalog.show("comand")
    assert "did you mean 'command'?" in caught.value.hint
    with pytest.raises(BenchError, match="not installed in version '99'"):
        workspace.catalog.show("command", "99")


def test_benchmarks_and_targets_have_the_last_run_and_its_first_number(with_benchmark):
    (before,) = with_benchmark.catalog.benchmarks()
    assert (before.benchmark, before.used_by, before.last) == ("small", ["tiny"], None)
    assert with_benchmark.catalog.targets() == []
    run = with_benchmark.run("tiny.yaml")
    (listed,) = with_benchmark.catalog.benchmarks(experiment="command")
    assert listed.last and (listed.last.run_id, listed.last.trials, listed.last.succeeded) == (run.id, 2, 2)
    assert listed.last.result and (listed.last.result.metric, listed.last.result.n) == ("wall_ms", 2)
    assert plain(listed)["last"]["result"]["unit"] == "ms"
    targets = with_benchmark.catalog.targets()
    assert [(item.target, item.experiment, item.trials, item.last_run) for item in targets] == [
        ("echo", "command", 2, run.id),
        ("nothing", "command", 2, run.id),
    ]


def test_benchmarks_are_filtered_but_files_that_cannot_be_read_are_always_listed(with_benchmark):
    catalog = with_benchmark.catalog
    assert catalog.benchmarks(experiment="vector.search") == [] == catalog.benchmarks(model="ibm/prithvi")
    assert [item.benchmark for item in catalog.benchmarks(package="workspace")] == ["small"]
    (with_benchmark.root / "benchmarks" / "odd.yaml").write_text("benchmark: [\n")
    (broken,) = catalog.benchmarks(experiment="vector.search")
    assert broken.broken and broken.file.endswith("odd.yaml") and broken.benchmark == ""


@pytest.mark.parametrize("file_format", FILE_FORMATS)
def test_every_file_format_has_a_schema(workspace, file_format):
    assert workspace.catalog.json_schema(file_format)["$schema"].startswith("https://json-schema.org")


def test_an_unknown_file_format_is_a_bench_error(workspace):
    with pytest.raises(BenchError, match="no file format 'scenarios'"):
        workspace.catalog.json_schema("scenarios")


def test_executors_and_runtimes_are_named(workspace):
    assert {"local", "slurm"} <= set(workspace.catalog.plugs("executors"))
    assert {"process", "venv"} <= set(workspace.catalog.plugs("runtimes"))
