"""Every figure of a report as an SVG file, by its section."""

import re
from dataclasses import dataclass
from typing import Literal

from benchhouse.report.interval_chart import metric_charts
from benchhouse.report.load_section import drawn_points, seconds_chart
from benchhouse.report.machine_section import colours_of
from benchhouse.report.rank_section import chart_title as chart_title_of_ranks
from benchhouse.report.rank_section import rank_chart
from benchhouse.report.scaling_chart import chart_title, scaling_chart
from benchhouse.report.svg_file import svg_file
from benchhouse.report.time_chart import time_chart
from benchhouse.report.xy_chart import drift_chart, scatter_chart
from benchhouse.results.content import ReportData

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9.]+")
_LONGEST_NAME = 80
Section = Literal["charts", "scaling", "load", "ranks", "machine"]


@dataclass(frozen=True)
class FigureFile:
    """One figure: `of` is the axis, or the place of its point among those of the section."""

    section: Section
    title: str
    svg: str
    of: str = ""


def figure_files(data: ReportData) -> dict[str, FigureFile]:
    """Return the figures by file name, in the order of the page; names contain only letters, digits, dots, and
    dashes."""
    files: dict[str, FigureFile] = {}
    for stem, figure in _figures(data):
        name = _NOT_IN_A_NAME.sub("-", stem)[:_LONGEST_NAME].strip("-.") or "metric"
        number, free = 2, name
        while f"{free}.svg" in files:  # the same metric in two units, or long labels with the same beginning
            number, free = number + 1, f"{name}-{number}"
        files[f"{free}.svg"] = figure
    return files


def _figures(data: ReportData) -> list[tuple[str, FigureFile]]:
    figures = [(column, FigureFile("charts", title, svg)) for column, title, svg in metric_charts(data)]
    for name, chart in (("trade-off", scatter_chart(data)), ("drift", drift_chart(data))):
        if chart:
            file = svg_file(chart.drawing, f"{data.scenario}: {chart.title}", chart.keys)
            figures.append((name, FigureFile("charts", chart.title, file)))
    for scaling in data.scalings:
        title = chart_title(scaling)
        file = svg_file(scaling_chart(scaling), f"{data.scenario}: {title}")
        figures.append((f"scaling-{scaling.axis}", FigureFile("scaling", title, file, scaling.along)))
    for point, group in drawn_points(data.loads):
        title = f"{point}: answers a second"
        figures.append((f"load-{point}", FigureFile("load", title, svg_file(seconds_chart(group), title))))
    for ranks in data.ranks:
        title = chart_title_of_ranks(ranks)
        figures.append((f"ranks-{ranks.point}", FigureFile("ranks", title, svg_file(rank_chart(ranks), title))))
    for at, item in enumerate(data.machines):
        colours = colours_of(item)
        for panel in item.panels:
            title = f"{item.point}: {panel.title}"
            keys = {line.label: colours[line.label] for line in panel.lines}
            file = svg_file(time_chart(panel, item.phases, item.duration_s, colours), title, keys)
            figures.append((f"machine-{item.point}-{panel.title}", FigureFile("machine", title, file, str(at))))
    return figures
