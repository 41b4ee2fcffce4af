"""One run: its state, updated while it runs, and everything in its report."""

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from benchhouse.api.run import Run
from benchhouse.api.workspace import Workspace
from benchhouse.report import html
from benchhouse.report.evidence_sections import when
from benchhouse.report.payload import payload
from benchhouse.report.tags import Content, join, table, tag
from benchhouse.results.content import Point, PointNumber, ReportData
from benchhouse.results.numbers import duration, number, plural
from benchhouse.runs.status import RunStatus
from benchhouse.schema.errors import BenchError
from benchhouse.schema.trial import outcome_words
from benchhouse.serve.pages import actions
from benchhouse.serve.pages.runs import state_of
from benchhouse.serve.pages.shell import WebPage, anchor, link, relative
from benchhouse.serve.verb_requests import words_of

_MOST_FAILURES = 20
_MOST_NUMBERS = 1000  # of all statistics; beyond this, only the leading ones are shown at first
_MOST_POINTS, _MOST_COLUMNS = 200, 8  # in the table that works without JavaScript
_UNDER_WAY = ("running", "waiting")


def one_run(workspace: Workspace, request: Request) -> WebPage:
    """Show the report of the run below its state."""
    run = workspace[request.path_params["run"]]
    status = run.status()
    made_here, under_way = status.state != "pulled", status.state in _UNDER_WAY
    rooms = tag("p", *_rooms(request, run.id, made_here=made_here), class_="rooms")
    head: list[Content] = [rooms, live_part(request, status), _actions(request, status)]
    if under_way and "so_far" not in request.query_params:
        so_far = anchor(request, "Show the numbers so far", f"/runs/{run.id}", so_far="yes")
        note = tag("p", "Charts and numbers come when the run is over. ", so_far)
        title = status.scenario
        return WebPage(title, (*head, note), top=_top(title, run.id), scripts=("live.js",))
    try:
        data = _data(run, made_here=made_here, every="every" in request.query_params)
    except BenchError as error:  # its values are not available, for example while they are collected
        title, (message, hint, _) = status.scenario, words_of(error, workspace)
        part = live_part(request, status, settles=status.state == "finished")
        said = (tag("p", message, class_="verdict trouble"), tag("p", hint))
        return WebPage(
            title, (rooms, part, _actions(request, status), *said), top=_top(title, run.id), scripts=("live.js",)
        )
    links, sections = html.body(data, _silent(request, data))
    served = {"trace": link(request, "/trace") + "?ref=", "evidence": link(request, f"/runs/{run.id}/evidence/")}
    script_data = html.data_for_script(payload(data) | {"served": served})
    more = plural(data.statistics_left_out, "further statistic")
    every = anchor(request, f"Show {more} of each point", f"/runs/{run.id}", every="yes")
    left_out = tag("p", every, class_="small soft") if data.statistics_left_out else None
    content = (*head, left_out, links, relative(sections, workspace), relative(script_data, workspace))
    return WebPage(data.scenario, content, top=html.top(data), scripts=("report.js", "live.js"))


def live(workspace: Workspace, request: Request) -> Response:
    """Return only the part of the page that changes during a run."""
    return HTMLResponse(live_part(request, workspace[request.path_params["run"]].status()))


def report_script(request: Request) -> Response:
    """Return the script of reports as a file."""
    return PlainTextResponse(html.script(), media_type="text/javascript", headers={"Cache-Control": "no-cache"})


def _data(run: Run, *, made_here: bool, every: bool) -> ReportData:
    if made_here:
        run.workspace.collected(run.id)
    return run.report_data(most_numbers=None if every else _MOST_NUMBERS)


def _rooms(request: Request, run_id: str, *, made_here: bool) -> list[Content]:
    logs = [("Logs", f"/runs/{run_id}/logs")] if made_here else []  # logs of a pulled run are in the evidence
    rooms = (*logs, ("Evidence", f"/runs/{run_id}/evidence"))
    links = [join(anchor(request, title, path), " · ") for title, path in rooms]
    return [*links, anchor(request, "Compare", "/compare", b=run_id)]


def _actions(request: Request, status: RunStatus) -> Markup | None:
    """Return what the caller may do with the run now; None if nothing."""
    if status.state not in (*_UNDER_WAY, "interrupted"):
        return None
    verb, label = ("resume", "Resume this run") if status.state == "interrupted" else ("stop", "Stop this run")
    return actions.form(request, verb, label, {"run": status.run_id}, then=f"/runs/{status.run_id}")


def _top(title: str, run_id: str) -> Markup:
    return tag("header", tag("h1", title), tag("p", f"Run {run_id}", class_="kind"), class_="top")


def live_part(request: Request, status: RunStatus, *, settles: bool = False) -> Markup:
    """Return the state of a run. During the run, the script of the page fetches this part again with every event; if it
    only `settles`, the script fetches it after a while, and then the whole page."""
    under_way = status.state in _UNDER_WAY
    words = ", ".join(f"{number(count)} {outcome_words(state)}" for state, count in status.states.items())
    left = f", about {duration(status.estimated_left_s)} left" if status.estimated_left_s and under_way else ""
    progress = tag(
        "progress",
        f"{status.done} of {status.trials}",
        value=status.done,
        max=max(status.trials, 1),
        aria_label="Trials",
    )
    facts = [
        ("State", state_of(status)),
        ("Trials", f"{number(status.done)} of {number(status.trials)}{left}"),
        ("Of them", words),
        ("Now", ", ".join(status.running_points)),
        ("Waits for", "; ".join(status.queue.reasons) if status.queue else ""),
        ("Servers", ", ".join(f"{item.name} {item.phase}" for item in status.services)),
        ("Ended early", status.stopped),
        ("Started", when(status.created)),
        ("Next", tag("code", status.next) if status.next else ""),
    ]
    pairs = [part for name, value in facts if value for part in (tag("dt", name), tag("dd", value))]
    reload = tag("p", tag("a", "Reload", href=link(request, f"/runs/{status.run_id}")), class_="reload")
    return tag(
        "section",
        tag("h2", "Status"),
        progress if under_way or status.done < status.trials else None,
        tag("dl", *pairs, class_="pairs"),
        _failures(request, status),
        reload if under_way else None,
        id="live",
        aria_live="polite" if under_way else None,
        data_part=link(request, f"/runs/{status.run_id}/live") if under_way or settles else None,
        data_events=link(request, f"/api/runs/{status.run_id}/events") if under_way else None,
        class_="status",
    )


def _failures(request: Request, status: RunStatus) -> Markup | None:
    trials = [*status.failures, *status.invalid]
    if not trials:
        return None
    at = f"/runs/{status.run_id}/evidence/"
    rows = [
        (anchor(request, trial.trial_id, at + trial.trial_id), outcome_words(trial.outcome), trial.code, trial.reason)
        for trial in trials[:_MOST_FAILURES]
    ]
    more = len(trials) - len(rows)
    left_out = tag("p", f"and {plural(more, 'more trial')}") if more > 0 else None
    heads = ("trial", "outcome", "code", "reason")
    return join(tag("h3", "Trials without a number"), table(heads, rows, label="Trials without a number"), left_out)


def _silent(request: Request, data: ReportData) -> Markup:
    """Return the values as a table for browsers without JavaScript; each is a link to its lineage."""
    known = data.columns()
    columns = ([column for column in known if column.primary] or known)[:_MOST_COLUMNS]
    rows = [
        (point.label, *(_cell(request, point, point.number(column.column)) for column in columns))
        for point in data.points[:_MOST_POINTS]
    ]
    heads = ("point", *(f"{column.name} ({column.cell.unit})" for column in columns))
    more = (plural(len(data.points) - len(rows), "more point"), plural(len(known) - len(columns), "more number"))
    words = " and ".join(words for words in more if not words.startswith("0 "))
    left_out = tag("p", f"and {words}: bench show {data.runs[0].run_id}") if words else None
    return join(table(heads, rows, right=range(1, len(heads)), label="Numbers of the points"), left_out)


def _cell(request: Request, point: Point, item: PointNumber | None) -> str:
    if item is None:
        return "–"
    ref = f"{point.run_id}:instance={point.instance_digest}:{item.metric}.{item.stat}"
    spread = f" ± {number(item.stdev)}" if item.stdev else ""
    return join(anchor(request, number(item.cell.value, item.stdev), "/trace", ref=ref), f"{spread} (n {item.cell.n})")
