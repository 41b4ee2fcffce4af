"""`bench packages`, and what a nexus adds to `bench list`, `bench new` and `bench run`."""

import json
import os

import pytest

EVAL = """\
from benchhouse import Deprecated, Metric, experiment
SCORE = Metric(name="score", unit="1", direction="higher")

@experiment("seg", version="1.0", metrics=[SCORE])
def old(model: str, dataset: str = "a"): return {"score": 1.0}

@experiment("seg", version="2.0", metrics=[SCORE])
def new(model: str, dataset: str = "a", batch: int = 1): return {"score": float(batch)}

@experiment("ancient", version="1", deprecated=Deprecated(reason="too easy", replaced_by="seg"))
def ancient(model: str): return {}
"""
SPACE = """\
entitySpace:
  - {identifier: batch, propertyDomain: {values: [1, 2]}}
experiments:
  - {actuatorIdentifier: benchhouse, experimentIdentifier: seg, experimentVersion: "2.0"}
"""
FLOOD = "packages/terra/models/prithvi/benchmark_instances/flood/space.yaml"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def nexus(tmp_path, packages):
    """A package with an installed experiment, a benchmark of its own, a model with a space; another that uses it."""
    packages.add("evals", "evals", EVAL, "seg = evals")
    home = tmp_path / "packages" / "terra"
    project = '[project]\nname = "evals"\nversion = "1"\ndependencies = []\n'
    write(home / "benchmark_packages" / "evals" / "pyproject.toml", project)
    listed = "{requirement_specifier: ./packages/terra/benchmark_packages/evals, experiments: [seg, ancient]}"
    write(home / "nexus.yaml", f"package:\n  name: terra\n  benchmark_packages:\n    - {listed}\n")
    write(home / "models" / "prithvi" / "model.yaml", "model: {id: ibm/prithvi}\n")
    write(tmp_path / FLOOD, SPACE)
    write(home / "benchmark_instances" / "quick" / "benchmark.yaml",
          "benchmark: quick\ndescription: Fast.\nexperiment: seg\nversion: '2.0'\nworkload: {batch: 3}\n")  # fmt: skip
    other = tmp_path / "packages" / "other"
    write(other / "nexus.yaml", "package: {name: other}\n")
    write(other / "models" / "gpt" / "model.yaml", "model: {id: lab/gpt}\n")
    write(other / "models" / "gpt" / "benchmark_instances" / "q" / "scenario.yaml", "scenario: gpt-q\nuses: quick\n")
    return tmp_path


def test_packages_are_listed_and_shown(nexus, bench):
    rows = json.loads(bench("packages", "list", "--json").out)
    assert [(row["package"], row["models"], row["benchmarks"]) for row in rows] == [("other", 1, 1), ("terra", 1, 2)]
    assert bench("packages", "list").err == "next:  bench packages show PACKAGE\n"
    shown = bench("packages", "show", "terra")
    assert "model ibm/prithvi" in shown.out and "terra/prithvi/flood" in shown.out
    assert json.loads(bench("packages", "show", "terra", "--json").out)["models"][0]["model"] == "ibm/prithvi"
    assert "did you mean 'terra'" in bench("packages", "show", "tera").err
    nowhere = bench("packages", "list", cwd=nexus.parent)
    assert nowhere.code == 2 and "no nexus here" in nowhere.err
    assert bench("packages", "list", "--nexus", nexus, cwd=nexus.parent).code == 0


def test_a_nexus_that_holds_is_proven(nexus, bench):
    done = bench("packages", "validate", "--static")
    assert (done.code, done.out) == (0, "2 packages, 3 benchmarks: 0 problems, 0 not checked\n"), done.err
    proof = json.loads(bench("packages", "validate", "terra", "--static", "--json").out)
    assert {item["state"] for item in proof["findings"]} == {"good"} and proof["packages"] == 1


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        (FLOOD, "entitySpace: [\n", "space.yaml:1:15: not valid YAML"),
        (FLOOD, SPACE.replace("seg", "sag"), "space.yaml:4:60: the package 'terra' does not register"),
        (FLOOD, SPACE.replace("2.0", "3.0"), "space.yaml:4:60: experiment 'seg' is not installed in version '3.0'"),
        (FLOOD, SPACE.replace("batch", "bach"), "unknown key 'bach'"),
        (FLOOD, SPACE.replace("[1, 2]", "[1, two]"), "space.yaml:2:54: expected a whole number, found the text 'two'"),
        (FLOOD, SPACE.replace("entitySpace:", "entitySpace:\n  - {identifier: model, propertyDomain: {values: [x]}}"),
         "space.yaml:2:51: 'model' is the text 'x'; the model of this folder is 'ibm/prithvi' (packages/terra/models"),
        ("packages/terra/models/prithvi/benchmark_instances/s/scenario.yaml", "scenario: s\nuses: no/such\n",
         "has no benchmark 'no/such'"),
        ("packages/terra/models/prithvi/benchmark_instances/s/scenario.yaml", "scenario: s\nuses: ../x\n",
         "'../x' can't name a benchmark"),
        ("packages/terra/benchmark_instances/quick/benchmark.yaml",
         "benchmark: quick\nexperiment: seg\nworkload: {bach: 3}\n", "benchmark.yaml:3:12: unknown key 'bach'"),
        ("packages/other/benchmark_instances/quick/benchmark.yaml", "benchmark: quick\nexperiment: command\n",
         "the benchmark 'quick' is registered by package 'other' too: packages/other/benchmark_instances/quick"),
        ("packages/terra/nexus.yaml", "package: {name: terra, benchmark_packages: [{requirement_specifier: ../x}]}\n",
         "nexus.yaml:1:69: '../x' is outside of the nexus"),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_named_with_its_place_and_never_returns_0(nexus, bench, path, text, said):
    write(nexus / path, text)
    done = bench("packages", "validate", "--static")
    assert done.code == 2 and said in done.err, done.err
    document = json.loads(bench("packages", "validate", "--static", "--json").out)
    assert document["exit_code"] == 2
    assert any(problem["path"] for item in document["findings"] for problem in item["problems"])


def test_an_experiment_that_its_installed_package_does_not_have_is_broken(nexus, bench):
    registered = "[{requirement_specifier: 'Evals>=1', experiments: [seg, segg]}]"
    write(nexus / "packages/terra/nexus.yaml", f"package: {{name: terra, benchmark_packages: {registered}}}\n")
    done = bench("packages", "validate", "--static")
    assert done.code == 2 and "evals 1.0 has no experiment 'segg'" in done.err and "did you mean 'seg'?" in done.err


def test_what_uses_an_experiment_that_is_not_installed_is_not_checked(nexus, bench, monkeypatch):
    monkeypatch.setenv("UV_CONFIG_FILE", str(write(nexus / "uv.toml", "no-index = true\n")))
    registered = "[{requirement_specifier: far-evals, experiments: [far, seg]}]"
    write(nexus / "packages/terra/nexus.yaml", f"package: {{name: terra, benchmark_packages: {registered}}}\n")
    write(nexus / "packages/terra/benchmark_instances/quick/benchmark.yaml", "benchmark: quick\nexperiment: far\n")
    done = bench("packages", "validate", "other", "--static", "--json")
    (finding,) = [item for item in json.loads(done.out)["findings"] if item["what"] == "other/gpt/q"]
    assert (done.code, finding["state"], finding["why"]) == (0, "unchecked", "experiment 'far' is not installed")
    done = bench("packages", "validate", "other", "--timeout", "60")
    assert "other: resolving 1 requirement(s) together" in done.err, "what the used benchmark needs"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("logicalBenchmark: [\n", "benchmarks/seg.yaml:1:20: not valid YAML"),
        ("logicalBenchmark: {benchmarkIdentifier: other}\n", "benchmarks/seg.yaml:1:"),
        ("benchmark: a b\nexperiment: command\n", "benchmarks/seg.yaml:1:12: 'a b' can't be a name"),
    ],
)
def test_the_top_level_benchmarks_are_looked_at_too(nexus, bench, text, said):
    write(nexus / "benchmarks" / "seg.yaml", text)
    done = bench("packages", "validate", "--static")
    assert done.code == 2 and said in done.err, done.err
    assert bench("packages", "validate", "terra", "--static").code == 0


def test_all_that_is_wrong_with_a_benchmark_is_told_at_once(nexus, bench):
    twice = "entitySpace:\n  - {identifier: model, propertyDomain: {values: [x]}}"
    write(nexus / FLOOD, SPACE.replace("entitySpace:", twice).replace("[1, 2]", "[one]"))
    done = bench("packages", "validate", "--static")
    assert "2 problems" in done.out
    assert "the model of this folder" in done.err and "expected a whole number, found the text 'one'" in done.err


def test_benchmarks_of_two_packages_in_a_circle_are_named(nexus, bench):
    for package, used in (("terra", "other/b"), ("other", "terra/b")):
        write(nexus / "packages" / package / "benchmark_instances" / "b" / "benchmark.yaml",
              f"benchmark: b\nuses: {used}\n")  # fmt: skip
    done = bench("packages", "validate", "--static")
    assert done.code == 2
    for package in ("terra", "other"):
        place = f"packages/{package}/benchmark_instances/b/benchmark.yaml:2:7"
        assert done.err.count(f"{place}: benchmarks in a circle: other/b -> terra/b -> other/b\n") == 1


def test_a_bare_name_that_two_packages_have_must_be_said_in_full(nexus, bench):
    write(nexus / "packages" / "other" / "benchmark_instances" / "quick" / "space.yaml", SPACE)
    scenario = write(nexus / "s.yaml", "scenario: s\nuses: quick\nworkload: {model: m}\n")
    for told in (bench("validate", scenario), bench("show", "quick")):
        assert told.code == 2 and "is registered twice: packages/other/" in told.err and "'terra/quick'" in told.err
    scenario.write_text("scenario: s\nuses: other/quick\nworkload: {model: m}\n")
    assert json.loads(bench("plan", scenario, "--json").out)["points"] == 2


def test_what_is_not_installed_is_not_taken_for_granted(nexus, bench, packages, monkeypatch):
    registered = "[{requirement_specifier: far-evals, experiments: [far, seg]}]"
    write(nexus / "packages/terra/nexus.yaml", f"package: {{name: terra, benchmark_packages: {registered}}}\n")
    far = write(nexus / FLOOD, SPACE.replace("seg", "far"))
    done = bench("packages", "validate", "--static")
    assert done.code == 0 and "not checked: terra/prithvi/flood: experiment 'far' is not installed" in done.err
    settings = write(nexus / "uv.toml", "no-index = true\n")
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
    done = bench("packages", "validate", "terra")
    assert done.code == 2 and "there is no package 'far-evals'" in done.err
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    done = bench("packages", "validate", "terra")
    assert done.code == 1 and "needs the program uv" in done.err and "pip install 'benchhouse[packages]'" in done.err
    far.write_text(far.read_text().replace("batch", "model"))
    done = bench("packages", "validate", "--static")
    assert done.code == 2 and "the model of this folder is 'ibm/prithvi'" in done.err


@pytest.mark.parametrize(
    ("code", "said"),
    [("raise RuntimeError('no such GPU')", "RuntimeError: no such GPU"),
     ("import time\ntime.sleep(600)", "did not finish within 1 s"), ("import os\nos._exit(3)", "ended the process")],
)  # fmt: skip
def test_an_experiment_whose_import_raises_hangs_or_dies_is_named(nexus, bench, packages, monkeypatch, code, said):
    monkeypatch.setattr("benchhouse.catalog.listing.IMPORT_TIMEOUT_S", 1)
    packages.add("bad", "bad_evals", code, "bad = bad_evals")
    text = (nexus / "packages" / "terra" / "nexus.yaml").read_text().replace("[seg, ancient]", "[seg, bad]")
    write(nexus / "packages" / "terra" / "nexus.yaml", text)
    quick = nexus / "packages" / "terra" / "benchmark_instances" / "quick" / "benchmark.yaml"
    quick.write_text("benchmark: quick\nexperiment: bad\n")
    done = bench("packages", "validate", "--static")
    assert done.code == 2 and "nexus.yaml:4" in done.err and said in done.err
    assert "quick/benchmark.yaml:2:13: experiment 'bad' can't be used" in done.err
    assert ("still importing 'bad' of bad; given up after 1 s ..." in done.err) == ("within 1 s" in said)


def test_a_requirement_that_can_not_be_fetched_is_told_at_its_own_line(nexus, bench):
    path = nexus / "packages" / "terra" / "nexus.yaml"
    listed = "- {requirement_specifier: 'git+file:///nowhere/evals.git@v1', experiments: []}"
    path.write_text(f"{path.read_text()}    {listed}\n")
    done = bench("packages", "validate", "terra")
    assert done.code == 2
    assert "terra/nexus.yaml:5:31: git+file:///nowhere/evals.git@v1 can't be fetched: " in done.err


def test_experiments_are_listed_across_installed_and_registered_packages(nexus, bench):
    text = (nexus / "packages" / "terra" / "nexus.yaml").read_text().replace("ancient]", "ancient, far]")
    write(nexus / "packages" / "terra" / "nexus.yaml", text)
    rows = {(row["name"], row["version"]): row for row in json.loads(bench("list", "experiments", "--json").out)}
    assert rows["seg", "2.0"]["registered_by"] == ["terra"] and rows["seg", "2.0"]["installed"]
    assert rows["far", ""]["registered_by"] == ["terra"] and not rows["far", ""]["installed"]
    assert rows["command", "1.0"]["registered_by"] == []
    lines = {line.split()[0]: line for line in bench("list", "experiments").out.splitlines() if line.strip()}
    assert "not installed" in lines["far"] and "deprecated" in lines["ancient"]


def test_benchmarks_are_listed_with_who_uses_them_and_the_last_result(nexus, bench):
    for path in (FLOOD, "packages/other/models/gpt/benchmark_instances/q/scenario.yaml"):
        done = bench("run", path)
        assert done.code == 0, done.err
    rows = {row["benchmark"]: row for row in json.loads(bench("list", "benchmarks", "--json").out)}
    assert rows["terra/quick"]["used_by"] == ["other/gpt/q"] and rows["terra/quick"]["models"] == ["lab/gpt"]
    assert rows["terra/quick"]["last"]["target_name"] == "lab/gpt"
    assert rows["terra/quick"]["last"]["result"]["mean"] == 3
    assert rows["terra/prithvi/flood"]["last"]["target_name"] == "ibm/prithvi"
    assert rows["terra/prithvi/flood"]["last"]["result"]["points"] == 2
    assert "score" in bench("list", "benchmarks").out

    def names(*options):
        return [row["benchmark"] for row in json.loads(bench("list", "benchmarks", *options, "--json").out)]

    assert names("--package", "other") == ["other/gpt/q"]
    assert names("--model", "ibm/prithvi") == ["terra/prithvi/flood"]
    assert names("--experiment", "seg") == ["terra/quick", "terra/prithvi/flood"]
    assert names("--experiment", "none") == []
    assert "fixed workload  batch 3" in bench("show", "terra/quick").out


def test_what_new_makes_holds_and_runs(bench, tmp_path):
    assert bench("new", "package", "terra").out == "packages/terra/nexus.yaml\n"
    made = bench("new", "model", "terra", "ibm/prithvi", "--owner", "me: too")
    assert made.out == "packages/terra/models/prithvi/model.yaml\n"
    assert bench("new", "benchmark", "wait", "--package", "terra").code == 0
    own = bench("new", "benchmark", "own", "--package", "terra", "--model", "ibm/prithvi")
    using = bench("new", "benchmark", "wait", "--package", "terra", "--model", "prithvi", "--uses", "terra/wait")
    for experiment in ("vector.search", "storage.file"):
        name = experiment.replace(".", "-")
        done = bench("new", "benchmark", name, "--package", "terra", "--experiment", experiment)
        assert done.code == 0, done.err
    assert bench("packages", "validate", "--static").err.count("FILL_IN") == 2, "only what has no default"
    (tmp_path / "packages/terra/benchmark_instances/storage-file/benchmark.yaml").unlink()
    (tmp_path / "packages/terra/benchmark_instances/storage-file").rmdir()
    assert bench("packages", "validate").code == 0
    for made in (own, using):
        assert bench("plan", made.out.strip()).code == 0
    ran = bench("run", using.out.strip())
    assert ran.code == 0 and "ibm/prithvi" in ran.out, ran.err
    again = bench("new", "package", "terra")
    assert again.code == 2 and "exists already" in again.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("package", "../x"), "can't name a package"),
        (("model", "none", "a/b"), "no nexus here"),
        (("benchmark", "a", "--package", "terra"), "no nexus here"),
    ],
)
def test_new_refuses_odd_names_and_places(bench, tmp_path, args, said):
    done = bench("new", *args)
    assert done.code == 2 and said in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_benchmark_can_be_used_before_its_package_is_installed_where_a_nexus_names_it(nexus, bench):
    definition = nexus / "packages" / "terra" / "benchmark_instances" / "later" / "benchmark.yaml"
    write(definition, "benchmark: later\nexperiment: lab.coming\nworkload: {}\n")
    listed = nexus / "packages" / "terra" / "nexus.yaml"
    listed.write_text(listed.read_text().replace("ancient]", "ancient, lab.coming]"))
    using = ("new", "benchmark", "b", "--package", "other", "--model", "gpt", "--uses", "terra/later")
    made = bench(*using)
    assert made.code == 0, made.err
    text = (nexus / made.out.strip()).read_text()
    assert "uses: terra/later\n" in text and "lab.coming is not installed here" in text
    assert "nexus get benchmark-requirements terra" in text
    definition.write_text("benchmark: later\nexperiment: unheard_of\nworkload: {}\n")
    refused = bench(*using[:2], "c", *using[3:])
    assert refused.code == 2 and "no experiment named 'unheard_of' is installed" in refused.err


def test_new_refuses_names_within_a_package(nexus, bench):
    for args, said in (
        (("model", "terra", "../.."), "can't name a model"),
        (("model", "tera", "a/b"), "did you mean 'terra'"),
        (("benchmark", "../b", "--package", "terra"), "can't name a benchmark"),
        (("benchmark", "b", "--package", "terra", "--model", "prithv"), "did you mean 'prithvi'"),
        (("benchmark", "b", "--package", "terra", "--uses", "terra/quick"), "name the model too"),
        (("benchmark", "b", "--package", "terra", "--model", "prithvi", "--uses", "terra/none"), "no benchmark"),
    ):
        done = bench("new", *args)
        assert done.code == 2 and said in done.err, done.err


@pytest.mark.slow
def test_what_is_not_installed_here_is_checked_where_it_is(bench, tmp_path):
    bench("new", "package", "terra")
    bench("new", "model", "terra", "ibm/prithvi")
    assert bench("new", "experiment", "sorting", "--into", "packages/terra/benchmark_packages").code == 0
    specifier = "./packages/terra/benchmark_packages/bench-sorting"
    listed = f"{{requirement_specifier: {specifier}, experiments: [sorting]}}"
    write(tmp_path / "packages/terra/nexus.yaml", f"package: {{name: terra, benchmark_packages: [{listed}]}}\n")
    space = write(tmp_path / FLOOD, SPACE.replace("seg", "sorting").replace("2.0", "0.1.0").replace("batch", "siz"))
    done = bench("packages", "validate", "--install")
    if "bench-sorting" not in done.err and ("hatchling" in done.err or "was not found" in done.err):
        pytest.skip("no package index to install from")
    assert done.code == 2 and "space.yaml:2:18: unknown key 'siz'" in done.err, done.err
    space.write_text(space.read_text().replace("siz", "size"))
    done = bench("packages", "validate", "--install")
    assert (done.code, done.out) == (0, "1 package, 1 benchmark: 0 problems, 0 not checked\n"), done.err
    assert bench("packages", "validate", "--install", "--static").code == 2


@pytest.mark.slow
def test_a_published_space_of_an_experiment_of_ado_holds_and_runs_for_its_model(bench, packages, tmp_path):
    from ado_packages import DECORATOR, install

    code = DECORATOR + (
        'NAME = number("model_name", variableType=VariableTypeEnum.OPEN_CATEGORICAL_VARIABLE_TYPE, values=["a"])\n'
        '@custom_experiment(output_property_identifiers=["letters"], required_properties=[NAME], version="1.0.0")\n'
        'def counting(model_name: str, times: int = 1):\n    return {"letters": times * len(model_name)}\n'
    )
    install(packages.folder, "ado-count", "ado_count", code, "[ado.custom_experiments]\ncount = ado_count\n")
    packages.forget()
    registered = "[{requirement_specifier: ado-count, experiments: [counting]}]"
    write(tmp_path / "packages/terra/nexus.yaml", f"package: {{name: terra, benchmark_packages: {registered}}}\n")
    write(tmp_path / "packages/terra/models/prithvi/model.yaml", "model: {id: ibm/prithvi}\n")
    text = SPACE.replace("benchhouse", "custom_experiments").replace("seg", "counting").replace("batch", "times")
    space = write(tmp_path / FLOOD, text.replace("2.0", "1.0.0"))
    done = bench("packages", "validate", "--static")
    assert (done.code, done.out) == (0, "1 package, 1 benchmark: 0 problems, 0 not checked\n"), done.err
    ran = bench("run", FLOOD, "--json")
    assert ran.code == 0, ran.err
    means = {row["mean"] for row in json.loads(ran.out)["points"] if row["metric"] == "letters"}
    assert means == {len("ibm/prithvi"), 2 * len("ibm/prithvi")}
    (row,) = json.loads(bench("list", "targets", "--json").out)
    assert row["target"] == "ibm/prithvi"
    space.write_text(space.read_text().replace("entitySpace:", "entitySpace:\n"
                     "  - {identifier: model_name, propertyDomain: {values: [ibm/other]}}"))  # fmt: skip
    assert "the model of this folder is 'ibm/prithvi'" in bench("packages", "validate", "--static").err
