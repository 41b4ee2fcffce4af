"""Whether the bytes of one trial folder are as sealed, and give the numbers of the tables again, bit for bit."""

import csv
import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from benchhouse.analysis.summary import summarise, summarise_histogram
from benchhouse.evidence import older
from benchhouse.evidence.verify import verify
from benchhouse.schema.histogram import Histogram
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.measurement import HistogramsFile


def same_bits(one: Any, other: Any) -> bool:
    return one is not None and struct.pack("<d", one) == struct.pack("<d", other)


def prove(
    workspace: WorkspaceFolder, row: Mapping[str, Any], measured: Sequence[Mapping[str, Any]], *, part: bool = False
) -> dict[str, Any]:
    """Re-hash one trial folder and find the lines of its metrics.csv that hold the measured values.

    `part`: files may be missing; those that hold the values may not.
    """
    place = row["folder"]
    folder = TrialFolder(workspace.root / place)
    problems = [
        f"{place}/{one.file}: {one.kind}{': ' + one.detail if one.detail else ''}"
        for one in verify(folder, row["artifact_manifest_digest"], part=part)
    ]
    lines: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    histograms: list[dict[str, Any]] = []
    try:
        lines = _metric_lines(folder, place, measured, problems)
        samples = _sample_lines(folder, place, measured, problems)
        histograms = _histograms(folder, place, measured, problems)
    except (OSError, ValueError, KeyError, csv.Error) as error:
        problems.append(f"{place}: {error!r}")
    return {
        "trial_id": row["trial_id"],
        "folder": place,
        "artifact_manifest_digest": row["artifact_manifest_digest"],
        "problems": problems,
        "lines": lines,
        "samples": samples,
        "histograms": histograms,
    }


def _metric_lines(
    folder: TrialFolder, place: str, measured: Sequence[Mapping[str, Any]], problems: list[str]
) -> list[dict[str, Any]]:
    if not measured:
        return []
    text = folder.metrics_csv.read_text(encoding="utf-8")
    listed = json.loads(folder.metrics.read_bytes())["benchhouse"]["measurements"]
    in_json = {_name(one): (at, one["value"]) for at, one in enumerate(listed)}
    in_csv: dict[tuple[str, str, str, str], tuple[int, str]] = {}
    reader = csv.DictReader(text.splitlines(keepends=True))
    raw = text.splitlines()
    for one in reader:
        in_csv[_name(one)] = (reader.line_num, one["value"])
    lines = []
    for number in measured:
        label = f"{number['metric']}.{number['stat']}"
        at, json_value = in_json.get(_name(number), (-1, None))
        line, csv_value = in_csv.get(_name(number), (0, ""))
        if json_value is None or not same_bits(float(json_value), number["value"]):
            problems.append(f"{place}/metrics.json: {label} is {json_value}, the tables have {number['value']!r}")
        if not csv_value or not same_bits(float(csv_value), number["value"]):
            problems.append(
                f"{place}/metrics.csv: {label} is {csv_value or 'missing'}, the tables have {number['value']!r}"
            )
        lines.append(
            {
                "file": f"{place}/metrics.csv",
                "line": line,
                "text": raw[line - 1] if line else "",
                "metric": number["metric"],
                "stat": number["stat"],
                "value": number["value"],
                "json": f"{place}/metrics.json#/benchhouse/measurements/{at}",
            }
        )
    return lines


def _sample_lines(
    folder: TrialFolder, place: str, measured: Sequence[Mapping[str, Any]], problems: list[str]
) -> list[dict[str, Any]]:
    """Which lines of samples.csv hold the samples of these metrics; each statistic is computed from them again."""
    if not folder.samples.is_file():
        return []
    wanted = {(one["metric"], one["window"]) for one in measured}
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    with folder.samples.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for one in reader:
            key = (str(one["metric"]), str(one["window"]))
            if key in wanted:
                found.setdefault(key, []).append((reader.line_num, float(one["value"])))
    told = []
    for (metric, window), lines in sorted(found.items()):
        stats = summarise([value for _, value in lines]).stats()
        recomputed, wrong = _again(stats, metric, window, measured)
        problems += [f"{place}/samples.csv: its samples do not give {metric}.{stat} of the tables" for stat in wrong]
        told.append(
            {
                "file": f"{place}/{folder.samples.name}",
                "metric": metric,
                "rows": len(lines),
                "first_line": lines[0][0],
                "last_line": lines[-1][0],
                "recomputed": recomputed,
            }
        )
    return told


def _histograms(
    folder: TrialFolder, place: str, measured: Sequence[Mapping[str, Any]], problems: list[str]
) -> list[dict[str, Any]]:
    """Which entries of histograms.json stand behind these metrics; each statistic is computed from them again."""
    if not folder.histograms.is_file():
        return []
    file = older.read(HistogramsFile, folder.histograms.read_bytes())
    wanted = {(one["metric"], one["window"]) for one in measured}
    told = []
    for at, entry in enumerate(file.histograms):
        if (entry.metric, entry.window) not in wanted:
            continue
        histogram = Histogram.from_json(entry.nanoseconds)
        stats = summarise_histogram(histogram, entry.unit).stats()
        recomputed, wrong = _again(stats, entry.metric, entry.window, measured)
        name = f"{place}/{folder.histograms.name}"
        problems += [f"{name}: its histogram does not give {entry.metric}.{stat} of the tables" for stat in wrong]
        told.append(
            {
                "file": name,
                "pointer": f"/histograms/{at}",
                "metric": entry.metric,
                "n": histogram.n,
                "relative_error": entry.relative_error,
                "recomputed": recomputed,
            }
        )
    return told


def _again(
    stats: Mapping[str, float], metric: str, window: str, measured: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """The statistics of one metric and window that come out again as the tables have them, and those that do not."""
    known = [one for one in measured if (one["metric"], one["window"]) == (metric, window) and one["stat"] in stats]
    wrong = [one["stat"] for one in known if not same_bits(stats[one["stat"]], one["value"])]
    return [one["stat"] for one in known if one["stat"] not in wrong], wrong


def _name(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return row["metric"], row["stat"], row["scope"], row["window"]


def close(one: float | None, other: float | None) -> bool:
    """Equal but for the last bits, which another build of a library may round otherwise."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
