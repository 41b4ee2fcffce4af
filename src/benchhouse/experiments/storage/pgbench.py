"""A load that pgbench offers: its scripts, its run, and its log as a load record. Other loads are refused."""

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchhouse.experiments.storage.postgres_tables import PostgresTally
from benchhouse.experiments.storage.postgres_workload import (
    BEGIN,
    BUILT_IN,
    COMMIT,
    LOOKUP,
    RANGE,
    RECORD,
    UPDATE,
    Between,
    CustomSql,
    PostgresWorkload,
)
from benchhouse.load.arrivals import Poisson
from benchhouse.load.engine import first_connections
from benchhouse.load.load_record import Answers, Call, LoadRecord
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.protocols.postgres import (
    Effect,
    Login,
    PgbenchDriver,
    PgbenchJob,
    PgbenchRun,
    PgbenchScript,
    Statement,
    StatementCall,
    Value,
    Work,
)
from benchhouse.load.records import Spool, write_parquet
from benchhouse.schema.errors import BenchError

_SECOND_NS = 1_000_000_000
_SPARE_S = 1.0  # for connecting, which is part of the time that pgbench is given
_GAPS = 5  # of an open loop, until its first transaction is due
_BEHIND = 10  # mean gaps without a transaction that was due: by chance once in 20,000
_AT_A_TIME = 4096
_MOST_WEIGHT = 2**31 - 1
_MOST_PLACES = 255  # of one statement
_OTHER = "or take driver: postgres"
_LIKE_A_PLACE = re.compile(r"(?<!:):[A-Za-z_]")
Command = Statement | tuple[str, str]  # a statement, or the name of a variable and the expression that it is set to


def plan(workload: PostgresWorkload, login: Login, seed: int) -> PgbenchJob:
    """Return the job of pgbench. Raise BenchError if it cannot express the workload."""
    rate = workload.rps
    spare_s = _SPARE_S + (_GAPS / rate if rate else 0)
    clients = first_connections(workload) if workload.open_loop else workload.most_in_flight
    assert workload.schedule_s is not None  # `scripts` refuses a workload without one
    return PgbenchJob(
        login=login,
        scripts=scripts(workload),
        clients=clients,
        threads=workload.shards,
        seconds=math.ceil(workload.schedule_s + spare_s),
        rate=rate,
        prepared=workload.prepared,
        timeout_s=workload.timeout,
        seed=seed,
    )


def offer(driver: PgbenchDriver, job: PgbenchJob, workload: PostgresWorkload, records: Path) -> LoadRecord:
    """Run the job, and record its log. The load begins with the first transaction, after connecting.

    Raise CallFailed or BenchError if it fails.
    """
    run = driver.run(job)
    works = list(transactions(workload).values())
    objectives = workload.objectives
    tally = PostgresTally(objectives, writes=any(work.effect for work in works))
    book = LoadRecord(tally, len(objectives.clauses) if objectives else 0)
    book.start_ns = int(run.due_ns.min()) + round(workload.warmup * _SECOND_NS)
    book.end_ns = book.start_ns + round((workload.window_s or 0) * _SECOND_NS)
    book.ended_early = int(run.ended_ns.max()) < book.end_ns
    if workload.records:
        book.spool = Spool(records.with_suffix(".0.spool"))
    _settle(run, works, workload, book)
    _note_client(run, job, book)
    book.chosen = "1 thread of pgbench, which serves all clients" if workload.processes == "auto" else ""
    book.flush()
    if book.spool:
        book.spool.close()
        write_parquet([book.spool.path], records)
        book.spool = None
    return book


def _settle(run: PgbenchRun, works: Sequence[Work], workload: PostgresWorkload, book: LoadRecord) -> None:
    """Record the transactions in pieces: by column if a whole piece succeeded in the window, otherwise one by one."""
    timeout_ns = round(workload.timeout * _SECOND_NS)
    last: dict[int, Call] = {}  # by connection
    columns = [column.tolist() for column in (run.client, run.script, run.due_ns, run.sent_ns, run.ended_ns)]
    for at in range(0, len(run), _AT_A_TIME):
        client, script, due, sent, ended = (column[at : at + _AT_A_TIME] for column in columns)
        items = [works[number] for number in script]
        good = not any(map(run.failures.__contains__, range(at, at + len(items))))
        if not workload.open_loop and good and (run.ended_ns - run.sent_ns)[at : at + _AT_A_TIME].max() <= timeout_ns:
            counts = [item.rows for item in items]
            if book.settle_answers(Answers(items, counts, sent, ended, sum(counts))):
                continue
        rows = enumerate(zip(client, items, due, sent, ended, strict=True), at)
        for index, (connection, item, due_ns, sent_ns, ended_ns) in rows:
            call = Call(index, due_ns, book.start_ns <= due_ns < book.end_ns, item)
            call.sent_ns, call.ended_ns = sent_ns, ended_ns
            before = last.get(connection)
            if before and before.ended_ns > due_ns:  # a free connection takes what is due next: all were busy
                call.follow(before)
            last[connection] = call
            book.wrote(call)
            late = ended_ns - sent_ns > timeout_ns
            error = "timeout" if late else run.failures.get(index)
            failed = CallResult(error=error, detail=f"pgbench: {error} in {item.kind}")
            book.settle(call, failed if error else CallResult(count=item.rows))


def _note_client(run: PgbenchRun, job: PgbenchJob, book: LoadRecord) -> None:
    """Record facts for the certificate: CPU time of the client, connections, and transactions never sent."""
    import numpy

    sent, ended = numpy.sort(run.sent_ns), numpy.sort(run.ended_ns)

    def in_flight(at: Any) -> Any:
        return numpy.searchsorted(sent, at, "right") - numpy.searchsorted(ended, at, "right")

    book.connections = job.clients
    book.most_in_flight = int(in_flight(sent).max()) if job.rate else job.clients
    for number, row in book.seconds.items():
        row.in_flight = int(in_flight(min(book.start_ns + (number + 1) * _SECOND_NS, book.end_ns)))
    if job.rate:
        missing = job.rate * (book.end_ns - int(run.due_ns.max())) / _SECOND_NS
        book.never_sent = round(missing) if missing > _BEHIND and not book.ended_early else 0
    book.peak_mb = run.peak_mb
    book.cpu_share = run.cpu_s / run.seconds / min(job.threads, job.clients)
    book.cpu_all_ns = round(run.cpu_s / run.seconds * book.window_s * _SECOND_NS)


def transactions(workload: PostgresWorkload) -> dict[str, Work]:
    """Return the statements and effect of a transaction of each kind, by name. Raise BenchError for one that pgbench
    can't make. Every amount is 1, so that writes can be added up although pgbench draws the rows itself."""
    lookup, update, record = StatementCall(LOOKUP, rows=1), StatementCall(UPDATE, rows=1), StatementCall(RECORD, rows=1)
    built_in: dict[str, tuple[list[StatementCall], Effect | None]] = {
        "lookup": ([lookup], None),
        "range": ([StatementCall(RANGE, rows=workload.span)], None),
        "update": ([update], Effect(balance=1, hits=1)),
        "transfer": ([StatementCall(BEGIN), update, update, StatementCall(COMMIT)], Effect(hits=2)),
        "oltp": (
            [StatementCall(BEGIN), update, lookup, record, StatementCall(COMMIT)],
            Effect(balance=1, hits=1, rows=1, amount=1),
        ),
    }
    for kind in workload.weights:
        if kind in BUILT_IN and kind not in built_in:
            raise BenchError(
                f"pgbench has no {kind}: its scripts send single statements with few values",
                f"choose from {', '.join(built_in)} and SQL of your own, {_OTHER}",
            )
    return {kind: Work(kind, *built_in.get(kind, ([], None))) for kind in workload.weights}


def scripts(workload: PostgresWorkload) -> tuple[PgbenchScript, ...]:
    """Return one script for each kind of transaction, in the order of the workload's weights. Raise BenchError if
    pgbench cannot express the workload."""
    _refuse_shape(workload)
    transactions(workload)
    made = []
    for number, (kind, weight) in enumerate(zip(workload.weights, _whole_weights(workload), strict=True)):
        if kind in workload.sql:
            made.append(_of_own(kind, number, workload.sql[kind], weight))
        else:
            variables = {"note": "oltp"} if kind == "oltp" else {}
            made.append(PgbenchScript(_text(_built_in(kind, workload)), weight, variables))
    return tuple(made)


def _refuse_shape(workload: PostgresWorkload) -> None:
    if workload.requests:
        raise BenchError("pgbench runs for a time, not for a number of requests", f"give duration, {_OTHER}")
    if workload.think_time:
        raise BenchError("pgbench counts a pause as part of a transaction", f"leave think_time out, {_OTHER}")
    if workload.open_loop and not isinstance(workload.law, Poisson):
        kind = workload.law.kind
        raise BenchError(f"pgbench has no arrivals of the kind {kind}", f"give rps with arrivals: poisson, {_OTHER}")
    if workload.nodes != "own":
        raise BenchError("pgbench runs on the node of the trial alone", f"leave nodes out, {_OTHER}")


def _whole_weights(workload: PostgresWorkload) -> list[int]:
    """Return the weights as whole numbers, which pgbench requires."""
    shares = [Fraction(str(weight)) for weight in workload.weights.values()]
    scale = math.lcm(*(share.denominator for share in shares))
    weights = [int(share * scale) for share in shares]
    if max(weights) > _MOST_WEIGHT:
        raise BenchError("mix: pgbench needs weights that are whole numbers", f"round them, {_OTHER}")
    return weights


def _built_in(kind: str, workload: PostgresWorkload) -> list[Command]:
    rows, span = workload.rows, workload.span
    account, gain, loss = ("id", f"random(1, {rows})"), ("amount", "1"), ("amount", "-1")
    another = ("id", f"1 + (:id + random(0, {rows - 2})) % {rows}")
    scripts: dict[str, list[Command]] = {
        "range": [("first", f"random(1, {rows - span + 1})"), ("last", f":first + {span - 1}"), RANGE],
        "lookup": [account, LOOKUP],
        "update": [account, gain, UPDATE],
        "transfer": [account, BEGIN, loss, UPDATE, another, gain, UPDATE, COMMIT],
        "oltp": [account, gain, BEGIN, UPDATE, LOOKUP, RECORD, COMMIT],
    }
    return scripts[kind]


def _text(commands: Sequence[Command]) -> str:
    return "".join(
        f"{command.text.strip().removesuffix(';')}\n;\n"  # on its own line, so that it may follow a comment
        if isinstance(command, Statement)
        else f"\\set {command[0]} {command[1]}\n"
        for command in commands
    )


def _of_own(kind: str, number: int, own: CustomSql, weight: int) -> PgbenchScript:
    """Return the script of a user's transaction. Its variables have the number of the script, because variables from
    the command line are the same in all scripts."""
    sets: list[Command] = []
    variables: dict[str, str] = {}
    names = {name: f"v{number}_{name}" for name in own.params}
    for name, value in own.params.items():
        if isinstance(value, tuple) and len(value) > 1:
            sets += _drawn(kind, name, value, names[name])
        elif isinstance(value, Between):
            sets.append((names[name], f"random({value.low}, {value.high})"))
        else:
            only = value[0] if isinstance(value, tuple) else value
            variables[names[name]] = _as_text(kind, name, only)
    statements = [Statement(kind, _renamed(kind, text, names)) for text in own.texts]
    return PgbenchScript(_text([*sets, *statements]), weight, variables)


def _drawn(kind: str, name: str, values: tuple[Value, ...], variable: str) -> list[Command]:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values) or not all(map(math.isfinite, numbers)):
        raise BenchError(
            f"sql.{kind}: pgbench can choose among numbers only, and the list {name} of params holds something else",
            f"give numbers, or one value, {_OTHER}",
        )
    *first, last = (repr(value) for value in numbers)
    cases = " ".join(f"WHEN :{variable}_at = {at} THEN {text}" for at, text in enumerate(first))
    return [(f"{variable}_at", f"random(0, {len(first)})"), (variable, f"CASE {cases} ELSE {last} END")]


def _as_text(kind: str, name: str, value: Value) -> str:
    if value is None:
        raise BenchError(f"sql.{kind}: pgbench has no null for {name} of params", f"write NULL into the text, {_OTHER}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _renamed(kind: str, text: str, names: dict[str, str]) -> str:
    statement = Statement(kind, text)
    if ";" in statement.unquoted.strip().removesuffix(";"):
        several = f"sql.{kind}: pgbench would send these as several statements: {text}"
        raise BenchError(several, "write a list of statements")
    for quoted in statement.quoted:
        if _LIKE_A_PLACE.search(quoted):
            replaced = f"sql.{kind}: pgbench would replace what follows the colon in {quoted}"
            raise BenchError(replaced, f"avoid it there, {_OTHER}")
    if len(statement.places) > _MOST_PLACES:
        raise BenchError(f"sql.{kind}: pgbench takes {_MOST_PLACES} values in a statement", f"use fewer, {_OTHER}")
    return statement.filled({name: f":{names[name]}" for name in statement.names})
