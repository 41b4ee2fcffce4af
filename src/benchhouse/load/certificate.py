"""The certificate: whether the load was really offered as requested. A failed certificate makes a trial invalid."""

import math
from collections.abc import Iterator, Sequence
from itertools import count, pairwise

from pydantic import Field

from benchhouse.load.arrivals import Kind, TraceArrivals
from benchhouse.load.load_record import LoadRecord, Lost
from benchhouse.load.protocols.calls import CONNECTING
from benchhouse.load.shape import ERROR_LIMIT_S, Shape
from benchhouse.schema.histogram import Histogram
from benchhouse.schema.model import Model

_NS = 1_000_000_000
_KS_CRITICAL = 1.9495  # of Kolmogorov's distribution: exceeded by chance once in 1,000
_OFF_ALLOWED = 0.02  # of even gaps: one send in a hundred may be late, which spoils the gaps before and after it
_EVEN_PART, _RANDOM_PART = 0.5, 0.25  # of a mean gap: the maximum tolerance for even and for random gaps
_EVEN_LEAST = 0.05  # of a gap: minimum tolerance for even gaps, because at low rates sends are judged by the lag
_LOOKS = 4096  # maximum number of points checked in a distribution: a distance is then understated by less than 1/4096

TOLERANCE_NS = 200_000
"""How far off a gap may be before it counts: the worst lateness of a send on a quiet machine."""


class Fit(Model):
    """Whether sent times have the requested gaps."""

    statistic: float
    limit: float = Field(description="The largest statistic that passes.")
    passed: bool
    n: int = Field(description="Gaps looked at.")
    what: str = Field(description="What the statistic is, for people.")


def gaps_fit(
    arrivals: Kind,
    sent: Sequence[int],
    intended: Sequence[int],
    rate: float | None,
    duration_s: float | None = None,
    tolerance_ns: float = TOLERANCE_NS,
) -> Fit:
    """Test the gaps between sends of one unbroken stretch of the schedule, all in nanoseconds after its start.

    For random gaps, the statistic is the Kolmogorov-Smirnov distance to the distribution, beyond what `tolerance_ns`
    explains; an exact schedule fails about once in 1,000. For even gaps and traces, it is the share that is off by more
    than the tolerance. The tolerance is limited to a part of the mean gap, because otherwise any sends would pass at
    high rates. Only gaps are checked: sends that follow the distribution but not their own times show in the lag of the
    schedule.
    """
    if len(sent) != len(intended):
        raise ValueError(f"each send needs its intended time: {len(sent)} sent, {len(intended)} intended")
    ordered = sorted(sent)
    if len(ordered) < 2:
        return Fit(statistic=0.0, limit=1.0, passed=True, n=0, what="no gaps to look at")
    if isinstance(arrivals, TraceArrivals):
        wanted = _gaps(sorted(intended))
        mean = sum(wanted) / len(wanted)
        tolerance = min(_EVEN_PART * mean, max(_EVEN_LEAST * mean, tolerance_ns))
        return _even_fit([abs(gap - due) > tolerance for gap, due in zip(_gaps(ordered), wanted, strict=True)])
    expected = arrivals.course(rate, duration_s).expected
    reached = [expected(time / _NS) for time in ordered]
    # The tolerance in arrivals depends on the rate at the time.
    tolerances = [expected((time + tolerance_ns) / _NS) - before for time, before in zip(ordered, reached, strict=True)]
    if arrivals.gap_shape is None:
        pairs = zip(_gaps(reached), tolerances, strict=False)
        return _even_fit([abs(gap - 1) > min(_EVEN_PART, max(_EVEN_LEAST, each)) for gap, each in pairs])
    tolerance = min(_RANDOM_PART, sum(tolerances) / len(tolerances))
    return _random_fit(sorted(_gaps(reached)), arrivals.gap_shape, tolerance)


def _even_fit(off: Sequence[bool]) -> Fit:
    n = len(off)
    statistic = sum(off) / n
    # Three standard deviations of the share, so that a single late send doesn't fail a short run.
    limit = _OFF_ALLOWED + 3 * math.sqrt(_OFF_ALLOWED * (1 - _OFF_ALLOWED) / n)
    return _verdict(statistic, limit, n, "share of gaps that differ from the intended ones")


def _random_fit(gaps: Sequence[float], shape: float, tolerance: float) -> Fit:
    n = len(gaps)
    statistic = 0.0
    for look in range(min(n, _LOOKS)):
        rank = look * (n - 1) // max(1, min(n, _LOOKS) - 1)
        too_many_short = (rank + 1) / n - gamma_cdf(shape, gaps[rank] + tolerance)
        too_many_long = gamma_cdf(shape, gaps[rank] - tolerance) - rank / n
        statistic = max(statistic, too_many_short, too_many_long)
    limit = _KS_CRITICAL / (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))  # Stephens' form, accurate from five gaps on
    law = "exponential" if shape == 1 else f"gamma({shape:g})"
    return _verdict(statistic, limit, n, f"Kolmogorov-Smirnov distance of the gaps to the {law} law")


def _verdict(statistic: float, limit: float, n: int, what: str) -> Fit:
    return Fit(statistic=statistic, limit=limit, passed=statistic <= limit, n=n, what=what)


def gamma_cdf(shape: float, gap: float) -> float:
    """Return the share of gaps up to `gap` under the gamma distribution with mean one."""
    if gap <= 0:
        return 0.0
    if shape == 1:
        return -math.expm1(-gap)
    x = shape * gap
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        for k in count(1):
            term *= x / (shape + k)
            total += term
            if term < total * 1e-12:
                return front * total
    # The continued fraction of the upper tail, by Lentz's method; it is fast where the series is slow.
    b = x + 1 - shape
    c, d = 1e300, 1 / b
    tail = d
    for k in count(1):
        a = k * (shape - k)
        b += 2
        d = 1 / (a * d + b)
        c = b + a / c
        tail *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return 1 - front * tail


def _gaps(times: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


DELIVERED_SHARE = 0.995  # of what was due
LAG_MS = 2.0  # p99 of the schedule's lag: above this, gaps are not judged
CPU_SHARE = 0.9  # of one core, by the busiest load process
REFUSED_SHARE = 0.01
Problems = Iterator[tuple[str, str]]  # code and message


class Lag(Model):
    """Lateness in milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float


class CertificateProblem(Model):
    code: str
    message: str


class Certificate(Model):
    """The load engine's findings about its own load."""

    loop: str
    asked: float = Field(description="Requests in flight (closed) or a second (open); 0 if arrivals bring their rates.")
    offered: int = Field(description="Requests that were due in the window.")
    delivered: int = Field(description="Of these, sent before it ended; where a number of requests ends it, by then.")
    in_flight: int = Field(description="Most requests in flight.")
    lag: Lag = Field(description="From due to sent.")
    loop_lag: Lag = Field(description="Of regular ticks: how late this process wakes.")
    read_lag: Lag = Field(description="From the kernel's receive stamp to the read.")
    error_limit_ms: float = Field(description="What a late client may have put into a figure of time, or")
    error_share: float = Field(description="this share of it, whichever is more.")
    stamps: str = Field(description="Who stamped what was received: kernel or process.")
    poller: str = Field(description="What read the sockets: compiled or python; empty for blocking calls.")
    arrivals: Fit | None = Field(description="Test of the gaps; none for a closed loop.")
    cpu_share: float = Field(description="Of one core, by the busiest load process in the window.")
    peak_mb: float = Field(description="Most memory of a load process, in MB (2^20 bytes).")
    processes: int = Field(description="Load processes that lived to the end.")
    chosen: str = Field(description="Why so many were started; empty where the scenario gave a number.")
    start_skew_ms: float = Field(description="From the common start to the first send of the process that began last.")
    lost: tuple[Lost, ...] = Field(description="Load processes that died.")
    connections: int
    connections_late: int = Field(description="Of these, opened after the load had begun.")
    resent: int = Field(description="Sent again because the server had closed a kept connection.")
    connection_errors: int
    problems: tuple[CertificateProblem, ...]

    @property
    def holds(self) -> bool:
        return not self.problems


def certify(book: LoadRecord, shape: Shape, *, embedded: bool = False) -> Certificate:
    """Return the certificate of a load. `embedded`: the measured code runs inside the load process, so its CPU use is
    not a problem; the schedule of an open loop is still judged."""
    draft = Certificate(
        loop="open" if shape.open_loop else "closed",
        asked=shape.rps or shape.concurrency or 0,
        offered=book.sent + book.never_sent,
        delivered=book.sent - book.sent_late - _sent_after_the_schedule(book, shape),
        in_flight=book.most_in_flight,
        lag=_lag(book.lag.histogram),
        loop_lag=_lag(book.loop_lag.histogram),
        read_lag=_lag(book.read_lag.histogram),
        error_limit_ms=shape.error_limit * 1e3,
        error_share=shape.error_share,
        stamps="kernel" if book.kernel_stamps else "process",
        poller=book.poller,
        arrivals=_fit(book, shape),
        cpu_share=book.cpu_share,
        peak_mb=book.peak_mb,
        processes=book.processes,
        chosen=book.chosen,
        start_skew_ms=round(book.start_late_ns / 1e6, 4),
        lost=tuple(book.lost),
        connections=book.connections,
        connections_late=book.connections_late,
        resent=book.resent,
        connection_errors=sum(book.errors[kind] for kind in CONNECTING),
        problems=(),
    )
    problems = _problems(draft, book, shape, embedded)
    return draft.model_copy(
        update={"problems": tuple(CertificateProblem(code=code, message=text) for code, text in problems)}
    )


def _problems(draft: Certificate, book: LoadRecord, shape: Shape, embedded: bool) -> Problems:
    for lost in book.lost:
        yield "shard_lost", f"{lost}; its part of the load and of the results is missing"
    yield from _endpoint_problems(book)
    if draft.cpu_share > CPU_SHARE and not embedded:
        doubt = "the client, not the server, may set the pace (add processes, or cores)"
        yield "client_saturated", f"the load process used {draft.cpu_share:.0%} of a core: {doubt}"
    if draft.connection_errors > REFUSED_SHARE * max(draft.offered, 1):
        yield "connections_failed", f"{draft.connection_errors} of {draft.offered} requests found no connection"
    if not shape.open_loop:
        if draft.in_flight < (shape.concurrency or 0) <= draft.offered:
            yield "concurrency_not_reached", f"at most {draft.in_flight} of {shape.concurrency} requests were in flight"
        return
    if draft.delivered < DELIVERED_SHARE * draft.offered - 1:
        most = f"{draft.in_flight} in flight; max_in_flight is {shape.max_in_flight}"
        yield "not_delivered", f"{draft.delivered} of {draft.offered} requests were sent in time ({most})"
    # Lateness distorts gaps, and is reported where it matters: in how far off each time can be.
    if (fit := draft.arrivals) and not fit.passed and draft.lag.p99_ms <= LAG_MS and shape.error_limit <= ERROR_LIMIT_S:
        test = f"{fit.what} {fit.statistic:.3g}, at most {fit.limit:.3g}"
        yield "arrivals_bent", f"the gaps between sends are not {shape.law.kind}: {test}"


def _sent_after_the_schedule(book: LoadRecord, shape: Shape) -> int:
    """Return the sends after the whole schedule was long due, in an open loop with a fixed number of requests."""
    if not (shape.open_loop and shape.requests and book.due_times):
        return 0
    end = max(book.due_times) + max(shape.error_limit * _NS, LAG_MS * 1e6)
    return sum(sent > end for sent in book.sent_times)


def _endpoint_problems(book: LoadRecord) -> Problems:
    """Yield each endpoint that no longer takes connections: the others carried its part of the load."""
    answered = sum(place.good for place in book.places.values())
    for url, place in book.places.items():
        if place.gone:
            shares = f"{place.good} good answers came from it, and {answered - place.good} from the others"
            yield "endpoint_dead", f"{url} takes no connection ({place.why}): {shares}, which bore its part"


def _fit(book: LoadRecord, shape: Shape) -> Fit | None:
    if not shape.open_loop:
        return None
    begin = book.start_ns - round(shape.warmup * 1e9)
    sent, due = [at - begin for at in book.sent_times], [at - begin for at in book.due_times]
    return gaps_fit(shape.law, sent, due, shape.rps, shape.schedule_s, tolerance_ns=LAG_MS * 1e6 / 4)


def _lag(histogram: Histogram) -> Lag:
    if not histogram.n:
        return Lag(p50_ms=0.0, p99_ms=0.0, max_ms=0.0)
    p50, p99, longest = (round(histogram.quantile(q) / 1e6, 4) for q in (0.5, 0.99, 1.0))
    return Lag(p50_ms=p50, p99_ms=p99, max_ms=longest)
