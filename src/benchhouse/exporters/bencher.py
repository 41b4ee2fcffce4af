"""Bencher Metric Format, the input of `bencher run --adapter json --file FILE`."""

import json

from benchhouse.schema.exported import DocumentExporter, ExportedDocument, ExportedRun, ExportedStatistic, Names

_LONGEST_BENCHMARK, _LONGEST_MEASURE = 1024, 64


def render(run: ExportedRun) -> ExportedDocument:
    figures = [figure for point in run.points for figure in point.figures if not figure.is_spread]
    benchmarks = Names.of(run.names(), str, _LONGEST_BENCHMARK)
    measures = Names.of(map(_measure, figures), str, _LONGEST_MEASURE)
    content = {
        benchmarks[name]: {
            measures[_measure(figure)]: _metric(figure) for figure in point.figures if not figure.is_spread
        }
        for name, point in zip(run.names(), run.points, strict=True)
    }
    return ExportedDocument(json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def _measure(figure: ExportedStatistic) -> str:
    """Return the name with its unit, because the format has no field for units (nor for directions)."""
    return figure.name if figure.unit == "1" else f"{figure.name} ({figure.unit})"


def _metric(figure: ExportedStatistic) -> dict[str, float]:
    if figure.interval is None:
        return {"value": figure.mean}
    return {"value": figure.mean, "lower_value": figure.interval[0], "upper_value": figure.interval[1]}


BENCHER = DocumentExporter("Bencher Metric Format: bencher run --adapter json", render)
