"""Any Prometheus endpoint as a source: the service metrics of vLLM and Triton, dcgm, node exporter, or others.

Supports text format 0.0.4 and OpenMetrics. Names are chosen by pattern when the endpoint is first read; from then on
only their lines are parsed.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchhouse.http.exposition import ExpositionSample, families, parse_sample, samples
from benchhouse.http.exposition import Family as Described
from benchhouse.schema.secrets import split_userinfo, without_secrets
from benchhouse.schema.telemetry import ExporterName, Family, Series
from benchhouse.worker.monitors import exporters
from benchhouse.worker.monitors.procfs import series

if TYPE_CHECKING:
    from benchhouse.http.client import HttpClient

LIMIT_S = 2.0
LIMIT_BYTES = 8 << 20
SERIES_BUDGET = 200

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1"
_HELP_LIMIT = 200
_PARTS = ("_bucket", "_created", "_info")  # parts of histograms and the like: too many, or not numbers


_service = partial(series, family="service")
QUEUE = _service("requests_waiting", "requests", "Requests in the server's queue.")
RUNNING = _service("requests_running", "requests", "Requests that the server works on.")
KV_CACHE = _service("kv_cache_used", "1", "Share of the key-value cache in use; the mean of several engines.")
PROMPT_TOKENS = _service("prompt_tokens", "tokens", "Tokens of prompts that were read.", counter=True)
OUTPUT_TOKENS = _service("output_tokens", "tokens", "Tokens that were generated.", counter=True)
DONE = _service("requests_done", "requests", "Requests that ended well.", counter=True)
FAILED = _service("requests_failed", "requests", "Requests that failed.", counter=True)
PREEMPTED = _service("requests_preempted", "requests", "Requests put back for want of cache.", counter=True)
QUEUE_TIME = _service("queue_time", "s", "Time that requests spent in the queue, summed.", counter=True)
EXECUTIONS = _service("executions", "batches", "Batches that a model ran.", counter=True)
SERIES: tuple[Series, ...] = (
    QUEUE, RUNNING, KV_CACHE, PROMPT_TOKENS, OUTPUT_TOKENS, DONE, FAILED, PREEMPTED, QUEUE_TIME, EXECUTIONS,
)  # fmt: skip
"""Series that serving engines have in common, under one name."""


# The family of an unknown metric, by the start of its name; the first match counts.
_FAMILIES: tuple[tuple[str, Family], ...] = (
    ("DCGM_FI_PROF_PCIE|DCGM_FI_DEV_PCIE|node_pci|pcie_|pci_", "pcie"),
    ("DCGM_FI_PROF_NVLINK|DCGM_FI_DEV_NVLINK|nvlink_", "nvlink"),
    ("DCGM_FI_DEV_POWER|DCGM_FI_DEV_TOTAL_ENERGY|node_rapl|nv_energy|nv_gpu_power", "energy"),
    ("DCGM_|nvidia_|nv_gpu", "gpu"),
    ("node_network|node_netstat|node_infiniband|ping_|probe_", "network"),
    ("node_|problem_|nv_cpu", "node"),
    ("process_", "process"),
    ("kueue_|slurm_|scheduler_", "scheduler"),
)
_UNITS = {
    "seconds": "s", "bytes": "B", "watts": "W", "joules": "J", "celsius": "degC", "hertz": "Hz", "ratio": "1",
    "percent": "%", "perc": "1", "milliseconds": "ms", "us": "us", "ms": "ms",
}  # fmt: skip
_MEANS = ("1", "%", "degC", "Hz")  # units whose sum over labels is meaningless


@dataclass(frozen=True)
class SelectedSeries:
    """One series, and the samples that it consists of."""

    series: Series
    factor: float = 1.0
    mean: bool = False  # over the samples of several models or engines; otherwise they are added
    labels: dict[str, str] = field(default_factory=dict)  # required labels of a sample
    least: float = -math.inf
    below: float = math.inf

    def takes(self, sample: ExpositionSample) -> bool:
        """Whether the sample belongs to the series, and has a finite value, which both means and files require."""
        if not (math.isfinite(sample.value) and self.least <= sample.value < self.below):
            return False
        return all(sample.labels.get(name, "") == value for name, value in self.labels.items())


VLLM = (
    ("vllm:num_requests_waiting", SelectedSeries(QUEUE)),
    ("vllm:num_requests_running", SelectedSeries(RUNNING)),
    ("vllm:kv_cache_usage_perc", SelectedSeries(KV_CACHE, mean=True)),
    ("vllm:gpu_cache_usage_perc", SelectedSeries(KV_CACHE, mean=True)),  # before vLLM version 0.10
    ("vllm:prompt_tokens_total", SelectedSeries(PROMPT_TOKENS)),
    ("vllm:generation_tokens_total", SelectedSeries(OUTPUT_TOKENS)),
    ("vllm:request_success_total", SelectedSeries(DONE)),
    ("vllm:num_preemptions_total", SelectedSeries(PREEMPTED)),
    ("vllm:request_queue_time_seconds_sum", SelectedSeries(QUEUE_TIME)),
)
"""Each engine's name for each of the common series."""
KNOWN = (
    *VLLM,
    ("nv_inference_pending_request_count", SelectedSeries(QUEUE)),
    ("nv_inference_request_success", SelectedSeries(DONE)),
    ("nv_inference_request_failure", SelectedSeries(FAILED)),
    ("nv_inference_queue_duration_us", SelectedSeries(QUEUE_TIME, factor=1e-6)),
    ("nv_inference_exec_count", SelectedSeries(EXECUTIONS)),
    ("nv_trt_llm_request_metrics", SelectedSeries(RUNNING, labels={"request_type": "active"})),
    (
        "nv_trt_llm_kv_cache_block_metrics",
        SelectedSeries(KV_CACHE, mean=True, labels={"kv_cache_block_type": "fraction"}),
    ),
)


class PrometheusEndpoint:
    """One endpoint as a source. Its series are fixed when it is created; a value that it does not report is NaN."""

    slow = True

    def __init__(
        self,
        url: str,
        name: str = "",
        patterns: Sequence[str] = (),
        labels: Sequence[str] = (),
        exporter: ExporterName | None = None,
    ) -> None:
        address, _ = split_userinfo(url)
        self.name = f"service:{name or exporter or urlsplit(address).netloc}"
        self.problems: list[str] = []
        self._url = url if urlsplit(address).path else f"{url}/metrics"
        self._client: HttpClient | None = None
        self._reported = False
        page = self._fetch()
        chosen = choose(page, patterns, labels, exporter) if page else _unseen(patterns, exporter)
        if page and exporter and not chosen:
            self._report(f"answers none of the metrics of {exporter} (bench monitors list)")
        if len(chosen) > SERIES_BUDGET:
            self.problems.append(
                f"{self.name}: {len(chosen)} series are chosen, {SERIES_BUDGET} are kept; name fewer in `series`"
            )
            chosen = chosen[:SERIES_BUDGET]
        self.series: Sequence[Series] = tuple(wanted.series for _, wanted in chosen)
        self._values = reader(chosen)

    def sample(self) -> Sequence[float]:
        page = self._fetch()
        if page is None:
            return [math.nan] * len(self.series)
        values = self._values(page)
        if self.series and all(map(math.isnan, values)):
            self._report("answers without any of the series that were chosen")
        return values

    def close(self) -> None:
        """Do nothing: no resource is held between two samples."""

    def _fetch(self) -> str | None:
        from benchhouse.http.client import HttpClient, NoAnswer

        if self._client is None:  # redirects are not followed: a monitor reads only the configured address
            self._client = HttpClient(LIMIT_S, limit_bytes=LIMIT_BYTES)
        try:
            answer = self._client.get(self._url, {"Accept": _ACCEPT})
        except NoAnswer as error:
            self._report(error.reason)
            return None
        page = answer.text()
        trouble = garbage(page) if answer.status == 200 else f"answers {answer.status} {answer.reason}"
        if trouble:
            self._report(trouble)
            return None
        return page

    def _report(self, trouble: str) -> None:
        if not self._reported:
            self._reported = True
            self.problems.append(f"{self.name}: {without_secrets(self._url)} {trouble}; values are missing")


def garbage(page: str) -> str:
    """Return why a page is not a page of metrics, otherwise an empty text. Checks only its start and end."""
    line = page.lstrip()[:4096].partition("\n")[0].rstrip()
    if line and not line.startswith("#") and parse_sample(line) is None:
        return f"answers no metrics but {line[:40]!r}"
    if page and not page.endswith("\n") and not page.rstrip().endswith("# EOF"):
        return "ended in the middle of a line"
    return ""


def choose(
    page: str, patterns: Sequence[str], labels: Sequence[str], exporter: ExporterName | None = None
) -> list[tuple[str, SelectedSeries]]:
    """Return what to read from this page: the exporter's metrics, the patterns, or the series common to serving
    engines.

    A page without any of these is read completely, except histogram buckets: the budget limits it.
    """
    known = exporters.KNOWN[exporter].metrics if exporter else None
    if not patterns and known is None:
        names = {sample.name for sample in samples(page, tuple(name for name, _ in KNOWN))}
        common: dict[str, tuple[str, SelectedSeries]] = {}
        for name, wanted in KNOWN:
            if name in names:
                common.setdefault(wanted.series.name, (name, wanted))
        if common:
            return list(common.values())
    match = re.compile("|".join(translate(pattern) for pattern in patterns or ("*",))).match
    described = families(page)
    chosen: dict[tuple[str, tuple[str, ...]], SelectedSeries] = {}
    for sample in samples(page, tuple(known or ("",))):
        if not match(sample.name) or sample.name.endswith(_PARTS) or (known and sample.name not in known):
            continue
        apart = labels or (exporters.METRICS[sample.name].labels if sample.name in exporters.METRICS else ())
        kept = {label: sample.labels[label] for label in apart if label in sample.labels}
        key = sample.name, tuple(kept.values())
        if key not in chosen and "quantile" not in sample.labels:
            chosen[key] = _wanted(sample.name, kept, described)
    return _apart((name, wanted) for (name, _), wanted in chosen.items())


def _unseen(patterns: Sequence[str], exporter: ExporterName | None) -> list[tuple[str, SelectedSeries]]:
    """Return the series of an endpoint that does not answer yet: complete names, or those that engines have in common.

    There are none for an exporter: its series depend on the GPUs, queues, or partitions on its page.
    """
    if exporter:
        return []
    if patterns:
        plain = [pattern for pattern in patterns if _NAME.fullmatch(pattern)]
        return _apart((name, _wanted(name, {}, {})) for name in plain)
    return list(VLLM)


def _wanted(name: str, kept: dict[str, str], described: Mapping[str, Described]) -> SelectedSeries:
    base = re.sub(r"_(total|sum|count)$", "", name)
    known = exporters.METRICS.get(name)
    kind, text = described.get(name) or described.get(base) or Described()
    counter = kind in ("counter", "histogram", "summary") or (not kind and name.endswith(("_total", "_sum", "_count")))
    unit = "1" if name.endswith("_count") else _UNITS.get(base.rpartition("_")[2], "")
    family: Family = next((family for begin, family in _FAMILIES if re.match(begin, name)), "service")
    shown = "".join(f"_{value}" for value in kept.values() if value)
    labelled = name + ("{" + ", ".join(f'{key}="{value}"' for key, value in kept.items()) + "}" if kept else "")
    description = f"{labelled}: {text[:_HELP_LIMIT]}" if text else labelled
    if known:
        own = series(_plain(name + shown), known.unit, description, counter=known.counter, family=known.family)
        return SelectedSeries(own, known.factor, known.mean, kept, known.least, known.below)
    made = series(_plain(name + shown), unit or "1", description, counter=counter, family=family)
    return SelectedSeries(made, mean=not counter and unit in _MEANS, labels=kept)


def _plain(name: str) -> str:
    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    return plain if plain[:1].isalpha() else f"x_{plain}"


def _apart(chosen: Iterable[tuple[str, SelectedSeries]]) -> list[tuple[str, SelectedSeries]]:
    """Add a number to names that are equal in lower case."""
    by_name: dict[str, tuple[str, SelectedSeries]] = {}
    for name, wanted in chosen:
        unique, number = wanted.series.name, 1
        while unique in by_name:
            number += 1
            unique = f"{wanted.series.name}_{number}"
        by_name[unique] = name, replace(wanted, series=wanted.series.model_copy(update={"name": unique}))
    return list(by_name.values())


def reader(chosen: Sequence[tuple[str, SelectedSeries]]) -> Callable[[str], list[float]]:
    """Return a function from a page to the values, in the order of `chosen`; a value that is not finite is NaN."""
    by_name: dict[str, list[tuple[int, SelectedSeries]]] = {}
    for at, (name, wanted) in enumerate(chosen):
        by_name.setdefault(name, []).append((at, wanted))
    beginnings = tuple(by_name)

    def values(page: str) -> list[float]:
        sums, counts = [0.0] * len(chosen), [0] * len(chosen)
        for sample in samples(page, beginnings):
            for at, wanted in by_name.get(sample.name, ()):
                if wanted.takes(sample):
                    sums[at] += sample.value
                    counts[at] += 1
        return [
            math.nan if not count else total * wanted.factor / (count if wanted.mean else 1)
            for total, count, (_, wanted) in zip(sums, counts, chosen, strict=True)
        ]

    return values
