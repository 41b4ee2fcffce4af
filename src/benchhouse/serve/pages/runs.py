"""All runs, newest first."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast, get_args

from markupsafe import Markup
from starlette.requests import Request

from benchhouse.api.workspace import Workspace
from benchhouse.report.evidence_sections import when
from benchhouse.report.tags import table, tag
from benchhouse.results.numbers import number
from benchhouse.runs.status import RunStatus, State
from benchhouse.schema.trial import outcome_words
from benchhouse.serve.pages.forms import ask, choice, field
from benchhouse.serve.pages.shell import WebPage, anchor, empty

if TYPE_CHECKING:
    from benchhouse.api.run_list import RunFilters

_PAGE = 50
_LONGEST = 80  # characters of a name


def all_runs(workspace: Workspace, request: Request) -> WebPage:
    """Show a page of runs by scenario and state; the cursor of the next page stays valid when runs are added."""
    scenario, state, after = (request.query_params.get(name, "").strip() for name in ("scenario", "state", "after"))
    states = [("", "any"), *((item, item) for item in get_args(State))]
    form = ask(
        request,
        "/runs",
        field("scenario", "Scenario", scenario),
        choice("state", "State", states, state),
    )
    filters: RunFilters = {"scenario": scenario or None}
    if state in get_args(State):
        filters["state"] = cast(State, state)
    found = workspace.run_page(after=after or None, limit=_PAGE, **filters)
    unreadable = tag("ul", *(tag("li", line) for line in found.unreadable), class_="bad") if found.unreadable else None
    if not found.runs and not found.cursor:
        nothing = (
            empty("No run fits. Choose another scenario or state.")
            if scenario or state or after
            else empty("No run yet. Start one:", "bench run SCENARIO.yaml")
        )
        return WebPage("Runs", (form, unreadable, nothing))
    further = (
        tag("p", anchor(request, "Older runs", "/runs", scenario=scenario, state=state, after=found.cursor))
        if found.cursor
        else None
    )
    return WebPage("Runs", (form, unreadable, runs_table(request, found.runs, "Runs"), further))


def runs_table(request: Request, runs: Iterable[RunStatus], label: str) -> Markup:
    """Return a table with a row per run."""
    rows = [
        (
            anchor(request, run.run_id, f"/runs/{run.run_id}"),
            anchor(request, short(run.scenario), "/runs", scenario=run.scenario),
            state_of(run),
            f"{number(run.done)} of {number(run.trials)}",
            ", ".join(f"{number(n)} {outcome_words(outcome)}" for outcome, n in run.outcomes.items()),
            short(run.experiment),
            when(run.created),
        )
        for run in runs
    ]
    heads = ("run", "scenario", "state", "trials", "outcomes", "experiment", "started")
    return tag("div", table(heads, rows, right=(3,), label=label), class_="runs")


def state_of(run: RunStatus) -> Markup:
    """Return the state, with a mark that shows whether trials failed."""
    troubled = run.state == "finished" and (run.failures or run.invalid)
    return tag("span", run.state, class_=f"state {'failed' if troubled else run.state.partition(' ')[0]}")


def short(name: str) -> str:
    """Return a name shortened to fit a cell."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"
