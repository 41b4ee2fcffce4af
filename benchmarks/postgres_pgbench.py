"""Our PostgreSQL drivers beside pgbench: same real server, same tables, same statements, prepared in the server.

Lookups by key at 8 and 32 clients, updates at 32, p95 of lookups at a steady rate, and COPY beside plain loops of
psycopg2, psycopg and asyncpg (the last if scripts/install-peers.sh asyncpg has brought it). Rounds alternate; the
median of the rounds' ratios counts. pgbench runs with two threads, as it does best on two cores, and our load with two
processes (`processes: 2`), for the same reason. p95 is compared with pgbench's log of transactions, from sent to
answered, at a rate (pgbench -R) at which neither client is short of time: at full speed pgbench's figure has its own
queue in it.

In the same rounds run the tightest loops of the same clients in plain Python (`postgres_bare.py`): no load through that
client can do better on this CPU. Beside each bar stands what they reach. One that they miss too is told as the
client's, where the machine was quiet as it began, and is missed all the same.

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
PSYCOPG2, FAST = "postgres", "postgres_pq"
# (what, operation, clients, driver, at least of pgbench's rate)
RATES = (
    ("lookups", "lookup", 8, PSYCOPG2, 0.62),
    ("lookups", "lookup", 32, PSYCOPG2, 0.62),
    ("lookups", "lookup", 8, FAST, 0.85),
    ("lookups", "lookup", 32, FAST, 0.65),
    ("updates", "update", 32, FAST, 0.95),
    ("updates", "update", 32, PSYCOPG2, None),
)
BARE, THREADS = "bare", "postgres_threads"  # the same client without a load engine; with a thread a connection
P95_CLIENTS, P95_RATE = 8, 2_000
MOST_CPU_US = 48.0  # of psycopg2, a lookup
P95_WITHIN = 0.25
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
    """One load by our engine, as the experiment makes it; at a rate, or as fast as it goes."""
    from benchhouse.drivers.postgres import Postgres
    from benchhouse.drivers.postgres_pq import PostgresPq
    from benchhouse.experiments.storage.postgres_tally import PostgresTally
    from benchhouse.experiments.storage.postgres_workload import PostgresWorkload, Script
    from benchhouse.load.engine import run_load
    from benchhouse.load.protocols.postgres import Login
    from benchhouse.load.source import Planned, Pool

    load = {"rps": rate, "max_in_flight": clients} if rate else {"concurrency": clients}
    workload = PostgresWorkload.model_validate(
        {"operation": operation, "rows": ROWS, "batch": BATCH, "duration": seconds, "warmup": WARMUP_S, "timeout": 30}
        | {"processes": min(SHARES, clients)}
        | load
    )
    script = Script(workload, seed=1)
    login = Login(endpoint, settings={"search_path": SCHEMA})

    def make() -> Any:
        made = {PSYCOPG2: Postgres, FAST: PostgresPq}[driver]
        return made(login, script.statements, prepared=True, timeout_s=30)

    planned = []
    for work in script.works():
        work.ready = work.ready or make().request(work)
        planned.append(Planned(work, work.ready))
    book = run_load(make, Pool(planned, 1), workload, lambda: PostgresTally(writes=operation != "lookup"))
    if book.failed:
        raise SystemExit(f"{book.failed} transactions failed: {book.details}")
    return {
        "rate": book.answered / seconds,
        "cpu_us": book.cpu_all_ns / book.completed_in_window / 1e3,
        "p95_us": book.tally.latency_sent.histogram.quantile(0.95) / 1e3,
        "rows": book.tally.operations / seconds,
    }


def pgbench(
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
        words = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        if status:
            raise SystemExit(f"pgbench failed: {words}")
        tps = next(float(line.split()[2]) for line in words.splitlines() if line.startswith("tps"))
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


def copy_psycopg2(endpoint: str, seconds: float) -> dict[str, float]:
    import io

    import psycopg2

    connection = psycopg2.connect(endpoint)
    connection.autocommit = True
    cursor, rows = connection.cursor(), _rows()
    return _copies(seconds, lambda: cursor.copy_expert(COPY, io.BytesIO(rows), 1 << 16))


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


COPIERS = {"psycopg2": copy_psycopg2, "psycopg": copy_psycopg, "asyncpg": copy_asyncpg}


@contextmanager
def server() -> Iterator[tuple[str, Path]]:
    """A server with the tables of the experiment; its address, and pgbench of the same installation."""
    from benchhouse.drivers.postgres import Postgres
    from benchhouse.experiments.storage.postgres_tables import Tables
    from benchhouse.load.protocols.postgres import Login
    from benchhouse.processes.programs import find_program
    from benchhouse.recipes.postgres import RECIPE
    from benchhouse.worker.standalone import running

    program = Path(find_program(RECIPE)).with_name("pgbench")
    with tempfile.TemporaryDirectory() as folder, running(RECIPE, Path(folder)) as service:
        session = Postgres.administrator(Login(service.endpoint))
        tables = Tables(session, SCHEMA)
        tables.create()
        tables.load(ROWS, seed=0)
        yield service.endpoint, program
        session.close()


def own_run(python: str, **options: object) -> dict[str, float]:
    """This program once more, as one client."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    done = subprocess.run([python, __file__, *words], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(rounds: int, seconds: float) -> dict[str, Any]:
    others = os.getloadavg()[0]
    loads = sorted({(operation, clients) for _, operation, clients, _, _ in RATES})
    taken: dict[str, list[dict[str, float]]] = {}
    peer = (
        Path(os.environ.get("BENCH_TEST_CACHE", Path.home() / ".cache/benchhouse-tests")) / "peers/asyncpg/bin/python"
    )
    bare = [f"{BARE} {driver}" for driver in (PSYCOPG2, FAST)]
    with server() as (endpoint, program):

        def turn(key: str, who: tuple[str, ...], **load: Any) -> None:
            for client in who:
                if client == "pgbench":
                    one = pgbench(program, endpoint, **load)
                else:
                    one = own_run(sys.executable, client=client, endpoint=endpoint, **load)
                taken.setdefault(f"{key} {client}", []).append(one)

        for number in range(rounds):
            forth = ("pgbench", PSYCOPG2, FAST, *bare)
            order = forth[:: -1 if number % 2 else 1]
            for operation, clients in loads:
                threads = (f"{BARE} {THREADS}",) if operation == "lookup" else ()
                load = {"operation": operation, "clients": clients, "seconds": seconds}
                turn(f"{operation} {clients}", (*order, *threads), **load)
            turn("steady", order, operation="lookup", clients=P95_CLIENTS, seconds=seconds, rate=P95_RATE)
            for name in (*COPIERS, PSYCOPG2, FAST):
                python = str(peer) if name == "asyncpg" else sys.executable
                if name == "asyncpg" and not peer.exists():
                    continue
                one = own_run(
                    python, client=name, endpoint=endpoint, operation="copy", clients=1, seconds=min(seconds, 2.0)
                )
                taken.setdefault(f"copy {name}", []).append(one)
    return judge(taken, rounds) | {"load_average": others}


def judge(taken: dict[str, list[dict[str, float]]], rounds: int) -> dict[str, Any]:
    """Every bar: what it is about, what was found, and whether it was met."""
    bars: list[dict[str, Any]] = []

    def bar(
        name: str, values: list[float], least: float | None = None, most: float | None = None,
        bare: list[float] | None = None,
    ) -> None:  # fmt: skip
        """`bare` is the same of the client's tightest loop."""

        def meets(value: float) -> bool:
            return (least is None or value >= least) and (most is None or value <= most)

        middle, ceiling = statistics.median(values), statistics.median(bare) if bare else None
        bars.append({"name": name, "median": middle, "min": min(values), "max": max(values), "at_least": least,
                     "at_most": most, "met": meets(middle), "bare": ceiling,
                     "bare_met": None if ceiling is None else meets(ceiling)})  # fmt: skip

    def ratios(key: str, driver: str, what: str) -> list[float]:
        return [ours[what] / theirs[what] for ours, theirs in
                zip(taken[f"{key} {driver}"], taken[f"{key} pgbench"], strict=True)]  # fmt: skip

    for what, operation, clients, driver, least in RATES:
        bar(
            f"{what} a second at {clients}, {driver} to pgbench",
            ratios(f"{operation} {clients}", driver, "rate"),
            least,
            bare=ratios(f"{operation} {clients}", f"{BARE} {driver}", "rate"),
        )
    for clients in (8, 32):
        costs = [one["cpu_us"] for one in taken[f"lookup {clients} {PSYCOPG2}"]]
        bare = [one["cpu_us"] for one in taken[f"lookup {clients} {BARE} {PSYCOPG2}"]]
        bar(f"microseconds of CPU a lookup at {clients}, {PSYCOPG2}", costs, most=MOST_CPU_US, bare=bare)
    for driver in (PSYCOPG2, FAST):
        bar(
            f"p95 of {P95_RATE} lookups a second, {driver} to pgbench",
            ratios("steady", driver, "p95_us"),
            1 - P95_WITHIN,
            1 + P95_WITHIN,
            bare=ratios("steady", f"{BARE} {driver}", "p95_us"),
        )
    peers = [name for name in COPIERS if f"copy {name}" in taken]
    for driver in (PSYCOPG2, FAST):
        ours = [one["rows"] for one in taken[f"copy {driver}"]]
        best = [max(taken[f"copy {name}"][number]["rows"] for name in peers) for number in range(rounds)]
        shares = [mine / theirs for mine, theirs in zip(ours, best, strict=True)]
        if statistics.median(ours) >= LEAST_COPIED:
            bar(f"rows a second by COPY, {driver}", ours, LEAST_COPIED)
        else:
            bar(f"rows a second by COPY, {driver} to the best of {', '.join(peers)}", shares, COPIED_SHARE)
    return {
        "rounds": rounds,
        "clients": {
            name: {what: statistics.median(one[what] for one in found) for what in found[0]}
            for name, found in taken.items()
        },
        "bars": bars,
        "passed": all(item["met"] for item in bars),
    }


def whose(item: dict[str, Any], load_average: float) -> str:
    """What the bare loop tells of a bar."""
    if item["bare"] is None:
        return ""
    words = f"; the bare loop {item['bare']:.3f}"
    if item["met"]:
        return words
    if load_average > (os.cpu_count() or 1):
        return f"{words}, but others had the cores, so that nobody can tell whose it is"
    return words if item["bare_met"] else f"{words}, so that it is the client's, on this CPU"


def table(found: dict[str, Any]) -> str:
    lines = [f"load average before: {found['load_average']:.1f}"] + [
        f"{name:<31} " + "  ".join(f"{what} {value:,.1f}" for what, value in each.items())
        for name, each in found["clients"].items()
    ]
    for item in found["bars"]:
        limits = [f"at least {item['at_least']:g}"] if item["at_least"] is not None else []
        limits += [f"at most {item['at_most']:g}"] if item["at_most"] is not None else []
        lines.append(
            f"{'ok    ' if item['met'] else 'MISSED'} {item['name']}: median {item['median']:.3f}, "
            f"{item['min']:.3f} to {item['max']:.3f}  ({', '.join(limits) or 'no bar'})"
            + whose(item, found["load_average"])
        )
    return "\n".join([*lines, "passed" if found["passed"] else "MISSED"])


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
    if options.client and options.client.startswith(BARE):
        from postgres_bare import bare

        given = (options.client.removeprefix(BARE).strip(), options.endpoint, SCHEMA, options.operation, ROWS)
        found = bare(*given, int(options.clients), options.seconds, rate=float(options.rate or 0), processes=SHARES)
        print(json.dumps(found))
        return 0
    if options.client:
        given = (options.endpoint, options.client, options.operation, int(options.clients), options.seconds)
        print(json.dumps(benchhouse(*given, rate=float(options.rate or 0))))
        return 0
    from benchhouse.schema.experiment import ExperimentFailed

    try:
        found = measure(max(3, options.rounds), options.seconds)
    except ExperimentFailed as reason:
        print(f"no server: {reason.message}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=2) if options.json else table(found))
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
