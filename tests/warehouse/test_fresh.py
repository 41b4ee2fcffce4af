import random
import subprocess
import sys

import pytest
from trial_maker import make_run, make_trial, measure

from benchhouse.schema.layout import Workspace
from benchhouse.schema.measurement import Measurement
from benchhouse.warehouse import fresh
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.queries import points, trials
from benchhouse.warehouse.query import Warehouse


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another process would find it: nothing is in memory."""
    monkeypatch.setattr(fresh, "_last", ({}, {}))


def varied(workspace: Workspace, draw: random.Random) -> list:
    """Trials of many values, some that failed, a warm-up, a unit that changed, names beyond ASCII."""
    folders = [make_trial(workspace, "run-a", 1, warmup=True)]
    for target in ("flat", "Ähre", "zebra 中", "zebra"):
        for at in range(1, draw.randint(2, 7)):
            more = [Measurement(metric="seen", stat="value", value=at, unit="1")] if at % 2 else []
            value = draw.lognormvariate(0, 8)
            other = [Measurement(metric="qps", stat="value", value=value, unit="1/m", direction="higher")]
            numbers = [*(other if at == 3 else measure(value)), *more]
            outcome = "failed" if at == 4 else "succeeded"
            executor = "ray" if at == 2 else "local"
            folders.append(
                make_trial(workspace, "run-a", at, target=target, numbers=numbers, outcome=outcome, executor=executor)
            )
    return folders


@pytest.mark.parametrize("seed", range(3))
def test_what_is_answered_from_memory_is_the_engines_answer_to_the_bit(workspace, monkeypatch, seed):
    collect(workspace, "run-a", varied(workspace, random.Random(seed)))
    with Warehouse.open(workspace) as warehouse, monkeypatch.context() as blocked:
        blocked.setitem(sys.modules, "duckdb", None)
        at_once = points(warehouse, ["run-a"]), trials(warehouse, ["run-a"])
    forget(monkeypatch)
    with Warehouse.open(workspace) as warehouse:
        by_engine = points(warehouse, ["run-a"]), trials(warehouse, ["run-a"])
    for one, other in zip(at_once, by_engine, strict=True):
        assert one.rows == other.rows
        assert (one.columns, one.types) == (other.columns, other.types)
        assert one.spec.digest() == other.spec.digest()


def test_rows_in_memory_answer_for_no_other_files(workspace, monkeypatch):
    collect(workspace, "run-a", make_run(workspace, "run-a"))
    folders = make_run(workspace, "run-b")
    collect(workspace, "run-b", folders[:-1])
    monkeypatch.setattr(fresh, "_last", kept := fresh._last)
    collect(workspace, "run-b", folders)  # as another process may, meanwhile
    monkeypatch.setattr(fresh, "_last", kept)
    with Warehouse.open(workspace) as warehouse:
        assert len(trials(warehouse, ["run-a"]).rows) == len(trials(warehouse, ["run-b"]).rows) == 13
        assert len(trials(warehouse, ["run-a", "run-b"]).rows) == 26


def test_a_large_run_is_not_kept_in_memory(workspace, monkeypatch):
    monkeypatch.setattr(fresh, "_MOST_TRIALS", 12)
    collect(workspace, "run-a", make_run(workspace, "run-a"))
    assert fresh._last == ({}, {})


def test_a_run_without_a_number_is_summed_up_without_an_engine_too(workspace, monkeypatch):
    collect(workspace, "run-a", [make_trial(workspace, "run-a", 1, outcome="failed", numbers=[])])
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with Warehouse.open(workspace) as warehouse:
        assert points(warehouse, ["run-a"]).rows == []
        assert len(trials(warehouse, ["run-a"]).rows) == 1


def test_a_short_run_imports_nothing_that_it_does_not_need(tmp_path):
    scenario = tmp_path / "one.yaml"
    scenario.write_text("{scenario: one, experiment: command, target: {argv: ['true']}, workload: {executions: 1}}")
    code = (
        "import sys\nfrom benchhouse.cli import main\n"
        "try: main()\nexcept SystemExit as end: print(end.code, *sorted(sys.modules))\n"
    )
    command = [sys.executable, "-c", code, "run", str(scenario)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    code, *imported = done.stdout.splitlines()[-1].split()
    assert code == "0", done.stdout + done.stderr
    dear = {"duckdb", "numpy", "pyarrow", "asyncio", "logging"}
    ours = {"analysis.stopping", "catalog.nexus", "catalog.uses", "report.comparison", "report.lineage", "schema.nexus"}
    assert {*dear, *(f"benchhouse.{name}" for name in ours)} & {*imported} == set()
