"""`bench fetch`: what there is, bringing it, and what is said when that fails."""

import hashlib
import json
from pathlib import Path

import pytest

from benchhouse.evidence.data_cache import nearest_source

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


def test_it_says_what_came_how_much_and_under_which_licence(bench, table):
    digest = hashlib.sha256(CONTENT).hexdigest()[:12]
    assert bench("fetch", "table").err == f"table: 600 B, CC0, sha256 {digest}, downloaded from {table.as_uri()}\n"
    assert bench("fetch", "table").err == f"table: 600 B, CC0, sha256 {digest}, already in the cache\n"
    (row,) = json.loads(bench("fetch", "table", "--json").out)
    assert (row["size"], row["licence"], row["brought"]) == (600, "CC0", False)
    assert any("600 B" in line and "CC0" in line for line in bench("fetch").out.splitlines())


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
    assert "can't copy table from file://" in done.err


def test_an_unknown_name_is_refused_with_a_guess(bench, table):
    assert "did you mean 'table'?" in bench("fetch", "tabel").err
    done = bench("fetch", "zzz")
    assert done.code == 2
    assert "there is: " in done.err


def test_without_declared_data_it_says_so(bench):
    done = bench("fetch")
    assert (done.code, done.out, done.err) == (0, "", "no installed experiment declares data to download\n")


@pytest.mark.parametrize("variable", ["npm_config_registry", "NPM_CONFIG_REGISTRY"])
def test_another_registry_of_npm_is_asked_where_one_is_set(variable):
    url = "https://registry.npmjs.org/a/-/a-1.tgz"
    assert nearest_source(url, {variable: "https://mirror.example/npm"}) == "https://mirror.example/npm/a/-/a-1.tgz"
    assert nearest_source(url, {}) == url
    assert nearest_source("https://example.org/x", {variable: "https://mirror.example"}) == "https://example.org/x"


@pytest.fixture
def scenario(tmp_path, table):
    path = tmp_path / "s.yaml"
    path.write_text("scenario: s\nexperiment: sum\n")
    return path


def test_all_that_a_scenario_needs_is_brought(bench, scenario):
    done = bench("fetch", "-c", scenario)
    assert done.code == 0, done.err
    data, python = done.out.splitlines()
    assert Path(data).read_bytes() == CONTENT and Path(python).exists()
    assert "nothing is missing" in done.err
    assert "not both" in bench("fetch", "table", "-c", scenario).err


def test_data_that_no_value_calls_for_is_not_brought(tmp_path, packages):
    from benchhouse.runs import fetch, preparation
    from benchhouse.schema.layout import WorkspaceFolder

    code = (
        "from benchhouse import Data, experiment\n"
        "def one(name, *uses): return Data(name=name, source='file:///x', sha256='0' * 64, used_with=uses)\n"
        "@experiment('load', version='1', data=[one('words', 'words'), one('texts', 'model'), one('model', 'model')])\n"
        "def run(data: str | dict[str, str]): ...\n"
    )
    packages.add("pack", "pack_a", code, "load = pack_a:run")

    def names(data):
        (tmp_path / "s.yaml").write_text(f"scenario: s\nexperiment: load\nworkload: {{data: {data}}}\n")
        prepared = preparation.prepare(WorkspaceFolder(tmp_path), tmp_path / "s.yaml")
        return {item.name for item in fetch.needed_data(prepared)}

    assert names("synthetic") == set()
    assert names("[synthetic, words]") == {"words"}
    assert names("{kind: model}") == {"model", "texts"}


ELSEWHERE = """
class Elsewhere:
    window, outlives = 1, True
    def __init__(self, *args, **more): pass
    def check(self, resources): pass
    def close(self): pass
"""


@pytest.fixture
def elsewhere(packages, scenario, tmp_path):
    """An executor whose jobs run on other nodes, at a site without egress; nothing is ever run."""
    packages.add("far", "far", ELSEWHERE, "elsewhere = far:Elsewhere", group="executors")
    (tmp_path / "site.yaml").write_text("site: far\nexecutor: elsewhere\nnetwork: {egress: false}\n")
    return scenario


def test_submit_refuses_with_the_list_of_what_compute_nodes_can_not_bring(bench, elsewhere, tmp_path):
    elsewhere.write_text(
        "scenario: s\nexperiment: sum\nbinds: ['/no/dir:/data']\n"
        "artifacts: {container: /no.sif}\nruntime: {kind: apptainer}\n"
    )
    done = bench("submit", "-c", elsewhere)
    assert done.code == 2
    assert "compute nodes of site 'far' do not reach the internet" in done.err
    for line in (
        "the image /no.sif is not there: make it on a login node: bench images pull",
        "a bind: /no/dir does not exist",
        "data table (file://",
    ):
        assert f"  - {line}" in done.err
    assert not (tmp_path / ".bench" / "runs").exists()
    done = bench("fetch", "-c", elsewhere)
    assert done.code == 1 and "still missing" in done.err and "data table (" not in done.err


def test_a_runtime_that_was_not_made_is_missing(bench, elsewhere):
    bench("fetch", "table")
    elsewhere.write_text("scenario: s\nexperiment: sum\nruntime: {kind: venv, requirements: [six, pack==1.0]}\n")
    done = bench("submit", "-c", elsewhere)
    assert done.code == 2 and "the environment of runtime 'venv': bench fetch -c SCENARIO" in done.err


def test_a_workspace_that_other_nodes_do_not_see_is_refused(bench, elsewhere, tmp_path):
    (tmp_path / "site.yaml").write_text("site: far\nexecutor: elsewhere\nfolders: {shared: [/project]}\n")
    done = bench("submit", "-c", elsewhere)
    assert done.code == 2 and "is not seen by the nodes of site 'far'" in done.err and "/project" in done.err
