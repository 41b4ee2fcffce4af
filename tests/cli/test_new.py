"""`bench new` and `bench init`: first files, and a package that installs, runs and passes its own test."""

import ast
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from benchhouse.documents.yaml_reader import load_yaml


@pytest.mark.parametrize(
    ("name", "folder", "module"),
    [
        ("sort", "bench-sort", "bench_sort"),
        ("my.sort", "bench-my-sort", "bench_my_sort"),
        ("my-sort_2", "bench-my-sort-2", "bench_my_sort_2"),
        ("class", "bench-class", "bench_class"),
        ("time", "bench-time", "bench_time"),
        ("experiment", "bench-experiment", "bench_experiment"),
    ],
)
def test_a_package_is_scaffolded_for_each_sensible_name(name, folder, module, bench, tmp_path):
    done = bench("new", "experiment", name)
    assert (done.code, done.out) == (0, f"{folder}\n")
    project = tomllib.loads((tmp_path / folder / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["benchhouse.experiments"] == {name: f"{module}:run"}
    assert load_yaml(tmp_path / folder / "scenario.yaml").data["experiment"] == name
    code = (tmp_path / folder / "src" / module / "__init__.py").read_text()
    defined = {node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert defined == {"Target", "Workload", "run"}
    assert f"pip install -e {folder}" in done.err


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "a b", "Upper", "9lives", "", ".", "a..b", "a.", "-a", "a\nb", "prüfung", "x" * 61]
)
def test_a_name_that_would_not_work_is_refused(name, bench, tmp_path):
    done = bench("new", "experiment", "--", name)
    assert done.code == 2
    assert "can't name an experiment" in done.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(bench, tmp_path):
    assert bench("new", "experiment", "sort").code == 0
    assert "exists already" in bench("new", "experiment", "sort").err
    assert bench("new", "scenario", "mine").code == 0
    before = (tmp_path / "mine.yaml").read_text()
    assert bench("new", "scenario", "mine").code == 2
    assert (tmp_path / "mine.yaml").read_text() == before


def test_first_files_go_to_the_workspace_that_is_named(bench, tmp_path):
    (tmp_path / "home").mkdir()
    assert bench("-C", "home", "new", "scenario", "mine").out == "home/mine.yaml\n"
    assert bench("-C", "home", "new", "experiment", "sort").out == "home/bench-sort\n"
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["bench-sort", "mine.yaml"]


def test_a_package_goes_where_it_is_told(bench, tmp_path):
    assert bench("new", "experiment", "sort", "--into", "deep/down").code == 0
    assert (tmp_path / "deep" / "down" / "bench-sort" / "pyproject.toml").is_file()


@pytest.mark.parametrize("experiment", ["command", "vector.search"])
def test_a_scaffolded_scenario_is_valid(experiment, bench):
    assert bench("new", "scenario", "mine", "--experiment", experiment).code == 0
    assert bench("validate", "mine.yaml").code == 0


def test_what_must_be_filled_in_is_found_by_validate(bench):
    assert bench("new", "scenario", "mine", "--experiment", "storage.file").code == 0
    done = bench("validate", "mine.yaml")
    assert done.code == 2
    assert "'randread', 'randwrite' or 'randrw', found the text 'FILL_IN'" in done.err


@pytest.mark.parametrize("name", ["../x", "a b", "", "x/y"])
def test_a_scenario_with_an_odd_name_is_refused(name, bench, tmp_path):
    assert bench("new", "scenario", "--", name).code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_scenario_for_an_unknown_experiment_is_refused(bench):
    assert "did you mean 'command'?" in bench("new", "scenario", "x", "--experiment", "comand").err


def test_init_makes_a_workspace_and_may_be_repeated(bench, tmp_path):
    done = bench("init")
    assert done.code == 0
    assert bench("validate", "scenarios/first.yaml").code == 0
    (tmp_path / ".gitignore").write_text("mine\n")
    again = bench("init")
    assert (again.code, again.out) == (0, "")
    assert (tmp_path / ".gitignore").read_text() == "mine\n"


@pytest.fixture
def fresh_python(tmp_path):
    """An interpreter of its own that sees the installed Benchhouse, and into which packages can be installed."""
    import benchhouse

    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    seen = [sysconfig.get_path("purelib"), str(Path(benchhouse.__file__).parents[1])]
    (site / "benchhouse-of-the-tests.pth").write_text("\n".join(seen) + "\n")
    return python


@pytest.mark.slow("pip builds and installs the scaffolded package, and the tests of that package run")
def test_a_scaffolded_package_installs_is_listed_runs_and_passes_its_own_test(bench, fresh_python, tmp_path):
    assert bench("new", "experiment", "my.sort").code == 0
    package = tmp_path / "bench-my-sort"
    environ = os.environ | {"BENCH_CACHE_DIR": str(tmp_path / "cache")}

    def call(*args):
        command = [str(fresh_python), "-m", *args]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environ, cwd=tmp_path)

    installed = call("pip", "install", "--quiet", "--disable-pip-version-check", str(package))
    if installed.returncode and "hatchling" in installed.stderr:
        pytest.skip("no package index to fetch the build backend from")
    assert installed.returncode == 0, installed.stderr
    listed = call("benchhouse", "list", "experiments")
    assert "my.sort" in listed.stdout and "bench-my-sort 0.1.0" in listed.stdout
    ran = call("benchhouse", "run", str(package / "scenario.yaml"))
    assert ran.returncode == 0, ran.stderr
    assert "6 succeeded" in ran.stderr
    tested = call("pytest", "-q", "-p", "no:cacheprovider", str(package / "tests"))
    assert tested.returncode == 0, tested.stdout
