"""Experiment `storage.postgres`: PostgreSQL under a load of transactions, and whether acknowledged writes are there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from time import monotonic, sleep
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, field_validator

from benchhouse.experiments.storage import pgbench
from benchhouse.experiments.storage.postgres_server import ServerWatch, server_of
from benchhouse.experiments.storage.postgres_tables import (
    AccountTables,
    PostgresTally,
    RowReconciliation,
    SchemaExists,
    schema_name,
)
from benchhouse.experiments.storage.postgres_workload import BUILT_IN, PostgresWorkload, TransactionScript
from benchhouse.load.endpoint import EndpointServers
from benchhouse.load.load_record import LoadRecord
from benchhouse.load.metrics import FAILURES, FROM_DUE, GOODPUT, LATENCY_SENT, REQUESTS_PER_S, higher, lower
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.postgres import OLDEST, Administrator, Login, Statement, too_old
from benchhouse.load.source import Planned, RequestPool
from benchhouse.load.streams import ValueStream
from benchhouse.load.trial import advised, emit_rate, emit_rates, emit_times, judge, keep_book, offer, with_hint
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context, Metric, experiment
from benchhouse.schema.model import Model
from benchhouse.schema.secrets import is_made_up
from benchhouse.schema.service import is_mention

_ACCOUNT = "by the server's own account, five looks a second"
_BACK_S = 5.0  # a server that crashed must be back within this time, for the check
_UNREACHED = ("dns", "refused", "reset", "starting", "timeout", "tls", "too_many_connections")
METRICS = (
    higher("transactions_per_s", "1/s", "as requests_per_s: transactions that went well", "throughput", primary=True),
    lower("latency", "ms", f"of a whole transaction, {FROM_DUE}", "latency", primary=True),
    higher("rows_per_s", "rows/s", "requests_per_s x mean rows that a good transaction brought or changed"),
    LATENCY_SENT,
    GOODPUT,
    *(lower(f"latency_{kind}", "ms", f"latency of `{kind}` alone") for kind in BUILT_IN),
    lower("latency_sql", "ms", "latency of transactions from workload.sql"),
    lower("deadlocks", "1", "measured transactions that ended with 40P01"),
    lower("serialization_errors", "1", "measured transactions that ended with 40001"),
    lower("lost_writes", "1", "acknowledged updates and rows that are not there after"),
    higher("load_rows_per_s", "rows/s", "rows of `accounts` / seconds of the COPY that filled it, before the load"),
    Metric(
        name="server_cpu",
        unit="cores",
        formula="CPU seconds a second of the server's processes, where they are on this machine",
    ),
    lower("server_io_wait", "sessions", f"mean number of sessions that wait for storage, {_ACCOUNT}"),
    lower("server_lock_wait", "sessions", f"mean number of sessions that wait for a lock of another, {_ACCOUNT}"),
    REQUESTS_PER_S,
    *FAILURES,
)


class PostgresTarget(Model):
    """A database and how to reach it."""

    endpoint: str = Field("", description="postgresql://user@host:port/database; empty: a server is started.")
    password: str | None = Field(None, repr=False, description="A secret, by the name of its variable: $NAME.")
    driver: str = Field("postgres", description="postgres (psycopg, in our load engine) or pgbench (the program).")
    settings: dict[str, bool | int | float | str] = Field({}, description="Of each session: {synchronous_commit: off}.")
    name: str = Field("", description="Name in reports.")

    @field_validator("endpoint")
    @classmethod
    def _has_no_password(cls, endpoint: str) -> str:
        if not endpoint or is_mention(endpoint):
            return endpoint
        try:
            parts = urlsplit(endpoint)
            password, _ = parts.password, parts.port
        except ValueError:
            raise ValueError("it is not an address: write postgresql://user@host:port/database") from None
        if parts.scheme not in ("postgresql", "postgres"):
            raise ValueError("write postgresql://user@host:port/database")
        if (password is not None and not is_made_up(password)) or "password" in parse_qs(parts.query):
            raise ValueError("it holds a password: leave it out, and write password: $NAME, a variable that has it")
        return endpoint

    @field_validator("settings")
    @classmethod
    def _are_named(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name in settings:
            if not name.replace("_", "").replace(".", "").isalnum() or not name.isascii():
                raise ValueError(f"{name!r} is no setting")
        return settings

    def session(self, endpoint: str, schema: str, workload: PostgresWorkload) -> Login:
        settings = {
            "search_path": f"{schema},public",
            "default_transaction_isolation": workload.isolation,
            "statement_timeout": str(round(workload.timeout * 1000)),
        }
        for name, value in self.settings.items():
            settings[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return Login(endpoint, self.password, settings, name=schema)


@experiment(
    "storage.postgres",
    version="0.2",
    metrics=METRICS,
    component="storage",
    services=("postgres", "postgresql"),
    drivers=("postgres", "pgbench"),
)
def postgres(target: PostgresTarget, workload: PostgresWorkload, ctx: Context) -> None:
    """Put PostgreSQL under load: lookups, ranges, updates, transactions, inserts, COPY, or SQL of your own."""
    driver = _driver(target, workload, ctx)
    service = None if target.endpoint else ctx.service("postgres")
    endpoint = service.endpoint if service else target.endpoint
    where = urlsplit(endpoint).hostname or endpoint
    with _named(ctx, f"no session at {where}"):
        session: Administrator = ctx.driver("postgres").administrator(Login(endpoint, target.password))
    try:
        if session.version < OLDEST:
            ctx.fail("unsupported_version", with_hint(too_old(session.version)))
        ctx.metadata(server=f"PostgreSQL {session.version // 10000}.{session.version % 10000}", driver=target.driver)
        if driver.transport == "program":
            ctx.metadata(pgbench=driver.version)
        with _tables(session, workload, ctx) as tables:
            login = target.session(endpoint, tables.schema, workload)
            if workload.prepared:
                _try(TransactionScript(workload, ctx.seed).own, login, session, ctx)
            watch = ServerWatch(service.pid if service else server_of(session.pid), session, login.name)
            book, seen = _load(driver, workload, login, watch, where, ctx)
            certificate = keep_book(book, workload, ctx)
            _check(session, tables, workload, book, ctx)
            judge(book, certificate, ctx)
            counts_rows = driver.transport == "call" or not workload.sql  # pgbench does not report how many rows came
            _report(workload, book, seen, ctx, counts_rows=counts_rows)
    finally:
        session.close()


@contextmanager
def _named(ctx: Context, what: str) -> Iterator[None]:
    """End the trial with the kind of a server error that occurs outside of the load."""
    try:
        yield
    except CallFailed as failed:
        code = "not_reached" if failed.kind in _UNREACHED else failed.kind
        named = "" if code == failed.kind else f"{failed.kind}: "
        ctx.fail(code, advised(failed.kind, f"{what}: {named}{failed.detail}"))
    except BenchError as error:
        ctx.fail("bad_load", with_hint(error))


@contextmanager
def _tables(session: Administrator, workload: PostgresWorkload, ctx: Context) -> Iterator[AccountTables]:
    """Yield tables in a separate schema, which is removed afterwards whatever happens."""
    tables = AccountTables(session, schema_name(ctx.trial_id))
    try:
        with _named(ctx, "the schema could not be made"):
            tables.create()
    except SchemaExists:
        cure = f'if an attempt that was killed left it behind: DROP SCHEMA "{tables.schema}" CASCADE'
        ctx.fail("schema_exists", f"the database has a schema {tables.schema} already, which is left alone; {cure}")
    try:
        with _named(ctx, "the tables could not be filled"):
            taken = tables.load(workload.rows, ctx.seed)
        ctx.emit("load_rows_per_s", workload.rows / taken)
        yield tables
    finally:
        try:
            tables.drop()
        except CallFailed as failed:  # the trial may have failed for the same reason, which is then the one reported
            ctx.warn("left_behind", f"the schema {tables.schema} could not be dropped: {failed.kind}: {failed.detail}")


def _driver(target: PostgresTarget, workload: PostgresWorkload, ctx: Context) -> Any:
    """Return the class of a call driver, or the program pgbench. Refuse impossible workloads before any start."""
    kind = ctx.driver(target.driver)
    transport = getattr(kind, "transport", "")
    with _named(ctx, "the load"):
        if transport == "program":
            pgbench.scripts(workload)
            return kind()
    if transport != "call" or "prepared" not in signature(kind).parameters:
        ctx.fail("bad_load", f"{target.driver!r} is no driver of PostgreSQL: postgres and pgbench are")
    return kind


def _load(
    driver: Any, workload: PostgresWorkload, login: Login, watch: ServerWatch, where: str, ctx: Context
) -> tuple[LoadRecord, dict[str, float]]:
    """Return the record of the load, and the activity of the server's processes during it."""
    with _named(ctx, "the load"):
        if driver.transport == "program":
            job = pgbench.plan(workload, login, ctx.seed)
            load: Callable[[], LoadRecord] = partial(
                pgbench.offer, driver, job, workload, ctx.artifacts / "requests.parquet"
            )
        else:
            load = _by_engine(driver, TransactionScript(workload, ctx.seed), workload, login, where, ctx)
        with watch:
            book = load()
    return book, watch.between(book.start_ns, min(book.end_ns, book.last_ended_ns))


def _by_engine(
    kind: Any, script: TransactionScript, workload: PostgresWorkload, login: Login, where: str, ctx: Context
) -> Callable[[], LoadRecord]:
    """Return the load of a call driver, ready to start."""
    make = partial(kind, login, script.statements, prepared=workload.prepared, timeout_s=workload.timeout)
    driver = make()
    planned = []
    for work in script.works():
        work.ready = work.ready or driver.request(work)
        planned.append(Planned(work, work.ready))
    tally = partial(PostgresTally, workload.objectives, writes=any(plan.item.effect for plan in planned))
    return partial(
        offer,
        make,
        RequestPool(planned, ctx.seed),
        workload,
        tally,
        ctx,
        where=where,
        servers=EndpointServers((login.endpoint,)),
    )


def _try(statements: list[Statement], login: Login, session: Administrator, ctx: Context) -> None:
    """Fail the trial if the user's own statements cannot be prepared; otherwise every connection would fail."""
    for item in (statement for statement in statements if not statement.control):
        try:
            session.query(f"SET search_path TO {login.settings['search_path']}")
            session.query(f"PREPARE {item.name} AS {item.numbered}")
            session.query(f"DEALLOCATE {item.name}")
        except CallFailed as failed:
            cure = "what can't be prepared needs prepared: false"
            ctx.fail("bad_sql", f"workload.sql: {failed.detail} in: {item.text} ({cure})")


def _check(
    session: Administrator, tables: AccountTables, workload: PostgresWorkload, book: LoadRecord, ctx: Context
) -> None:
    """Compare the acknowledged writes with the stored rows."""
    if book.stopped:
        return  # `judge` reports that the server is gone
    if book.lost:  # the stored rows may be those of the lost process
        ctx.warn("writes_not_checked", "a load process died: what it wrote, and what of that was acknowledged, is lost")
        return
    with _named(ctx, f"after {book.succeeded} good transactions, what was written could not be checked"):
        _wait_until_back(session)
        tables.wait_for_leaving(tables.schema)
        stored = tables.sums()
    written, unchecked = book.tally.written, workload.unchecked
    ctx.metadata(
        check={
            "acknowledged": written.acknowledged._asdict(),
            "unsure": written.unsure._asdict(),
            "found": vars(stored),
            "loaded": vars(tables.loaded),
            "unchecked": list(unchecked),
        }
    )
    if unchecked:
        named = f"workload.sql names {' and '.join(unchecked)}"
        ctx.warn("writes_not_checked", f"{named}: what it writes there is not known")
    comparison = RowReconciliation(tables.loaded, stored, written, unchecked)
    for code, messages in comparison.problems.items():
        ctx.invalid(code, "; ".join(messages))
    ctx.emit("lost_writes", comparison.lost)


def _wait_until_back(session: Administrator) -> None:
    deadline = monotonic() + _BACK_S
    while True:
        try:
            session.query("SELECT 1")
            return
        except CallFailed as failed:
            if failed.kind not in _UNREACHED or monotonic() > deadline:
                raise
        sleep(0.1)


def _report(
    workload: PostgresWorkload, book: LoadRecord, seen: dict[str, float], ctx: Context, *, counts_rows: bool
) -> None:
    tally: PostgresTally = book.tally
    times = {"latency": tally.latency, "latency_sent": tally.latency_sent, "latency_sql": ValueStream()}
    for kind, stream in tally.by_kind.items():
        if kind in BUILT_IN:
            times[f"latency_{kind}"] = stream
        else:
            times["latency_sql"].merge(stream)
    emit_times(times, book, workload, ctx)
    rate = emit_rates(book, workload, ctx)
    emit_rate("transactions_per_s", rate, book, workload, ctx)
    if counts_rows:
        emit_rate("rows_per_s", rate * tally.operations / max(tally.calls, 1), book, workload, ctx)
    ctx.emit("deadlocks", book.errors["deadlock"])
    ctx.emit("serialization_errors", book.errors["serialization"])
    for name in ("cpu", "io_wait", "lock_wait"):
        if name in seen:
            ctx.emit(f"server_{name}", seen[name])
    counts = {kind: stream.histogram.n for kind, stream in sorted(tally.by_kind.items())}
    ctx.metadata(transactions=counts, server_seen=seen)
