"""Our drivers of PostgreSQL beside pgbench: same real server, same tables, same statements, prepared in the server.

Lookups by key at 8 and 32 clients, updates at 32, p95 of lookups at a steady rate, and COPY beside plain loops of
psycopg and asyncpg (the latter if scripts/install-peers.sh asyncpg has brought it). Rounds alternate; the median of the
rounds' ratios counts. pgbench runs with two threads, as it does best on two cores, and our load with two processes
(`processes: 2`), for the same reason. `driver: pgbench` is the same program with its log read back, and stands there to
show what that costs; it has no bar. p95 is compared with pgbench's log of transactions, from sent to answered, at a
rate (pgbench -R) at which neither client is short of time: at full speed pgbench's figure has its own queue in it.

    python benchmarks/postgres_pgbench.py [--rounds 5] [--seconds 3] [--json]

Exit code 1 when a bar is missed, 2 without a server or pgbench.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROWS, BATCH, SCHEMA = 100_000, 5_000, "benchhouse_figure"
WARMUP_S = 0.5
SHARES = 2  # threads of pgbench, load processes of ours
PSYCOPG, PROGRAM, PEER = "driver postgres", "driver pgbench", "pgbench"
# (what, operation, clients, driver, at least of pgbench's rate)
RATES = (
    ("lookups", "lookup", 8, PSYCOPG, 0.60),
    ("lookups", "lookup", 32, PSYCOPG, 0.60),
    ("lookups", "lookup", 8, PROGRAM, None),
    ("lookups", "lookup", 32, PROGRAM, None),
    ("updates", "update", 32, PSYCOPG, None),
)
P95_CLIENTS, P95_RATE = 8, 2_000
LEAST_COPIED, COPIED_SHARE = 180_000, 0.9
SCRIPTS = {
    "lookup": "\\set id random(1, {rows})\nSELECT balance FROM accounts WHERE id = :id;\n",
    "update": "\\set id random(1, {rows})\n\\set amount random(1, 100)\n"
    "UPDATE accounts SET balance = balance + :amount, hits = hits + 1 WHERE id = :id;\n",
}
COPY = f"COPY {SCHEMA}.history (account, amount, note) FROM STDIN"


def benchhouse(
    endpoint: str, driver: str, operation: str, clients: int, seconds: float, rate: float = 0
) -> dict[str, float]:
    """One load as the experiment makes it; at a rate, or as fast as it goes."""
    from benchhouse.drivers.pgbench import Pgbench
    from benchhouse.experiments.storage import pgbench
    from benchhouse.experiments.storage.postgres_workload import PostgresWorkload
    from benchhouse.load.protocols.postgres import Login

    load = {"rps": rate, "max_in_flight": clients} if rate else {"concurrency": clients}
    workload = PostgresWorkload.model_validate(
        {"operation": operation, "rows": ROWS, "batch": BATCH, "duration": seconds, "warmup": WARMUP_S, "timeout": 30}
        | {"processes": min(SHARES, clients)}
        | load
    )
    login = Login(endpoint, settings={"search_path": SCHEMA})
    if driver == PROGRAM:
        book = pgbench.offer(Pgbench(), pgbench.plan(workload, login, 1), workload, Path())
    else:
        book = _by_engine(workload, login)
    if book.failed:
        raise SystemExit(f"{book.failed} transactions failed: {book.details}")
    return {
        "rate": book.answered / seconds,
        "cpu_us": book.cpu_all_ns / book.completed_in_window / 1e3,
        "p95_us": book.tally.latency_sent.histogram.quantile(0.95) / 1e3,
        "rows": book.tally.operations / seconds,
    }


def _by_engine(workload: Any, login: Any) -> Any:
    from benchhouse.drivers.postgres import Postgres
    from benchhouse.experiments.storage.postgres_tables import PostgresTally
    from benchhouse.experiments.storage.postgres_workload import TransactionScript
    from benchhouse.load.engine import run_load
    from benchhouse.load.source import Planned, RequestPool

    script = TransactionScript(workload, seed=1)

    def make() -> Any:
        return Postgres(login, script.statements, prepared=True, timeout_s=30)

    planned = []
    for work in script.works():
        work.ready = work.ready or make().request(work)
        planned.append(Planned(work, work.ready))
    writes = any(plan.item.effect for plan in planned)
    return run_load(make, RequestPool(planned, 1), workload, lambda: PostgresTally(writes=writes))


def pgbench_itself(
    program: Path, endpoint: str, operation: str, clients: int, seconds: float, rate: float = 0
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "same.sql"
        script.write_text(SCRIPTS[operation].replace("{rows}", str(ROWS)))
        command = [program, "-n", "-M", "prepared", "-c", clients, "-j", min(SHARES, clients), "-f", script, "-T"]
        command += [max(1, round(seconds + WARMUP_S)), "-l", "--log-prefix", Path(folder) / "log"]
        command += [*(["-R", rate] if rate else []), endpoint]
        environment = os.environ | {"PGOPTIONS": f"-c search_path={SCHEMA}"}
        process = subprocess.Popen(
            [*map(str, command)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        if status:
            raise SystemExit(f"pgbench failed: {output}")
        tps = next(float(line.split()[2]) for line in output.splitlines() if line.startswith("tps"))
        lines = [line.split() for log in Path(folder).glob("log.*") for line in log.read_text().splitlines()]
        begin = min(int(line[4]) + int(line[5]) / 1e6 for line in lines) + WARMUP_S
        taken = sorted(  # at a rate, from when it was sent: the last column is how late that was
            int(line[2]) - (int(line[6]) if rate else 0) for line in lines if int(line[4]) + int(line[5]) / 1e6 >= begin
        )
    return {
        "rate": tps,
        "cpu_us": (used.ru_utime + used.ru_stime) / len(lines) * 1e6,
        "p95_us": taken[int(len(taken) * 0.95)],
    }


def _rows() -> bytes:
    return "".join(f"{number}\t{number % 100}\tentry {number}\n" for number in range(BATCH)).encode()


def copy_psycopg(endpoint: str, seconds: float) -> dict[str, float]:
    import psycopg

    connection = psycopg.connect(endpoint, autocommit=True)
    cursor, rows = connection.cursor(), _rows()

    def once() -> None:
        with cursor.copy(COPY.encode()) as copying:
            copying.write(rows)

    return _copies(seconds, once)


def copy_asyncpg(endpoint: str, seconds: float) -> dict[str, float]:
    import asyncio
    import importlib

    asyncpg = importlib.import_module("asyncpg")
    records = [(number, number % 100, f"entry {number}") for number in range(BATCH)]
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(asyncpg.connect(endpoint))
    into = {"schema_name": SCHEMA, "columns": ["account", "amount", "note"]}
    return _copies(
        seconds, lambda: loop.run_until_complete(connection.copy_records_to_table("history", records=records, **into))
    )


def _copies(seconds: float, once: Callable[[], object]) -> dict[str, float]:
    once()
    count, began = 0, time.monotonic()
    while (taken := time.monotonic() - began) < seconds:
        once()
        count += 1
    return {"rows": count * BATCH / taken}


COPIERS = {"psycopg": copy_psycopg, "asyncpg": copy_asyncpg}


@contextmanager
def server() -> Iterator[tuple[str, Path]]:
    """A server with the tables of the experiment; its address, and pgbench of the same installation."""
    from benchhouse.drivers.postgres import Postgres
    from benchhouse.experiments.storage.postgres_tables import AccountTables
    from benchhouse.load.protocols.postgres import Login
    from benchhouse.processes.programs import find_program
    from benchhouse.recipes.postgres import RECIPE
    from benchhouse.worker.services import single_server

    program = Path(find_program(RECIPE)).with_name("pgbench")
    with tempfile.TemporaryDirectory() as folder, single_server(RECIPE, Path(folder)) as service:
        session = Postgres.administrator(Login(service.endpoint))
        tables = AccountTables(session, SCHEMA)
        tables.create()
        tables.load(ROWS, seed=0)
        yield service.endpoint, program
        session.close()


def own_run(python: str, **options: object) -> dict[str, float]:
    """This program once more, as one client."""
    arguments = [argument for name, value in options.items() for argument in (f"--{name}", str(value))]
    done = subprocess.run([python, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(rounds: int, seconds: float) -> dict[str, Any]:
    load_average = os.getloadavg()[0]
    loads = sorted({(operation, clients) for _, operation, clients, _, _ in RATES})
    taken: dict[str, list[dict[str, float]]] = {}
    cache = Path(os.environ.get("BENCH_TEST_CACHE", Path.home() / ".cache/benchhouse-tests"))
    peer = cache / "peers/asyncpg/bin/python"
    with server() as (endpoint, program):

        def turn(key: str, who: tuple[str, ...], **load: Any) -> None:
            for client in who:
                if client == PEER:
                    figures = pgbench_itself(program, endpoint, **load)
                else:
                    figures = own_run(sys.executable, client=client, endpoint=endpoint, **load)
                taken.setdefault(f"{key} {client}", []).append(figures)

        for number in range(rounds):
            order = (PEER, PSYCOPG, PROGRAM)[:: -1 if number % 2 else 1]
            for operation, clients in loads:
                turn(f"{operation} {clients}", order, operation=operation, clients=clients, seconds=seconds)
            turn("steady", order, operation="lookup", clients=P95_CLIENTS, seconds=seconds, rate=P95_RATE)
            for name in (*COPIERS, PSYCOPG):
                python = str(peer) if name == "asyncpg" else sys.executable
                if name == "asyncpg" and not peer.exists():
                    continue
                figures = own_run(
                    python, client=name, endpoint=endpoint, operation="copy", clients=1, seconds=min(seconds, 2.0)
                )
                taken.setdefault(f"copy {name}", []).append(figures)
    return judge(taken, rounds) | {"load_average": load_average}


def judge(taken: dict[str, list[dict[str, float]]], rounds: int) -> dict[str, Any]:
    """Every bar: what it is about, what was measured, and whether it was met."""
    bars: list[dict[str, Any]] = []

    def bar(name: str, values: list[float], least: float | None = None) -> None:
        median = statistics.median(values)
        bars.append(
            {"name": name, "median": median, "min": min(values), "max": max(values)}
            | {"at_least": least, "met": least is None or median >= least}
        )

    def ratios(key: str, driver: str, what: str) -> list[float]:
        pairs = zip(taken[f"{key} {driver}"], taken[f"{key} {PEER}"], strict=True)
        return [ours[what] / theirs[what] for ours, theirs in pairs]

    for what, operation, clients, driver, least in RATES:
        key = f"{operation} {clients}"
        bar(f"{what} a second at {clients}, {driver} to pgbench", ratios(key, driver, "rate"), least)
        bar(f"CPU of the client for one of these, {driver} to pgbench", ratios(key, driver, "cpu_us"))
    for driver in (PSYCOPG, PROGRAM):
        bar(f"p95 of {P95_RATE} lookups a second, {driver} to pgbench", ratios("steady", driver, "p95_us"))
    peers = [name for name in COPIERS if f"copy {name}" in taken]
    ours = [figures["rows"] for figures in taken[f"copy {PSYCOPG}"]]
    best = [max(taken[f"copy {name}"][number]["rows"] for name in peers) for number in range(rounds)]
    if statistics.median(ours) >= LEAST_COPIED:
        bar(f"rows a second by COPY, {PSYCOPG}", ours, LEAST_COPIED)
    else:
        shares = [mine / theirs for mine, theirs in zip(ours, best, strict=True)]
        bar(f"rows a second by COPY, {PSYCOPG} to the best of {', '.join(peers)}", shares, COPIED_SHARE)
    return {
        "rounds": rounds,
        "clients": {
            name: {what: statistics.median(figures[what] for figures in each) for what in each[0]}
            for name, each in taken.items()
        },
        "bars": bars,
        "passed": all(item["met"] for item in bars),
    }


def table(results: dict[str, Any]) -> str:
    lines = [f"load average before: {results['load_average']:.1f}"] + [
        f"{name:<26} " + "  ".join(f"{what} {value:,.1f}" for what, value in each.items())
        for name, each in results["clients"].items()
    ]
    for item in results["bars"]:
        limit = f"at least {item['at_least']:g}" if item["at_least"] is not None else "no bar"
        verdict = "MISSED" if not item["met"] else "ok    " if item["at_least"] is not None else "      "
        spread = f"median {item['median']:,.3f}, {item['min']:,.3f} to {item['max']:,.3f}"
        lines.append(f"{verdict} {item['name']}: {spread}  ({limit})")
    return "\n".join([*lines, "passed" if results["passed"] else "MISSED"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="Alternating rounds, at least 3.")
    parser.add_argument("--seconds", type=float, default=3.0, help="Measured time of a client in a round.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    for name in ("--client", "--endpoint", "--operation", "--clients", "--rate"):  # how it calls itself, for one client
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client in COPIERS:
        print(json.dumps(COPIERS[options.client](options.endpoint, options.seconds)))
        return 0
    if options.client:
        given = (options.endpoint, options.client, options.operation, int(options.clients), options.seconds)
        print(json.dumps(benchhouse(*given, rate=float(options.rate or 0))))
        return 0
    from benchhouse.schema.experiment import ExperimentFailed

    try:
        results = measure(max(3, options.rounds), options.seconds)
    except ExperimentFailed as reason:
        print(f"no server: {reason.message}", file=sys.stderr)
        return 2
    print(json.dumps(results, indent=2) if options.json else table(results))
    return 0 if results["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
