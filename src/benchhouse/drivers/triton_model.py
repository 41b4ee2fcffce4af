"""Read what a Triton server reports about a model before the load, and its own times before and after the load."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote

from benchhouse.documents.problems import did_you_mean
from benchhouse.drivers.triton_tensors import TensorSpec
from benchhouse.http.client import HttpClient, NoAnswer, Response
from benchhouse.load.protocols.kserve import NoServer
from benchhouse.schema.errors import BenchError

# The parts of a request's time in the server: names in its statistics, and our names.
PARTS = {name: name for name in ("queue", "compute_input", "compute_output")}
PARTS |= {"success": "request", "compute_infer": "compute"}
_COUNTED_WITHIN_S = 15.0
_LIMIT_BYTES = 1 << 30  # an answer to an inference request is as large as the model's outputs


@dataclass(frozen=True)
class TritonModel:
    """A model that is ready. `version` is the one that answers, even if none was requested."""

    name: str
    version: str
    versions: tuple[str, ...]  # all that are ready
    platform: str
    backend: str
    max_batch: int  # 0: its tensors have no batch dimension
    decoupled: bool  # answers a request with any number of responses
    sequences: bool  # keeps state between the requests of a sequence
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def facts(self) -> dict[str, Any]:
        return asdict(self)


class ServerHttp:
    """The management side of the server's HTTP port: small JSON requests, never in the timed path."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float, *, verify_tls: bool = True) -> None:
        self.url, self.headers = url.rstrip("/"), dict(headers)
        self._client = HttpClient(timeout_s, total=False, limit_bytes=_LIMIT_BYTES, verify_tls=verify_tls)

    def model(self, name: str, version: str) -> TritonModel:
        """Return the model. Raise BenchError if the server or model is missing, or the model is not ready."""
        path = model_path(name, version)
        status, metadata = self.ask(path)
        if status != 200:
            raise self._no_model(name, version, error_text(metadata))
        status, config = self.ask(f"{path}/config")
        known = config if status == 200 else {}  # other servers of the protocol have no configuration
        status, answer = self.ask(f"{path}/ready")
        if status != 200:
            raise self._no_model(name, version, error_text(answer))
        return described(metadata, known, version)

    def name(self) -> str:
        """Return the server's own name and version."""
        status, answer = self.ask("/v2")
        known = answer if status == 200 and isinstance(answer, dict) else {}
        return f"{known.get('name', '')} {known.get('version', '')}".strip()

    def statistics(self, name: str, version: str) -> dict[str, float]:
        """Return counters since the model was loaded, empty if the server keeps none; see `between`."""
        status, answer = self.ask(f"{model_path(name, version)}/stats")
        models = answer.get("model_stats", []) if status == 200 and isinstance(answer, dict) else []
        return counters(models[0]) if models else {}

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and JSON of an answer. A request with a body is a POST; bytes are sent unchanged."""
        answer = self.send(path, body if isinstance(body, bytes | None) else json.dumps(body).encode(), {})
        try:
            return answer.status, answer.json() if answer.body.strip() else {}
        except NoAnswer:
            if answer.status != 200:
                return answer.status, {"error": answer.text(200)}
            raise BenchError(
                f"{self.url}{path} does not answer in JSON", hint="target.url: is that the HTTP port of the server?"
            ) from None

    def send(self, path: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        method = "GET" if body is None else "POST"
        try:
            return self._client.request(method, self.url + path, body, {**self.headers, **headers})
        except NoAnswer as error:
            raise NoServer(
                f"no Triton server answers at {self.url}: {error.reason}",
                hint="start it, or correct target.url (HTTP is port 8000 by default, gRPC 8001)",
            ) from error

    def _no_model(self, name: str, version: str, message: str) -> BenchError:
        status, index = self.ask("/v2/repository/index", {})
        entries = index if status == 200 and isinstance(index, list) else []
        return unknown_model(self.url, name, version, message, entries)


def model_path(name: str, version: str) -> str:
    path = f"/v2/models/{quote(name, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def error_text(answer: Any) -> str:
    """Return the server's own message about an error."""
    return str(answer.get("error", "") if isinstance(answer, dict) else answer)[:300]


def unknown_model(url: str, name: str, version: str, message: str, entries: Sequence[Mapping[str, str]]) -> BenchError:
    """Return the error that explains why a model cannot be used, from the server's repository index."""
    own = [entry for entry in entries if entry.get("name") == name]
    ready = sorted({entry["name"] for entry in entries if entry.get("state") == "READY"})
    if any(entry.get("state") == "READY" for entry in own):
        versions = ", ".join(entry["version"] for entry in own if entry.get("state") == "READY")
        return BenchError(f"model {name!r} has no version {version!r} at {url}", hint=f"ready versions: {versions}")
    if own:
        state, reason = own[0].get("state") or "not loaded", (own[0].get("reason") or message).strip().split("\n")[0]
        return BenchError(f"model {name!r} at {url} is not ready: {state}: {reason}", hint="see the server's log")
    guess = did_you_mean(name, ready)
    offers = f"ready models: {', '.join(ready)}" if ready else "the server has no model that is ready"
    return BenchError(
        f"the server at {url} has no model {name!r}: {message}",
        hint=f"did you mean {guess!r}? {offers}" if guess else offers,
    )


def described(metadata: Mapping[str, Any], config: Mapping[str, Any], version: str) -> TritonModel:
    """Return the model that the JSON of its metadata and configuration describes."""
    max_batch = int(config.get("max_batch_size", 0))
    numbered = sorted(map(str, metadata.get("versions") or []), key=lambda text: (text.isdigit(), len(text), text))
    versions = tuple(numbered)
    optional = {item["name"] for item in config.get("input", []) if item.get("optional")}

    def spec(item: Mapping[str, Any]) -> TensorSpec:
        shape = tuple(int(size) for size in item.get("shape", ()))
        return TensorSpec(item["name"], item["datatype"], shape[1 if max_batch else 0 :], item["name"] in optional)

    return TritonModel(
        name=str(metadata.get("name", "")),
        version=version or (versions[-1] if versions else ""),
        versions=versions,
        platform=str(metadata.get("platform", "")),
        backend=str(config.get("backend", "")),
        max_batch=max_batch,
        decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled")),
        sequences="sequence_batching" in config,
        inputs=tuple(map(spec, metadata.get("inputs", []))),
        outputs=tuple(map(spec, metadata.get("outputs", []))),
    )


def counters(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the counters of one model in the server's statistics, by our names."""
    stats = entry.get("inference_stats", {})
    return {
        "requests": float(stats.get("success", {}).get("count", 0)),
        "failures": float(stats.get("fail", {}).get("count", 0)),
        "inferences": float(entry.get("inference_count", 0)),
        "executions": float(entry.get("execution_count", 0)),
        "cache_hits": float(stats.get("cache_hit", {}).get("count", 0)),
        **{f"{ours}_ns": float(stats.get(theirs, {}).get("ns", 0)) for theirs, ours in PARTS.items()},
    }


def between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return what the server did between two calls of `statistics`: counts, mean times per request in ms, and mean
    batch.

    Empty if the server keeps no statistics or was restarted. Times are missing if no request was answered.
    """
    if not before or not after or any(after.get(name, 0) < value for name, value in before.items()):
        return {}
    grown = {name: after[name] - value for name, value in before.items()}
    figures = {name: grown[name] for name in ("requests", "failures", "inferences", "executions", "cache_hits")}
    if grown["requests"]:
        figures |= {f"{part}_ms": grown[f"{part}_ns"] / grown["requests"] / 1e6 for part in PARTS.values()}
    if grown["executions"]:
        figures["batch_mean"] = grown["inferences"] / grown["executions"]
    return figures


def since(ask: Callable[[], Mapping[str, float]], before: Mapping[str, float], answered: int) -> dict[str, float]:
    """Return `between` of `before` and the counters from `ask` once they include all `answered` requests.

    The server counts a request a moment after its answer, on a busy machine seconds later. This waits for at most 15 s,
    and only if a count is missing.
    """
    deadline = monotonic() + _COUNTED_WITHIN_S
    while True:
        figures = between(before, ask())
        if not figures or figures["requests"] >= answered or monotonic() > deadline:
            return figures
        sleep(0.02)
