"""The front page: what changed since yesterday, and what needs attention."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.requests import Request

from benchhouse.api.workspace import Workspace
from benchhouse.report.evidence_sections import when
from benchhouse.report.tags import Content, join, tag
from benchhouse.results.numbers import plural
from benchhouse.runs.status import RunStatus
from benchhouse.serve.access import caller_of
from benchhouse.serve.pages.actions import form
from benchhouse.serve.pages.forms import ask, choice
from benchhouse.serve.pages.runs import runs_table, short
from benchhouse.serve.pages.shell import WebPage, anchor, empty
from benchhouse.serve.pages.team import freshness

if TYPE_CHECKING:
    from benchhouse.api.approvals import ApprovalStanding
    from benchhouse.api.changes import Changes, MovedLevel

_SPANS = {"24h": "yesterday", "168h": "last week", "720h": "30 days ago"}
_MOST_RUNS = 20
_MOST = 30


def front(workspace: Workspace, request: Request) -> WebPage:
    params = request.query_params.get("since", "")
    since = params if params in _SPANS else "24h"
    found = workspace.changes(since)
    span = ask(request, "/", choice("since", "Since", _SPANS.items(), since))
    notes = tag("ul", *(tag("li", line) for line in found.notes), class_="small soft") if found.notes else None
    return WebPage(
        "Overview",
        (
            span,
            _needs(request, found, workspace.approvals.waiting()),
            _changed(request, workspace, found),
            notes,
            freshness(workspace, request),
        ),
    )


def _needs(request: Request, found: "Changes", params: "Sequence[ApprovalStanding]") -> Markup:
    failed = [(run, _trouble(run)) for run in found.failed]
    invalid = [(run, f"numbers of {plural(len(run.invalid), 'trial')} are refused") for run in found.invalid]
    items: list[Content] = [
        *(_request(request, item) for item in params),
        *(join(tag("b", item.alarm), f": {item.sentence} ", _case(request, item.case)) for item in found.unmuted),
        *(join(tag("b", "Baseline broken"), ": ", _moved(request, item)) for item in found.broken),
        *(join(_run(request, run), f": {words}") for run, words in [*failed, *invalid]),
    ]
    shown = _listed(items) if items else tag("p", "Nothing needs a person now.", class_="soft")
    muted = [item for item in found.alarms if item.muted]
    told = ", ".join(f"{item.alarm}: {item.muted}" for item in muted)
    quiet = tag("p", f"{plural(len(muted), 'alarm')} muted: {told}", class_="small soft") if muted else None
    return tag("section", tag("h2", "Needs a person" + (f" ({len(items)})" if items else "")), shown, quiet)


def _request(request: Request, params: "ApprovalStanding") -> Markup:
    """Return a plan that waits for approval, with a button for those who may approve it, except for its submitter."""
    by_other = caller_of(request).name != params.asked_by
    what = f"{short(params.scenario)} on {params.executor} at {params.site}, for {params.asked_by}"
    words = f": {what}: {'; '.join(params.over)} "
    given = {"request": params.name, "shown": params.request_digest}
    button = form(request, "approve_plan", "Approve", given) if by_other else None
    return join(tag("b", "Approval"), words, tag("code", params.name), " ", button)


def _changed(request: Request, workspace: Workspace, found: "Changes") -> Markup:
    title = tag("h2", f"Since {when(found.since)}")
    if not found.runs:
        words = "No run has begun since then. Start one:"
        nothing = empty(words, "bench run SCENARIO.yaml") if workspace.runs() else _first()
        return tag("section", title, nothing)
    levels = _listed([_moved(request, item) for item in found.levels]) if found.levels else None
    more = len(found.runs) - _MOST_RUNS
    all_of_them = tag("p", anchor(request, f"All runs, {more} more since then" if more > 0 else "All runs", "/runs"))
    return tag(
        "section",
        title,
        tag("h3", "Levels that changed") if levels else tag("p", "No level of a history changed.", class_="soft"),
        levels,
        tag("h3", plural(len(found.runs), "new run")),
        runs_table(request, found.runs[:_MOST_RUNS], "New runs"),
        all_of_them,
    )


def _first() -> Markup:
    words = "Nothing was ever run in this workspace. Make a first scenario and run it:"
    return empty(words, "bench init", "bench run scenarios/first.yaml")


def _trouble(run: RunStatus) -> str:
    early = (
        "it was interrupted" if run.state == "interrupted" else f"it ended early: {run.stopped}" if run.stopped else ""
    )
    return ", ".join(filter(None, [f"{plural(len(run.failures), 'trial')} failed" if run.failures else "", early]))


def _listed(items: Sequence[Content]) -> Markup:
    more = len(items) - _MOST
    rest = [tag("li", f"and {more} more", class_="soft")] if more > 0 else []
    return tag("ul", *(tag("li", item) for item in items[:_MOST]), *rest, class_="plain")


def _run(request: Request, run: RunStatus) -> Markup:
    return join(anchor(request, run.run_id, f"/runs/{run.run_id}"), f" {short(run.scenario)}")


def _moved(request: Request, item: "MovedLevel") -> Markup:
    since = anchor(request, item.run_id, f"/runs/{item.run_id}")
    return join(_case(request, item.case), f" {item.metric} {item.sentence}, since run ", since)


def _case(request: Request, case: str) -> Markup:
    return anchor(request, short(case), f"/history/{case}") if case else Markup("")
