"""Requirements that must install together: a real resolver, over wheels and folders made here and a real git."""

import re
import socket
import subprocess
import tomllib
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest

from benchhouse.catalog.nexus_requirements import Requirement
from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.nexus.joint_install import smallest_conflict
from benchhouse.nexus.resolution import UnresolvedError, find_uv, resolve_together

NEXUS = "package:\n  name: p\n  benchmark_packages:\n"


@pytest.fixture(autouse=True)
def _no_index(tmp_path, monkeypatch):
    """Only wheels of this folder are to be had, those that Benchhouse itself needs as empty ones."""
    links = tmp_path / "links"
    links.mkdir()
    for needed in requires("benchhouse") or ():
        if "extra ==" not in needed:
            make_wheel(links, re.split(r"[^\w.-]", needed)[0].replace("-", "_"), "99")
    for version in ("1.0", "2.0"):
        make_wheel(links, "tool", version)
    settings = tmp_path / "uv.toml"
    settings.write_text(f'no-index = true\nfind-links = ["{links}"]\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))


def make_wheel(folder, name, version, *needs):
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", metadata + "".join(f"Requires-Dist: {item}\n" for item in needs))
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def make_project(folder, name, *needs):
    folder.mkdir(parents=True)
    listed = "".join(f'  "{item}",\n' for item in needs)
    build = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    project = f'{build}[project]\nname = "{name}"\nversion = "0.1"\ndependencies = [\n{listed}]\n'
    (folder / "pyproject.toml").write_text(project)
    return folder


def asked(*items):
    """(kind, text, name[, folder]) as nexus.yaml would ask for them, one a line from line 4 on."""
    lines = "".join(f"    - {{requirement_specifier: {item[1]!r}}}\n" for item in items)
    document = parse_yaml(NEXUS + lines, "nexus.yaml")
    return [
        Requirement(
            kind, text, name, document, ("package", "benchmark_packages", at),
            folder[0] / "pyproject.toml" if folder else None,
        )
        for at, (kind, text, name, *folder) in enumerate(items)
    ]  # fmt: skip


def test_what_goes_together_with_this_benchhouse_gives_a_lock(tmp_path):
    folder = make_project(tmp_path / "seg", "seg", "benchhouse", "tool>1")
    lock = resolve_together(asked(("path", str(folder), "seg", folder), ("index", "tool", "tool")))
    assert "pydantic==99" in lock and "tool==2.0" in lock and "seg" in lock


def test_what_can_not_live_beside_this_benchhouse_is_refused():
    with pytest.raises(UnresolvedError, match=r"click: .*benchhouse needs click>=8"):
        resolve_together(asked(("index", "click<2", "click")))


def test_two_pins_of_one_thing_are_named_with_their_lines():
    with pytest.raises(UnresolvedError) as raised:
        resolve_together(asked(("index", "tool==1.0", "tool"), ("index", "tool==2.0", "tool")))
    said = raised.value.message
    assert "nexus.yaml needs tool==1.0 (nexus.yaml:4); nexus.yaml needs tool==2.0 (nexus.yaml:5)" in said


def test_what_two_packages_need_is_told_with_the_files_that_say_so(tmp_path):
    a = make_project(tmp_path / "a", "pack-a", "tool<2")
    b = make_project(tmp_path / "b", "pack-b", "benchhouse", "tool>=2")
    with pytest.raises(UnresolvedError) as raised:
        resolve_together(asked(("path", str(a), "pack-a", a), ("path", str(b), "pack-b", b)))
    said = raised.value.message
    assert "these can't be installed together:\n  tool: " in said
    assert f"pack-a needs tool<2 ({a}/pyproject.toml:8)" in said
    assert f"pack-b needs tool>=2 ({b}/pyproject.toml:9)" in said


def test_a_package_that_is_nowhere_is_named_with_the_file_that_asks_for_it(tmp_path):
    folder = make_project(tmp_path / "seg", "seg", "no-such-thing")
    with pytest.raises(UnresolvedError, match=r"pyproject.toml:8: there is no package 'no-such-thing'"):
        resolve_together(asked(("path", str(folder), "seg", folder)))


def test_a_git_repository_is_resolved_and_one_that_is_not_there_is_named(tmp_path):
    folder = make_project(tmp_path / "repo", "seg", "tool<2")
    quiet = {"cwd": folder, "check": True, "capture_output": True}
    subprocess.run(["git", "init", "-q"], **quiet)
    subprocess.run(["git", "add", "."], **quiet)
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *who, "commit", "-qm", "first"], **quiet)
    lock = resolve_together(asked(("url", f"seg @ git+file://{folder}", "seg")))
    assert "tool==1.0" in lock and "git+file" in lock
    with pytest.raises(UnresolvedError, match=r"nexus.yaml:4: seg @ git\+file://.*nowhere can't be fetched"):
        resolve_together(asked(("url", f"seg @ git+file://{tmp_path}/nowhere", "seg")))


def test_a_git_server_that_refuses_is_named_with_its_line():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"git+http://127.0.0.1:{server.getsockname()[1]}/lab/evals.git@v1"
    with pytest.raises(UnresolvedError) as raised:
        resolve_together(asked(("index", "tool", "tool"), ("url", url, "")))
    assert raised.value.message.startswith(f"nexus.yaml:5: {url} can't be fetched: unable to access")


def test_a_git_server_that_never_answers_is_given_up_in_time():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"git+http://127.0.0.1:{server.getsockname()[1]}/lab/evals.git"
        with pytest.raises(UnresolvedError, match=rf"no answer within 3 s from {url.replace('+', '.')} \(nexus.yaml:4"):
            resolve_together(asked(("url", url, "")), timeout_s=3)


def test_without_uv_the_extra_that_brings_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(UnresolvedError, match="needs the program uv") as problem:
        find_uv()
    assert problem.value.hint == "pip install 'benchhouse[packages]'"
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert any(item.startswith("uv") for item in extras["packages"])


def test_of_many_requirements_only_those_that_conflict_are_blamed(tmp_path):
    """Two planted among six: neither alone is at fault, and nobody else is."""
    others = [make_project(tmp_path / f"other{at}", f"other-{at}", "tool") for at in range(4)]
    old = make_project(tmp_path / "old", "pack-old", "tool<2")
    new = make_project(tmp_path / "new", "pack-new", "tool>=2")
    folders = [others[0], old, others[1], others[2], new, others[3]]
    items = asked(*(("path", str(folder), folder.name, folder) for folder in folders))
    fewest, reason = smallest_conflict(items)
    assert [item.text for item in fewest] == [str(old), str(new)]
    assert "tool<2" in reason
    assert "other" not in reason
    assert [item.text for item in smallest_conflict(items[1:5])[0]] == [str(old), str(new)]


def test_a_requirement_that_nothing_can_meet_is_a_conflict_of_its_own():
    items = asked(("index", "tool==1.0", "tool"), ("index", "click<2", "click"))
    assert [item.text for item in smallest_conflict(items)[0]] == ["click<2"]
