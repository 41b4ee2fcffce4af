"""Experiment `vector.search`: how fast a vector index answers under load, and how correct its answers are."""

import contextlib
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from benchhouse.experiments.vector.collection import CollectionHandle, Made, alive, fill, find_place, put
from benchhouse.experiments.vector.data import VectorDataset
from benchhouse.experiments.vector.search_load import AnswerTally, BackgroundIngest, SampleTally, Searcher
from benchhouse.experiments.vector.target import VectorTarget
from benchhouse.experiments.vector.workload import VectorWorkload
from benchhouse.load.calls import CallTally
from benchhouse.load.endpoint import EndpointServers
from benchhouse.load.load_record import LoadRecord
from benchhouse.load.metrics import FAILURES, FROM_DUE, GOODPUT, REQUESTS_PER_S, higher, lower
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import VectorDriver, VectorStats
from benchhouse.load.source import Planned, RequestPool
from benchhouse.load.trial import emit_rate, emit_rates, emit_times, judge, keep_book, offer, with_hint
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context, experiment
from benchhouse.schema.resources import Resources

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Calls = list[NDArray[float32]]

ENOUGH_QUERIES = 1000  # different queries that recall needs, at least
GONE_AFTER = 3  # consecutive searches that fail
METRICS = (
    higher("qps", "1/s", "requests_per_s x queries a call", "throughput", primary=True),
    lower(
        "latency",
        "ms",
        f"of one search call, which every query of its batch waits for, {FROM_DUE}",
        "latency",
        primary=True,
    ),
    lower("latency_sent", "ms", "open loop: as latency, but from when it was really sent"),
    higher(
        "recall",
        "1",
        "share of the k nearest that was found: answers as near as the k-th true neighbour (brute force, float64; a "
        "relative difference of 1e-5 counts as a tie), mean over the different queries of the window, and further ones "
        f"asked after it where these are fewer than {ENOUGH_QUERIES}. With selectivity, among the vectors that the "
        "filter lets through; with ingest_during, of a sample of all searches, among those vectors that had been "
        "acknowledged when each was sent",
        primary=True,
    ),
    higher("ingest_rate", "vectors/s", "vectors / seconds from the first one handed over until all are searchable"),
    higher("ingest_during_rate", "vectors/s", "ingest_during: vectors acknowledged / seconds, while the load was on"),
    lower("build_s", "s", "the part of ingest after the last was handed over"),
    lower("index_mb", "MB", "size of the index as the database stores it"),
    lower(
        "memory_mb",
        "MB",
        "growth of memory, mapped files left out, from before the collection is created until it is built: of this "
        "process for an embedded engine, of the server's process tree where it was started for the trial",
    ),
    REQUESTS_PER_S,
    GOODPUT,
    *FAILURES,
)


@experiment(
    "vector.search",
    version="0.2",
    metrics=METRICS,
    resources=Resources(cpus=1),
    component="vectordb",
    services=("faiss", "chroma", "milvus", "qdrant", "weaviate", "lancedb", "pgvector"),
    drivers=("faiss", "chroma", "milvus", "qdrant", "weaviate", "lancedb", "pgvector"),
    dataset="data.path",
)
def search(target: VectorTarget, workload: VectorWorkload, ctx: Context) -> None:
    """Build a vector index and search it under load: queries a second and latency, against recall and memory."""
    from benchhouse.experiments.vector.recall import load_truth  # imports numpy

    data = _load(target, workload, ctx)
    with _named_failures("bad_data", ctx):
        truth = load_truth(data, workload, ctx.cache)
    calls = [data.queries[start : start + workload.batch] for start in range(0, len(data.queries), workload.batch)]
    with _named_failures("driver_failed", ctx):
        place = find_place(target, workload, data, ctx)
    with _named_failures("driver_failed", ctx), alive(place) as driver:
        made = fill(driver, place, data, workload)
        _probe(driver, calls[0], workload, ctx)
        _describe(driver, target, data, calls, ctx)
        book, tide = _measure(driver, place, data, calls, workload, ctx)
        certificate = keep_book(book, workload, ctx, embedded=place.embedded)
        judge(book, certificate, ctx)
        answered = _answers(driver, calls, book, workload)
        stats = driver.stats()
    taken = made.vectors + (tide.ingested if tide else 0)
    if stats.vectors != taken:
        ctx.fail("vectors_missing", f"the index holds {stats.vectors} of {taken} vectors that it had taken")
    _report(book, made, stats, tide, workload, ctx)
    _report_recall(answered, book, truth, data, workload, ctx)


def _describe(driver: VectorDriver, target: VectorTarget, data: VectorDataset, calls: "Calls", ctx: Context) -> None:
    ctx.metadata(
        engine=f"{target.driver} {driver.version}",
        index={"kind": target.index, **target.options},
        data={"digest": data.digest, "vectors": len(data.vectors), "dimensions": data.vectors.shape[1]},
        queries={"different": len(data.queries), "calls": len(calls)},
    )


def _load(target: VectorTarget, workload: VectorWorkload, ctx: Context) -> VectorDataset:
    with _named_failures("bad_data", ctx):
        data = workload.data.load(workload.vectors, workload.queries, ctx.cache)
        if workload.k > len(data.vectors):
            raise BenchError(f"k {workload.k} is more than the {len(data.vectors)} vectors")
        for what, rows in (("vector", data.vectors), ("query", data.queries)) if workload.distance == "cosine" else ():
            empty = ~rows.any(axis=1)
            if empty.any():
                raise BenchError(f"{what} {int(empty.argmax())} is all zeros: it has no direction", "use l2 or ip")
    if misfit := target.misfit(len(data.vectors), data.vectors.shape[1]):
        ctx.fail("index_does_not_fit", misfit)
    return data


@contextlib.contextmanager
def _named_failures(code: str, ctx: Context) -> Iterator[None]:
    """Fail the trial with the errors of a driver or of the data."""
    try:
        yield
    except CallFailed as failed:
        ctx.fail(failed.kind, failed.detail)
    except BenchError as error:
        ctx.fail(code, with_hint(error))


def _probe(driver: VectorDriver, call: "NDArray[float32]", workload: VectorWorkload, ctx: Context) -> None:
    """Search once before the load: an answer of the wrong form must not look like a fast one."""
    ids = driver.search(call, workload.k, workload.below)
    shape, kind = getattr(ids, "shape", None), getattr(getattr(ids, "dtype", None), "kind", "")
    if shape != (len(call), workload.k) or kind != "i":
        ctx.fail("bad_answer", f"a search must give {(len(call), workload.k)} ids; the driver gave {shape} of {kind!r}")


def _measure(
    driver: VectorDriver,
    place: CollectionHandle,
    data: VectorDataset,
    calls: "Calls",
    workload: VectorWorkload,
    ctx: Context,
) -> tuple[LoadRecord, BackgroundIngest | None]:
    """Offer the load while the rest of the vectors is ingested, if requested."""
    with contextlib.ExitStack() as stack:
        tide = None
        if workload.ingest_during:
            giver = driver if driver.shared else place.make()
            if giver is not driver:
                giver.open()
                stack.callback(giver.close)
            batch, count = workload.ingest_batch, len(data.vectors)
            edges = range(count - int(count * workload.ingest_during), count, batch)
            tide = BackgroundIngest(
                lambda start, stop: put(giver, data, None, start, stop, batch),
                [*edges, count],
                workload.warmup,
                workload.window_s or 0.0,
            )
            stack.callback(tide.stop)
            tide.start()

        def make() -> Searcher:
            return Searcher(driver if driver.shared else place.make(), calls, workload.k, workload.below, tide)

        alone = "all threads share one client of the database" if driver.shared else ""
        if tide:
            alone = "it must know what was ingested before each search"
        pool = RequestPool([Planned(number) for number in range(len(calls))], ctx.seed, alone=alone)
        kind = SampleTally if workload.ingest_during else AnswerTally
        servers = EndpointServers((place.endpoint,))
        book = offer(
            make, pool, workload, lambda: kind(workload.objectives), ctx, where=place.endpoint, servers=servers
        )
    if tide and tide.problem:
        raise tide.problem
    return book, tide


def _answers(
    driver: VectorDriver, calls: "Calls", book: LoadRecord, workload: VectorWorkload
) -> "list[tuple[int, Any]]":
    """Return calls and their answers, with further calls after a short window, which are excluded from latency."""
    kept: list[tuple[int, Any]] = book.tally.kept()
    if workload.ingest_during:
        return kept
    deadline = monotonic() + min(workload.window_s or 10.0, 10.0)
    searched = {number for number, _ in kept}
    queries, failures = sum(len(calls[number]) for number in searched), 0
    for number, call in enumerate(calls):
        if queries >= ENOUGH_QUERIES or monotonic() > deadline:
            break
        if number in searched:
            continue
        try:
            kept.append((number, driver.search(call, workload.k, workload.below)))
        except CallFailed as failed:  # some may fail, as in the window; a server that is gone fails the trial
            failures += 1
            if failures == GONE_AFTER or failed.kind == "timeout":
                raise
            continue
        queries, failures = queries + len(call), 0
    return kept


def _report(
    book: LoadRecord,
    made: Made,
    stats: VectorStats,
    tide: BackgroundIngest | None,
    workload: VectorWorkload,
    ctx: Context,
) -> None:
    tally: CallTally = book.tally
    times = {"latency": tally.latency} | ({"latency_sent": tally.latency_sent} if workload.open_loop else {})
    emit_times(times, book, workload, ctx)
    emit_rate("qps", emit_rates(book, workload, ctx) * tally.operations / tally.calls, book, workload, ctx)
    ctx.emit("ingest_rate", made.vectors / (made.ingest_s + made.build_s))
    ctx.emit("build_s", made.build_s)
    if stats.bytes is not None:
        ctx.emit("index_mb", stats.bytes / 1e6)
    if made.memory is not None:
        ctx.emit("memory_mb", made.memory / 1e6)
    if tide and tide.seconds:
        ctx.emit("ingest_during_rate", tide.ingested / tide.seconds)


def _report_recall(
    answered: "list[tuple[int, Any]]",
    book: LoadRecord,
    truth: Any,
    data: VectorDataset,
    workload: VectorWorkload,
    ctx: Context,
) -> None:
    import numpy

    from benchhouse.experiments.vector.recall import recall

    batch, count = workload.batch, len(data.queries)
    ranges = [numpy.arange(call * batch, min((call + 1) * batch, count)) for call, _ in answered]
    asked = numpy.concatenate(ranges)
    known, answers = None, [ids for _, ids in answered]
    if workload.ingest_during:
        known = numpy.concatenate([numpy.full(len(ids), there) for ids, there in answers])
        answers = [ids for ids, _ in answers]
    result = recall(numpy.concatenate(answers), asked, truth, data, workload, known)
    if not len(result.shares):
        ctx.fail("nothing_to_find", "no vector has a label that the filter lets through")
    ctx.emit("recall", result.mean)
    ctx.metadata(
        recall={
            "queries": len(asked),
            "calls_after_the_window": len(answered) - len(book.tally.kept()),
            "standard_error": result.standard_error,
        }
    )
    if result.strangers:
        wrong = f"{result.strangers} of {len(asked) * workload.k} answers are vectors that don't exist"
        ctx.invalid("wrong_vectors", f"{wrong} or that the filter forbids: the search does not do what was asked")
    if len(asked) < min(ENOUGH_QUERIES, len(data.queries)):
        error = f" (standard error {result.standard_error:.3g})" if result.standard_error else ""
        few = f"recall is of {len(asked)} different queries"
        ctx.warn("recall_of_few", f"{few}: lengthen the window for a sharper one{error}")
