"""Values over time: the cases, one metric of a case over all runs, its baseline, and the alarms."""

from collections import Counter
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.requests import Request

from benchhouse.api.workspace import Workspace
from benchhouse.report.tags import Content, join, table, tag
from benchhouse.results.numbers import NONE, name_of, number, percent, quantity, titled
from benchhouse.schema.errors import BenchError
from benchhouse.serve.pages import actions, parts
from benchhouse.serve.pages.forms import ask, choice, field
from benchhouse.serve.pages.runs import short
from benchhouse.serve.pages.shell import WebPage, anchor, empty
from benchhouse.serve.verb_requests import words_of

if TYPE_CHECKING:
    from benchhouse.automation.alarms import AlarmState
    from benchhouse.results.history import Watched

_MOST_CASES = 500


def cases(workspace: Workspace, request: Request) -> WebPage:
    params = parts.form_fields(request, "q")
    search = ask(request, "/history", field("q", "Case", params["q"], kind="search"), button="Find")
    try:
        listed = workspace.cases()
    except BenchError as error:
        message, hint, _ = words_of(error, workspace)
        return WebPage("History", (empty(f"{message[:1].upper()}{message[1:]}.", hint), _alarms(workspace, request)))
    labels = Counter(case.case for case in listed)
    found = [case for case in listed if params["q"].lower() in f"{case.case} {case.experiment}".lower()]
    rows = []
    for case in found[:_MOST_CASES]:
        # A label that several cases share does not identify one of them.
        name = case.case if labels[case.case] == 1 else f"{case.case.partition('/')[0]}/{case.benchmark_case_id}"
        shown = anchor(request, short(case.case), f"/history/{name}")
        rows.append((shown, f"{case.experiment} {case.version}", str(case.runs)))
    more = len(found) - len(rows)
    return WebPage(
        "History",
        (
            _alarms(workspace, request),
            search,
            table(("case", "experiment", "runs"), rows, (2,), label="Cases") if rows else empty("No such case."),
            tag("p", f"{more:,} more: narrow it down.", class_="note") if more > 0 else None,
            _baselines(workspace),
        ),
    )


def one_case(workspace: Workspace, request: Request) -> WebPage:
    params = parts.form_fields(request, "metric", "stat")
    case = request.path_params["case"]
    watched = workspace.history(params["metric"] or None, case, stat=params["stat"] or None).watched
    past = watched.history
    from benchhouse.report.history_chart import history_chart

    chart = tag(
        "div", history_chart(watched), class_="drawing", tabindex=0, role="region", aria_label="Chart over runs"
    )
    return WebPage(
        f"{past.case.label}: {past.name}",
        (
            tag("p", f"{past.case.experiment} {past.case.version}", class_="kind"),
            tag(
                "p",
                *_verdict(watched),
                class_="verdict" + (" trouble" if watched.alarm and watched.alarm.worse else ""),
            ),
            _metrics(request, case, watched),
            tag("p", titled(past.name, past.unit), *([f", {past.direction} is better"] if past.direction else [])),
            chart,
            _decisions(request, case, watched),
            _changes(request, watched),
            _runs(request, watched),
            parts.notes([*past.notes, watched.note, watched.selftest]),
            tag("p", "In a terminal: ", tag("code", _command(watched)), class_="note"),
        ),
    )


def _verdict(watched: "Watched") -> list[str]:
    past, record, alarm = watched.history, watched.baseline, watched.alarm
    changed = f"{len(past.changes)} change{'' if len(past.changes) == 1 else 's'} of level" if past.changes else ""
    drifts = " ".join(f"{drift.sentence}." for drift in past.drifts)
    lead = f"{changed} in {len(past.runs)} runs." if changed else "" if drifts else "No change of level was found."
    words = [f"{lead} {drifts}".strip()]
    if record is None:
        return [*words, " No baseline is accepted."]
    why = f" ({short(record.why)})" if record.why else ""
    level = f" Baseline {quantity(record.level, record.unit)}, accepted {record.time[:10]} at {record.run_id}{why}: "
    if alarm is None:
        return [*words, level, "the level of now fits it."]
    word = {True: "WORSE", False: "better", None: "different"}[alarm.worse]
    return [*words, level, f"{word} by {percent(alarm.change)} since {watched.later[alarm.since].run_id}."]


def _decisions(request: Request, case: str, watched: "Watched") -> Content:
    """Return forms that accept the current level or remove the baseline, for callers who may."""
    past = watched.history
    given = {"case": case, "metric": past.metric, "stat": past.stat}
    why = field("why", "Why", maxlength=2000)
    accept = actions.form(request, "accept_baseline", "Accept the level of now", given, why)
    clear = actions.form(request, "clear_baseline", "Let no baseline count", given, why)
    return join(accept if watched.can_be_accepted else None, clear if watched.baseline else None)


def _metrics(request: Request, case: str, watched: "Watched") -> Markup:
    past = watched.history
    links = [
        tag("li", tag("b", name_of(metric, stat), aria_current="true"))
        if (metric, stat) == (past.metric, past.stat)
        else tag("li", anchor(request, name_of(metric, stat), f"/history/{case}", metric=metric, stat=stat))
        for metric, stat in past.recorded
    ]
    return tag("details", tag("summary", f"{len(links)} numbers of this case"), tag("ul", *links, class_="columns"))


def _changes(request: Request, watched: "Watched") -> Markup | None:
    past = watched.history
    if not past.changes:
        return None
    heads = (
        "first run after",
        "last run before",
        "before",
        "after",
        "change (95% interval)",
        "verdict",
        "also changed",
        "the two runs",
    )
    rows = []
    for change in past.changes:
        ends = f" ({percent(change.interval[0])} to {percent(change.interval[1])})" if change.interval else ""
        differs = "; ".join(
            f"{name}: {before or 'unknown'} → {after or 'unknown'}" for name, before, after in change.differs
        )
        rows.append((
            anchor(request, change.run_after, f"/runs/{change.run_after}"),
            anchor(request, change.run_before, f"/runs/{change.run_before}"),
            number(change.before), number(change.after), f"{percent(change.change)}{ends}",
            parts.verdict(change.verdict), differs or "nothing that is recorded",
            anchor(request, "compare", "/compare", a=change.run_before, b=change.run_after),
        ))  # fmt: skip
    return join(tag("h2", "Changes of level"), table(heads, rows, (2, 3, 4), label="Changes of level"))


def _runs(request: Request, watched: "Watched") -> Markup:
    past = watched.history
    rows = [
        (anchor(request, run.run_id, f"/runs/{run.run_id}"), run.started[:19], number(run.mean, run.stdev),
         number(run.stdev) if run.stdev is not None else NONE, str(run.n))
        for run in reversed(past.runs)
    ]  # fmt: skip
    listed = table(("run", "started", titled(past.name, past.unit), "stdev", "n"), rows, (2, 3, 4), label="Runs")
    return tag("details", tag("summary", f"The values of {len(past.runs)} runs"), listed)


def _command(watched: "Watched") -> str:
    from benchhouse.report.terminal.history import history_arguments

    past = watched.history
    return f"bench history {history_arguments(past.case.label, past.metric, past.stat)}"


def _baselines(workspace: Workspace) -> Markup | None:
    accepted = workspace.baselines.list()
    if not accepted:
        return None
    rows = [
        (f"{item.benchmark_case_id[:8]} {item.target_name}".strip(), name_of(item.metric, item.stat),
         quantity(item.level, item.unit), item.time[:10], item.by, item.why or item.rule)
        for item in accepted
    ]  # fmt: skip
    heads = ("case", "metric", "level", "accepted", "by", "why")
    return join(tag("h2", "Accepted baselines"), table(heads, rows, (2,), label="Accepted baselines"))


def _alarms(workspace: Workspace, request: Request) -> Content:
    """Show the state of each rule of alarms.yaml; None without that file."""
    if not workspace.folder.alarms.is_file():
        return None
    try:
        standing = workspace.alarms.list()
    except BenchError as error:
        message, hint, _ = words_of(error, workspace)
        return join(tag("h2", "Alarms"), tag("p", message, class_="bad"), tag("p", hint))
    rows = [
        (item.alarm, tag("span", item.state, class_="bad" if item.state == "firing" else None),
         anchor(request, item.case, f"/history/{item.case}", metric=item.metric, stat=item.stat) if item.case else "",
         item.sentence, _mute(request, item))
        for item in sorted(standing, key=lambda item: item.state != "firing")
    ]  # fmt: skip
    heads = ("alarm", "state", "case", "what it says", "muted")
    return join(tag("h2", "Alarms"), table(heads, rows, label="Alarms"))


def _mute(request: Request, alarm: "AlarmState") -> Markup:
    """Return the reason of a muted alarm and a form to unmute it, otherwise a form to mute it, for callers who may."""
    if alarm.muted:
        again = actions.form(request, "unmute_alarm", "Notify again", {"alarm": alarm.alarm})
        return join(tag("p", alarm.muted), again)
    why = field("why", "Why", maxlength=2000, required=True)
    spans = choice("for_s", "For", (("0", "as long as it takes"), ("1d", "a day"), ("7d", "a week")))
    return actions.form(request, "mute_alarm", "Mute", {"alarm": alarm.alarm}, why, spans)
