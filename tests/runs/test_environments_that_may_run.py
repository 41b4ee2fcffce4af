"""Isolated environments are looked at before anything of them is built or run: real wheels, uv and ssh-keygen."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from signed_packages import CODE, make_keys, make_wheel

from benchhouse.processes.packages import find_uv

pytestmark = pytest.mark.slow
BACKEND = """
from pathlib import Path
Path(__file__).with_name("BUILT").touch()
def build_wheel(*_):
    Path(__file__).with_name("BUILT").touch()
    raise SystemExit("built")
get_requires_for_build_wheel = prepare_metadata_for_build_wheel = build_wheel
"""


@pytest.fixture
def team(tmp_path, packages):
    """A scenario of an experiment that only its isolated environment has; a Python that starts there leaves a mark."""
    mark = tmp_path / "RAN"
    hook = {"zz_mark.pth": f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n"}
    wheel = make_wheel(tmp_path / "dist", more=hook)
    advisories(tmp_path, "somebody-else")
    scenario(tmp_path, wheel)
    policy(tmp_path, advisories="osv")
    return tmp_path


def scenario(root: Path, *requirements: object) -> None:
    runtime = {"kind": "venv", "requirements": [str(item) for item in requirements]}
    (root / "z.yaml").write_text(json.dumps({"scenario": "z", "experiment": "zip.time", "runtime": runtime}))


def policy(root: Path, people: str = "ada: {}", **packages: str) -> None:
    (root / "trusted.yaml").write_text(f"people: {{{people}}}\npackages: {json.dumps(packages)}\n")


def advisories(root: Path, name: str) -> None:
    (root / "osv").mkdir(exist_ok=True)
    modified = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]
    affected = [{"package": {"ecosystem": "PyPI", "name": name}, "ranges": ranges}]
    record = {"id": "PYSEC-1", "modified": modified, "summary": "It leaks.", "affected": affected}
    (root / "osv" / "1.json").write_text(json.dumps(record))


def nothing_ran(root: Path) -> bool:
    venvs = root / "cache" / "venvs"
    made = [path for path in venvs.iterdir() if path.is_dir() and path.name not in ("locks", "by-request")]
    return not made and not (root / "RAN").exists() and not list(root.rglob("BUILT"))


def test_an_environment_is_scanned_before_it_is_made_and_what_passed_runs(team, bench):
    for words in (("plan", "z.yaml"), ("run", "z.yaml"), ("submit", "z.yaml")):
        refused = bench(*words)
        assert refused.code == 5 and "it was not scanned" in refused.err, words
        assert "bench packages scan -c z.yaml" in refused.err
    advisories(team, "zip-time")
    flawed = bench("packages", "scan", "-c", "z.yaml")
    assert flawed.code == 2 and "zip-time 1.0 has PYSEC-1" in flawed.err
    assert bench("run", "z.yaml").code == 5
    assert nothing_ran(team)
    advisories(team, "somebody-else")
    passed = bench("packages", "scan", "-c", "z.yaml", "--json")
    (item,) = json.loads(passed.out)["packages"]
    parts = {part["name"]: part for part in item["scan"]["components"]}
    assert passed.code == 0 and parts["zip-time"]["licence"] == "MIT" and "pydantic" in parts
    assert nothing_ran(team)
    assert bench("run", "z.yaml").code == 0
    assert (team / "RAN").exists(), "the mark is left by what runs"
    assert (
        json.loads(bench("packages", "scan", "-c", "z.yaml", "--json").out)["packages"][0]["scan"]["lock_digest"]
        == item["scan"]["lock_digest"]
    ), "what was made is what was looked at"


@pytest.mark.parametrize("form", ["folder", "sdist", "static folder"])
def test_what_has_to_be_built_is_refused_and_not_built(team, bench, form):
    project = team / "project"
    project.mkdir()
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    about = (
        'name = "zip-time"\nversion = "1.0"\n'
        if form == "static folder"
        else 'name = "zip-time"\ndynamic = ["version"]\n'
    )
    (project / "pyproject.toml").write_text(f"[project]\n{about}{build}")
    (project / "backend.py").write_text(BACKEND)
    (project / "zip_time.py").write_text(CODE)
    (project / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: zip-time\nVersion: 1.0\n")
    archive = team / "zip_time-1.0.tar.gz"
    tar = ["tar", "czf", archive, "--transform", "s/^project/zip_time-1.0/", "-C", team, "project"]
    subprocess.run(tar, check=True)
    scenario(team, archive if form == "sdist" else project)
    scanned = bench("packages", "scan", "-c", "z.yaml")
    assert scanned.code == 1 and "can't be looked at before something of it is built" in scanned.err
    refused = bench("run", "z.yaml")
    assert refused.code == 5 and "can't be looked at before something of it is built" in refused.err
    assert "uv build --wheel" in refused.err
    assert nothing_ran(team)


def test_the_packages_of_an_environment_are_signed_before_it_is_made(team, bench, tmp_path):
    (keys := tmp_path / "keys").mkdir()
    public = make_keys(keys, "ada", "eve")
    policy(team, f'ada: {{registers: true, keys: ["{public["ada"]}"]}}', signatures="required")
    refused = bench("run", "z.yaml")
    assert refused.code == 5 and "zip-time 1.0: it is not signed" in refused.err and nothing_ran(team)
    assert bench("packages", "sign", *(team / "dist").iterdir(), "--key", keys / "ada").code == 0
    done = bench("run", "z.yaml")
    assert done.code == 0, done.err
    site = next((team / "cache" / "venvs").glob("*/lib/python*/site-packages"))
    (site / "zip_time" / "__init__.py").write_text(CODE + "\n")
    altered = bench("run", "z.yaml", "--new")
    assert altered.code == 5 and "zip_time/__init__.py is not as it was signed" in altered.err


def test_uv_asks_the_backend_of_a_project_unless_it_is_told_not_to(team):
    """That the mark of the backend is left shows that the tests above would notice."""
    project = team / "project"
    project.mkdir()
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (project / "pyproject.toml").write_text(f'[project]\nname = "zip-time"\ndynamic = ["version"]\n{build}')
    (project / "backend.py").write_text(BACKEND)
    (team / "in.txt").write_text(str(project))
    command = [find_uv() or "uv", "pip", "compile", "--quiet", "--python", sys.executable, str(team / "in.txt")]
    assert subprocess.run(command, capture_output=True, check=False).returncode
    assert (project / "BUILT").exists()
