"""The output of the trials, servers, and workers of a run, while it is written."""

from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from benchhouse.api.workspace import Workspace
from benchhouse.report.tags import tag
from benchhouse.schema.logs import LogLine
from benchhouse.serve.pages.forms import ask, field
from benchhouse.serve.pages.shell import WebPage, anchor, empty, link, relative

if TYPE_CHECKING:
    from benchhouse.api.observation import LogFilters

_LINES = 200
_MOST = 5000


def logs(workspace: Workspace, request: Request) -> WebPage:
    run = workspace[request.path_params["run"]]
    params, path = _asked(request), f"/runs/{run.id}/logs"
    form = ask(
        request,
        path,
        field("component", "Component", params["component"], placeholder="experiment, worker, ..."),
        field("trial", "Trial", params["trial"], placeholder="beginning of its id"),
        field("since", "Since", params["since"], placeholder="10m, or a time in UTC"),
        field("lines", "Lines", str(_lines(request)), "number", min=1, max=_MOST),
    )
    back = tag("p", anchor(request, f"Run {run.id}", f"/runs/{run.id}"))
    return WebPage("Logs", (back, form, _part(workspace, request)), scripts=("live.js",))


def live(workspace: Workspace, request: Request) -> Response:
    """Return the lines alone, for the script of the page."""
    return HTMLResponse(_part(workspace, request))


def _part(workspace: Workspace, request: Request) -> Markup:
    run, params = workspace[request.path_params["run"]], _asked(request)
    filters: LogFilters = {"since": params["since"] or None}
    if params["component"]:
        filters["components"] = params["component"].replace(",", " ").split()
    if params["trial"]:
        filters["trials"] = [params["trial"]]
    lines = workspace.logs.tail(run.id, _lines(request), **filters)
    under_way = run.status().state in ("running", "waiting")
    shown = tag("pre", *map(_line, lines), tabindex=0, class_="log", aria_label="Lines") if lines else None
    shown = relative(shown, workspace) if shown else None
    here = params | {"lines": str(_lines(request))}
    reload = tag("a", "Reload", href=link(request, f"/runs/{run.id}/logs", **here))
    return tag(
        "section",
        tag("p", "The run goes on; new lines are shown as they come. ", reload) if under_way else None,
        shown or empty("No line fits. What was packed of all logs:", f"bench logs get {run.id}"),
        id="live",
        data_part=link(request, f"/runs/{run.id}/logs/live", **here) if under_way else None,
    )


def _line(line: LogLine) -> Markup:
    text = line.line or " ".join([line.message, *(f"{key}={value}" for key, value in line.more.items())])
    source = f"{line.trial_id[:8]} {line.component}".strip()
    trouble = line.stream == "stderr" or line.level in ("warning", "error")
    head = tag("span", f"{line.time[:23].replace('T', ' ')} {source} ", class_="soft")
    return tag("span", head, f"{text}\n", class_="bad" if trouble else None)


def _asked(request: Request) -> dict[str, str]:
    return {name: request.query_params.get(name, "").strip() for name in ("component", "trial", "since")}


def _lines(request: Request) -> int:
    text = request.query_params.get("lines", "")
    return min(max(int(text), 1), _MOST) if text.isdecimal() and len(text) < 9 else _LINES
