"""From a request to a verb and back: parameters are checked, answers have an ETag, and errors are problem documents."""

import contextlib
import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_origin

from markupsafe import escape
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from benchhouse.api.answers import LimitedAnswer
from benchhouse.api.rows import as_json, plain
from benchhouse.api.workspace import Workspace
from benchhouse.documents.problems import ProblemsError
from benchhouse.report.tags import embedded_json
from benchhouse.runs.approval import NeedsApprovalError
from benchhouse.schema.errors import BenchError, BusyError, Exit, NotFoundError
from benchhouse.schema.json_text import finite, read_json
from benchhouse.serve.access import Caller, caller_of
from benchhouse.serve.answer_formats import JSON, choose, encode
from benchhouse.serve.idempotent_writes import KeyRefusedError, ServerWrites
from benchhouse.serve.limits import Turns
from benchhouse.serve.verbs import Text, Verb, VerbParams

_STATUS = {Exit.TRIAL_FAILED: 500, Exit.NEEDS_APPROVAL: 403, Exit.NO_BASELINE: 404}


def problem(
    status: int, title: str, detail: str = "", headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """Return an error in the format of RFC 9457: `title` and `detail` are the texts that the command line prints."""
    content = {"type": "about:blank", "status": status, "title": title} | ({"detail": detail} if detail else {}) | more
    body = json.dumps(finite(content), ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status, headers, media_type="application/problem+json")


def of_error(error: BenchError, workspace: Workspace) -> Response:
    """Return the error of a verb as a response, without the paths of this machine."""
    message, hint, more = words_of(error, workspace)
    headers = {"Retry-After": str(math.ceil(error.retry_s))} if isinstance(error, BusyError) else None
    return problem(status_of(error), message, hint, headers, **more)


def status_of(error: BenchError) -> int:
    if isinstance(error, BusyError):
        return 503
    return 404 if isinstance(error, NotFoundError) else _STATUS.get(error.exit_code, 400)


def words_of(error: BenchError, workspace: Workspace) -> tuple[str, str, dict[str, Any]]:
    """Return the message, hint, and details of an error of a verb, without the paths of this machine."""
    more: dict[str, Any] = {"exit_code": int(error.exit_code)}
    if isinstance(error, ProblemsError):
        more["problems"] = [item.as_dict() for item in error.problems]
    if isinstance(error, MisfitError):
        more["errors"] = error.fields
    if isinstance(error, NeedsApprovalError):
        more |= {"plan_digest": error.plan_digest, "over": plain(error.over), "request": error.request}
    told = json.dumps([error.message, error.hint, more], ensure_ascii=False)
    message, hint, more = json.loads(hide_places(told, workspace))
    return message, hint, more


def hide_places(text: str, workspace: Workspace) -> str:
    """Make paths of the workspace relative to it, and hide the home folder and the folder of the program."""
    for folder, name in _places(workspace.root):
        text = text.replace(folder + "/", name + "/" if name else "").replace(folder, name or ".")
    return text


@cache
def _places(root: Path) -> list[tuple[str, str]]:
    """Return folders as plain text and as JSON and pages write them, the deepest first, each with its replacement."""
    named = {str(root): "", os.path.realpath(root): ""}
    for folder, name in ((sys.prefix, "(python)"), (os.path.expanduser("~"), "~"), (os.getcwd(), "")):  # noqa: PTH109, PTH111
        named.setdefault(folder, name)
    found = {
        form: name
        for folder, name in named.items()
        if len(Path(folder).parts) > 1
        for form in (folder, str(escape(folder)), *(text[1:-1] for text in _as_json(folder)))
    }
    return sorted(found.items(), key=lambda item: -len(item[0]))


def _as_json(text: str) -> tuple[str, str, str]:
    return json.dumps(text), json.dumps(text, ensure_ascii=False), embedded_json(text)


class MisfitError(BenchError):
    """The parameters of a verb do not fit its fields."""

    def __init__(self, name: str, error: ValidationError) -> None:
        self.fields = [{"field": ".".join(map(str, item["loc"])), "message": item["msg"]} for item in error.errors()]
        detail = "; ".join(f"{item['field']}: {item['message']}" for item in self.fields)
        super().__init__(f"{name} was asked with what it does not take", detail)


def params_of(verb: Verb, given: Mapping[str, Any], name: str = "") -> VerbParams:
    """Return the checked parameters of a verb; `name` is the verb's name in messages. Raise MisfitError if they do not
    fit."""
    if any("\0" in value for value in given.values() if isinstance(value, str)):
        raise BenchError("this can't be read as a question", "NUL is in no name")
    try:
        return verb.asks.model_validate(given)
    except ValidationError as error:
        raise MisfitError(name or verb.name, error) from error


def refuse(verb: Verb, caller: Caller, name: str = "") -> tuple[str, str] | None:
    """Return the message that the caller's role is too low, and a hint; None if the caller may use the verb."""
    if caller.may(verb.scope):
        return None
    return f"{name or verb.name} is for the role {verb.scope}", f"you are {caller.name} and may {caller.role}"


def json_text(answer: Any, workspace: Workspace) -> str:
    """Return the answer of a verb as JSON, without the paths of this machine."""
    return hide_places(answer.to_json() if isinstance(answer, LimitedAnswer) else as_json(answer), workspace)


class VerbEndpoint:
    """The verbs of one path as an ASGI application."""

    def __init__(self, verbs: Mapping[str, Verb], workspace: Workspace, writes: ServerWrites, turns: Turns) -> None:
        self._verbs, self._workspace, self._writes, self._turns = verbs, workspace, writes, turns
        self._allowed = ", ".join([*verbs, *(["HEAD"] if "GET" in verbs else [])])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        verb = self._verbs.get("GET" if request.method == "HEAD" else request.method)
        if verb is None:
            response = problem(405, f"{request.method} is not for this path", headers={"Allow": self._allowed})
        else:
            response = await self._answer(verb, request)
        if request.method == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    async def _answer(self, verb: Verb, request: Request) -> Response:
        if refusal := refuse(verb, caller_of(request)):
            return problem(403, *refusal)
        format = choose(request.headers.get("accept", ""), verb)
        if format is None:
            return problem(406, f"{verb.name} has no such form", f"Accept: {', '.join(verb.forms)}")
        try:
            given = await _given(verb, request)
        except ValueError as error:
            return problem(400, "this can't be read as a question", str(error))
        try:
            params = params_of(verb, given)
            return await self._turns.run(caller_of(request).name, self._written, verb, params, format, request)
        except KeyRefusedError as error:
            return problem(error.status, error.message, error.hint)
        except BenchError as error:
            return of_error(error, self._workspace)

    def _written(self, verb: Verb, params: Any, format: str, request: Request) -> Response:
        if verb.writes:
            key = request.headers.get("idempotency-key", "")
            written = self._writes.carry_out(verb, params, caller_of(request), key)
            headers = {"Idempotency-Replayed": "true"} if written.again else {}
            return Response(hide_places(written.body, self._workspace), headers=headers, media_type=JSON)
        answer = verb.answer(self._workspace, params, caller_of(request).name)
        if isinstance(answer, Text):
            body = hide_places(answer.text, self._workspace).encode("utf-8", "replace")
            response = tagged(request, body, f"{answer.media_type}; charset=utf-8")
            response.headers["Content-Disposition"] = f'attachment; filename="{answer.file}"'
            return response
        if format != JSON:
            body, media_type = encode(_table(answer, verb, self._workspace), format), format
        else:
            body, media_type = json_text(answer, self._workspace).encode("utf-8", "replace"), JSON
        response = tagged(request, body, media_type)
        cursor = answer.get("cursor") if isinstance(answer, dict) else getattr(answer, "cursor", None)
        if cursor:
            response.headers["Link"] = f'<{request.url.include_query_params(after=cursor)}>; rel="next"'
        return response


def _table(answer: Any, verb: Verb, workspace: Workspace) -> list[dict[str, Any]]:
    """Return the rows of an answer. Rows of a query are read one by one: reading all at once blocks the server."""
    if isinstance(answer, LimitedAnswer):
        return [json.loads(row) for row in hide_places("\n".join(answer.json_rows), workspace).split("\n") if row]
    data = json.loads(json_text(answer, workspace))
    rows: list[dict[str, Any]] = data[verb.rows] if verb.rows else data
    return rows


async def _given(verb: Verb, request: Request) -> dict[str, Any]:
    """Return the parameters of a request by field name, from query, body, and path; a list field gets all its query
    values."""
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        field = verb.asks.model_fields.get(name)
        if field is not None and get_origin(field.annotation) in (list, tuple):
            given.setdefault(name, []).append(value)
        else:
            given[name] = value
    if verb.method == "POST":
        body = read_json(await request.body() or b"{}")
        if not isinstance(body, dict):
            raise ValueError(f"it is a {type(body).__name__}")
        given |= body
    return given | request.path_params


def tagged(request: Request, body: bytes, media_type: str, cache: str = "no-cache") -> Response:
    """Return a response with an ETag; 304 without a body if the client already has this body."""
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": cache, "Vary": "Accept"}
    with contextlib.suppress(KeyError):
        if tag in {item.strip() for item in request.headers["if-none-match"].split(",")}:
            return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)
