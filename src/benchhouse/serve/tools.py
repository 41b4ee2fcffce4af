"""The verbs that agents have as tools, with their names and the JSON Schemas of their arguments and answers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from benchhouse.api.workspace import Workspace
from benchhouse.schema.errors import BenchError
from benchhouse.serve import evaluations, reading_automation, reading_catalog, reading_verbs, writing_verbs
from benchhouse.serve.access import Caller
from benchhouse.serve.idempotent_writes import ServerWrites
from benchhouse.serve.openapi import with_null_numbers
from benchhouse.serve.verb_requests import hide_places, json_text, params_of, refuse
from benchhouse.serve.verbs import VERBS, Verb

_VERBS: dict[str, Callable[..., Any]] = {
    "benchmark_contracts": reading_catalog.benchmark_contracts,
    "contract": reading_catalog.benchmark_contract,
    "experiments": reading_catalog.experiments,
    "experiment": reading_catalog.experiment_show,
    "benchmarks": reading_catalog.benchmarks,
    "changes": reading_automation.changes,
    "list": reading_verbs.runs,
    "show": reading_verbs.run_overview,
    "status": reading_verbs.run_status,
    "points": reading_verbs.run_points,
    "failures": reading_verbs.run_failures,
    "warnings": reading_verbs.run_warnings,
    "logs": reading_verbs.run_logs,
    "verify": reading_verbs.run_verify,
    "compare": reading_verbs.compare,
    "cases": reading_verbs.cases,
    "history": reading_verbs.history,
    "why": reading_verbs.run_why,
    "trace": reading_verbs.trace,
    "claims": reading_verbs.claims,
    "leaderboards": reading_catalog.leaderboards,
    "leaderboard": reading_catalog.leaderboard,
    "tables": reading_catalog.warehouse_schema,
    "query": reading_catalog.query,
    "validate": reading_catalog.validate,
    "plan": reading_catalog.plan,
    "approvals": reading_verbs.approvals,
    "approval": reading_verbs.approval_show,
    "evaluations": evaluations.evaluations,
    "evaluation": evaluations.evaluation,
    "run": writing_verbs.submit,
    "stop": writing_verbs.stop,
    "resume": writing_verbs.resume,
    "collect": writing_verbs.collect,
    "approve": writing_verbs.approve_plan,
    "evaluate": evaluations.evaluate,
}
_LARGEST = 256 << 10
_KEY = {
    "type": "string",
    "maxLength": 200,
    "description": "Asked again with the same key and arguments, it is done once.",
}


@dataclass(frozen=True)
class Tool:
    """A verb under its name for agents."""

    name: str
    verb: Verb

    @cached_property
    def asks(self) -> dict[str, Any]:
        """The schema of the arguments."""
        schema = self.verb.asks.model_json_schema()
        if self.verb.writes:
            schema["properties"] = {**schema.get("properties", {}), "key": _KEY}
        return schema

    @cached_property
    def answers(self) -> dict[str, Any]:
        """The schema of the answer, which is an object: a list or null becomes its field `answer`."""
        adapter: TypeAdapter[Any] = TypeAdapter(self.verb.answers)
        schema = with_null_numbers(adapter.json_schema(mode="serialization"))
        kinds = schema.get("anyOf", [])
        if schema.get("type") == "object" or (kinds and {"type": "null"} not in kinds):
            return {"type": "object", **schema}
        definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
        return {"type": "object", "required": ["answer"], "properties": {"answer": schema}, **definitions}

    def call(
        self, workspace: Workspace, writes: ServerWrites, caller: Caller, given: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """Return the answer, and the number of rows left out per field because there are too many.

        Raise what the verb raises, and BenchError if the caller's role is too low.
        """
        if refusal := refuse(self.verb, caller, self.name):
            raise BenchError(*refusal)
        arguments = dict(given)
        key = str(arguments.pop("key", "")) if self.verb.writes else ""
        params = params_of(self.verb, arguments, self.name)
        if self.verb.writes:
            text = hide_places(writes.carry_out(self.verb, params, caller, key).body, workspace)
        else:
            text = json_text(self.verb.answer(workspace, params, caller.name), workspace)
        answer = json.loads(text)
        shortened, left_out = _shortened(answer if isinstance(answer, dict) else {"answer": answer}, len(text))
        if left_out and "cursor" in answer:  # its cursor skips rows that are left out: request fewer
            fewer = params.model_copy(update={"limit": len(shortened[next(iter(left_out))])})
            return json.loads(json_text(self.verb.call(workspace, fewer), workspace)), {}
        return shortened, left_out


TOOLS = {name: Tool(name, VERBS[verb.__name__]) for name, verb in _VERBS.items()}


def _shortened(answer: dict[str, Any], size: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the answer with its longest list shortened if the whole is more than an agent can read, and the number of
    rows left out."""
    if size <= _LARGEST:
        return answer, {}
    sizes = {name: len(json.dumps(value)) for name, value in answer.items() if isinstance(value, list) and value}
    longest = max(sizes, key=lambda name: sizes[name], default="")
    rows, room = answer.get(longest, []), _LARGEST - (size - sizes.get(longest, 0))
    kept = len(rows) * room // sizes[longest] if longest else 0
    if kept <= 0:
        raise BenchError(
            f"the answer has {size >> 10:,} KiB, more than the {_LARGEST >> 10} that a tool answers",
            "ask for less, or read the report of the run: bench://runs/RUN/report/markdown",
        )
    return answer | {longest: rows[:kept]}, {longest: len(rows) - kept}
