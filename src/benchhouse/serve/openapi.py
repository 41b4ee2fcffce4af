"""The OpenAPI document of the table of verbs; pydantic describes the parameters and answers."""

import functools
from typing import Any, Literal

from pydantic import TypeAdapter

from benchhouse.schema.version import __version__
from benchhouse.serve.answer_formats import JSON
from benchhouse.serve.verbs import VERBS, Verb

_SIDE: Literal["serialization"] = "serialization"
_REFERENCES = "#/components/schemas/{model}"
_PROBLEM = {
    "description": "What is wrong, in the words of the command line.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "status", "title"],
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "integer"},
        "title": {"type": "string"},
        "detail": {"type": "string", "description": "What to do about it, or all that is wrong."},
        "exit_code": {"type": "integer", "description": "What `bench` ends with."},
        "errors": {
            "type": "array",
            "description": "Fields of the question that don't fit.",
            "items": {"type": "object", "properties": {"field": {"type": "string"}, "message": {"type": "string"}}},
        },
        "problems": {"type": "array", "description": "Mistakes of a file, each with line and column.", "items": {}},
        "plan_digest": {"type": "string", "description": "Of a plan that needs approval."},
        "over": {"type": "array", "description": "Of what it asks for more than is allowed.", "items": {}},
    },
}


_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 200},
    "description": "Asked again with the same key and body, also after the server was killed, it is done once.",
}


@functools.cache
def document() -> dict[str, Any]:
    """Return the document, which is generated once because that takes a second."""
    names = [name for name, verb in VERBS.items() if not verb.texts]
    adapters = [(name, _SIDE, TypeAdapter[Any](VERBS[name].answers)) for name in names]
    schemas, together = TypeAdapter.json_schemas(adapters, ref_template=_REFERENCES)
    answers = {name: with_null_numbers(schemas[name, _SIDE]) for name in names}
    paths: dict[str, Any] = {}
    for name, verb in VERBS.items():
        paths.setdefault(f"/api{verb.path}", {})[verb.method.lower()] = _operation(verb, answers.get(name))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Benchhouse",
            "version": __version__,
            "description": "What `bench` answers, over HTTP. Numbers that are NaN or infinite are null.",
        },
        "paths": paths,
        "components": {"schemas": {"Problem": _PROBLEM_SCHEMA} | with_null_numbers(together.get("$defs", {}))},
    }


def with_null_numbers(schema: Any) -> Any:
    """Allow null for every number, because JSON cannot represent NaN and infinity."""
    if isinstance(schema, list):
        return [with_null_numbers(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: with_null_numbers(value) for key, value in schema.items()}
    return changed | {"type": ["number", "null"]} if schema.get("type") == "number" else changed


def _operation(verb: Verb, answer: Any) -> dict[str, Any]:
    params = verb.asks.model_json_schema(ref_template=_REFERENCES)
    inside = {name for name in params.get("properties", {}) if f"{{{name}}}" in verb.path}
    operation: dict[str, Any] = {
        "operationId": verb.name,
        "summary": verb.summary,
        "description": f"For the role {verb.scope}, and those above it.",
        "parameters": [
            {"name": name, "in": "path" if name in inside else "query", "schema": schema}
            | {
                "description": schema.get("description", ""),
                "required": name in (inside | {*params.get("required", ())}),
            }
            for name, schema in params.get("properties", {}).items()
            if verb.method == "GET" or name in inside
        ],
        "responses": {
            "200": {"description": verb.summary, "content": {form: _content(form, answer) for form in verb.forms}},
            "304": {"description": "As it was when it had the tag that If-None-Match names."},
            "default": _PROBLEM,
        },
    }
    if verb.writes:
        operation["parameters"].append(_KEY)
    if verb.method == "POST":
        fields = {name: schema for name, schema in params["properties"].items() if name not in inside}
        needed = [name for name in params.get("required", ()) if name not in inside]
        body = params | {"properties": fields, "required": needed}
        operation["requestBody"] = {"required": bool(needed), "content": {JSON: {"schema": body}}}
    return operation


def _content(form: str, answer: Any) -> dict[str, Any]:
    return {"schema": answer} if form == JSON and answer is not None else {"schema": {"type": "string"}}
