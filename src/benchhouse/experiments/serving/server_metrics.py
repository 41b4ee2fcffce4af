"""What the server says about itself in Prometheus' text format, before and after the load."""

from collections.abc import Sequence

from benchhouse.http.client import HttpClient, NoAnswer
from benchhouse.http.exposition import samples

_QUEUE = "request_queue_time_seconds"
_KEPT = ("prefix_cache", "queue_time", "preemptions", "prompt_tokens", "generation_tokens", "gpu_cache_usage")


class ServerMetrics:
    """Read once when made and once at `finish`; a server without such metrics is no error.

    Of several servers, those that answer both times are added up.
    """

    def __init__(self, urls: Sequence[str], verify_tls: bool = True) -> None:
        self._client = HttpClient(timeout_s=5.0, verify_tls=verify_tls)
        self._before = {url: self._read(url) for url in urls}
        self._after: dict[str, dict[str, float]] = {}

    def finish(self) -> None:
        self._after = {url: self._read(url) for url, before in self._before.items() if before}

    def queue_delay_ms(self) -> float | None:
        """Mean time of a request in the server's queue, where it counts that."""
        count = self._grown(f"{_QUEUE}_count")
        return self._grown(f"{_QUEUE}_sum") / count * 1000 if count > 0 else None

    def cached_share(self) -> float | None:
        """Share of the input that the server found in its prefix cache, where it counts that."""
        queries = self._grown("prefix_cache_queries_total")
        return self._grown("prefix_cache_hits_total") / queries if queries > 0 else None

    def _grown(self, suffix: str) -> float:
        return sum(value for name, value in self.facts().items() if name.endswith(suffix))

    def facts(self) -> dict[str, float]:
        """How much each counter of interest grew during the load."""
        grown: dict[str, float] = {}
        for url, after in self._after.items():
            for name, value in after.items():
                grown[name] = grown.get(name, 0.0) + value - self._before[url].get(name, 0.0)
        return grown

    def _read(self, url: str) -> dict[str, float]:
        """The counters of interest, each summed over its labels."""
        try:
            answer = self._client.get(f"{url.rstrip('/').removesuffix('/v1')}/metrics")
        except NoAnswer:
            return {}
        lines = [line for line in answer.text().split("\n") if any(part in line for part in _KEPT)] if answer.ok else []
        values: dict[str, float] = {}
        for name, _, value in samples("\n".join(lines)):
            if any(part in name for part in _KEPT) and not name.endswith("_bucket"):
                values[name] = values.get(name, 0.0) + value
        return values
