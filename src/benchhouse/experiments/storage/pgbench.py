"""A load that pgbench offers: its run, and its log written down as a load of ours."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchhouse.experiments.storage.pgbench_scripts import scripts, transactions
from benchhouse.experiments.storage.postgres_tally import PostgresTally
from benchhouse.experiments.storage.postgres_workload import PostgresWorkload
from benchhouse.load.book import Answers, Book, Call
from benchhouse.load.engine import first_connections
from benchhouse.load.protocols.calls import Reply
from benchhouse.load.protocols.pgbench import PgbenchDriver, PgbenchJob, PgbenchRun
from benchhouse.load.protocols.postgres import Login, Work
from benchhouse.load.records import Spool, write_parquet

_SECOND_NS = 1_000_000_000
_SPARE_S = 1.0  # for connecting, which is part of the time that pgbench is given
_GAPS = 5  # of an open loop, until its first transaction is due
_BEHIND = 10  # mean gaps without a transaction that was due: by chance once in 20,000
_AT_A_TIME = 4096


def plan(workload: PostgresWorkload, login: Login, seed: int) -> PgbenchJob:
    """What pgbench is to do. Raises BenchError where it can't."""
    rate = workload.rps
    spare_s = _SPARE_S + (_GAPS / rate if rate else 0)
    clients = first_connections(workload) if workload.open_loop else workload.most_in_flight
    assert workload.schedule_s is not None  # `scripts` refuses what has none
    return PgbenchJob(
        login=login,
        scripts=scripts(workload),
        clients=clients,
        threads=workload.processes,
        seconds=math.ceil(workload.schedule_s + spare_s),
        rate=rate,
        prepared=workload.prepared,
        timeout_s=workload.timeout,
        seed=seed,
    )


def offer(driver: PgbenchDriver, job: PgbenchJob, workload: PostgresWorkload, records: Path) -> Book:
    """Run it, and write down what its log has. Raises CallFailed and BenchError."""
    return write_down(driver.run(job), job, workload, records)


def write_down(run: PgbenchRun, job: PgbenchJob, workload: PostgresWorkload, records: Path) -> Book:
    """The book of a run. The load began with the first transaction; connecting is no part of it."""
    works = list(transactions(workload).values())
    objectives = workload.objectives
    tally = PostgresTally(objectives, writes=any(work.effect for work in works))
    book = Book(tally, len(objectives.clauses) if objectives else 0)
    book.start_ns = int(run.due_ns.min()) + round(workload.warmup * _SECOND_NS)
    book.end_ns = book.start_ns + round((workload.window_s or 0) * _SECOND_NS)
    book.ended_early = int(run.ended_ns.max()) < book.end_ns
    if workload.records:
        book.spool = Spool(records.with_suffix(".0.spool"))
    _settle(run, works, workload, book)
    _note_client(run, job, book)
    book.flush()
    if book.spool:
        book.spool.close()
        write_parquet([book.spool.path], records)
        book.spool = None
    return book


def _settle(run: PgbenchRun, works: Sequence[Work], workload: PostgresWorkload, book: Book) -> None:
    """In pieces, column by column where all of a piece went well inside the window, else one by one."""
    timeout_ns = round(workload.timeout * _SECOND_NS)
    columns = [column.tolist() for column in (run.script, run.due_ns, run.sent_ns, run.ended_ns)]
    for at in range(0, len(run), _AT_A_TIME):
        script, due, sent, ended = (column[at : at + _AT_A_TIME] for column in columns)
        items = [works[number] for number in script]
        good = not any(map(run.failures.__contains__, range(at, at + len(items))))
        if not workload.open_loop and good and (run.ended_ns - run.sent_ns)[at : at + _AT_A_TIME].max() <= timeout_ns:
            counts = [item.rows for item in items]
            if book.settle_answers(Answers(items, counts, sent, ended, sum(counts))):
                continue
        for index, row in enumerate(zip(items, due, sent, ended, strict=True), at):
            item, due_ns, sent_ns, ended_ns = row
            call = Call(index, due_ns, book.start_ns <= due_ns < book.end_ns, item)
            call.sent_ns, call.ended_ns = sent_ns, ended_ns
            book.wrote(call)
            late = ended_ns - sent_ns > timeout_ns
            book.settle(call, _reply(item, "timeout" if late else run.failures.get(index)))


def _reply(item: Work, error: str | None) -> Reply:
    return Reply(error=error, detail=f"pgbench: {error} in {item.kind}") if error else Reply(count=item.rows)


def _note_client(run: PgbenchRun, job: PgbenchJob, book: Book) -> None:
    """What the certificate asks about: CPU of the client, connections, and what was due and never sent."""
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
