"""Writes that happen once, even after a kill or a repeated request, and are in the audit log before they begin."""

import contextlib
import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from benchhouse.api.rows import plain
from benchhouse.api.workspace import Workspace
from benchhouse.evidence.writing import now
from benchhouse.runs.ledger import new_run_id
from benchhouse.schema.access import AuditRecord
from benchhouse.schema.errors import BenchError
from benchhouse.schema.resources import Budget
from benchhouse.schema.secrets import REDACTED, exposed
from benchhouse.serve.access import Caller
from benchhouse.serve.state import ServerDatabase
from benchhouse.serve.verbs import Verb, VerbParams, WriteContext
from benchhouse.warehouse.query_deadline import forget_patience

_LONGEST = 200


class KeyRefusedError(BenchError):
    """An idempotency key that cannot be used; `status` is the HTTP status of the answer."""

    def __init__(self, status: int, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.status = status


@dataclass(frozen=True)
class WriteResult:
    """The answer of a write."""

    body: str
    """The answer as JSON."""
    again: bool = False
    """Whether the write happened before and nothing was done now."""


@dataclass
class ServerWrites:
    """All writes of a server."""

    workspace: Workspace
    state: ServerDatabase
    budget: Budget | None = None
    """The budget of each run started by a caller who may not approve."""
    _turns: WeakValueDictionary[str, threading.Lock] = field(default_factory=WeakValueDictionary)
    """The locks that are held or waited for."""
    _making_turns: threading.Lock = field(default_factory=threading.Lock)

    def carry_out(self, verb: Verb, params: VerbParams, caller: Caller, key: str = "") -> WriteResult:
        """Write, or return the stored answer if this caller already wrote under this key. Block until it is done; raise
        what the verb raises."""
        forget_patience()
        given = params.model_dump(mode="json", exclude_unset=True)
        request = new_run_id()
        key = _checked(key) or request
        kept = self.state.claim(caller.name, key, _digest([verb.name, given]), request)
        if kept is not None:
            if kept.asked != _digest([verb.name, given]):
                raise KeyRefusedError(422, "this Idempotency-Key was used for something else", "give another key")
            if kept.under_way:
                raise KeyRefusedError(409, "this is being done right now", "ask again with the same key")
            if kept.body is not None:
                return WriteResult(kept.body, again=True)
            request = kept.request
        line = AuditRecord(
            time=now(), id=request, state="begun", who=caller.name, how=caller.how, verb=verb.name,
            asked=_harmless(given), key=key if key != request else "",
        )  # fmt: skip
        done, budget = False, None if caller.may("approve") else self.budget
        try:
            self.workspace.audit.keep(line)
            with self._turn(str(given.get("run", verb.name))):  # two stops of the same run wait for each other
                body = self._do(verb, params, WriteContext(caller.name, request, budget), line)
            self.state.keep(caller.name, key, 200, body)
            done = True
        finally:
            if not done:
                self.state.release(caller.name, key)
        return WriteResult(body)

    def _turn(self, what: str) -> threading.Lock:
        with self._making_turns:
            return self._turns.setdefault(what, threading.Lock())

    def _do(self, verb: Verb, params: VerbParams, order: WriteContext, line: AuditRecord) -> str:
        try:
            answer = plain(verb.call(self.workspace, params, order))
        except BenchError as error:
            self._end(line, "refused", error.message)
            raise
        except Exception as error:
            self._end(line, "failed", type(error).__name__)
            raise
        body = json.dumps(answer, ensure_ascii=False)
        self._end(line, "done", body, answer if isinstance(answer, Mapping) else {})
        return body

    def _end(self, line: AuditRecord, state: Any, answer: str, told: Mapping[str, Any] | None = None) -> None:
        run_id = str((told or {}).get("run_id") or "")
        plan_digest = ""
        with contextlib.suppress(BenchError):
            run = self.workspace[run_id or str(line.asked["run"])] if run_id or "run" in line.asked else None
            run_id, plan_digest = (run.id, run.record.plan_digest) if run else ("", "")
        ended = {"time": now(), "state": state, "answer": _short(answer), "run_id": run_id, "plan_digest": plan_digest}
        self.workspace.audit.keep(line.model_copy(update=ended))


def _checked(key: str) -> str:
    if len(key) > _LONGEST or not key.isprintable() or not key.isascii():
        raise KeyRefusedError(400, "an Idempotency-Key has at most 200 printable characters", "a UUID is a good one")
    return key


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _harmless(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters for the log: a scenario as its digest, and no secrets."""
    return {name: _text(value) for name, value in given.items()}


def _text(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > _LONGEST or "\n" in text or not isinstance(value, str):
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return REDACTED if exposed(text) else text


def _short(text: str) -> str:
    kept = REDACTED if exposed(text) else text
    return kept if len(kept) <= _LONGEST * 2 else f"{kept[: _LONGEST * 2]}..."
