"""The common part of all load experiments: run the load, keep the evidence, and judge whether it measured anything."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchhouse.load.arrivals import TraceArrivals
from benchhouse.load.certificate import Certificate, certify
from benchhouse.load.clients import LoadNodeConnection
from benchhouse.load.endpoint import EndpointServers
from benchhouse.load.engine import NotReached, run_load
from benchhouse.load.load_record import LoadRecord, Second, Tally
from benchhouse.load.nodes import LoadNodes, NodeCommand
from benchhouse.load.shape import ERROR_LIMIT_S, ERROR_SHARE, PLACES, Shape
from benchhouse.load.shards import AllLost
from benchhouse.load.slo import Slo
from benchhouse.load.source import RequestSource
from benchhouse.load.streams import ValueStream, figures
from benchhouse.schema.csv_text import csv_cells
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context
from benchhouse.schema.histogram import Histogram
from benchhouse.schema.service import split_endpoints
from benchhouse.schema.telemetry import STEADY

_MOST_REFUSED = 6
_REACH = "is the server up, and is its address in target right?"
_ADVICE = {
    "refused": _REACH,
    "timeout": _REACH,
    "reset": _REACH,
    "dns": "is the host in target right?",
    "login": "are user and password right? A password is given by the name of its variable, as $NAME",
    "no_database": "target.endpoint ends with the name of one that exists",
    "sqlstate_42501": "the user needs CREATE on the database",
    "too_many_connections": "ask for fewer in flight, or let the server take more",
}


def offer(
    driver: Callable[[], Any],
    source: RequestSource,
    shape: Shape,
    tally: Callable[[], Tally],
    ctx: Context,
    *,
    where: str,
    servers: EndpointServers = EndpointServers(),  # noqa: B008 - frozen
) -> LoadRecord:
    """Run the load. An unreachable server (`where`) or a load that can't be generated fails the trial."""
    records = ctx.artifacts / "requests.parquet"
    spread = _spread(shape, ctx)
    try:
        book = run_load(driver, source, shape, tally, servers=servers, records=records, spread=spread)
        if spread:
            ctx.metadata(load_nodes=spread.facts)
        return book
    except NotReached as error:
        kind = error.message.partition(":")[0]
        ctx.fail("not_reached", advised(kind, f"no connection to {where}: {error.message}"))
    except AllLost as error:
        ctx.fail("shards_lost", error.message)
    except BenchError as error:
        ctx.fail("bad_load", with_hint(error))


def _spread(shape: Shape, ctx: Context) -> LoadNodes | None:
    """Return the nodes of the load processes; None if they run on this one."""
    if shape.nodes == "own":
        return None
    folder = ctx.artifacts / ".load"
    if shape.nodes not in PLACES:
        clients = {f"client-{number}": address for number, address in enumerate(split_endpoints(shape.nodes))}
        return LoadNodes(list(clients), lambda node, arguments: LoadNodeConnection(clients[node], arguments), folder)
    nodes = ctx.nodes if shape.nodes == "all" else ctx.nodes[1:]
    if not nodes:
        ctx.fail("too_few_nodes", "load on other nodes needs a trial of several: resources: {nodes: 2}")
    return LoadNodes(nodes, lambda node, arguments: NodeCommand(ctx.on_node(node), arguments), folder)


def advised(kind: str, message: str) -> str:
    """Return the message of a failure to connect, with what to check if its kind is known."""
    return f"{message} ({_ADVICE[kind]})" if kind in _ADVICE else message


def with_hint(error: BenchError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def keep_book(book: LoadRecord, shape: Shape, ctx: Context, *, embedded: bool = False) -> Certificate:
    """Store the evidence of a load in addition to its numbers, also for a failed trial. `embedded`: it was measured
    inside the load process."""
    if embedded:
        book.late_ns = 0  # its threads wait for cores on which the others compute what is measured
    certificate = certify(book, shape, embedded=embedded)
    if isinstance(shape.law, TraceArrivals):
        ctx.metadata(trace={"file": shape.law.file, "sha256": shape.law.digest()})
    ctx.metadata(
        certificate=certificate.model_dump(),
        measured=book.succeeded,
        not_measured=book.unmeasured,
        window_s=book.window_s,
        errors=dict(book.errors),
        first_errors=book.details,
    )
    if book.places:
        ctx.metadata(endpoints={url: place.facts() for url, place in book.places.items()})
    ctx.phase(STEADY, book.start_ns, book.start_ns + round(book.window_s * 1e9))
    write_intervals(ctx.artifacts / "intervals.csv", book, shape.objectives)
    return certificate


def write_intervals(path: Path, book: LoadRecord, slo: Slo | None) -> None:
    """Write one row per second of the measured window; the last may be partial. `sent`, `completed`, and `errors` count
    events in the second, `in_flight` is the value at its end; `due`, `good`, and `over:...` count requests due in it.
    """
    clauses = [f"over:{clause}" for clause in slo.clauses] if slo else []
    columns = ("sent", "completed", "errors", "in_flight", "due", "good")
    last = int(book.window_s) if book.window_s % 1 else int(book.window_s) - 1
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(csv_cells(["second", *columns, *clauses]))
        for number in range(max(last, 0) + 1):
            row = book.seconds.get(number) or Second(missed=[0] * len(clauses))
            writer.writerow([number, *(getattr(row, name) for name in columns), *row.missed])


def emit_rates(book: LoadRecord, shape: Shape, ctx: Context) -> float:
    """Emit the metrics of every load experiment (`load.metrics`). Return the requests per second."""
    requests_per_s = book.answers_per_s(open_loop=shape.open_loop)
    emit_rate("requests_per_s", requests_per_s, book, shape, ctx)
    ctx.emit("error_rate", book.failed / (book.failed + book.succeeded))
    ctx.emit("errors", book.failed)
    ctx.emit("timeouts", book.errors["timeout"])
    if shape.slo:
        emit_rate("goodput", requests_per_s * book.good_share(), book, shape, ctx)
    warn_of_rates(_late_share(book, shape), shape.error_share, "clients", "requests", ctx)
    return requests_per_s


def emit_rate(name: str, value: float, book: LoadRecord, shape: Shape, ctx: Context) -> None:
    """Emit a rate with its uncertainty."""
    emit_bounded_rate(name, value, _late_share(book, shape), shape.error_share, ctx)


def emit_bounded_rate(name: str, value: float, late: float | None, taken: float, ctx: Context) -> None:
    """Emit a rate with its uncertainty: nothing is answered while a client is late with its next request, a share
    `late` of its time. None means unknown."""
    ctx.emit(name, value)
    if late is not None:
        ctx.bound(name, {"value": value * late}, ["value"] if late > taken else ())


def warn_of_rates(late: float, taken: float, clients: str, requests: str, ctx: Context) -> None:
    if late > taken:
        share = f"the {clients} together were late with their next {requests} for {late:.1%} of the time"
        ctx.warn("rates_invalid", f"{share} ({taken:.1%} is taken): rates are INVALID")


def _late_share(book: LoadRecord, shape: Shape) -> float:
    """Return the share of the time of all closed-loop clients in which they had an answer but were late with the next
    request."""
    whole_ns = (shape.concurrency or 0) * book.window_s * 1e9
    return book.late_ns / whole_ns if whole_ns else 0.0


def emit_times(streams: Mapping[str, ValueStream], book: LoadRecord, shape: Shape, ctx: Context) -> None:
    """Emit times with the uncertainty of each figure; those above the limit are INVALID by name, and reported."""
    waits, threads = book.unseen, book.calls > 0
    bounded = {name: (stream.histogram, stream.bounds_ns(waits)) for name, stream in streams.items()}
    emit_bounded(bounded, shape.error_limit, shape.error_share, ctx, threads=threads)


def emit_bounded(
    times: Mapping[str, tuple[Histogram, Mapping[str, float]]],
    limit_s: float,
    share: float,
    ctx: Context,
    *,
    threads: bool,
) -> None:
    """Emit times with the bounds of their figures in nanoseconds; empty bounds mean unknown."""
    refused: list[str] = []
    for name, (histogram, bounds_ns) in times.items():
        ctx.distribution(name, histogram)
        if not bounds_ns:
            continue
        errors = {stat: bound / 1e6 for stat, bound in bounds_ns.items()}
        taken = {stat: max(limit_s * 1e3, share * value / 1e6) for stat, value in figures(histogram).items()}
        beyond = [stat for stat, error in errors.items() if error > taken[stat]]
        ctx.bound(name, errors, beyond)
        refused += [f"{name}.{stat} (by {errors[stat]:.3g} ms, {taken[stat]:.3g} is taken)" for stat in beyond]
    if refused:
        shown = ", ".join(refused[:_MOST_REFUSED])
        more = f" and {len(refused) - _MOST_REFUSED} more" if len(refused) > _MOST_REFUSED else ""
        fewer = "free cores for its threads, or have fewer calls in flight"
        remedy = fewer if threads else "free a core for it, or give it more processes"
        ctx.warn("figures_invalid", f"a late client can have changed {shown}{more}: these are INVALID; {remedy}")
    if limit_s > ERROR_LIMIT_S or share > ERROR_SHARE:
        limits = f"{limit_s * 1e3:g} ms, or by {share:.3g} of themselves"
        ctx.warn("limits_relaxed", f"the workload takes times that can be off by {limits}")


def judge(book: LoadRecord, certificate: Certificate, ctx: Context) -> None:
    """Judge the load: without a good answer it fails; if it was not offered as requested, it is invalid."""
    kind, count = (book.errors.most_common(1) or [("no error was told", 0)])[0]
    first = f"{kind} {count} times: {book.details.get(kind, '')}" if count else kind
    if book.stopped:
        ctx.fail(book.stop_code, f"{book.stopped}, after {book.succeeded} good answers ({first})")
    if not book.succeeded and not book.failed:  # closed loop: the requests of the warm-up lasted longer than the window
        ctx.fail("window_too_short", f"no request began in the window of {book.window_s:g} s: lengthen it")
    if not book.succeeded:
        ctx.fail("no_good_answer", f"none of {book.failed} measured requests was answered well: {first}")
    for problem in certificate.problems:
        ctx.invalid(problem.code, problem.message)
