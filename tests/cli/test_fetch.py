"""`bench fetch`: what there is, bringing it, and what is said when that fails."""

import hashlib
import json
from pathlib import Path

import pytest

from benchhouse.worker.cache import nearest_source

CONTENT = b"1 2 3\n" * 100


@pytest.fixture
def table(tmp_path, packages):
    """An experiment that declares a file, and that file."""
    path = tmp_path / "table.txt"
    path.write_bytes(CONTENT)
    code = (
        "from benchhouse import Data, experiment\n"
        f"TABLE = Data(name='table', source={path.as_uri()!r}, sha256={hashlib.sha256(CONTENT).hexdigest()!r}, "
        "licence='CC0')\n"
        "@experiment('sum', version='1', data=[TABLE])\ndef run(): ...\n"
    )
    packages.add("pack", "pack_a", code, "sum = pack_a:run")
    return path


def test_it_lists_what_there_is_and_what_is_here(bench, table):
    (row,) = [item for item in json.loads(bench("fetch", "--json").out) if item["name"] == "table"]
    assert (row["experiment"], row["licence"], row["here"]) == ("sum", "CC0", False)
    assert "table" in bench("fetch").out
    assert bench("fetch", "table").code == 0
    (row,) = [item for item in json.loads(bench("fetch", "--json").out) if item["name"] == "table"]
    assert row["here"]


def test_it_prints_where_the_data_lie_and_needs_the_source_once(bench, table):
    done = bench("fetch", "table")
    assert Path(done.out.strip()).read_bytes() == CONTENT
    table.unlink()
    assert bench("fetch", "table").out == done.out


def test_other_bytes_than_declared_are_refused(bench, table):
    table.write_bytes(CONTENT + b"!")
    done = bench("fetch", "table")
    assert done.code == 2
    assert "wrong data: 'table'" in done.err
    assert not json.loads(bench("fetch", "--json").out)[-1]["here"]


def test_data_that_cannot_be_had_are_told_with_their_address(bench, table):
    table.unlink()
    done = bench("fetch", "table")
    assert done.code == 2
    assert "can't download table from file://" in done.err


def test_an_unknown_name_is_refused_with_a_guess(bench, table):
    assert "did you mean 'table'?" in bench("fetch", "tabel").err
    done = bench("fetch", "zzz")
    assert done.code == 2
    assert "there is: " in done.err


def test_glove_is_declared_with_its_licence(bench):
    (row,) = [item for item in json.loads(bench("fetch", "--json").out) if item["name"] == "glove"]
    assert row["source"].startswith("https://registry.npmjs.org/") and "PDDL" in row["licence"]


@pytest.mark.parametrize("variable", ["npm_config_registry", "NPM_CONFIG_REGISTRY"])
def test_another_registry_of_npm_is_asked_where_one_is_set(variable):
    url = "https://registry.npmjs.org/a/-/a-1.tgz"
    assert nearest_source(url, {variable: "https://mirror.example/npm"}) == "https://mirror.example/npm/a/-/a-1.tgz"
    assert nearest_source(url, {}) == url
    assert nearest_source("https://example.org/x", {variable: "https://mirror.example"}) == "https://example.org/x"
