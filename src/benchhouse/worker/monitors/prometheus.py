"""Any Prometheus endpoint as a source: the service metrics of vLLM and Triton, dcgm, node exporter, a stranger's own.

Text format 0.0.4 and OpenMetrics. Names are chosen by pattern when the endpoint is first read; from then on a scrape is
one pass of one regular expression that sees nothing but these.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Any
from urllib.parse import urlsplit

from benchhouse.schema.telemetry import Family, Series
from benchhouse.worker.monitors.scraping import ScrapeError, fetch

LIMIT_S = 2.0
LIMIT_BYTES = 8 << 20
SERIES_BUDGET = 200

_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABELS = rb'(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?'
_VALUE = rb"[ \t]+([^ \t\n\r]+)"
_ANY = re.compile(rb"^(" + _NAME + rb")" + _LABELS + _VALUE, re.MULTILINE)
_TYPE = re.compile(rb"^# (TYPE|UNIT|HELP) (" + _NAME + rb") ?(.*)$", re.MULTILINE)
_LABEL = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_PARTS = ("_bucket", "_created", "_info")  # of histograms and the like: too many, or no numbers


def _service(name: str, unit: str, description: str, **more: Any) -> Series:
    return Series(name=name, unit=unit, family="service", description=description, **more)


QUEUE = _service("requests_waiting", "requests", "Requests in the server's queue.")
RUNNING = _service("requests_running", "requests", "Requests that the server works on.")
KV_CACHE = _service("kv_cache_used", "1", "Share of the key-value cache in use; the mean of several engines.")
PROMPT_TOKENS = _service("prompt_tokens", "tokens", "Tokens of prompts that were read.", kind="counter")
OUTPUT_TOKENS = _service("output_tokens", "tokens", "Tokens that were generated.", kind="counter")
DONE = _service("requests_done", "requests", "Requests that ended well.", kind="counter")
FAILED = _service("requests_failed", "requests", "Requests that failed.", kind="counter")
PREEMPTED = _service("requests_preempted", "requests", "Requests put back for want of cache.", kind="counter")
QUEUE_TIME = _service("queue_time", "s", "Time that requests spent in the queue, summed.", kind="counter")
EXECUTIONS = _service("executions", "batches", "Batches that a model ran.", kind="counter")
SERIES: tuple[Series, ...] = (
    QUEUE, RUNNING, KV_CACHE, PROMPT_TOKENS, OUTPUT_TOKENS, DONE, FAILED, PREEMPTED, QUEUE_TIME, EXECUTIONS,
)  # fmt: skip
"""What serving engines have in common, whatever each calls it."""


@dataclass(frozen=True)
class Known:
    """How an engine calls one of the common series."""

    series: Series
    metric: str
    label: str = ""  # `name=value` that a sample must carry
    factor: float = 1.0
    mean: bool = False  # over the samples of several models or engines; else they are added


KNOWN = (
    Known(QUEUE, "vllm:num_requests_waiting"),
    Known(RUNNING, "vllm:num_requests_running"),
    Known(KV_CACHE, "vllm:kv_cache_usage_perc", mean=True),
    Known(KV_CACHE, "vllm:gpu_cache_usage_perc", mean=True),  # before its version 0.10
    Known(PROMPT_TOKENS, "vllm:prompt_tokens_total"),
    Known(OUTPUT_TOKENS, "vllm:generation_tokens_total"),
    Known(DONE, "vllm:request_success_total"),
    Known(PREEMPTED, "vllm:num_preemptions_total"),
    Known(QUEUE_TIME, "vllm:request_queue_time_seconds_sum"),
    Known(QUEUE, "nv_inference_pending_request_count"),
    Known(DONE, "nv_inference_request_success"),
    Known(FAILED, "nv_inference_request_failure"),
    Known(QUEUE_TIME, "nv_inference_queue_duration_us", factor=1e-6),
    Known(EXECUTIONS, "nv_inference_exec_count"),
    Known(RUNNING, "nv_trt_llm_request_metrics", label="request_type=active"),
    Known(KV_CACHE, "nv_trt_llm_kv_cache_block_metrics", label="kv_cache_block_type=fraction", mean=True),
)

# Which family a stranger's metric belongs to, by how its name begins; the first that fits.
_FAMILIES: tuple[tuple[str, Family], ...] = (
    ("DCGM_FI_PROF_PCIE|DCGM_FI_DEV_PCIE|node_pci|pcie_|pci_", "pcie"),
    ("DCGM_FI_PROF_NVLINK|DCGM_FI_DEV_NVLINK|nvlink_", "nvlink"),
    ("DCGM_FI_DEV_POWER|DCGM_FI_DEV_TOTAL_ENERGY|node_rapl|nv_energy|nv_gpu_power", "energy"),
    ("DCGM_|nvidia_|nv_gpu", "gpu"),
    ("node_network|node_netstat|node_infiniband|ping_|probe_", "network"),
    ("node_|problem_|nv_cpu", "node"),
    ("process_", "process"),
)
_UNITS = {
    "seconds": "s", "bytes": "B", "watts": "W", "joules": "J", "celsius": "degC", "hertz": "Hz", "ratio": "1",
    "percent": "%", "perc": "1", "milliseconds": "ms", "us": "us", "ms": "ms",
}  # fmt: skip
_MEANS = ("1", "%", "degC", "Hz")  # units of which a sum over labels says nothing


@dataclass
class Wanted:
    """One series, and the samples it is made of."""

    series: Series
    factor: float = 1.0
    mean: bool = False
    label: str = ""
    kept: dict[str, str] = field(default_factory=dict)

    def takes(self, labels: bytes) -> bool:
        if not self.label and not self.kept:
            return True
        found = parse_labels(labels)
        name, _, value = self.label.partition("=")
        return (not name or found.get(name) == value) and all(found.get(key, "") == it for key, it in self.kept.items())


class Endpoint:
    """One endpoint as a source. Its series are fixed when it is made; what it does not tell is NaN."""

    slow = True

    def __init__(
        self,
        url: str,
        name: str = "",
        patterns: Sequence[str] = (),
        labels: Sequence[str] = (),
        *,
        budget: int = SERIES_BUDGET,
        limit_s: float = LIMIT_S,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self.name = f"service:{name or urlsplit(url).netloc.rpartition('@')[2]}"
        self.problems: list[str] = []
        self._url, self._limit_s, self._limit_bytes = url, limit_s, limit_bytes
        self._told = False
        body = self._fetch()
        chosen = choose(body, patterns, labels) if body else _unseen(patterns)
        if len(chosen) > budget:
            self.problems.append(
                f"{self.name}: {len(chosen)} series are chosen, {budget} are kept; name fewer in `series`"
            )
            chosen = chosen[:budget]
        self.series: Sequence[Series] = tuple(wanted.series for _, wanted in chosen)
        self._values: Callable[[bytes], list[float]] = reader(chosen)

    def sample(self) -> Sequence[float]:
        body = self._fetch()
        if body is None:
            return [math.nan] * len(self.series)
        values = self._values(body)
        if self.series and all(map(math.isnan, values)):
            self._tell("answers without any of the series that were chosen")
        return values

    def close(self) -> None:
        """Nothing is held between two samples."""

    def _fetch(self) -> bytes | None:
        try:
            body = fetch(self._url, self._limit_s, self._limit_bytes)
        except ScrapeError as error:
            self._tell(str(error))
            return None
        if trouble := garbage(body):
            self._tell(trouble)
            return None
        return body

    def _tell(self, trouble: str) -> None:
        if not self._told:
            self._told = True
            self.problems.append(f"{self.name}: {_without_secrets(self._url)} {trouble}; values are missing")


def garbage(body: bytes) -> str:
    """Why a page is no page of metrics, or nothing. Looks at its begin and end only."""
    line = body.lstrip()[:4096].partition(b"\n")[0].rstrip()
    if line and not line.startswith(b"#") and not _ANY.match(line):
        return f"answers no metrics but {line[:40]!r}"
    if body and not body.endswith(b"\n") and not body.rstrip().endswith(b"# EOF"):
        return "ended in the middle of a line"
    return ""


def choose(body: bytes, patterns: Sequence[str], labels: Sequence[str]) -> list[tuple[str, Wanted]]:
    """What is to be read of this page: by patterns if there are any, else what serving engines have in common.

    A page without any of that is taken whole, histograms' buckets aside: the budget bounds it.
    """
    if not patterns:
        names = {name.decode() for name, _, _ in _ANY.findall(body)}
        if found := _common(names):
            return found
    match = re.compile("|".join(translate(pattern) for pattern in patterns or ("*",))).match
    types = _types(body)
    chosen: dict[tuple[str, tuple[str, ...]], Wanted] = {}
    for raw, text, _ in _ANY.findall(body):
        name = raw.decode()
        if not match(name) or name.endswith(_PARTS):
            continue
        found_labels = parse_labels(text) if labels else {}
        kept = {label: found_labels.get(label, "") for label in labels if label in found_labels}
        key = name, tuple(kept.values())
        if key not in chosen and "quantile" not in parse_labels(text):
            chosen[key] = _wanted(name, kept, types)
    return _apart((name, wanted) for (name, _), wanted in chosen.items())


def _common(names: set[str]) -> list[tuple[str, Wanted]]:
    found: dict[str, tuple[str, Wanted]] = {}
    for known in KNOWN:
        if known.metric in names:
            wanted = Wanted(known.series, known.factor, known.mean, known.label)
            found.setdefault(known.series.name, (known.metric, wanted))
    return list(found.values())


def _unseen(patterns: Sequence[str]) -> list[tuple[str, Wanted]]:
    """An endpoint that does not answer yet: whole names can be waited for, and what engines have in common."""
    if patterns:
        plain = [pattern for pattern in patterns if re.fullmatch(_NAME.decode(), pattern)]
        return _apart((name, _wanted(name, {}, {})) for name in plain)
    return [(known.metric, Wanted(known.series, known.factor, known.mean, known.label)) for known in KNOWN[:9]]


def _wanted(name: str, kept: dict[str, str], types: dict[str, tuple[str, str]]) -> Wanted:
    base = re.sub(r"_(total|sum|count)$", "", name)
    kind, words = types.get(name) or types.get(base) or ("", "")
    counter = kind in ("counter", "histogram", "summary") or (not kind and name.endswith(("_total", "_sum", "_count")))
    unit = "1" if name.endswith("_count") else _UNITS.get(base.rpartition("_")[2], "")
    family = next((family for begin, family in _FAMILIES if re.match(begin, name)), "service")
    shown = "".join(f"_{value}" for value in kept.values() if value)
    told = "{" + ", ".join(f'{key}="{value}"' for key, value in kept.items()) + "}" if kept else ""
    series = Series(
        name=_plain(name + shown),
        unit=unit or "1",
        kind="counter" if counter else "gauge",
        family=family,
        description=f"{name}{told}: {words}" if words else f"{name}{told}",
    )
    return Wanted(series, mean=not counter and unit in _MEANS, kept=kept)


def _plain(name: str) -> str:
    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    return plain if plain[:1].isalpha() else f"x_{plain}"


def _apart(chosen: Iterable[tuple[str, Wanted]]) -> list[tuple[str, Wanted]]:
    """Two names that look alike in lower case get a number."""
    taken: set[str] = set()
    found = []
    for name, wanted in chosen:
        called, number = wanted.series.name, 1
        while called in taken:
            number += 1
            called = f"{wanted.series.name}_{number}"
        taken.add(called)
        wanted.series = wanted.series.model_copy(update={"name": called})
        found.append((name, wanted))
    return found


def _types(body: bytes) -> dict[str, tuple[str, str]]:
    """Type and help of each metric family."""
    found: dict[str, tuple[str, str]] = {}
    for what, raw, words in _TYPE.findall(body):
        name = raw.decode()
        kind, text = found.get(name, ("", ""))
        if what == b"TYPE":
            kind = words.decode(errors="replace").strip()
        elif what == b"HELP":
            text = words.decode(errors="replace").strip()[:200]
        found[name] = kind, text
    return found


def reader(chosen: Sequence[tuple[str, Wanted]]) -> Callable[[bytes], list[float]]:
    """A function from a page to the values, in the order of `chosen`."""
    if not chosen:
        return lambda body: []
    by_name: dict[bytes, list[tuple[int, Wanted]]] = {}
    for at, (name, wanted) in enumerate(chosen):
        by_name.setdefault(name.encode(), []).append((at, wanted))
    names = b"|".join(re.escape(name) for name in sorted(by_name, key=len, reverse=True))
    find = re.compile(rb"^(" + names + rb")" + _LABELS + _VALUE, re.MULTILINE).findall

    def values(body: bytes) -> list[float]:
        sums, counts = [0.0] * len(chosen), [0] * len(chosen)
        for name, labels, text in find(body):
            value = _number(text)
            for at, wanted in by_name[name]:
                if wanted.takes(labels) and not math.isnan(value):
                    sums[at] += value
                    counts[at] += 1
        return [
            math.nan if not count else total * wanted.factor / (count if wanted.mean else 1)
            for total, count, (_, wanted) in zip(sums, counts, chosen, strict=True)
        ]

    return values


def parse_labels(text: bytes) -> dict[str, str]:
    return {
        name.decode(): re.sub(r"\\(.)", lambda it: "\n" if it[1] == "n" else it[1], value.decode(errors="replace"))
        for name, value in _LABEL.findall(text)
    }


def _number(text: bytes) -> float:
    """A value; what is no finite number is NaN: neither a mean nor a file can do with infinity."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
