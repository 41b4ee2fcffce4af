"""Packages that differ are told by name and version: between two runs, and between the trials of one."""

import json
import os
import subprocess
import sys

import pytest

from benchhouse.results.circumstances import differing, differing_packages

SCENARIO = """
scenario: packages
experiment: command
targets: [{name: one, argv: ["true"]}]
workload: {executions: 1}
repetitions: 2
"""


def sides(*installed):
    return [{name: frozenset([version]) for name, version in one.items()} for one in installed]


def test_the_first_few_are_named_and_the_others_counted():
    a = {"numpy": "1.26.4", "same": "1", **{f"p{at}": "1" for at in range(6)}}
    b = {"numpy": "2.4.0", "same": "1", **{f"p{at}": "2" for at in range(5)}}
    assert differing(sides(a, b)) == [
        "numpy 1.26.4, p0 1, p1 1, p2 1 and 3 more",
        "numpy 2.4.0, p0 2, p1 2, p2 2 and 3 more",
    ]
    assert differing(sides({"numpy": "2"}, {})) == ["numpy 2", "numpy not installed"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs; what is installed for the second is newer."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "packages.yaml").write_text(SCENARIO)
    for version in ("1.26.4", "2.4.0"):
        info = folder / f"site-{version}" / f"toylib-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: toylib\nVersion: {version}\n")
        bench(folder, "run", "packages.yaml", "--new", site=info.parent)
    return folder


def bench(folder, *args, site=""):
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "benchhouse", *args]
    done = subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_compare_names_the_packages_that_changed_with_both_versions(folder):
    told = json.loads(bench(folder, "compare", "@last-1", "@last", "--json").stdout)
    (changed,) = [one for one in told["differences"] if one["dimension"] in ("packages", "package lock digest")]
    assert changed == {"dimension": "packages", "a": "toylib 1.26.4", "b": "toylib 2.4.0"}
    notes = bench(folder, "compare", "@last-1", "@last").stderr
    assert "toylib 1.26.4 | toylib 2.4.0" in notes


def test_trials_of_one_run_with_different_packages_are_told_apart(folder):
    sql = "SELECT package_lock_digest, folder, outcome FROM trial_fact"
    rows = json.loads(bench(folder, "query", sql, "--json").stdout)["rows"]
    assert differing_packages(folder, rows) == "toylib 1.26.4 | 2.4.0"
    assert differing_packages(folder, rows[:1]) == ""


def test_without_the_evidence_the_digests_are_told(folder, tmp_path):
    (folder / "results").rename(tmp_path / "away")
    try:
        told = json.loads(bench(folder, "compare", "@last-1", "@last", "--json").stdout)
    finally:
        (tmp_path / "away").rename(folder / "results")
    (changed,) = [one for one in told["differences"] if one["dimension"] == "package lock digest"]
    assert len(changed["a"]) == len(changed["b"]) == 12
