"""Registered benchmarks, of the workspace and of installed packages."""

import json

import pytest

from benchhouse.catalog.benchmark_lookup import BenchmarkIndex
from benchhouse.catalog.benchmarks import list_benchmarks
from benchhouse.documents.problems import ProblemsError
from benchhouse.schema.errors import BenchError

STANDARD = "benchmark: standard\nexperiment: command\ndescription: what we agreed on\nworkload: {executions: [3, 4]}\n"


def find_benchmark(name, folder):
    return BenchmarkIndex((folder,), None, lambda document, name: pytest.fail("no space is read")).find(name)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    return tmp_path / "benchmarks"


def test_a_benchmark_of_the_workspace_is_found_listed_and_used(folder, bench):
    (folder / "any.yaml").write_text(STANDARD)
    (folder.parent / "mine.yaml").write_text('scenario: mine\nuses: standard\ntarget: {argv: ["true"]}\n')
    assert find_benchmark("standard", folder).origin == "workspace"
    (row,) = json.loads(bench("list", "benchmarks", "--json").out)
    assert (row["benchmark"], row["experiment"], row["used_by"]) == ("standard", "command", ["mine"])
    assert "what we agreed on" in bench("list", "benchmarks").out
    assert json.loads(bench("plan", "mine.yaml", "--json").out)["points"] == 2
    assert "Measured executions" in bench("show", "standard").out


def test_a_benchmark_of_an_installed_package_is_found_and_used(packages, folder, bench):
    package = packages.folder / "pack_bench"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "b.yaml").write_text(STANDARD)
    packages.add("pack", "unused", "", "all = pack_bench", group="benchmarks")
    assert find_benchmark("standard", folder).origin == "pack"
    (folder.parent / "mine.yaml").write_text('scenario: mine\nuses: standard\ntarget: {argv: ["true"]}\n')
    assert json.loads(bench("plan", "mine.yaml", "--json").out)["points"] == 2


def test_an_unknown_benchmark_is_answered_with_the_nearest(folder):
    (folder / "any.yaml").write_text(STANDARD)
    with pytest.raises(BenchError, match="did you mean 'standard'"):
        find_benchmark("standart", folder)


def test_a_benchmark_registered_twice_is_refused(folder):
    (folder / "a.yaml").write_text(STANDARD)
    (folder / "b.yaml").write_text(STANDARD)
    with pytest.raises(BenchError, match=r"registered twice: .*a.yaml and .*b.yaml"):
        find_benchmark("standard", folder)


def test_a_broken_file_or_package_spoils_no_other(packages, folder, bench):
    (folder / "a.yaml").write_text("benchmark: x y\n")
    (folder / "b.yaml").write_text(STANDARD)
    packages.add("pack", "pack_bad", "raise RuntimeError('no')", "all = pack_bad", group="benchmarks")
    assert find_benchmark("standard", folder).benchmark.experiment == "command"
    good, broken = list_benchmarks(folder)
    assert (len(good), len(broken)) == (1, 2)
    with pytest.raises(ProblemsError, match=r"a.yaml:1:12: 'x y' can't be a name"):
        find_benchmark("the one in a.yaml", folder)
    shown = bench("list", "benchmarks")
    assert "standard" in shown.out and "a.yaml:1:12" in shown.err and "RuntimeError: no" in shown.err
    assert bench("show", "command").code == 0


def test_a_version_that_the_benchmark_freezes_can_not_be_changed(folder, bench):
    (folder / "b.yaml").write_text(STANDARD + 'version: "1.0"\n')
    (folder.parent / "s.yaml").write_text('scenario: s\nuses: standard\ntarget: {argv: [ls]}\nversion: "2.0"\n')
    done = bench("validate", "s.yaml")
    assert done.code == 2
    assert "s.yaml:4:10: the benchmark 'standard' is frozen to version '1.0'" in done.err


def test_a_benchmark_may_leave_the_version_to_the_scenario(folder, bench):
    (folder / "b.yaml").write_text(STANDARD)
    (folder.parent / "s.yaml").write_text('scenario: s\nuses: standard\ntarget: {argv: [ls]}\nversion: "9"\n')
    assert "not installed in version '9'" in bench("validate", "s.yaml").err
