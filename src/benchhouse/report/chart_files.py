"""The charts of a report as SVG files: the points in order by each leading metric, with their intervals."""

import re

from benchhouse.report.interval_chart import Bar, interval_chart
from benchhouse.results.content import Number, ReportData
from benchhouse.results.numbers import number, plural, titled

_MOST_BARS = 24
_MOST_CHARTS = 12
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9.]+")


def chart_files(data: ReportData) -> dict[str, str]:
    """File name to SVG text: one chart for each leading metric, or the first ones where none leads."""
    columns = [column for column in data.columns() if column.primary] or data.columns()
    charts: dict[str, str] = {}
    for column in columns[:_MOST_CHARTS]:
        name = _NOT_IN_A_NAME.sub("-", column.name).strip("-.") or "metric"
        while f"{name}.svg" in charts:  # the same metric in two units
            name += "-2"
        charts[f"{name}.svg"] = _chart(data, column)
    return charts


def _chart(data: ReportData, column: Number) -> str:
    present = [(point.label, found) for point in data.points if (found := point.number(column.column))]
    if column.direction:
        present.sort(key=lambda item: item[1].cell.value, reverse=column.direction == "higher")
    shown = present[:_MOST_BARS]
    bars = [
        Bar(label, found.cell.value, found.low, found.high, number(found.cell.value, found.stdev))
        for label, found in shown
    ]
    left_out = len(present) - len(shown)
    which = f"the {'best' if column.direction else 'first'} {len(shown)} of {plural(len(present), 'point')}"
    better = f"{column.direction} is better" if column.direction else ""
    notes = ", ".join(filter(None, [which if left_out else plural(len(present), "point"), better]))
    return interval_chart(
        f"{data.scenario}: {column.name} ({notes})", f"{titled(column.name, column.cell.unit)}, 95% interval", bars
    )
