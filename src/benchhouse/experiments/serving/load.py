"""Experiment `serving.load`: an inference server under a load of requests, as its users would see it."""

from collections.abc import Sequence

from benchhouse.experiments.serving import contamination
from benchhouse.experiments.serving.embedded_server import address
from benchhouse.experiments.serving.inputs import ServingPrices, ServingTarget, ServingWorkload
from benchhouse.experiments.serving.prompts import DatasetPrompts
from benchhouse.experiments.serving.requests import PromptRequests
from benchhouse.experiments.serving.tally import ServingTally
from benchhouse.http.client import HttpClient, NoAnswer, Response
from benchhouse.http.exposition import samples
from benchhouse.load.endpoint import EndpointServers
from benchhouse.load.engine import NotReached
from benchhouse.load.load_record import LoadRecord
from benchhouse.load.metrics import FAILURES, FROM_DUE, GOODPUT, REQUESTS_PER_S, higher, lower
from benchhouse.load.trial import emit_rate, emit_rates, emit_times, judge, keep_book, offer, with_hint
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Context, Metric, experiment
from benchhouse.schema.service import split_endpoints

_QUEUE = "request_queue_time_seconds"
_LONGEST_VERSION = 100
_SERVER_METRICS = ("prefix_cache", "queue_time", "preemptions", "prompt_tokens", "generation_tokens", "gpu_cache_usage")
METRICS = (
    higher(
        "output_tokens_per_s",
        "tokens/s",
        "output tokens that arrived in the window / its seconds, counted by the server or target.tokenizer",
        "throughput",
        primary=True,
    ),
    GOODPUT,
    lower("ttft", "ms", f"to the first event with output, {FROM_DUE}", primary=True),
    lower("tpot", "ms", "of a request: (last - first event with output) / (output tokens - 1)"),
    lower("e2e", "ms", f"to the end of the answer, {FROM_DUE}", "latency", primary=True),
    lower("itl", "ms", "gaps between events with output, of all requests"),
    REQUESTS_PER_S,
    higher("prompts_per_s", "1/s", "requests_per_s x workload.batch, of a batch"),
    higher("input_tokens_per_s", "tokens/s", "mean input tokens x requests_per_s"),
    lower("jitter", "ms", "of a request: mean absolute difference between one gap and the next"),
    lower("ttft_sent", "ms", "as ttft, but from when the request was really sent"),
    lower("e2e_sent", "ms", "as e2e, but from when the request was really sent"),
    lower("queue_delay", "ms", "mean time in the server's queue during the load, by the server's own metrics"),
    *FAILURES,
    Metric(name="output_tokens", unit="tokens", formula="mean output tokens of a good answer, by the server's count"),
    Metric(name="input_tokens", unit="tokens", formula="mean input tokens of a good answer, by the server's count"),
    lower("cost_per_request", "$", "by the prices of the target"),
    lower(
        "cost_per_million_output_tokens",
        "$",
        "everything that the load cost by the prices of the target / output tokens x 10^6",
    ),
)


class ServerMetrics:
    """Prometheus metrics before and after the load, summed over the servers that have them both times."""

    def __init__(self, urls: Sequence[str], verify_tls: bool = True) -> None:
        self._client = HttpClient(timeout_s=5.0, verify_tls=verify_tls)
        self._before = {url: self._read(url) for url in urls}
        self.version = ""  # as the servers report it
        self._after: dict[str, dict[str, float]] = {}

    def finish(self) -> None:
        self._after = {url: self._read(url) for url, before in self._before.items() if before}
        self.version = ", ".join(sorted({self._version(url) for url in self._after} - {""}))

    def queue_delay_ms(self) -> float | None:
        """Return the mean time of a request in the server's queue; None if the server does not count it."""
        count = self._grown(f"{_QUEUE}_count")
        return self._grown(f"{_QUEUE}_sum") / count * 1000 if count > 0 else None

    def cached_share(self) -> float | None:
        """Return the share of the input that was in the prefix cache; None if the server does not count it."""
        queries = self._grown("prefix_cache_queries_total")
        return self._grown("prefix_cache_hits_total") / queries if queries > 0 else None

    def _grown(self, suffix: str) -> float:
        return sum(value for name, value in self.facts().items() if name.endswith(suffix))

    def facts(self) -> dict[str, float]:
        """Return the growth of each counter of interest during the load."""
        grown: dict[str, float] = {}
        for url, after in self._after.items():
            for name, value in after.items():
                grown[name] = grown.get(name, 0.0) + value - self._before[url].get(name, 0.0)
        return grown

    def _get(self, url: str, path: str) -> Response:
        return self._client.get(url.rstrip("/").removesuffix("/v1") + path)

    def _version(self, url: str) -> str:
        """Return the version that the server reports, as vLLM does; empty if it reports none."""
        try:
            answer = self._get(url, "/version")
            told = answer.json() if answer.ok else None
        except NoAnswer:
            return ""
        version = told.get("version") if isinstance(told, dict) else None
        return version[:_LONGEST_VERSION] if isinstance(version, str) else ""

    def _read(self, url: str) -> dict[str, float]:
        """Return the counters of interest, each summed over its labels."""
        try:
            answer = self._get(url, "/metrics")
        except NoAnswer:
            return {}
        lines = answer.text().split("\n") if answer.ok else []
        kept = [line for line in lines if any(part in line for part in _SERVER_METRICS)]
        values: dict[str, float] = {}
        for name, _, value in samples("\n".join(kept)):
            if any(part in name for part in _SERVER_METRICS) and not name.endswith("_bucket"):
                values[name] = values.get(name, 0.0) + value
        return values


@experiment(
    "serving.load",
    version="0.1",
    metrics=METRICS,
    component="inference",
    services=("vllm", "openai", "llm-d", "kserve", "sglang", "llama.cpp"),
    drivers=("openai", "triton_llm"),
    dataset="prompts.file",
)
def serve(target: ServingTarget, workload: ServingWorkload, ctx: Context) -> None:
    """Put an inference server under load: token latencies, throughput, goodput, and whether to believe them."""
    if not target.url:
        ctx.fail("no_target", "nothing says where the server is: give target.url, and target.start to have it started")
    url = address(target.start, target.url, ctx, target.verify_tls)
    urls = split_endpoints(url)
    try:
        requests = PromptRequests(target, urls, workload, ctx)
    except NotReached as error:
        ctx.fail("not_reached", f"no connection to {url}: {error.message}")
    except BenchError as error:
        ctx.fail("bad_load", with_hint(error))
    server = ServerMetrics(urls, target.verify_tls)
    servers = EndpointServers(tuple(urls), target.verify_tls)
    book = offer(requests.driver, requests.source, workload, requests.tally, ctx, where=url, servers=servers)
    server.finish()
    certificate = keep_book(book, workload, ctx)
    _keep_evidence(target, requests, book, server, ctx)
    judge(book, certificate, ctx)
    _rates(target.prices, workload, book, ctx)
    _report(requests, workload, book, server, ctx)


def _keep_evidence(
    target: ServingTarget, requests: PromptRequests, book: LoadRecord, server: ServerMetrics, ctx: Context
) -> None:
    tally: ServingTally = book.tally
    ctx.metadata(
        protocol=f"{target.driver} {requests.api}, {'streamed' if target.stream else 'not streamed'}",
        framework=target.framework,
        deployment=target.deployment or ("embedded" if target.start else "server"),
        tokens_counted_by=_counted_by(tally),
        prompts=requests.prompts.facts(),
        events=tally.events,
        cached_tokens=tally.cached_tokens,
        finishes=tally.finishes,
        server_metrics=server.facts(),
        **({"server_version": server.version} if server.version else {}),
    )


def _counted_by(tally: ServingTally) -> str:
    if tally.without_usage or not tally.requests:
        return "nobody"
    by = {"server": tally.requests - tally.counted_here, "tokenizer": tally.counted_here}
    return " and ".join(name for name, count in by.items() if count)


def _report(
    requests: PromptRequests, workload: ServingWorkload, book: LoadRecord, server: ServerMetrics, ctx: Context
) -> None:
    tally: ServingTally = book.tally
    emit_times({name: getattr(tally, name) for name in tally.STREAMS}, book, workload, ctx)
    if (delay_ms := server.queue_delay_ms()) is not None:
        ctx.emit("queue_delay", delay_ms)
    prompts = contamination.PromptFacts(
        repeats=requests.repeats(book.sent + book.unmeasured),
        shared_share=requests.shared_share(tally),
        mean_input=requests.mean_input,
        output_asked=not isinstance(workload.asked, DatasetPrompts) or workload.asked.output_tokens is not None,
    )
    for code, text in contamination.find(tally, book, workload, prompts, server.cached_share()):
        ctx.warn(code, text)


def _rates(prices: ServingPrices, workload: ServingWorkload, book: LoadRecord, ctx: Context) -> None:
    tally: ServingTally = book.tally
    requests_per_s = emit_rates(book, workload, ctx)
    if workload.batch > 1:
        emit_rate("prompts_per_s", requests_per_s * workload.batch, book, workload, ctx)
    if tally.without_usage:
        return
    mean_output = tally.output_tokens / tally.requests
    outputs_per_s = mean_output * requests_per_s if workload.requests else tally.tokens_in_window / book.window_s
    emit_rate("output_tokens_per_s", outputs_per_s, book, workload, ctx)
    ctx.emit("output_tokens", mean_output)
    if tally.without_input:
        return
    mean_input = tally.input_tokens / tally.requests
    ctx.emit("input_tokens", mean_input)
    emit_rate("input_tokens_per_s", mean_input * requests_per_s, book, workload, ctx)
    per_s = (
        (prices.per_hour or 0) / 3600
        + (prices.per_million_input_tokens or 0) / 1e6 * mean_input * requests_per_s
        + (prices.per_million_output_tokens or 0) / 1e6 * outputs_per_s
    )
    if prices != ServingPrices() and requests_per_s and outputs_per_s:
        ctx.emit("cost_per_request", per_s / requests_per_s)
        ctx.emit("cost_per_million_output_tokens", per_s / outputs_per_s * 1e6)
