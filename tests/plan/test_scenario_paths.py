"""Packages, images and binds: which of them are paths, and where those lead."""

from pathlib import Path

import pytest

from benchhouse.plan.scenario_file import parse_scenario
from benchhouse.plan.scenario_paths import missing_packages, package_problems, with_absolute_paths
from benchhouse.schema.trial import ExperimentRef


def absolute(text, folder=Path("/w")):
    return with_absolute_paths(parse_scenario(f"scenario: s\nexperiment: e\n{text}\n", "s.yaml", {}), folder).scenario


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("./mine", "/w/mine"),
        ("../mine[extra]", "/mine[extra]"),
        ("deep/er", "/w/deep/er"),
        ("mine-1.whl", "/w/mine-1.whl"),
        ("mine-1.tar.gz", "/w/mine-1.tar.gz"),
        ("mine.zip", "/w/mine.zip"),
        ("/abs/mine", "/abs/mine"),
        ("numpy==1.26", "numpy==1.26"),
        ("mine[a/b]", "mine[a/b]"),
        ("https://host/mine.whl", "https://host/mine.whl"),
        ("mine @ file:/x", "mine @ file:/x"),
    ],
)
def test_a_requirement_is_a_path_as_pip_tells_them(given, made):
    assert absolute(f"runtime: {{kind: venv, requirements: ['{given}', numpy]}}").runtime.requirements == [
        made,
        "numpy",
    ]


def test_a_home_is_a_path_too(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert absolute("runtime: {kind: venv, requirements: ['~/mine']}").runtime.requirements == ["/home/me/mine"]


@pytest.mark.parametrize(
    ("given", "made"),
    [("i.sif", "/w/i.sif"), ("docker://a/i.sif", "docker://a/i.sif"), ("ubuntu:24.04", "ubuntu:24.04")],
)
def test_an_image_is_a_path_where_it_is_a_file_of_one(given, made):
    assert absolute(f"runtime: {{kind: apptainer, image: '{given}'}}").runtime.image == made
    kept = absolute(f"artifacts: {{container: '{given}', dataset: x.sif}}").artifacts
    assert kept.container == made and kept.dataset and kept.dataset.path == "x.sif"


def test_the_first_part_of_a_bind_is_a_path():
    assert absolute("binds: ['data:/data:ro', '/abs:/x', '../x:/y']").binds == ["/w/data:/data:ro", "/abs:/x", "/x:/y"]


def test_a_scenario_without_paths_is_left_as_it_is():
    file = parse_scenario("scenario: s\nexperiment: e\nruntime: {requirements: [numpy]}\n", "s.yaml", {})
    assert with_absolute_paths(file, Path("/w")) is file


def problems(requirements, kind="venv", **fields):
    text = f"scenario: s\nexperiment: e\nruntime: {{kind: {kind}, requirements: {requirements}}}\n"
    ref = {"name": "e", "version": "1", "object": "mine.x:e", "distribution": "mine", "distribution_version": "1"}
    file = parse_scenario(text, "s.yaml", {})
    both = [*missing_packages(file), *package_problems(file, ExperimentRef(**ref | fields))]
    return [(problem.line, problem.column, problem.message) for problem in both]


def test_requirements_that_are_not_there_are_told_at_their_place(tmp_path):
    (tmp_path / "there").mkdir()
    assert problems(f"[mine, {tmp_path}/gone, '{tmp_path}/there[x]']") == [
        (3, 44, f"there is no file or folder {tmp_path}/gone")
    ]


def test_an_environment_that_lacks_the_experiments_own_package_is_told():
    lacks = "the isolated environment would not have the package 'mine', which provides e"
    assert problems("[numpy]") == [(3, 37, lacks)]
    assert problems("[mine]") == problems("[numpy]", kind="process") == problems("[numpy]", object="") == []
    assert problems("[numpy]", distribution="Benchhouse") == []
