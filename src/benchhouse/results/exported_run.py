"""A run in the form that exporters get: its valid numbers from the tables, and in words what is left out."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from benchhouse.results.invalid_trials import missing_number_reason
from benchhouse.results.numbers import plural
from benchhouse.results.run_points import PointValue, TriedPoint, points, tried_points
from benchhouse.results.trial_files import open_sealed
from benchhouse.schema.exported import ExportedPoint, ExportedRun, ExportedStatistic
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.version import __version__
from benchhouse.warehouse import queries
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.query import Warehouse

Row = Mapping[str, Any]


def gather(workspace: WorkspaceFolder, run_id: str) -> ExportedRun | None:
    """Return the run for exporters; None if no trial of it is in the tables."""
    values, tried = points(workspace, [run_id]), tried_points(workspace, [run_id])
    with Warehouse.open(workspace) as warehouse:
        trials = [row for row in queries.trials(warehouse, [run_id]).dicts() if not row["warmup"]]
    if not trials:
        return None
    rows = {row["trial_id"]: row for row in trials}
    names = _names(tried)
    twice = _ambiguous_names(values)
    good = [value for value in values if _is_finite(value) and _exported_name(value) not in twice]
    own = grouped(good, attrgetter("instance_digest"))
    ordered = [point.instance_digest for point in tried if point.instance_digest in own]
    exported = tuple(_point(workspace.root, names[digest], own[digest], rows) for digest in ordered)
    first = trials[0]
    return ExportedRun(
        run_id=run_id,
        scenario=first["scenario"],
        experiment=first["experiment"],
        experiment_version=first["experiment_version"],
        executor=", ".join(sorted({row["executor"] for row in trials})),
        hosts=tuple(sorted({row["host"] for row in trials if row["host"]})),
        git_commit=", ".join(sorted({row["git_commit"] for row in trials if row["git_commit"]})),
        benchhouse=__version__,
        points=exported,
        left_out=(
            *_left_out(values, tried, trials, names),
            *(f"{names[digest]}: {name} is two different numbers" for digest, name in sorted(twice)),
        ),
    )


def _names(tried: Sequence[TriedPoint]) -> dict[str, str]:
    """Return a name for each point: its label. Points with the same label also get their target's name, or their
    digest.
    """
    names = {point.instance_digest: point.label for point in tried}
    alike = grouped(tried, lambda point: names[point.instance_digest])
    for group in alike.values():
        if len(group) > 1:
            targets = {point.target_name for point in group}
            for point in group:
                own = point.target_name if len(targets) == len(group) else point.instance_digest[:8]
                names[point.instance_digest] += f" {own}"
    return names


def _is_finite(value: PointValue) -> bool:
    return all(map(math.isfinite, (value.mean, *value.values)))


def _exported_name(value: PointValue) -> tuple[str, str]:
    """Return a point's digest, and the exported name of one of its numbers."""
    return value.instance_digest, value.metric if value.stat == "value" else f"{value.metric}.{value.stat}"


def _ambiguous_names(values: Sequence[PointValue]) -> set[tuple[str, str]]:
    """Return names that would mean two numbers: one metric in two units, or both `a.p99` and the p99 of `a`."""
    return {told for told, count in Counter(map(_exported_name, values)).items() if count > 1}


def _point(root: Path, name: str, values: Sequence[PointValue], rows: Mapping[str, Row]) -> ExportedPoint:
    first = values[0]
    trials = [rows[trial] for trial in dict.fromkeys(trial for value in values for trial in value.trials)]
    files, lost = _files(root, trials)
    return ExportedPoint(
        name=name,
        target_name=first.target_name,
        target=json.loads(first.target),
        parameters=json.loads(first.parameters),
        instance_digest=first.instance_digest,
        benchmark_case_id=first.benchmark_case_id,
        started=_time(min(row["started"] for row in trials)),
        ended=_time(max(row["ended"] for row in trials)),
        figures=tuple(map(_figure, values)),
        files=files,
        lost_files=lost,
    )


def _time(text: str) -> datetime:
    """Return a time from the tables: UTC, with or without a time zone in the text."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _figure(value: PointValue) -> ExportedStatistic:
    return ExportedStatistic(
        metric=value.metric, stat=value.stat, unit=value.unit, direction=value.direction, mean=value.mean,
        stdev=value.stdev if value.n > 1 else None, interval=value.interval, values=tuple(value.values),
        trials=tuple(value.trials), headline=value.headline, shaky=value.shaky, ref=value.ref,
    )  # fmt: skip


def _files(root: Path, trials: Iterable[Row]) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Return the manifest and metrics of each trial if they are as sealed, and the others with the reason."""
    files, lost = dict[str, Path](), list[str]()
    for row in trials:
        try:
            sealed = open_sealed(root, row)
            sealed.content("metrics.json")
        except (OSError, KeyError, ValueError) as error:
            lost.append(f"files of trial {row['trial_id']}: {getattr(error, 'strerror', None) or error}")
            continue
        files |= {f"{row['trial_id']}/{path.name}": path for path in (sealed.folder.manifest, sealed.folder.metrics)}
    return files, tuple(lost)


def _left_out(
    values: Sequence[PointValue], tried: Sequence[TriedPoint], trials: Sequence[Row], names: Mapping[str, str]
) -> Iterator[str]:
    """Yield texts about what has no valid number: points, trials, and single numbers."""
    outcomes = grouped(trials, itemgetter("instance_digest"))
    succeeded = {point.instance_digest: point.succeeded for point in tried}
    for point in tried:
        name = names[point.instance_digest]
        if not point.succeeded:
            why = missing_number_reason(row["outcome"] for row in outcomes[point.instance_digest])
            yield f"{name}: {why} in all of {plural(point.trials, 'trial')}"
        elif point.succeeded < point.trials:
            missing = point.trials - point.succeeded
            yield f"{name}: {missing} of {plural(point.trials, 'trial')} INVALID or failed, not in its numbers"
    everywhere = [(what, names[point.instance_digest]) for point in tried for what in point.refused]
    refused = grouped(everywhere, itemgetter(0))
    for (metric, stat, _), group in refused.items():
        yield f"{metric}.{stat} is INVALID in every trial of {_some([name for _, name in group])}"
    partly = [value for value in values if value.n < succeeded[value.instance_digest]]
    for (metric, stat), own in grouped(partly, attrgetter("metric", "stat")).items():
        counts = [(value, succeeded[value.instance_digest]) for value in own]
        few = [f"{names[value.instance_digest]} ({value.n} of {of} trials)" for value, of in counts]
        yield f"{metric}.{stat} is not of every trial, some are INVALID or have none: {_some(few)}"
    for value in values:
        if not _is_finite(value):
            yield f"{names[value.instance_digest]}: {value.metric}.{value.stat} is not a finite number"


def _some(texts: Sequence[str], most: int = 3) -> str:
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
