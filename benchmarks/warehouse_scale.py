"""How much CPU `compare` and `trace` cost when the warehouse holds 100,000 trials. Bar: below 1.0 s each.

    python benchmarks/warehouse_scale.py [--trials 100000] [--runs 1000] [--repeat 5] [--json]

The bulk of the rows goes from memory through the real writer into the lake; the two runs that are compared and
traced are real sealed folders, collected as ever. CPU is that of the child process, imports included.
"""

import argparse
import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from benchhouse.evidence.writing import write_text
from benchhouse.results.lineage import publish
from benchhouse.results.table_cells import make_cells
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.query import Cell
from benchhouse.warehouse.ingest import collect, open_catalog, store
from benchhouse.warehouse.queries import points
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.rows import TrialRows, read_folder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "warehouse"))
from trial_maker import make_run  # type: ignore[import-not-found]

BAR_S = 1.0
RUN_A, RUN_B = "zz-compared-a", "zz-compared-b"

VERBS = {verb: ["-m", "benchhouse", verb] for verb in ("compare", "trace")}


def main() -> int:
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as folder:
        workspace = WorkspaceFolder(Path(folder) / "ws")
        workspace.root.mkdir()
        filling = time.process_time()
        cells = fill(workspace, options.trials, options.runs)
        filled_s = time.process_time() - filling
        calls = {
            "compare": [*VERBS["compare"], RUN_A, RUN_B],
            "trace ref": [*VERBS["trace"], cells[0].ref],
            "trace run:metric": [*VERBS["trace"], f"{RUN_A}:qps"],
            "trace trial": [*VERBS["trace"], cells[0].trials[0]],
        }
        cpu_s = {name: measure(workspace, call, options.repeat) for name, call in calls.items()}
    ok = all(max(values) < BAR_S for values in cpu_s.values())
    if options.json:
        figures = {name: {"median_cpu_s": statistics.median(v), "max_cpu_s": max(v)} for name, v in cpu_s.items()}
        print(json.dumps({"trials": options.trials, "runs": options.runs, "bar_s": BAR_S, "fill_cpu_s": filled_s,
                          "cpu": figures, "ok": ok}, indent=2))  # fmt: skip
    else:
        print(f"{options.trials} trials in {options.runs} runs, written in {filled_s:.1f} s CPU")
        for name, values in cpu_s.items():
            print(f"{name:18} median {statistics.median(values):.3f} s CPU, max {max(values):.3f} (n={len(values)})")
        print(f"bar {BAR_S} s: {'met' if ok else 'MISSED'}")
    return 0 if ok else 1


def fill(workspace: WorkspaceFolder, trials: int, runs: int) -> list[Cell]:
    """Fill the warehouse and publish a report over the two real runs; returns the report's cells."""
    open_catalog(workspace).close()
    real = {run: make_run(workspace, run, minute=9_000 + at) for at, run in enumerate((RUN_A, RUN_B))}
    for run, folders in real.items():
        collect(workspace, run, folders)
    template = [read_folder(workspace, TrialFolder(folder)) for folder in real[RUN_A]]
    bulk = max(0, runs - len(real))
    left = max(0, trials - sum(map(len, real.values())))
    with open_catalog(workspace) as catalog:
        for at in range(bulk):
            count = left // bulk + (at < left % bulk)
            store(catalog, f"run-{at:06d}", _multiply(template, f"run-{at:06d}", count, at), [])
            _show(at + 1, bulk)
    with Warehouse.open(workspace) as warehouse:
        result = points(warehouse, [RUN_A, RUN_B])
        stored = warehouse.query("SELECT count(*), count(DISTINCT run_id) FROM trial_fact").rows[0]
    if stored != (trials, runs):
        raise SystemExit(f"asked for {trials} trials in {runs} runs, stored {stored}")
    cells = make_cells(result)
    report = workspace.reports / "scale" / "report.json"
    report.parent.mkdir(parents=True)
    queries = {result.spec.digest(): result.spec.model_dump()}
    write_text(report, json.dumps({"queries": queries, "cells": [cell.model_dump() for cell in cells]}))
    publish(workspace, report, [result.spec], cells)
    return cells


def measure(workspace: WorkspaceFolder, call: Sequence[str], repeat: int) -> list[float]:
    """CPU seconds of each of `repeat` calls, after one that warms the disk's cache."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    seconds = []
    for _ in range(repeat + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, *call], cwd=workspace.root, env=environment, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(call)} exited with {done.returncode}\n{done.stdout}{done.stderr}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return seconds[1:]


def _multiply(template: Sequence[TrialRows], run_id: str, count: int, minute: int) -> dict[str, TrialRows]:
    """`count` trials with ids of their own, made of a few real ones."""
    made = {}
    for at in range(count):
        source = template[at % len(template)]
        name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run_id}/{at}"))
        own = {"trial_id": name, "run_id": run_id}
        times = {key: source.trial[key] + timedelta(minutes=minute) for key in ("started", "ended")}
        made[name] = dataclasses.replace(
            source,
            trial=source.trial | own | times | {"repetition": at, "folder": f"results/demo/{name}"},
            measurements=[
                row | own | {"repetition": at, "value": row["value"] + at / 7} for row in source.measurements
            ],
        )
    return made


def _show(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{total} runs", end="" if done < total else "\n", file=sys.stderr)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
