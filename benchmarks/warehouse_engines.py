"""Push of 100 runs to each engine, and the published queries: every engine must give the same numbers.

    python benchmarks/warehouse_engines.py [--runs 100] [--rounds 1] [--json]

Bars: all runs land; what is pulled again has the bytes of the lake; each published query gives the same rows on the
embedded engine, PostgreSQL and ClickHouse, to the bit, but for quantiles, which agree by definition (to 1e-14). CPU
is that of this process, and of the server's where there is one. The peer writes the same rows to the same PostgreSQL
by COPY alone, without order, digests or a look at what arrived.
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
import sys
import tempfile
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from benchhouse.recipes.postgres import RECIPE
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.warehouse.engine import TableEngine
from benchhouse.warehouse.engine_lake import LakeEngine
from benchhouse.warehouse.engine_postgres import _csv
from benchhouse.warehouse.ingest import open_catalog, store
from benchhouse.warehouse.rows import read_folder
from benchhouse.warehouse.tables import EVIDENCE_TABLES
from benchhouse.warehouse.transfer import open_engine, transfer
from benchhouse.worker.services import single_server

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "warehouse"))
from published_queries import PUBLISHED, ask  # type: ignore[import-not-found]
from trial_maker import make_run  # type: ignore[import-not-found]

QUANTILES_AGREE = 1e-14  # of the number itself; a double has 1.1e-16


def main() -> int:
    options = _parse()
    pushes: dict[str, list[float]] = {}
    asks: dict[str, dict[str, list[float]]] = {}
    wrong: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-engines-", dir=_memory()) as name,
        single_server(RECIPE, Path(name) / "server") as server,
    ):
        folder = Path(name)
        workspace = WorkspaceFolder(folder / "ws")
        rows = fill(workspace, options.runs)
        lake = LakeEngine(workspace)
        for at in range(options.rounds):
            peer = _new_database(server.endpoint, f"peer_{at}")
            pushes.setdefault("COPY alone (peer)", []).append(_cpu(lambda: copy_alone(lake, peer), server.pid))  # noqa: B023
            for kind in ("postgresql", "clickhouse", "lake"):
                engine = _opened(kind, folder, server.endpoint, at)
                spent = _cpu(lambda: transfer(lake, engine), server.pid)  # noqa: B023
                pushes.setdefault(kind, []).append(spent)
                if engine.runs() != lake.runs():
                    wrong.append(f"{kind}: not every run landed")
                if at == 0:
                    wrong += _pulled_back(lake, engine, folder / f"back-{kind}")
                wrong += _compare(lake, engine, kind, asks, server.pid)
                engine.close()
        lake.close()
    return _tell(options, rows, pushes, asks, wrong)


def fill(workspace: WorkspaceFolder, runs: int) -> int:
    """13 trials a run, made of a few real ones; returns the number of rows."""
    folders = make_run(workspace, "template", cores=1.5)
    template = [read_folder(workspace, TrialFolder(folder)) for folder in folders]
    total = 0
    with open_catalog(workspace, given=folders) as catalog:
        for at in range(runs):
            run_id, made = f"run-{at:04d}", {}
            for place, source in enumerate(template):
                trial = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run_id}/{place}"))
                own = {"trial_id": trial, "run_id": run_id}
                times = {key: source.trial[key] + timedelta(minutes=at) for key in ("started", "ended")}
                numbers = [
                    row | own | {"value": row["value"] * (1 + (at * 37 + place * 11) % 101 / 1e4)}
                    for row in source.measurements
                ]
                made[trial] = dataclasses.replace(
                    source,
                    trial=source.trial | own | times | {"folder": f"results/demo/{trial}"},
                    measurements=numbers,
                )
            total += store(catalog, run_id, made, []) or 0
    return total


def copy_alone(lake: LakeEngine, address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        for table in EVIDENCE_TABLES.values():
            columns = ", ".join(f'"{one.name}" {_TYPES[one.kind]}' for one in table.columns)
            connection.execute(f"CREATE TABLE {table.name} (_row bigint, {columns})".encode())
        for run_id in lake.runs():
            run = lake.read(run_id)
            with connection.transaction():
                for name, content in run.tables.items():
                    with connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv)".encode()) as copy:
                        copy.write(_csv(EVIDENCE_TABLES[name], run_id, content))


_TYPES = {
    "text": "text", "texts": "text[]", "integer": "bigint", "number": "double precision", "truth": "boolean",
    "time": "timestamp",
}  # fmt: skip


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _opened(kind: str, folder: Path, endpoint: str, at: int) -> TableEngine:
    if kind == "postgresql":
        return open_engine("$TEAM", {"TEAM": _new_database(endpoint, f"team_{at}")})
    if kind == "clickhouse":
        return open_engine(f"clickhouse:{folder / f'ch-{at}'}")
    (folder / f"lake-{at}").mkdir()
    return open_engine(str(folder / f"lake-{at}"))


def _new_database(endpoint: str, name: str) -> str:
    with psycopg.connect(endpoint, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return endpoint.rpartition("/")[0] + f"/{name}"


def _pulled_back(lake: LakeEngine, engine: TableEngine, root: Path) -> list[str]:
    root.mkdir()
    home = LakeEngine(WorkspaceFolder(root))
    transfer(engine, home)
    same = home.runs() == lake.runs()
    home.close()
    return [] if same else [f"{engine.name}: what came back has other bytes"]


def _compare(
    lake: LakeEngine, engine: TableEngine, kind: str, asks: dict[str, dict[str, list[float]]], pid: int
) -> list[str]:
    runs = sorted(lake.runs())
    case = lake.query("SELECT min(benchmark_case_id) FROM trial_fact").rows[0][0]
    two = {"base": runs[0], "run": runs[-1]}
    special: dict[str, dict[str, Any]] = {
        "pivot": two,
        "regression": two,
        "recent": {"metric": "qps", "case": case, "runs": runs},
    }
    wrong = []
    for name in PUBLISHED["duckdb"]:
        given = special.get(name, {"runs": runs[:10]})
        expected = ask(lake, name, given)
        found = []
        spent = _cpu(lambda: found.append(ask(engine, name, given)), pid)  # noqa: B023
        asks.setdefault(name, {}).setdefault(kind, []).append(spent)
        if found[0].columns != expected.columns or not _same(found[0].rows, expected.rows, name):
            wrong.append(f"{kind}: {name} gives other numbers")
    return wrong


def _same(found: list[Any], expected: list[Any], name: str) -> bool:
    """To the bit. Quantiles: to the definition, for engines round the interpolation in their own ways."""
    if name != "quantiles" or len(found) != len(expected):
        return found == expected
    pairs = [pair for rows in zip(found, expected, strict=True) for pair in zip(*rows, strict=True)]
    return all(a == b or (isinstance(b, float) and math.isclose(a, b, rel_tol=QUANTILES_AGREE)) for a, b in pairs)


def _cpu(work: Any, pid: int) -> float:
    """CPU seconds of this process and of the server and all its children, dead ones too."""
    before = time.process_time() + _server_s(pid)
    work()
    return time.process_time() + _server_s(pid) - before


def _server_s(pid: int) -> float:
    ticks, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            waiting += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _tell(
    options: argparse.Namespace,
    rows: int,
    pushes: dict[str, list[float]],
    asks: dict[str, dict[str, list[float]]],
    wrong: list[str],
) -> int:
    push = {kind: statistics.median(values) for kind, values in pushes.items()}
    query = {name: {kind: statistics.median(v) for kind, v in found.items()} for name, found in asks.items()}
    if options.json:
        print(json.dumps({"runs": options.runs, "rows": rows, "rounds": options.rounds, "push_cpu_s": push,
                          "query_cpu_s": query, "wrong": wrong, "ok": not wrong}, indent=2))  # fmt: skip
    else:
        print(
            f"{options.runs} runs, {rows} rows in {len(EVIDENCE_TABLES)} tables, {options.rounds} rounds; CPU s, median"
        )
        for kind, spent in push.items():
            print(f"push  {kind:20} {spent:7.2f}   {1000 * spent / options.runs:6.1f} ms a run")
        for name, found in query.items():
            print(f"ask   {name:12}" + "".join(f"  {kind} {1000 * spent:.0f} ms" for kind, spent in found.items()))
        print("\n".join(wrong) if wrong else f"all {len(query)} published queries: the same numbers")
    return 1 if wrong else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
