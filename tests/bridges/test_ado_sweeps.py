"""The real ado: a sweep of its own over experiments of ours, and a run of ours by it."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from ado_packages import install_ours

SPACE = """\
sampleStoreIdentifier: default
entitySpace:
  - identifier: first
    propertyDomain: {values: [1, 2], variableType: DISCRETE_VARIABLE_TYPE}
experiments:
  - {actuatorIdentifier: benchhouse, experimentIdentifier: sums, experimentVersion: 1.0.0}
"""
OPERATION = """\
operation:
  module: {operationType: explore, operatorName: random_walk}
  parameters:
    numberEntities: all
    batchSize: 2
    samplerConfig: {samplerType: generator, mode: sequential}
spaces: [space]
"""
SCENARIO = """\
scenario: by-ado
experiment: sums
version: "2.0"
workload: {first: [1, 2]}
parallel: 2
"""
ADO = Path(sys.executable).with_name("ado")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A home with ado's store and our cache, and `sums` installed in two versions."""
    root = tmp_path_factory.mktemp("ado-home")
    install_ours(root / "site")
    subprocess.run([ADO, "context", "local"], env=surroundings(root), capture_output=True, timeout=300)
    return root


def surroundings(root):
    return os.environ | {
        "HOME": str(root),
        "XDG_CONFIG_HOME": str(root / "config"),
        "PYTHONPATH": str(root / "site"),
        "BENCH_CACHE_DIR": str(root / "cache"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def hold(root, *command):
    """Run it to its end. Ray gives its own server 30 s to start, whatever the machine is doing: that is tried again."""
    for _ in range(4):
        code, said = hold_once(root, *command)
        if code == 0 or "timed out during startup" not in said:
            break
    assert code == 0, said[-3000:]


def hold_once(root, *command):
    """With it ends all that Ray started; returns its exit code and what was said."""
    whole = [sys.executable, "-m", "benchhouse.executors.ado_operation", *map(str, command)]
    process = subprocess.Popen(
        whole, env=surroundings(root), cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        said = process.stdout.read().decode()
        return process.wait(timeout=500), said
    finally:
        process.stdin.close()
        process.wait(timeout=60)


def results(root):
    (path,) = (root / "config" / "ado" / "databases").glob("*.db")
    with sqlite3.connect(path) as store:
        (table,) = (
            name
            for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name.endswith("_measurement_results")
        )
        return [json.loads(row[-1]) for row in store.execute(f'SELECT * FROM "{table}"')]


def test_a_sweep_of_ado_over_ours_keeps_metadata_failures_and_versions(house):
    listed = subprocess.run([ADO, "get", "experiments"], env=surroundings(house), capture_output=True, text=True)
    rows = [line.split() for line in listed.stdout.splitlines() if " sums " in line]
    assert [row[-2] for row in rows] == ["1.0.0", "2.0.0"], listed
    (house / "space.yaml").write_text(SPACE)
    (house / "operation.yaml").write_text(OPERATION)
    hold(house, ADO, "create", "operation", "-f", "operation.yaml", "--with", "space=space.yaml")
    good, bad = sorted(results(house), key=lambda item: item["entityIdentifier"])
    assert good["measurements"][0]["value"] == 3
    assert good["metadata"]["metadata"] == {"said": "by 1.0"}
    assert good["metadata"]["distribution"] == "sums-1 1.0"
    assert bad["reason"].startswith("ArithmeticError: two is too much\nTraceback")
    assert (bad["metadata"]["type"], bad["metadata"]["version"]) == ("ArithmeticError", "1.0")


def test_a_scenario_runs_as_an_operation_of_ado_and_its_evidence_is_ours(house, tmp_path, bench):
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    done = subprocess.run(
        [sys.executable, "-m", "benchhouse", "run", "--engine", "ado", "--json", "scenario.yaml"], cwd=tmp_path,
        env=surroundings(house), capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    steps = [line.partition("ado: ")[2] for line in done.stderr.splitlines() if line.startswith("ado: ")]
    assert re.fullmatch(r"random_walk\S+ measures 2 points \.\.\.", steps[-2]), steps
    assert steps[0].startswith("starting") and steps[1].endswith("Ray starts ...") and "ends Ray" in steps[-1]
    told = json.loads(done.stdout)
    assert told["outcomes"] == {"succeeded": 1, "error": 1}
    assert told["failures"][0]["code"] == "ArithmeticError"
    metas = [json.loads(path.read_bytes()) for path in (tmp_path / "results").glob("by-ado/*/meta.json")]
    assert sorted(meta["custom"].get("said", "") for meta in metas) == ["", "by 2.0"]
    assert bench("verify").code == 0
    assert "Success! Created operation" in next(tmp_path.glob(".bench/runs/*/ado/1/ado.log")).read_text()
