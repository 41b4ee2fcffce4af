"""Packages that differ are named with their versions: between two runs, and between the trials of one run."""

import json
import os

import pytest

from benchhouse.api.workspace import Workspace
from benchhouse.results.run_conditions import differing, differing_packages

SCENARIO = """
scenario: packages
experiment: command
targets: [{name: one, argv: ["true"]}]
workload: {executions: 1}
repetitions: 2
"""


def sides(*installed):
    return [{name: frozenset([version]) for name, version in one.items()} for one in installed]


def test_the_first_packages_are_named_and_the_others_are_counted():
    a = {"numpy": "1.26.4", "same": "1", **{f"p{at}": "1" for at in range(6)}}
    b = {"numpy": "2.4.0", "same": "1", **{f"p{at}": "2" for at in range(5)}}
    assert differing(sides(a, b)) == [
        "numpy 1.26.4, p0 1, p1 1, p2 1 and 3 more",
        "numpy 2.4.0, p0 2, p1 2, p2 2 and 3 more",
    ]
    assert differing(sides({"numpy": "2"}, {})) == ["numpy 2", "numpy not installed"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, shared_cache):
    """Two runs; the package `toylib` is newer in the second."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "packages.yaml").write_text(SCENARIO)
    for version in ("1.26.4", "2.4.0"):
        info = folder / f"site-{version}" / f"toylib-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: toylib\nVersion: {version}\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BENCH_CACHE_DIR", str(shared_cache))
            patch.setenv("PYTHONPATH", str(info.parent), prepend=os.pathsep)
            Workspace(folder).run(folder / "packages.yaml", new=True)
    return folder


@pytest.mark.starts
def test_compare_names_the_packages_that_changed_with_both_versions(folder, bench):
    comparison = json.loads(bench("compare", "@last-1", "@last", "--json", cwd=folder).out)
    (changed,) = [one for one in comparison["differences"] if one["dimension"] in ("packages", "package lock digest")]
    assert changed == {"dimension": "packages", "a": "toylib 1.26.4", "b": "toylib 2.4.0"}
    assert "toylib 1.26.4 | toylib 2.4.0" in bench("compare", "@last-1", "@last", cwd=folder).err


@pytest.mark.starts
def test_different_packages_in_the_trials_of_one_run_are_named(folder, bench):
    sql = "SELECT package_lock_digest, folder, outcome FROM trial_fact"
    rows = json.loads(bench("query", sql, "--json", cwd=folder).out)["rows"]
    assert differing_packages(folder, rows) == "toylib 1.26.4 | 2.4.0"
    assert differing_packages(folder, rows[:1]) == ""


@pytest.mark.starts
def test_without_the_evidence_the_digests_are_compared(folder, bench, tmp_path):
    (folder / "results").rename(tmp_path / "away")
    try:
        comparison = json.loads(bench("compare", "@last-1", "@last", "--json", cwd=folder).out)
    finally:
        (tmp_path / "away").rename(folder / "results")
    (changed,) = [one for one in comparison["differences"] if one["dimension"] == "package lock digest"]
    assert len(changed["a"]) == len(changed["b"]) == 12
