"""Isolated environments: what is in them, that they are made once, and that a failed one leaves nothing."""

import json
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from benchhouse.api.execution import ScenarioText
from benchhouse.api.workspace import Workspace
from benchhouse.runtimes.process import ProcessRuntime
from benchhouse.runtimes.venv import VenvRuntime
from benchhouse.schema.errors import BenchError
from benchhouse.schema.local_packages import SourceBuilds
from benchhouse.schema.protocols import RuntimeContext
from benchhouse.schema.resources import RuntimeSettings

EXPERIMENT = """
import sys

def where():
    import flavour
    return {"flavour": float(flavour.VALUE), "prefix": sys.prefix, "path": [p for p in sys.path if p.endswith("site")]}
"""


def make_package(folder, value):
    """A package `flavour` that pip can install without a build backend from the network."""
    folder.mkdir(exist_ok=True)
    wheel = folder / f"flavour-{value}-py3-none-any.whl"
    files = {
        "flavour.py": f"VALUE = {value}\n",
        "where.py": EXPERIMENT,
        f"flavour-{value}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: flavour\nVersion: {value}\n",
        f"flavour-{value}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"flavour-{value}.dist-info/entry_points.txt": "[benchhouse.experiments]\nwhere = where:where\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        record = "".join(f"{name},,\n" for name in files) + f"flavour-{value}.dist-info/RECORD,,\n"
        for name, text in (files | {f"flavour-{value}.dist-info/RECORD": record}).items():
            archive.writestr(name, text)
    return wheel


def environments(lab):
    venvs = lab.root / "cache" / "venvs"
    return [path for path in venvs.iterdir() if path.is_dir() and path.name not in ("locks", "by-request")]


def test_a_trial_sees_the_versions_of_its_own_environment(lab):
    """Planned in the parent, which has another `flavour`; run where version 2 is installed."""
    lab.install("where", "1", EXPERIMENT, "[benchhouse.experiments]\nwhere@1 = where:where\n")
    (lab.root / "site" / "flavour.py").write_text("VALUE = 1\n")
    wheel = make_package(lab.root / "wheels", 2)
    runtime = {"kind": "venv", "requirements": [str(wheel)]}
    lab.bench("run", lab.scenario("where", name="parent"))
    lab.bench("run", lab.scenario("where", runtime=runtime), timeout_s=200)
    (inside,), (outside,) = lab.trials(), lab.trials("parent")
    value = {item["metric"]: item["value"] for item in inside.metrics["benchhouse"]["measurements"]}
    assert value == {"flavour": 2}
    assert outside.metrics["benchhouse"]["measurements"][0]["value"] == 1
    assert inside.meta["custom"]["path"] == [], "PYTHONPATH does not reach into it"
    assert inside.meta["custom"]["prefix"].startswith(str(lab.root / "cache" / "venvs"))
    assert inside.packages["flavour"] == "2"
    assert "duckdb" not in inside.packages
    assert {"nvidia-ml-py", "prometheus_client"} <= set(inside.packages), "its monitors need them there"
    assert inside.meta["package_lock_digest"] != outside.meta["package_lock_digest"]
    (made,) = environments(lab)
    stamp = (made / "ready").stat().st_mtime_ns
    lab.bench("run", lab.scenario("where", name="again", runtime=runtime))
    assert (made / "ready").stat().st_mtime_ns == stamp
    assert lab.trials("again")[0].meta["package_lock_digest"] == inside.meta["package_lock_digest"]
    lab.is_tidy()


BACKEND = """
import shutil
def build_wheel(folder, *_):
    shutil.copy("flavour-1-py3-none-any.whl", folder)
    return "flavour-1-py3-none-any.whl"
"""


def test_a_changed_local_package_is_measured_as_it_is_now(tmp_path):
    """The same name, version and pyproject.toml: uv alone would take the wheel that it built before."""
    package = tmp_path / "flavour"
    wheel, found = make_package(package, 1), []
    build = 'requires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (package / "pyproject.toml").write_text(f'[project]\nname = "flavour"\nversion = "1"\n[build-system]\n{build}')
    (package / "backend.py").write_text(BACKEND)
    for value in ("one", "two"):
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.writestr(f"{value}.py", "")
        runtime, spec = VenvRuntime(), RuntimeSettings(kind="venv", requirements=[str(package)])
        place = RuntimeContext(tmp_path / "cache", builds=SourceBuilds(folder=tmp_path))
        runtime.prepare(spec, place)
        site = Path(runtime.python(spec, place)[0]).parent.parent
        found.append({path.stem for path in site.glob("lib/python*/site-packages/*.py")} & {"one", "two"})
    assert found == [{"one"}, {"one", "two"}]


def test_source_packages_are_built_only_if_the_workspace_allows_it(lab, monkeypatch):
    package, index = lab.root / "package", lab.root / "index"
    index.mkdir()
    wheel = make_package(package, 1)
    (package / "pyproject.toml").write_text(
        '[project]\nname = "flavour"\ndynamic = ["version"]\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (package / "backend.py").write_text(f"open({str(lab.marks / 'built')!r}, 'w')\n{BACKEND}")
    (package / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: flavour\nVersion: 1\n")
    archive = index / "flavour-1.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(package, "flavour-1")
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    scenario = {
        requirement: lab.scenario(
            "where", name=f"s{number}", version=None, runtime={"kind": "venv", "requirements": [requirement]}
        )
        for number, requirement in enumerate(
            [str(package), f"flavour @ {archive.as_uri()}", str(archive), "flavour==1"]
        )
    }
    for requirement, file in scenario.items():
        done = lab.bench("plan", file, code=2)
        assert "flavour" in done.stderr, requirement
        assert f"{file}:" in done.stderr, requirement
    assert "build_from_source: [flavour]" in lab.bench("plan", scenario[str(package)], code=2).stderr.replace("'", "")
    assert list(lab.marks.iterdir()) == []

    (lab.workspace / "workspace.yaml").write_text("build_from_source: [Flavour]\n")
    lab.bench("plan", scenario["flavour==1"], timeout_s=200)
    assert [path.name for path in lab.marks.iterdir()] == ["built"]
    assert wheel.exists()


def test_what_resolves_to_one_lock_shares_one_environment(lab, monkeypatch):
    """The name of an environment is the digest of its lock: another wording finds it, a new lock makes a new one."""
    wheel = str(make_package(lab.root / "wheels", 2))
    cache, runtime = lab.root / "cache", VenvRuntime()
    place = RuntimeContext(cache)
    one, other = (
        RuntimeSettings(kind="venv", requirements=[wheel]),
        RuntimeSettings(kind="venv", requirements=["pydantic>=2", wheel]),
    )
    assert "to be resolved and made" in runtime.packages(one, place)
    before = runtime.python(one, place)
    runtime.prepare(one, place)
    assert runtime.python(one, place) == before, "a dry run prints the command that will run"
    (made,) = environments(lab)
    lock = (made / "requirements.lock").read_text()
    assert "pydantic==" in lock
    assert "--hash=sha256:" in lock
    runtime.prepare(other, place)
    assert environments(lab) == [made]

    (kept,) = [path for path in (cache / "venvs" / "locks").iterdir() if path.stem in runtime.python(one, place)[0]]
    kept.write_text("\n".join(line for line in lock.splitlines() if not line.startswith("#")) + "\n# by hand\n")
    runtime.prepare(one, place)
    assert len(environments(lab)) == 2, "a lock that was changed is another environment"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("nothing is to be done"))
    runtime.prepare(one, place)


@pytest.mark.slow("pip makes two environments, resolves the packages of the worker, and installs them")
@pytest.mark.timeout(900)
def test_without_uv_the_lock_is_made_by_pip(lab, monkeypatch):
    monkeypatch.setattr("benchhouse.runtimes.venv.find_uv", lambda: None)
    monkeypatch.setenv("PIP_NO_COMPILE", "1")  # compiling what the test does not import takes many seconds
    wheel = make_package(lab.root / "wheels", 2)
    runtime, spec = VenvRuntime(), RuntimeSettings(kind="venv", requirements=[str(wheel)])
    place = RuntimeContext(lab.root / "cache")
    runtime.prepare(spec, place)
    (made,) = environments(lab)
    lines = dict(line.split(" @ ") for line in (made / "requirements.lock").read_text().splitlines())
    assert lines["flavour"].startswith(wheel.as_uri())
    assert "#sha256=" in lines["pydantic"]
    seen = subprocess.run(
        [*runtime.python(spec, place), "-c", "import flavour, benchhouse.worker; print(flavour.VALUE)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout == "2\n"


def test_a_requirement_that_can_not_be_met_is_shown_and_leaves_nothing(lab):
    lab.install("where", "1", EXPERIMENT, "[benchhouse.experiments]\nwhere@1 = where:where\n")
    runtime = {"kind": "venv", "requirements": ["where==0.0.0+nobody"]}
    done = lab.bench("run", lab.scenario("where", runtime=runtime), code=1, timeout_s=200)
    assert "the isolated environment could not be resolved" in done.stderr
    assert "nobody" in done.stderr
    assert "Traceback" not in done.stderr
    assert environments(lab) == []
    lab.is_tidy()


def test_an_environment_must_have_the_package_of_the_experiment_by_any_form_of_its_name(lab):
    lab.install("where", "1", EXPERIMENT, "[benchhouse.experiments]\nwhere@1 = where:where\n")
    for requirements in ([], ["numpy>=1", "./where2-1.0-py3-none-any.whl"], ["numpy"]):
        scenario = lab.scenario("where", runtime={"kind": "venv", "requirements": requirements})
        done = lab.bench("plan", scenario, code=2)
        assert f"{scenario}:1:" in done.stderr and "where==1" in done.stderr, requirements
        assert ("there is no file or folder" in done.stderr) == (len(requirements) == 2), requirements
    assert not (lab.root / "cache" / "venvs").exists() or environments(lab) == []
    for requirement in ("where", "Where>=1", "where @ git+https://example.org/where", "where[x]==1"):
        lab.bench("plan", lab.scenario("where", runtime={"kind": "venv", "requirements": [requirement]}))


def test_a_scaffolded_package_that_needs_benchhouse_is_installed_from_a_local_folder(lab):
    """No index is asked for benchhouse: its version here need not be published."""
    lab.bench("new", "experiment", "sort")
    package = lab.workspace / "bench-sort"
    project = (package / "pyproject.toml").read_text()
    assert '"benchhouse"' in project
    (package / "pyproject.toml").write_text(project.replace('"benchhouse"', f'"benchhouse>={version("benchhouse")}"'))
    code = (package / "src" / "bench_sort" / "__init__.py").read_text()
    lab.install("bench_sort", "0.1.0", code, "[benchhouse.experiments]\nsort = bench_sort:run\n")
    runtime = {"kind": "venv", "requirements": ["./bench-sort"]}
    lab.bench("run", lab.scenario("sort", runtime=runtime, workload={"size": 10}), timeout_s=300)
    (trial,) = lab.trials()
    assert trial.packages["benchhouse"] == version("benchhouse")
    assert "duckdb" not in trial.packages


SORTING = """
from importlib.metadata import version
from typing import Literal
import iniconfig
from benchhouse import Metric, experiment

@experiment("sorting", version="VERSION", metrics=[Metric(name="pinned", unit="1", direction="higher")])
def sorting(ctx, size: int, how: Literal["quick", "heap"] = "quick"):
    "Sort numbers."
    ctx.emit("pinned", float(version("iniconfig").split(".")[0]))
"""


def make_sorting(folder, version, pin):
    """A package that can't be installed beside its sister: each pins another release of one package of PyPI."""
    folder.mkdir(exist_ok=True)
    name = f"bench_sorting{version[0]}"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: iniconfig=={pin}\n"
    files = {
        f"{name}.py": SORTING.replace("VERSION", version),
        f"{info}/METADATA": metadata + "Requires-Dist: benchhouse\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[benchhouse.experiments]\nsorting = {name}:sorting\n",
    }
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(path, text)
    return str(wheel)


def test_packages_whose_pins_conflict_run_in_one_scenario_and_nothing_of_them_is_here(lab, monkeypatch):
    """Listed, shown, planned, run and compared by descriptions that were taken once, in their own environments."""
    old, new = (make_sorting(lab.workspace / "wheels", *item) for item in (("1.0", "1.1.1"), ("2.0", "2.0.0")))
    runtime = {"kind": "venv", "environments": [[old], [new]]}
    both = {"version": ["1.0", "2.0"], "runtime": runtime, "workload": {"size": 10}}
    monkeypatch.setenv("BENCH_CACHE_DIR", str(lab.root / "cache"))
    workspace = Workspace(lab.workspace)
    from_reader = ScenarioText(json.dumps({"scenario": "s", "experiment": "sorting", **both}), read_only=True)
    with pytest.raises(BenchError, match="needs the role run"):  # a reader does not make environments, and
        workspace.plan(from_reader)
    planned = lab.bench("plan", lab.scenario("sorting", **both), timeout_s=300)
    assert planned.stderr.count("making the isolated environment") == 2
    assert "sorting 1.0, 2.0" in planned.stdout
    assert workspace.plan(from_reader)[0].points == 2  # uses those that exist
    listed = json.loads(lab.bench("list", "experiments", "--json").stdout)
    apart = {item["version"]: item for item in listed if item["name"] == "sorting"}
    assert {version: (item["installed"], item["environment"]) for version, item in apart.items()} == {
        "1.0": (False, [old]),
        "2.0": (False, [new]),
    }
    shown = json.loads(lab.bench("show", "sorting", "--version", "1.0", "--json").stdout)
    assert [(item["name"], item["type"], item["default"]) for item in shown["workload"]] == [
        ("size", "int", None),
        ("how", "quick | heap", "quick"),
    ]

    done = lab.bench("run", lab.scenario("sorting", **both), timeout_s=300)
    assert "making" not in done.stderr, "what was described is not made again"
    trials = lab.trials()
    assert {(item.spec["experiment"]["version"], item.packages["iniconfig"]) for item in trials} == {
        ("1.0", "1.1.1"),
        ("2.0", "2.0.0"),
    }
    assert len(trials) == 2
    assert len({item.meta["package_lock_digest"] for item in trials}) == 2
    for trial in trials:
        (own,) = (name for name in trial.packages if name.startswith("bench_sorting"))
        assert own.endswith(trial.spec["experiment"]["version"][0])
        assert trial.spec["runtime"]["requirements"] == [old if own.endswith("1") else new]
    assert "version=2.0" in lab.bench("compare", "@last", "--json").stdout
    absent = [sys.executable, "-c", "import bench_sorting1"]
    assert subprocess.run(absent, capture_output=True, env=lab.environment(), check=False).returncode == 1

    only = {"kind": "venv", "requirements": [old]}
    bad = lab.scenario("sorting", runtime=only, workload={"size": 1, "how": "heep"})
    assert "did you mean 'heap'?" in lab.bench("plan", bad, code=2).stderr
    message = lab.bench("plan", lab.scenario("sortin", runtime=only), code=2).stderr
    assert "no experiment named 'sortin' is installed, neither here nor in the runtime" in message
    assert "did you mean 'sorting'?" in message
    lab.is_tidy()


def test_an_environment_whose_file_is_not_there_is_told_before_anything_is_made(lab):
    runtime = {"kind": "venv", "environments": [["./gone-1.0-py3-none-any.whl"]]}
    done = lab.bench("plan", lab.scenario("nobody", runtime=runtime), code=2)
    assert "there is no file or folder" in done.stderr
    assert not (lab.root / "cache" / "venvs").exists()


def test_a_request_follows_the_content_of_local_packages(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text("x = 1")
    runtime, spec = VenvRuntime(), RuntimeSettings(kind="venv", requirements=[str(package)])
    first = runtime.python(spec, RuntimeContext(tmp_path))
    assert runtime.python(spec, RuntimeContext(tmp_path)) == first
    (package / "a.py").write_text("x = 10")
    assert runtime.python(spec, RuntimeContext(tmp_path)) != first
    assert runtime.python(RuntimeSettings(kind="venv", requirements=["b"]), RuntimeContext(tmp_path)) != first


def test_the_process_runtime_takes_no_requirements(tmp_path):
    assert ProcessRuntime().python(RuntimeSettings(), RuntimeContext(tmp_path))[0] == sys.executable
    with pytest.raises(BenchError, match="uses the installed packages as they are") as found:
        ProcessRuntime().prepare(RuntimeSettings(requirements=["x"]), RuntimeContext(tmp_path))
    assert "kind: venv" in found.value.hint


def test_modules_that_lie_in_the_current_folder_are_not_taken_for_ours(lab):
    (lab.workspace / "json.py").write_text("raise RuntimeError('the wrong json')")
    (lab.workspace / "pydantic.py").write_text("raise RuntimeError('the wrong pydantic')")
    bench = [str(Path(sys.executable).parent / "bench"), "run", str(lab.scenario("once")), "--json"]
    done = subprocess.run(bench, cwd=lab.workspace, env=lab.environment(), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"succeeded": 1}
