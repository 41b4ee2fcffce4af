"""The driver of docs/how-to/add-a-driver.md, as written there: it passes the suite, and `bench` runs it."""

import json
import re
import sys
import types
from pathlib import Path

import pytest

pytestmark = pytest.mark.clients

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "add-a-driver.md").read_text(encoding="utf-8")


def block(language: str, word: str) -> str:
    """The fenced block that has this word."""
    (found,) = (text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if word in text)
    return found


def shown(name: str, text: str) -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, "add-a-driver.md", "exec"), module.__dict__)
    return module


shown("benchhouse.drivers.brute", block("python", "class Brute"))
exec(compile(block("python", "class TestBrute"), "add-a-driver.md", "exec"), globals())  # pytest collects TestBrute


def test_the_suite_is_there():
    assert len([name for name in dir(globals()["TestBrute"]) if name.startswith("test_")]) > 9


def test_the_recipe_shown_is_the_real_one():
    from benchhouse.recipes.chroma import RECIPE

    told_elsewhere = {"description", "licence", "environment"}
    page = shown("shown_recipe", block("python", "RECIPE =")).RECIPE
    assert page.model_dump(exclude=told_elsewhere) == RECIPE.model_dump(exclude=told_elsewhere)


def test_bench_runs_it_beside_another_with_the_same_truth(packages, bench, tmp_path):
    line = re.search(r'^brute = "benchhouse.drivers.(brute:Brute)"$', block("toml", "entry-points"), re.MULTILINE)
    packages.add("bench-brute", "brute", block("python", "class Brute"), f"brute = {line[1]}", group="drivers")
    (tmp_path / "brute.yaml").write_text(block("yaml", "brute.yaml"))
    done = bench("run", "brute.yaml", "--json")
    assert done.code == 0, done.err
    recalls = {row["point"]: row["mean"] for row in json.loads(done.out)["points"] if row["metric"] == "recall"}
    assert recalls == {"name=brute": 1.0, "name=faiss": 1.0}
