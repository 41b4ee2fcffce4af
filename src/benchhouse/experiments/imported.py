"""Experiment `imported`: results of another tool, as its importer read them. Nothing is run."""

import os
import shutil
from pathlib import Path
from typing import Any

from pydantic import Field

from benchhouse.analysis.summary import QUANTILE, summarise
from benchhouse.schema.experiment import Context, experiment
from benchhouse.schema.imported import ImportedReading, ReadCase, ReadSeries, Setting
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.layout import ImportFolder
from benchhouse.schema.model import Model

_SAME = 1e-9  # relative difference that other orders of summation and other units can cause


class ImportedWorkload(Model):
    """A case of an imported file."""

    reading: InputPath = Field("reading.json", description="What `bench import` read from the file.")
    settings: dict[str, Setting] = Field(
        default_factory=dict, description="What tells the cases of a target apart, as the tool calls it."
    )


@experiment("imported", version="1.0", component="imported")
def imported(target: Any, workload: ImportedWorkload, ctx: Context) -> None:
    """What another tool measured: its raw samples by our statistics, its own figures beside them."""
    folder = ImportFolder(Path(workload.reading).parent)
    reading = ImportedReading.model_validate_json(folder.reading.read_bytes())
    case = _find(reading, {"name": target} if isinstance(target, str) else dict(target), workload.settings, ctx)
    tool = f"{reading.tool} {reading.tool_version or ''}".strip()
    figures = [row for series in case.series for row in _emit(series, folder, reading.tool, ctx)]
    ctx.metadata(
        imported={
            "kind": reading.kind,
            "tool": reading.tool,
            "tool_version": reading.tool_version,
            "measured_at": reading.measured_at,
            "measured_on": reading.measured_on,
            "file": {"name": reading.file, "sha256": reading.sha256, "bytes": reading.size},
            "definitions": {series.metric.name: series.metric.formula for series in case.series},
            "percentiles": QUANTILE,
            "figures": figures,
            "missing": case.missing,
        },
        **case.facts,
    )
    when, where = reading.measured_at or "at a time", reading.measured_on or "a machine"
    unknown = "" if reading.measured_at and reading.measured_on else " that the file does not tell"
    ctx.warn("imported", f"measured by {tool}, {when} on {where}{unknown}; host and times here are those of the import")
    for code, message in case.doubts:
        ctx.warn(code, message)
    if not (folder.original / reading.file).is_file():
        ctx.fail("no_original", f"{folder.original / reading.file} is gone: bench import it again")
    for original in sorted(folder.original.iterdir()):
        _keep(original, ctx.artifacts / original.name)


def _find(reading: ImportedReading, target: dict[str, Setting], settings: dict[str, Setting], ctx: Context) -> ReadCase:
    given = {name: value for name, value in settings.items() if value is not None}
    for case in reading.cases:
        own = {name: value for name, value in case.settings.items() if value is not None}
        if case.target == target and own == given:
            break
    else:
        ctx.fail("no_such_case", f"{reading.file} has no case {target.get('name')} with {given}")
    return case


def _emit(series: ReadSeries, folder: ImportFolder, tool: str, ctx: Context) -> list[dict[str, Any]]:
    """Emit the values of a series, and return the tool's own statistics next to ours."""
    metric, values = series.metric, series.values(folder.samples)
    ctx.declare(metric)
    ctx.emit_all(metric.name, values)
    if not series.told:
        return []
    ours = summarise(values).stats()
    rows = []
    for figure in series.told:
        mine = ours.get(figure.stat)
        row = {"metric": metric.name, "stat": figure.stat, "unit": metric.unit, "ours": mine}
        rows.append(row | {"tool": tool, "theirs": figure.value, "because": figure.because})
        if mine is not None and not figure.because and abs(mine - figure.value) > _SAME * max(abs(mine), 1e-300):
            ctx.warn(
                "tool_differs",
                f"{metric.name} {figure.stat}: {tool} says {figure.value:g} {metric.unit}, its samples give {mine:g}, "
                "and no known difference of definitions explains that",
            )
    return rows


def _keep(original: Path, place: Path) -> None:
    """Save the file as evidence, as a hard link if possible."""
    try:
        os.link(original, place)
    except OSError:
        shutil.copyfile(original, place)
