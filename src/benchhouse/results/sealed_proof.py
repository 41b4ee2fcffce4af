"""Whether the bytes of one trial folder are as sealed, and reproduce the numbers of the tables bit for bit."""

import csv
import json
import math
import struct
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from benchhouse.analysis.summary import summarise, summarise_histogram
from benchhouse.evidence import older
from benchhouse.evidence.verify import verify
from benchhouse.schema.csv_text import csv_cells, csv_values
from benchhouse.schema.histogram import Histogram
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.measurement import HistogramsFile

_name = itemgetter("metric", "stat", "scope", "window")


def same_bits(value: Any, other: Any) -> bool:
    return value is not None and struct.pack("<d", value) == struct.pack("<d", other)


def prove(
    workspace: WorkspaceFolder, row: Mapping[str, Any], measured: Sequence[Mapping[str, Any]], *, part: bool = False
) -> dict[str, Any]:
    """Re-hash one trial folder and find the lines of its metrics.csv with the measured values.

    `part`: files may be missing, except those with the values.
    """
    place = row["folder"]
    folder = TrialFolder(workspace.root / place)
    problems = [
        f"{place}/{damage.file}: {damage.kind}{': ' + damage.detail if damage.detail else ''}"
        for damage in verify(folder, row["artifact_manifest_digest"], part=part)
    ]
    proof: dict[str, Any] = {name: row[name] for name in ("trial_id", "folder", "artifact_manifest_digest")}
    proof |= {"problems": problems, "lines": [], "samples": [], "histograms": []}
    try:
        proof["lines"] = _metric_lines(folder, place, measured, problems)
        proof["samples"] = _sample_lines(folder, place, measured, problems)
        proof["histograms"] = _histograms(folder, place, measured, problems)
    except (OSError, ValueError, KeyError, csv.Error) as error:
        problems.append(f"{place}: {error!r}")
    return proof


def _metric_lines(
    folder: TrialFolder, place: str, measured: Sequence[Mapping[str, Any]], problems: list[str]
) -> list[dict[str, Any]]:
    if not measured:
        return []
    text = folder.metrics_csv.read_text(encoding="utf-8")
    listed = json.loads(folder.metrics.read_bytes())["benchhouse"]["measurements"]
    in_json = {_name(entry): (at, entry["value"]) for at, entry in enumerate(listed)}
    reader = csv.DictReader(text.splitlines(keepends=True))
    raw = text.splitlines()
    in_csv = {_name(entry): (reader.line_num, entry["value"]) for entry in map(csv_values, reader)}
    lines = []
    for number in measured:
        label = f"{number['metric']}.{number['stat']}"
        at, json_value = in_json.get(_name(number), (-1, None))
        line, csv_value = in_csv.get(_name(number), (0, ""))
        if json_value is None or not same_bits(float(json_value), number["value"]):
            problems.append(f"{place}/metrics.json: {label} is {json_value}, the tables have {number['value']!r}")
        if not csv_value or not same_bits(float(csv_value), number["value"]):
            written = csv_value or "missing"
            problems.append(f"{place}/metrics.csv: {label} is {written}, the tables have {number['value']!r}")
        where = {"file": f"{place}/metrics.csv", "line": line, "text": raw[line - 1] if line else ""}
        pointer = {"json": f"{place}/metrics.json#/benchhouse/measurements/{at}"}
        lines.append(where | {name: number[name] for name in ("metric", "stat", "value")} | pointer)
    return lines


def _sample_lines(
    folder: TrialFolder, place: str, measured: Sequence[Mapping[str, Any]], problems: list[str]
) -> list[dict[str, Any]]:
    """Return the lines of samples.csv with the samples of these metrics; each statistic is recomputed from them."""
    if not folder.samples.is_file():
        return []
    names = {(str(number["metric"]), str(number["window"])) for number in measured}
    wanted = {tuple(csv_cells(name)): name for name in names}
    samples: dict[tuple[str, str], list[tuple[int, float]]] = {}
    with folder.samples.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for sample in reader:
            if key := wanted.get((str(sample["metric"]), str(sample["window"]))):
                samples.setdefault(key, []).append((reader.line_num, float(sample["value"])))
    proofs = []
    for (metric, window), lines in sorted(samples.items()):
        stats = summarise([value for _, value in lines]).stats()
        recomputed, wrong = _again(stats, metric, window, measured)
        problems += [f"{place}/samples.csv: its samples do not give {metric}.{stat} of the tables" for stat in wrong]
        where = {"file": f"{place}/{folder.samples.name}", "metric": metric, "rows": len(lines)}
        proofs.append(where | {"first_line": lines[0][0], "last_line": lines[-1][0], "recomputed": recomputed})
    return proofs


def _histograms(
    folder: TrialFolder, place: str, measured: Sequence[Mapping[str, Any]], problems: list[str]
) -> list[dict[str, Any]]:
    """Return the entries of histograms.json behind these metrics; each statistic is recomputed from them."""
    if not folder.histograms.is_file():
        return []
    file = older.read(HistogramsFile, folder.histograms.read_bytes())
    wanted = {(number["metric"], number["window"]) for number in measured}
    proofs = []
    for at, entry in enumerate(file.histograms):
        if (entry.metric, entry.window) not in wanted:
            continue
        histogram = Histogram.from_json(entry.nanoseconds)
        stats = summarise_histogram(histogram, entry.unit).stats()
        recomputed, wrong = _again(stats, entry.metric, entry.window, measured)
        name = f"{place}/{folder.histograms.name}"
        problems += [f"{name}: its histogram does not give {entry.metric}.{stat} of the tables" for stat in wrong]
        where = {"file": name, "pointer": f"/histograms/{at}", "metric": entry.metric, "n": histogram.n}
        proofs.append(where | {"relative_error": entry.relative_error, "recomputed": recomputed})
    return proofs


def _again(
    stats: Mapping[str, float], metric: str, window: str, measured: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """Return the statistics of one metric and window that reproduce the tables' values, and those that do not."""
    own = [row for row in measured if (row["metric"], row["window"]) == (metric, window) and row["stat"] in stats]
    wrong = [row["stat"] for row in own if not same_bits(stats[row["stat"]], row["value"])]
    return [row["stat"] for row in own if row["stat"] not in wrong], wrong


def close(value: float | None, other: float | None) -> bool:
    """Whether two values are equal except for the last bits, which another build of a library may round differently."""
    if value is None or other is None:
        return value is other
    return math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12)
