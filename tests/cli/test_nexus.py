"""The `nexus` command: the words of people who know it, and exit codes that are true."""

import json
import sys
from pathlib import Path

import pytest

SPACE = """\
entitySpace: [{identifier: executions, propertyDomain: {values: [1, 2]}}]
experiments: [{actuatorIdentifier: benchhouse, experimentIdentifier: zip.time}]
"""
LOGICAL = """\
logicalBenchmark:
  benchmarkIdentifier: zipping
  target: {identifier: codec}
  metrics: [ms]
bindings:
- {benchmarkIdentifier: zipping, targetMapping: model,
   experiment: {actuatorIdentifier: benchhouse, experimentIdentifier: zip.time}}
"""
CODE = """
from benchhouse import Metric, experiment

@experiment("zip.time", version="1.0", metrics=[Metric(name="ms", unit="ms", direction="lower")])
def run(model: str, executions: int = 1):
    "Time it."
    return {"ms": float(executions)}
"""


@pytest.fixture
def nexus(bench, packages, tmp_path, monkeypatch, capsys):
    """`nexus(*args)` as a user types it, in a nexus with one package whose experiment is installed."""
    packages.add("zip-time", "zip_time", CODE, "zip.time = zip_time:run")
    write(tmp_path, "packages/zips/nexus.yaml", "package: {name: zips, benchmark_packages: [{requirement_specifier: "
          "zip-time>=1, experiments: [zip.time]}]}\n")  # fmt: skip
    write(tmp_path, "packages/zips/models/gz/model.yaml", "model: {id: org/gz}\n")
    write(tmp_path, "packages/zips/models/gz/benchmark_instances/small/space.yaml", SPACE)
    write(tmp_path, "benchmarks/zipping.yaml", LOGICAL)
    from benchhouse.cli.nexus import main

    def call(*args):
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["nexus", *args])
            patch.chdir(tmp_path)
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_benchmark_that_was_refused_is_not_counted_as_run(nexus, tmp_path):
    wrong = SPACE.replace("[1, 2]", "[one]")
    write(tmp_path, "packages/zips/models/gz/benchmark_instances/small/space.yaml", wrong)
    code, _out, err = nexus("run", "benchmarks", "--model", "org/gz")
    assert code == 2 and "1 benchmark, 0 run, 1 refused. next:" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("list packages", "zips"),
        ("list benchmark-packages", "zip-time>=1"),
        ("list benchmark-experiments", "zip.time"),
        ("list benchmarks", "zips/gz/small"),
        ("list logical-benchmarks", "zipping"),
        ("get benchmark-requirements", "zip-time>=1\n"),
        ("get benchmark-requirements zips", "zip-time>=1\n"),
        ("validate package zips --static", "1 package, 1 benchmark: 0 problems"),
        ("validate benchmarks", "1 benchmark: 0 broken, 0 not checked"),
        ("validate logical-benchmarks", "1 logical benchmark: 1 good, 0 not"),
        ("run benchmarks --dry-run", "benchhouse.worker"),
    ],
)
def test_each_word_answers_and_ends_well_where_all_is_well(nexus, words, said):
    code, out, err = nexus(*words.split())
    assert (code, said in out) == (0, True), out + err


@pytest.mark.parametrize("words", ["list packages", "list benchmark-packages", "list benchmarks", ("validate package "
    "--static"), "validate benchmarks", "get benchmark-requirements", "run benchmarks --dry-run"])  # fmt: skip
def test_broken_yaml_never_ends_well(nexus, tmp_path, words):
    write(tmp_path, "packages/broken/nexus.yaml", "package: {name: broken\n")
    code, _, err = nexus(*words.split())
    assert code == 2
    assert "broken" in err


@pytest.mark.parametrize(
    ("name", "old", "words"),
    [
        ("packages/zips/models/gz/benchmark_instances/small/space.yaml", SPACE, "validate benchmarks"),
        ("benchmarks/zipping.yaml", LOGICAL, "validate logical-benchmarks"),
    ],
)
def test_an_experiment_that_nobody_registers_never_ends_well(nexus, tmp_path, name, old, words):
    write(tmp_path, name, old.replace("zip.time", "zip.tim"))
    code, _, err = nexus(*words.split())
    assert code == 2
    assert "zip.tim" in err


def test_a_broken_logical_benchmark_is_told_with_its_line(nexus, tmp_path):
    write(tmp_path, "benchmarks/bad.yaml", "logicalBenchmark: [\n")
    code, out, err = nexus("validate", "logical-benchmarks")
    assert (code, "1 good, 1 not" in out) == (2, True)
    assert "bad.yaml:" in err
    code, out, _ = nexus("validate", "logical-benchmarks", "--json")
    assert (code, [item["valid"] for item in json.loads(out)]) == (2, [False, True])


def test_benchmarks_of_a_model_run_with_its_id_as_the_target(nexus, bench, tmp_path):
    code, _out, err = nexus("run", "benchmarks", "--model", "org/gz")
    assert code == 0, err
    done = bench("leaderboard", "zipping", "--json")
    (board,) = json.loads(done.out)["boards"]
    assert [(row["target"], row["n"]) for row in board["standings"]] == [("org/gz", 2)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run benchmarks --model org/gx", "did you mean 'org/gz'?"),
        ("run benchmarks --package zip", "did you mean 'zips'?"),
        ("list", "Usage: nexus list"),
        ("get benchmark-requirements zp", "no package 'zp'"),
    ],
)
def test_what_is_not_there_is_told(nexus, words, said):
    code, out, err = nexus(*words.split())
    assert code == 2
    assert said in out + err


def test_evaluate_is_that_of_bench(nexus, bench):
    code, out, err = nexus("evaluate", "--all", "--dry-run", "--json")
    assert code == 0, err
    (item,) = json.loads(out)["plan"]["benchmarks"]
    assert (item["benchmark"], item["state"]) == ("zips/gz/small", "to run")
    assert out == bench("evaluate", "--all", "--dry-run", "--json").out
