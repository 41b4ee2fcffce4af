"""`scripts/house.py` counts names and phrases that stop a reader, and lets its limits only fall."""

import importlib.util
import sys
from pathlib import Path

import grimp
import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "house.py"
SETTINGS = """
forbidden_words = ["told"]
vague_names = ["found"]
odd_phrases = ['\\bbeside\\b']
[shared_names_allowed]
Allowed = "a reason"
[limits]
shared_class_names = 2
vague_locals = 5
[targets]
"""
FIRST = '''
"""A module beside another; `beside` in code does not count."""
class Place: ...
class Allowed: ...
def told_once(found):
    found = 1
    return found
'''
SECOND = "class Place: ...\nclass Allowed: ...\nclass Retold: ...\n"


@pytest.fixture
def script(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("house", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "house", module)
    spec.loader.exec_module(module)
    (tmp_path / "first.py").write_text(FIRST)
    (tmp_path / "second.py").write_text(SECOND)
    (tmp_path / "house.toml").write_text(SETTINGS)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    monkeypatch.setattr(module, "SETTINGS", tmp_path / "house.toml")
    return module


def run(script, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["house.py", *words])
    return script.main()


def test_each_figure_counts_its_places(script, monkeypatch, capsys):
    expected = {
        "shared_class_names": ["first.py:3: Place", "second.py:1: Place"],
        "forbidden_names": ["first.py:5: told_once"],
        "vague_locals": ["first.py:5: found", "first.py:6: found"],
        "odd_sentences": ["first.py:2: beside"],
    }
    for name, places in expected.items():
        run(script, monkeypatch, name)
        assert capsys.readouterr().out.splitlines() == places, name


def test_limits_fall_to_the_present_figures_and_a_figure_above_its_limit_fails(script, monkeypatch, tmp_path):
    assert run(script, monkeypatch, "--lower") == 0
    settings = (tmp_path / "house.toml").read_text()
    assert "shared_class_names = 2\n" in settings and "vague_locals = 2\n" in settings
    (tmp_path / "third.py").write_text("found = 1\n")
    assert run(script, monkeypatch, "--lower") == 1
    assert (tmp_path / "house.toml").read_text() == settings


def test_circles_are_groups_of_modules_that_import_each_other(script):
    graph = grimp.ImportGraph()
    for importer, imported in ("ab", "bc", "ca", "ad", "de", "ed", "fa"):
        graph.add_import(importer=importer, imported=imported)
    assert sorted(map(sorted, script.circles_of(graph))) == [["a", "b", "c"], ["d", "e"]]
