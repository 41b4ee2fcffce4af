"""Experiment `serving.infer`: a model on a Triton or other KServe v2 server under a load of tensors."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from secrets import randbits
from typing import Any

from pydantic import Field, model_validator

from benchhouse.experiments.serving import contamination
from benchhouse.experiments.serving.embedded_server import Starting, address
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.load.endpoint import EndpointServers
from benchhouse.load.load_record import LoadRecord
from benchhouse.load.metrics import FAILURES, FROM_DUE, GOODPUT, LATENCY_SENT, REQUESTS_PER_S, higher, lower
from benchhouse.load.protocols import kserve
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.protocols.kserve import InferItem, KServeTarget, Survey, TensorInputs
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned, RequestPool, RequestSource
from benchhouse.load.trial import emit_rate, emit_rates, emit_times, judge, keep_book, offer, with_hint
from benchhouse.schema.digests import file_digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context, Metric, experiment
from benchhouse.schema.service import split_endpoints

OTHER_SHARE = 0.01  # of requests that the server counted beyond those of this load
_OTHER_LEAST = 10  # the server may still count requests that came just before
_BY_THE_SERVER = "by the server's own statistics, from before the warm-up to after the last answer"
METRICS = (
    higher("items_per_s", "items/s", "requests_per_s x workload.batch", "throughput", primary=True),
    REQUESTS_PER_S,
    GOODPUT,
    lower("latency", "ms", f"to the end of the answer, {FROM_DUE}", "latency", primary=True),
    LATENCY_SENT,
    lower("ttft", "ms", f"call: stream: to the first answer, {FROM_DUE}"),
    lower("itl", "ms", "call: stream: gaps between the answers of a request"),
    lower("queue_ms", "ms", f"mean time of a request in the queue, {_BY_THE_SERVER}"),
    lower("compute_ms", "ms", f"mean time of a request in the model, {_BY_THE_SERVER}"),
    Metric(name="batch_mean", unit="items", formula=f"mean items that the model ran at a time, {_BY_THE_SERVER}"),
    *FAILURES,
)


class InferWorkload(Shape, TensorInputs):
    """The load and its tensors."""

    @model_validator(mode="after")
    def _file_is_there(self) -> "InferWorkload":
        if self.inputs and not Path(self.inputs).is_file():
            raise ValueError(f"there is no file {self.inputs}")
        return self


class InferStarting(Starting):
    ready: str = Field("/v2/health/ready", description="Path that answers 200 once the server is up.")


class InferTarget(KServeTarget):
    """The model under test, and how it is deployed."""

    start: InferStarting | None = Field(None, description="Embedded mode: start the server for the trial.")

    @model_validator(mode="after")
    def _check_port_in_both(self) -> "InferTarget":
        started_with = self.start is not None and any("{port}" in word for word in self.start.command)
        if ("{port}" in self.url) != started_with:
            raise ValueError("{port} is the free port that start.command listens on: it belongs there and into url")
        if self.start and len(split_endpoints(self.url)) > 1:
            raise ValueError("start is for one server: give url one address, or declare a service with replicas")
        if self.start and self.protocol != "http":
            raise ValueError("start is for protocol http: that is how a server says that it is up")
        return self


@experiment(
    "serving.infer",
    version="0.1",
    metrics=METRICS,
    component="inference",
    services=("triton",),
    drivers=("triton", "triton_grpc"),
)
def infer(target: InferTarget, workload: InferWorkload, ctx: Context) -> None:
    """Put a model on an inference server under load: tensors in, tensors out, over HTTP or gRPC."""
    url = address(target.start, target.url, ctx, target.verify_tls)
    survey, book, served = _load(target.model_copy(update={"url": url}), workload, ctx)
    certificate = keep_book(book, workload, ctx)
    _keep_evidence(target, workload, survey, served, ctx)
    judge(book, certificate, ctx)
    _report(target, workload, book, served, ctx)


def _load(target: InferTarget, workload: InferWorkload, ctx: Context) -> tuple[Survey, LoadRecord, dict[str, float]]:
    """Return the server's state before the load, the record of the load, and the server's own statistics."""

    def make(url: str) -> Any:
        name = f"{target.driver}_grpc" if target.protocol == "grpc" else target.driver
        return ctx.driver(name).for_load(target.model_copy(update={"url": url}), workload, workload.timeout)

    urls = split_endpoints(target.url)
    if len(urls) > 1 and workload.sequence_length:
        ctx.fail("bad_load", "the requests of a sequence must all reach one server: give target.url one address")
    drivers: dict[str, Any] = {}
    try:
        surveys = _surveys(urls, make, drivers)
        url, survey = next(iter(surveys.items()))
        driver = drivers[url]
        make_driver = (lambda: driver) if driver.transport == "http" else partial(make, url)
        source, tally = _source(driver, survey, workload, ctx.seed), partial(ServingTally, workload.objectives)
        servers = EndpointServers(tuple(urls), target.verify_tls)
        book = offer(make_driver, source, workload, tally, ctx, where=target.url, servers=servers)
        return survey, book, _together([_served(drivers[url], surveys[url], book, url) for url in surveys])
    except kserve.NoServer as error:
        ctx.fail("not_reached", with_hint(error))
    except BenchError as error:
        ctx.fail("bad_load", with_hint(error))
    finally:
        for driver in drivers.values():
            driver.close()


def _surveys(urls: Sequence[str], make: Callable[[str], Any], drivers: dict[str, Any]) -> dict[str, Survey]:
    """Return the state of each replica before the load, and add its driver. Raise NoServer if all are unreachable."""
    surveys: dict[str, Survey] = {}
    for url in urls:
        try:
            drivers[url] = make(url)
            surveys[url] = drivers[url].survey()
        except kserve.NoServer:
            if not surveys and url == urls[-1]:
                raise
    return surveys


class Sequences:
    """Requests of sequences, each sent after the answer to the previous one; a sequence ends at its first error. Its id
    starts at a random number, so that load processes have different ones."""

    needs_replies = True
    events, alone = 1.0, ""

    def __init__(self, length: int, encode: Callable[[InferItem], bytes], seed: int) -> None:
        self.seed = seed
        self._length, self._encode = length, encode
        self._first_id = randbits(40) << 20 | 1
        self._ready: deque[list[InferItem]] = deque()  # the rest of sequences that may continue
        self._waiting: dict[InferItem, list[InferItem]] = {}  # the rest of those whose answer is awaited

    def take(self, index: int) -> Planned:
        steps = self._ready.popleft() if self._ready else kserve.sequence(index, self._length, self._first_id)
        self._waiting[steps[0]] = steps[1:]
        return Planned(steps[0], self._encode(steps[0]))

    def answered(self, item: Any, reply: CallResult) -> None:
        left = self._waiting.pop(item)
        if left and reply.error is None:
            self._ready.append(left)


def _source(driver: Any, survey: Survey, workload: InferWorkload, seed: int) -> RequestSource:
    encode = driver.request if driver.transport == "http" else lambda item: b""  # a call driver has its own bytes
    if workload.sequence_length:
        return Sequences(workload.sequence_length, encode, seed)
    return RequestPool([Planned(number, encode(number)) for number in range(survey.distinct)], seed)


def _served(driver: kserve.KServeDriver, survey: Survey, book: LoadRecord, url: str) -> dict[str, float]:
    """Return the server's own statistics of the load; empty if it has none."""
    answered = book.places[url].good if book.places else book.sent + book.unmeasured - book.failed
    try:
        return driver.since(survey.counters, answered)
    except BenchError:
        return {}  # the server is gone; its failures are in the record of the load


def _together(served: list[dict[str, float]]) -> dict[str, float]:
    """Combine the statistics of several servers: counts add up, times are means over all requests."""
    accounts = [account for account in served if account]
    if len(accounts) < 2:
        return accounts[0] if accounts else {}
    counts = [name for name in accounts[0] if not name.endswith(("_ms", "_mean"))]
    total = {name: sum(account[name] for account in accounts) for name in counts}
    for name in {name for account in accounts for name in account if name.endswith("_ms")}:
        total[name] = sum(account.get(name, 0.0) * account["requests"] for account in accounts) / total["requests"]
    if total["executions"]:
        total["batch_mean"] = total["inferences"] / total["executions"]
    return total


def _keep_evidence(
    target: InferTarget, workload: InferWorkload, survey: Survey, served: dict[str, float], ctx: Context
) -> None:
    if workload.inputs:
        ctx.metadata(inputs={"file": workload.inputs, "sha256": file_digest(Path(workload.inputs))})
    memory = ", tensors in shared memory" if target.shared_memory else ""
    ctx.metadata(
        protocol=f"KServe v2 {target.call} over {target.protocol}{memory}",
        framework=target.framework or survey.server,
        deployment=target.deployment or ("embedded" if target.start else "server"),
        server=survey.server,
        model=survey.model,
        distinct_requests=survey.distinct,
        server_statistics=served,
    )


def _report(
    target: InferTarget, workload: InferWorkload, book: LoadRecord, served: dict[str, float], ctx: Context
) -> None:
    tally: ServingTally = book.tally
    times = {"latency": tally.e2e, "latency_sent": tally.e2e_sent}
    if target.call == "stream":
        times |= {"ttft": tally.ttft, "itl": tally.itl}
    emit_times(times, book, workload, ctx)
    emit_rate("items_per_s", emit_rates(book, workload, ctx) * workload.batch, book, workload, ctx)
    for name in ("queue_ms", "compute_ms", "batch_mean"):
        if name in served:
            ctx.emit(name, served[name])
    for code, text in _doubts(tally, book, workload, served):
        ctx.warn(code, text)


def _doubts(
    tally: ServingTally, book: LoadRecord, workload: InferWorkload, served: dict[str, float]
) -> Iterator[contamination.Finding]:
    """Yield the findings of any serving trial, and those that only the server's statistics show."""
    for code, text in contamination.find(tally, book, workload):
        if code != "tokens_unknown":  # tensors are not tokens
            yield code, text.replace("mean e2e", "mean latency")  # the name in this experiment
    sent = book.sent + book.unmeasured + book.resent
    counted = served.get("requests", 0) + served.get("failures", 0)
    if counted - sent > max(OTHER_SHARE * sent, _OTHER_LEAST):
        counts = f"the server counted {counted:.0f} requests for this model and {sent} are of this load"
        yield "other_load", f"{counts}: others used it at the same time, and are in all latencies and statistics"
    if hits := served.get("cache_hits"):
        share = f"the server took {hits:.0f} of {counted:.0f} answers from its response cache"
        cure = "raise distinct, or load the model without response_cache"
        yield "response_cache", f"{share}: these show the cache, not the model ({cure})"
