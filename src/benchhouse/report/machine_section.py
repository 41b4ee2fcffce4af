"""The section about the machine and the servers: charts over one trial of each point, and values by phase."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from benchhouse.report.tags import join, tag
from benchhouse.report.time_chart import phase_words, scaled, time_chart
from benchhouse.results.machine import MOST_SAMPLES, MachineFacts, PhaseSummary
from benchhouse.results.numbers import NONE, duration, number, plural, quantity, titled

HEADS = ("what", "phase", "avg", "p95", "max", "n")
_HOW = (
    "One trial of each point as the monitors saw it: the median one by duration. Bands are its phases. CPU is the "
    "growth of a counter between two samples, drawn at the middle of them; trial is all below the worker, and so "
    "holds the servers that were started for it."
)
_THINNED = f"Lines of more than {MOST_SAMPLES} samples show the least and the greatest of each bucket."
_FAILED = "Trials that did not succeed come last, one of each kind at each point; no number is made of them."
_FEW = "~ marks a percentile from too few samples."
_OPEN = 3  # points whose charts are open at first
_SHORT = 12


def machine_section(machines: Sequence[MachineFacts], points: int) -> Markup:
    """Return the section. `points` is the number of points in the report; those without telemetry are only counted."""
    left_out = points_left_out(machines, points)
    return join(
        tag("p", how_to_read(machines), class_="small soft"),
        *(_machine(item, shown=at < _OPEN) for at, item in enumerate(machines)),
        tag("p", left_out, class_="note") if left_out else None,
    )


def how_to_read(machines: Sequence[MachineFacts]) -> str:
    """Return the explanations of the charts and tables that apply."""
    thin = any(line.samples > MOST_SAMPLES for item in machines for line in item.lines)
    few = any(figure.few for item in machines for figure in item.figures)
    failed = any(item.trouble for item in machines)
    notes = ((_HOW, True), (_FAILED, failed), (_THINNED, thin), (_FEW, few))
    return " ".join(note for note, applies in notes if applies)


def points_left_out(machines: Sequence[MachineFacts], points: int) -> str:
    without = points - sum(not item.trouble for item in machines)
    return (
        f"{plural(without, 'more point')} not shown; what there is, is in telemetry/ of their trials."
        if without > 0
        else ""
    )


def _machine(item: MachineFacts, *, shown: bool) -> Markup:
    colours = colours_of(item)
    keys = [
        tag("span", tag("i", class_=colour[6:8]), label, class_="key")  # var(--c0): .c0 of the style sheet
        for label, colour in colours.items()
    ]
    figures = [
        tag(
            "figure",
            tag("figcaption", panel.title),
            tag("div", time_chart(panel, item.phases, item.duration_s, colours), class_="plot seconds"),
        )
        for panel in item.panels
    ]
    trouble = [tag("b", item.trouble, class_="bad"), " "] if item.trouble else []
    return tag(
        "details",
        tag("summary", tag("b", item.point), " ", *trouble, circumstances(item)),
        tag("p", tag("b", item.abnormal, class_="bad")) if item.abnormal else None,
        tag("div", *keys, class_="legend"),
        tag("div", *figures, class_="charts thirds"),
        _table(item),
        _source(item),
        class_="machine",
        open=shown,
    )


def circumstances(item: MachineFacts) -> str:
    """Return a text such as `12.0 s, a sample every 1 s, 240 J`."""
    energy = f", {quantity(item.energy_j, 'J')}" if item.energy_j is not None else ""
    return f"{duration(item.duration_s)}, a sample every {number(item.interval_s)} s{energy}"


def colours_of(item: MachineFacts) -> dict[str, str]:
    """Return the color of each line: gray for the node, all others in the order of their appearance."""
    labels = list(dict.fromkeys(line.label for line in item.lines))
    others = [label for label in labels if label != "node"]
    return {label: "var(--c7)" if label == "node" else f"var(--c{others.index(label) % 7})" for label in labels}


def source_files(item: MachineFacts) -> tuple[str, str]:
    """Return the files of the lines, and of the values, each with the beginning of its sha256."""
    files = {line.file: line.sha256 for line in item.lines}
    lines = ", ".join(f"{file} {digest[:_SHORT]}" for file, digest in files.items())
    return lines, f"telemetry/summary.json {item.summary_sha256[:_SHORT]}"


def ticks_missed(item: MachineFacts) -> str:
    return f" {plural(item.ticks_missed, 'sample')} could not be taken in time." if item.ticks_missed else ""


def _source(item: MachineFacts) -> Markup:
    lines, figures = source_files(item)
    return tag(
        "p",
        f"Repetition {item.repetition}, {item.chosen}. Lines from ",
        tag("code", lines),
        ", figures from ",
        tag("code", figures),
        " (file and sha256) in ",
        tag("code", item.folder),
        f".{ticks_missed(item)}{clock_words(item)}",
        class_="note",
    )


def clock_words(item: MachineFacts) -> str:
    """Return the clock differences with a leading space; empty for a trial of one node."""
    return f" Time of day beside the experiment's node: {', '.join(item.clocks)}." if item.clocks else ""


def _table(item: MachineFacts) -> Markup:
    """Return a table with a row per quantity and the phases side by side."""
    phases = list(dict.fromkeys(figure.phase for figure in item.figures))
    by_row: dict[str, dict[str, PhaseSummary]] = {}
    for figure in item.figures:
        by_row.setdefault(figure.label, {})[figure.phase] = figure
    rows = []
    for label, figures in by_row.items():
        factor, unit = scaled(next(iter(figures.values())).unit, _greatest(figures.values()))
        cells = [cell for phase in phases for cell in _cells(figures.get(phase), factor)]
        rows.append(tag("tr", tag("th", titled(label, unit), scope="row"), *cells))
    names = [tag("th", phase_words(phase), scope="colgroup", colspan=3) for phase in phases]
    stats = [tag("th", stat, scope="col", class_="n") for _ in phases for stat in ("avg", "p95", "max")]
    head = tag("thead", tag("tr", tag("th"), *names), tag("tr", tag("th", "what", scope="col"), *stats))
    return tag("div", tag("table", head, tag("tbody", *rows)), class_="scroll fit by-phase")


def _cells(figure: PhaseSummary | None, factor: float) -> list[Markup]:
    if figure is None:
        return [tag("td", NONE, class_="n")] * 3
    mark = tag("span", "~", class_="shaky", title=figure.few) if figure.few and figure.p95 is not None else None
    avg, p95, most = _texts(figure, factor)
    return [tag("td", avg, class_="n"), tag("td", mark, p95, class_="n"), tag("td", most, class_="n")]


def _texts(figure: PhaseSummary, factor: float) -> tuple[str, str, str]:
    values = (figure.avg, figure.p95, figure.max)
    avg, p95, most = (NONE if value is None else number(value / factor) for value in values)
    return avg, p95, most


def _greatest(figures: Iterable[PhaseSummary]) -> float:
    return max(figure.max if figure.max is not None else figure.avg for figure in figures)


def figure_rows(item: MachineFacts) -> list[list[str]]:
    """Return the cells under HEADS, as text; marked values begin with `~`."""
    rows = []
    for figure in item.figures:
        same = [other for other in item.figures if other.label == figure.label]
        factor, unit = scaled(figure.unit, _greatest(same))
        avg, p95, most = _texts(figure, factor)
        mark = "~" if figure.few and figure.p95 is not None else ""
        rows.append([titled(figure.label, unit), phase_words(figure.phase), avg, mark + p95, most, number(figure.n)])
    return rows
