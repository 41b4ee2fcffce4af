"""github-action-benchmark: JSON for its tools customBiggerIsBetter and customSmallerIsBetter, one file each."""

import json
from pathlib import Path

from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Direction
from benchhouse.schema.exported import ExportedRun, FolderExporter

FILES: dict[Direction, str] = {"higher": "customBiggerIsBetter.json", "lower": "customSmallerIsBetter.json"}
"""File names, which are the values of the action's input `tool`."""


def write(run: ExportedRun, folder: Path) -> list[str]:
    entries: dict[Direction, list[dict[str, object]]] = {"higher": [], "lower": []}
    undirected = []
    for benchmark, point in zip(run.names(), run.points, strict=True):
        for figure in point.figures:
            if figure.is_spread:
                continue
            if figure.direction is None:
                undirected.append(figure.name)
                continue
            spread = {"range": f"±{figure.stdev:.6g}"} if figure.stdev is not None else {}
            entries[figure.direction].append(
                {"name": f"{benchmark} {figure.name}", "unit": figure.unit, "value": figure.mean}
                | spread
                | {"extra": f"{figure.words()}\nbench trace {figure.ref}"}
            )
    if not any(entries.values()):
        raise BenchError(
            f"run {run.run_id}: no number of it has a direction, and github-action-benchmark knows nothing else",
            "declare it with the metric, or export in another format: bench list exporters",
        )
    for direction, own in entries.items():
        if own:  # the action fails on an empty file
            text = json.dumps(own, ensure_ascii=False, allow_nan=False, indent=1)
            (folder / FILES[direction]).write_text(f"{text}\n", encoding="utf-8")
    names = ", ".join(dict.fromkeys(undirected))
    return [f"{names}: neither higher nor lower is better, and the action knows nothing else"] if names else []


GITHUB_ACTION_BENCHMARK = FolderExporter("github-action-benchmark: a JSON file for each of its custom tools", write)
