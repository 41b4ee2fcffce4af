"""Comparison of two sides, which are runs or points of runs, at an address that can be shared."""

from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from benchhouse.api.answers import Comparison, CurveComparison, TargetComparison
from benchhouse.api.workspace import Workspace
from benchhouse.report.tags import Content, details, join, table, tag
from benchhouse.schema.errors import BenchError
from benchhouse.serve.pages import parts
from benchhouse.serve.pages.forms import ask, choice, field
from benchhouse.serve.pages.shell import WebPage, anchor, empty
from benchhouse.serve.verb_requests import words_of

_FIELDS = ("a", "b", "metric", "confidence", "outliers", "every", "at", "along", "of", "mde")
_MOST_LISTED = 100
_MOST_ROWS = 200
_HEADS = ("point", "metric", "A", "B", "change (interval)", "effect g", "p, corrected", "n", "verdict")


def compare(workspace: Workspace, request: Request) -> WebPage:
    params = parts.form_fields(request, *_FIELDS)
    content: list[Content] = [_form(workspace, request, params)]
    if not params["a"]:
        content.append(empty("Choose two sides: B is judged against A. With A alone, its targets stand side by side."))
        return WebPage("Compare", tuple(content))
    sides = [side for side in (params["a"], params["b"]) if side]
    try:
        answer = workspace.compare(*sides, **_options(params))
    except BenchError as error:
        message, hint, _ = words_of(error, workspace)
        content += [tag("p", message, class_="verdict trouble"), tag("p", hint, class_="hint")]
        return WebPage("Compare", tuple(content), 400)
    if isinstance(answer, Comparison):
        content += [*_two_sides(request, answer), _gate(workspace, params)]
    elif isinstance(answer, CurveComparison):
        content.append(_curves(answer))
    else:
        content.append(_beside(answer))
    return WebPage("Compare", tuple(content))


def _options(params: dict[str, str]) -> Any:
    """Return the keywords of `Workspace.compare` for the inputs of the form."""
    options: dict[str, Any] = {name: params[name] for name in ("at", "along", "of", "outliers") if params[name]}
    if params["metric"]:
        options["metrics"] = params["metric"].replace(",", " ").split()
    if params["every"]:
        options["every"] = True
    if params["confidence"]:
        options["confidence"] = _share(params["confidence"], "the confidence", "95%")
    return options


def _share(text: str, what: str, example: str) -> float:
    try:
        value = float(text.rstrip("% ")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1.0:
        raise BenchError(f"{what} is a share between 0 and 1, not {text!r}", f"such as {example}")
    return value


def _form(workspace: Workspace, request: Request, params: dict[str, str]) -> Markup:
    runs = [tag("option", value=run.id) for run in reversed(workspace.runs()[-_MOST_LISTED:])]
    more = details(
        "More",
        ": which numbers, how sure, at equal quality, along an axis",
        tag(
            "div",
            field("metric", "Metrics", params["metric"], placeholder="latency.p99 qps"),
            field("confidence", "Confidence", params["confidence"], placeholder="95%"),
            choice("outliers", "Outliers", (("", "keep"), ("mad", "leave out, by MAD")), params["outliers"]),
            choice("every", "Statistics", (("", "those that lead"), ("1", "every one")), params["every"]),
            field("at", "At equal quality", params["at"], placeholder="recall=0.95"),
            field("along", "Along", params["along"], placeholder="concurrency"),
            field("of", "Metric compared there", params["of"]),
            field("mde", "Smallest worsening that matters", params["mde"], placeholder="3%"),
            class_="bar",
        ),
        open=any(params[name] for name in _FIELDS[2:]),
    )
    return ask(
        request,
        "/compare",
        tag("datalist", *runs, id="runs"),
        field("a", "A, the base", params["a"], placeholder="@last-1, or RUN:key=value", list="runs"),
        field("b", "B", params["b"], placeholder="@last", list="runs"),
        more,
        button="Compare",
    )


def _two_sides(request: Request, answer: Comparison) -> list[Content]:
    from benchhouse.report.pull_request import by_weight, comparison_svg, verdict_sentence
    from benchhouse.report.terminal.comparison import comparison_cells, comparison_notes

    compared = answer.table
    rows = by_weight(compared.rows) if len(compared.rows) > _MOST_ROWS else compared.rows
    lines = []
    for row in rows[:_MOST_ROWS]:
        *cells, n = comparison_cells(row)
        sure = "–" if row.p_adjusted is None else f"{row.p_adjusted:.2g}"
        lines.append((*cells, sure, n, parts.verdict(row.verdict)))
    first = 0 if compared.several_points else 1
    numbers = [at - first for at in (2, 3, 5, 6, 7)]
    left = len(compared.rows) - len(lines)
    differences = [(item.dimension, item.a, item.b) for item in compared.differences]
    chart = Markup(comparison_svg(compared, inside=True))  # noqa: S704 - made of our own tags
    return [
        tag("p", f"B against A: {verdict_sentence(compared.rows)}", class_="verdict"),
        parts.facts([("A", _side(request, compared.a)), ("B", _side(request, compared.b))]),
        tag("div", chart, class_="drawing", tabindex=0, role="region", aria_label="Chart of the changes"),
        table(_HEADS[first:], [line[first:] for line in lines], numbers, label="B against A", row_head=1 - first),
        tag("p", f"{left:,} more rows: name metrics or points.", class_="note") if left > 0 else None,
        join(tag("h2", "What differs between them"), table(("what", "A", "B"), differences, label="What differs"))
        if differences
        else None,
        parts.notes(
            [line for line in comparison_notes(compared) if not line.startswith("differs: ")] + [answer.selftest]
        ),
    ]


def _side(request: Request, selector: str) -> Markup:
    run, colon, rest = selector.partition(":")
    return join(anchor(request, run, f"/runs/{run}"), f"{colon}{rest}")


def _gate(workspace: Workspace, params: dict[str, str]) -> Markup:
    """Show the result that `bench gate` would give. It is not recorded, because viewing is not a decision."""
    mde = _share(params["mde"] or "3%", "the smallest worsening that matters", "3%")
    try:
        gate = workspace.gate(params["a"], params["b"], record=False, mde=mde)
    except BenchError as error:
        message, hint, _ = words_of(error, workspace)
        return tag("section", tag("h2", "Gate"), tag("p", message), tag("p", hint, class_="note"))
    rows = [
        (item.row.point, item.row.name_marked, item.row.change_text, parts.verdict(item.ruling.judgement))
        for item in gate.rows
    ]
    needed = f" {gate.needed} repetitions a side would tell." if gate.needed else ""
    missing = f" Not judged: {', '.join(gate.missing)}." if gate.missing else ""
    return tag(
        "section",
        tag("h2", "Gate: ", parts.verdict(gate.judgement)),
        tag("p", f"Worse by {gate.mde:.2%} or more is what matters.{needed}{missing}", class_="small soft"),
        table(("point", "metric", "change (interval)", "judgement"), rows, label="Gate", row_head=1),
        tag("p", "In a pipeline: ", tag("code", f"bench gate {gate.table.a}..{gate.table.b} --mde {gate.mde:.2%}")),
        id="gate",
    )


def _curves(answer: CurveComparison) -> Markup:
    from benchhouse.report.comparison_sections import scaling_section, tradeoff_section
    from benchhouse.results.curves import Tradeoff

    curves = answer.curves
    return tradeoff_section(curves) if isinstance(curves, Tradeoff) else scaling_section([curves])


def _beside(answer: TargetComparison) -> Markup:
    from benchhouse.report.terminal.curves import incomparable_tables

    shown = []
    for item in incomparable_tables(answer.beside):
        title = f"{item.metric} at {item.case}" if item.case else item.metric
        numbers = [at for at, name in enumerate(item.columns) if name in ("place", item.metric, "n")]
        rows = [(*row[:-1], parts.verdict(row[-1])) for row in item.rows]
        shown += [tag("h2", title), table(item.columns, rows, numbers, label=title, row_head=1)]
    alone = answer.beside.alone
    alone_note = f"{alone} points have no other target that was put to the same test" if alone else ""
    return join(*shown, parts.notes([alone_note, *answer.beside.notes]))
