"""Forms that write: one button per verb, bound to the caller's session, executed once however often it is pressed."""

import json
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qs

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from benchhouse.api.workspace import Workspace
from benchhouse.report.tags import Content, tag
from benchhouse.schema.errors import BenchError
from benchhouse.serve.access import caller_of
from benchhouse.serve.guard import FORM_TOKEN, local_path
from benchhouse.serve.idempotent_writes import ServerWrites
from benchhouse.serve.pages.shell import link, not_found, trouble, written
from benchhouse.serve.verb_requests import MisfitError, params_of, status_of, words_of
from benchhouse.serve.verbs import VERBS

_KEY, _THEN = "idempotency_key", "then"


def may(request: Request, verb: str) -> bool:
    """Return whether the caller may use the verb; forms of other verbs are not shown."""
    return caller_of(request).may(VERBS[verb].scope)


def form(request: Request, verb: str, label: str, given: Mapping[str, str], *fields: Content, then: str = "") -> Markup:
    """Return a form that calls `verb` with `given` and the inputs of `fields`; empty if the caller may not.

    After that it opens the page `then`, in which `{run_id}` is the run id of the answer; by default this page.
    """
    if not may(request, verb):
        return Markup("")
    hidden = dict(given) | {
        FORM_TOKEN: request.scope["form_token"](caller_of(request)),
        _KEY: secrets.token_hex(16),
        _THEN: then or request.url.path.removeprefix(request.scope["root_path"]),
    }
    inputs = [tag("input", type="hidden", name=name, value=value) for name, value in hidden.items()]
    button = tag("button", label, type="submit")
    return tag("form", *inputs, *fields, button, method="post", action=link(request, f"/do/{verb}"), class_="action")


def route(workspace: Workspace, writes: ServerWrites) -> Route:
    """Return the route that receives these forms."""

    async def do(request: Request) -> Response:
        verb, caller = VERBS.get(request.path_params["verb"]), caller_of(request)
        if verb is None or not verb.writes:
            return not_found(request)
        if not caller.may(verb.scope):
            words = f"This is for the role {verb.scope}. You are {caller.name} and may {caller.role}."
            return written(request, trouble("That is refused", words, "", 403))
        values = parse_qs((await request.body()).decode("utf-8", "replace"))
        given = {name: items[0] for name, items in values.items()}
        key, then = given.pop(_KEY, ""), given.pop(_THEN, "/")
        given.pop(FORM_TOKEN, None)
        try:
            answer = await run_in_threadpool(writes.carry_out, verb, params_of(verb, given), caller, key)
        except MisfitError as error:
            return written(request, trouble("That did not work", error.hint, "Go back and correct it.", 400))
        except BenchError as error:
            message, hint, _ = words_of(error, workspace)
            return written(request, trouble("That did not work", message, hint, status_of(error)))
        told = json.loads(answer.body)
        run_id = told.get("run_id", "") if isinstance(told, dict) else ""
        return RedirectResponse(request.scope["root_path"] + local_path(then.replace("{run_id}", run_id)), 303)

    return Route("/do/{verb}", do, methods=["POST"])
