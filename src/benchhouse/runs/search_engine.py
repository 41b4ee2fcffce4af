"""Elasticsearch and OpenSearch by their common API: index templates, and bulk requests at the server's pace."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from benchhouse.http.client import HttpClient, NoAnswer, Response
from benchhouse.schema.errors import BenchError

_MOST_DOCUMENTS, _MOST_BYTES = 500, 5 * 2**20  # limits per request
_PASSING = (429, 502, 503, 504)
_WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0)  # after each temporary refusal; progress starts again with the first
_LONGEST_S = 30.0
_TEXT, _WORD = {"type": "text"}, {"type": "keyword", "ignore_above": 1024}


@dataclass(frozen=True)
class SearchDocument:
    """One document: sending it again under its id does not duplicate it."""

    index: str
    id: str
    body: dict[str, Any]

    def lines(self) -> bytes:
        action = {"index": {"_index": self.index, "_id": self.id}}
        return b"%s\n%s\n" % (json.dumps(action).encode(), json.dumps(self.body, default=str).encode())


@dataclass(frozen=True)
class DocumentRefused:
    """A document that the server rejects for good."""

    document: SearchDocument
    status: int
    reason: str


def templates(prefix: str) -> dict[str, dict[str, Any]]:
    """Return index templates by name: searchable values are keywords, and prose is text."""
    kinds: dict[str, Any] = {
        "measurements": {"value": {"type": "double"}, "started": {"type": "date"}, "warmup": {"type": "boolean"}},
        "logs": {"time": {"type": "date"}, "line": _TEXT, "message": _TEXT, "cut": {"type": "boolean"}},
    }
    words = [{"words": {"match_mapping_type": "string", "mapping": _WORD}}]
    return {
        f"{prefix}-{kind}": {
            "index_patterns": [f"{prefix}-{kind}*"],
            "priority": 200,
            "template": {"mappings": {"dynamic_templates": words, "properties": properties}},
            "_meta": {"made_by": "benchhouse"},
        }
        for kind, properties in kinds.items()
    }


@dataclass
class SearchEngine:
    """A client of one server. Raises BenchError if it is away, denies access, or stays too busy."""

    url: str
    api_key: str = ""
    sleep: Callable[[float], None] = time.sleep
    at_once: int = _MOST_DOCUMENTS
    _client: HttpClient = field(default_factory=lambda: HttpClient(timeout_s=60.0, proxy=True))

    def put_templates(self, prefix: str) -> None:
        for name, body in templates(prefix).items():
            answer = self._patiently("PUT", f"/_index_template/{quote(name)}", json.dumps(body).encode(), "json")
            if not answer.ok:
                raise self._told(answer)

    def send(self, documents: Iterable[SearchDocument]) -> Iterator[DocumentRefused]:
        """Index documents, fewer at a time for a server that is busy. Yield those that it rejects for good."""
        waiting, queue, busy = iter(documents), list[SearchDocument](), 0
        while True:
            while len(queue) < self.at_once and (document := next(waiting, None)):
                queue.append(document)
            if not queue:
                return
            batch = _as_fits(queue, self.at_once)
            answer = self._ask("POST", "/_bulk", b"".join(item.lines() for item in batch), "x-ndjson")
            if answer.status == 413 and len(batch) == 1:
                yield DocumentRefused(queue.pop(0), 413, "larger than the server takes")
                continue
            if answer.status == 413 or answer.status in _PASSING:
                self.at_once = max(1, len(batch) // 2)
                busy = busy if answer.status == 413 else self._wait(busy, answer)
                continue
            if not answer.ok:
                raise self._told(answer)
            again, refused = _sorted_out(batch, answer)
            yield from refused
            queue = again + queue[len(batch) :]
            if again:
                self.at_once = max(1, self.at_once // 2)
                busy = self._wait(busy if len(again) == len(batch) else 0, answer)
            else:
                self.at_once, busy = min(_MOST_DOCUMENTS, self.at_once * 2), 0

    def _patiently(self, method: str, path: str, body: bytes, kind: str) -> Response:
        busy = 0
        while (answer := self._ask(method, path, body, kind)).status in _PASSING:
            busy = self._wait(busy, answer)
        return answer

    def _wait(self, busy: int, answer: Response) -> int:
        """Let the server recover and return the number of waits in a row. Raise BenchError if there were too many."""
        if busy >= len(_WAITS_S):
            raise BenchError(f"{answer.address} stays too busy ({answer.status})", "what it took stays; go on later")
        asked = answer.headers.get("Retry-After") or ""
        self.sleep(min(float(asked), _LONGEST_S) if asked.isdigit() else _WAITS_S[busy])
        return busy + 1

    def _ask(self, method: str, path: str, body: bytes, kind: str) -> Response:
        headers = {"Content-Type": f"application/{kind}"}
        headers |= {"Authorization": f"ApiKey {self.api_key}"} if self.api_key else {}
        try:
            return self._client.request(method, self.url.rstrip("/") + path, body, headers)
        except NoAnswer as error:
            raise BenchError(error.message, "start the server, or correct `search` in workspace.yaml") from error

    def _told(self, answer: Response) -> BenchError:
        hint = "see `search` in workspace.yaml" if answer.status in (401, 403) else ""
        return BenchError(f"{answer.address} answers {answer.status}: {answer.text(300)}", hint)


def _as_fits(queue: list[SearchDocument], most: int) -> list[SearchDocument]:
    """Return the first documents, as many as fit into one request; at least one."""
    size, batch = 0, list[SearchDocument]()
    for document in queue[:most]:
        size += len(document.lines())
        if batch and size > _MOST_BYTES:
            break
        batch.append(document)
    return batch


def _sorted_out(batch: list[SearchDocument], answer: Response) -> tuple[list[SearchDocument], list[DocumentRefused]]:
    """Return what to send again, and what was rejected for good."""
    items = answer.json().get("items", [])
    if len(items) != len(batch):
        raise BenchError(f"{answer.address} answers for {len(items)} of {len(batch)} documents")
    again, refused = list[SearchDocument](), list[DocumentRefused]()
    for document, item in zip(batch, items, strict=True):
        result = item["index"]
        if result["status"] in _PASSING:
            again.append(document)
        elif result["status"] >= 300:
            error = result.get("error", {})
            reason = f"{error.get('type', '')}: {error.get('reason', '')}" if isinstance(error, dict) else str(error)
            refused.append(DocumentRefused(document, result["status"], reason[:500]))
    return again, refused
