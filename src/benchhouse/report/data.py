"""ReportData from tables and evidence."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from operator import itemgetter
from typing import Any

from pydantic import ValidationError

from benchhouse.analysis.axis_spread import axis_spreads, spread
from benchhouse.evidence.folder import read_meta
from benchhouse.report.payload import axis_values, varying_axes
from benchhouse.results import early_stopping, scaling, series, tradeoff
from benchhouse.results.content import (
    AxisSpreadFacts,
    FailureFacts,
    Point,
    PointNumber,
    ReportData,
    RunFacts,
    SpreadFacts,
    TrialFacts,
    WarningGroup,
)
from benchhouse.results.curves import Tradeoff
from benchhouse.results.environment import environment
from benchhouse.results.invalid_trials import invalid_rows, retried
from benchhouse.results.load_certificates import gather_loads
from benchhouse.results.machine import gather_failed, gather_machine
from benchhouse.results.metric_names import declared_order, declared_roles
from benchhouse.results.numbers import headline_stats
from benchhouse.results.points import labeller, make_points, name_runs, without_number
from benchhouse.results.rankings import leading_columns, make_headline, make_rankings, several_tests, side_by_side
from benchhouse.results.ranks import gather_ranks
from benchhouse.results.run_conditions import differing_packages
from benchhouse.results.series import members_of_points
from benchhouse.results.table_cells import make_cells
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.trial import MEASURED, Meta
from benchhouse.warehouse import queries
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.query import Warehouse

Row = Mapping[str, Any]
Rerun = Callable[[str, TrialFolder], str]  # the command that runs a trial again, from its run and its folder
_MESSAGES_PER_WARNING = 3
_LOG_TAILS = 100
_LONGEST_TITLE = 100  # limit on the characters of a folder's name
LARGE = 250
"""The number of points above which a report shows leaders and spread instead of curves, and keeps leading
statistics."""
_MOST_METRICS = 3
_MOST_TESTS = 3


def rerun_line(run_id: str, folder: TrialFolder) -> str:
    """Return the command that runs the failed and invalid trials of a run again, including this one."""
    return f"bench run --resume {run_id} --rerun-failed"


def gather(
    workspace: WorkspaceFolder,
    run_ids: Sequence[str],
    *,
    rerun: Rerun = rerun_line,
    asked: Tradeoff | None = None,
    published: bool = True,
    most_numbers: int | None = None,
) -> ReportData:
    """Read the numbers of these runs from the warehouse, and their circumstances from sealed trial folders.

    `asked` is a requested trade-off; by default there is one if the run is a sweep. `published`: the report is written
    where `bench trace` finds its refs. Above `most_numbers`, the report has only the leading statistics.
    """
    with Warehouse.open(workspace) as warehouse:
        present = queries.columns(warehouse, run_ids).dicts()
        large = is_large(present)
        picked, left_out = pick_columns(present, most_numbers)
        result = queries.points(warehouse, run_ids, picked)
        trials = queries.trials(warehouse, run_ids).dicts()
        refused = queries.refused_figures(warehouse, run_ids).dicts()
    missing = [run_id for run_id in run_ids if run_id not in {row["run_id"] for row in trials}]
    if missing:
        raise BenchError(f"no collected trial of run {', '.join(missing)}", hint=f"First: bench collect {missing[0]}")
    by_run = {run_id: [row for row in trials if row["run_id"] == run_id] for run_id in dict.fromkeys(run_ids)}
    witnesses = {run_id: _witness(workspace, rows) for run_id, rows in by_run.items()}
    order = declared_order(folder for folder, _ in witnesses.values())
    made = early_stopping.confidence_for(workspace, by_run)
    named = name_runs(trials)
    rows = result.dicts()
    cells = make_cells(result, rows=rows, published=published)
    points = make_points(rows, cells, order, runs=named, confidence=made, refused=refused)
    failed = [row for row in trials if row["outcome"] not in MEASURED]
    failures, invalid = (
        [_failure(workspace, row, rerun, at < _LOG_TAILS) for at, row in enumerate(some)]
        for some in (failed, invalid_rows(trials))
    )
    columns = ReportData(scenario="", runs=[], points=points, trials=[], headline=[]).columns()
    rankings = make_rankings(points, first_metrics(columns) if large else columns, made)
    roles = declared_roles(folder for folder, _ in witnesses.values())
    experiments = {run_id: rows[0]["experiment"] for run_id, rows in by_run.items()}
    members = [] if large else members_of_points(points, experiments)
    leading = leading_columns(members, roles.get("throughput"), roles.get("latency"))
    throughput = leading[0] if leading and leading[0][0] == roles.get("throughput") else None
    gone = series.without_number(trials, members)
    kind = scaling.declared_kind(folder for folder, _ in witnesses.values())
    scales = throughput or (leading[0] if kind and leading else None)
    found = None if asked or large else tradeoff.automatic([*members, *gone], throughput, made)
    curves = _placed(asked, points) if asked else found
    swept = {curve.along for curve in curves.curves} if curves else set()
    cases = side_by_side(members, leading, made) if several_tests(points) and not large else []
    executed = sorted((row for row in trials if not row["warmup"]), key=lambda row: (row["started"], row["trial_id"]))
    label = labeller(executed, runs=named)
    labels = {(point.run_id, point.instance_digest): point.label for point in points}
    return ReportData(
        scenario=_title(row["scenario"] for row in trials),
        runs=[_run(run_id, rows) for run_id, rows in by_run.items()],
        points=points,
        without_number=without_number(trials, points, runs=named),
        trials=[TrialFacts(**{name: row[name] for name in TrialFacts.model_fields}) for row in executed],
        headline=[
            *make_headline(points, columns, rankings, failures, invalid, _first_sentences(curves)),
            *retried(trials),
            *early_stopping.notes(made),
        ],
        rankings=rankings,
        cases=cases,
        tradeoff=curves,
        spreads=make_spreads(points, columns, len(by_run) > 1) if large else [],
        statistics_left_out=left_out,
        scalings=[] if large else scaling.automatic(members, scales, roles.get("latency"), swept, made, gone, kind),
        loads=gather_loads(workspace.root, executed, label),
        machines=[
            *gather_machine(workspace.root, executed, labels),
            *gather_failed(workspace.root, executed, label),
        ],
        ranks=gather_ranks(workspace.root, executed, labels),
        failures=failures,
        invalid=invalid,
        warnings=_warnings(trials),
        configuration="\n".join(_configuration(folder) for folder, _ in witnesses.values()),
        environments=[
            environment(meta, by_run[run_id], differing_packages(workspace.root, by_run[run_id]))
            for run_id, (_, meta) in witnesses.items()
            if meta
        ],
        queries=[result.spec],
    )


def _first_sentences(curves: Tradeoff | None) -> list[str]:
    """Return the conclusion of the curves: one sentence for each of the first tests."""
    tests = len({curve.case for curve in curves.curves}) if curves else 0
    return curves.sentences[: min(tests, _MOST_TESTS)] if curves else []


def _placed(asked: Tradeoff, points: Sequence[Point]) -> Tradeoff:
    """Return the trade-off with the places of its points in this report."""
    places = {(point.run_id, point.instance_digest): at for at, point in enumerate(points)}
    curves = []
    for curve in asked.curves:
        moved = [
            point.model_copy(update={"point": places[point.run_id, point.instance_digest]}) for point in curve.points
        ]
        curves.append(curve.model_copy(update={"points": moved}))
    return asked.model_copy(update={"curves": curves})


def _title(scenarios: Iterable[str]) -> str:
    """Return the scenario, or `a+b` for several, so that a joint report does not replace the report of either."""
    names = sorted(set(scenarios))
    title = "+".join(names)
    short = f"{names[0][:_LONGEST_TITLE]}+{len(names) - 1}-{digest(names)[:8]}"
    return title if len(title) <= _LONGEST_TITLE else short


def _witness(workspace: WorkspaceFolder, rows: Sequence[Row]) -> tuple[TrialFolder, Meta | None]:
    """Return a sealed trial that represents its run: a succeeded one, if there is one."""
    chosen = next((row for row in rows if row["outcome"] == "succeeded" and not row["warmup"]), rows[0])
    folder = TrialFolder(workspace.root / chosen["folder"])
    return folder, _meta(folder)


def _meta(folder: TrialFolder) -> Meta | None:
    """Return the metadata of a trial; None if its evidence was moved away. Its numbers in the tables stay valid."""
    try:
        return read_meta(folder)
    except (OSError, ValidationError):
        return None


def _run(run_id: str, rows: Sequence[Row]) -> RunFacts:
    first = rows[0]
    outcomes = Counter(row["outcome"] for row in rows if not row["warmup"])
    warmups = sum(row["warmup"] for row in rows)
    return RunFacts(
        run_id=run_id,
        started=min(row["started"] for row in rows),
        ended=max(row["ended"] for row in rows),
        executor=", ".join(sorted({row["executor"] for row in rows})),
        runtime=first["runtime"],
        plan_digest=first["plan_digest"],
        experiment=first["experiment"],
        version=first["experiment_version"],
        distribution=f"{first['distribution']} {first['distribution_version']}".strip(),
        outcomes=dict(outcomes.most_common()) | ({"warm-up": warmups} if warmups else {}),
    )


def _failure(workspace: WorkspaceFolder, row: Row, rerun: Rerun, with_log: bool) -> FailureFacts:
    folder = TrialFolder(workspace.root / row["folder"])
    meta = _meta(folder) if with_log else None
    return FailureFacts(
        trial_id=row["trial_id"],
        run_id=row["run_id"],
        point=row["point"] or row["target_name"],
        outcome=row["outcome"],
        code=row["failure_code"] or "",
        message=row["failure_message"] or "",
        log_tail=meta.failure.log_tail if meta and meta.failure else "",
        folder=row["folder"],
        rerun=rerun(row["run_id"], folder),
    )


def _warnings(trials: Iterable[Row]) -> list[WarningGroup]:
    messages: dict[str, Counter[str]] = {}
    counts: Counter[str] = Counter()
    for row in trials:
        warnings = [warning.partition(": ") for warning in row["warnings"] or []]
        counts.update({code for code, _, _ in warnings})
        for code, _, message in warnings:
            messages.setdefault(code, Counter())[message] += 1
    return [
        WarningGroup(
            code=code,
            count=count,
            messages=[message for message, _ in messages[code].most_common(_MESSAGES_PER_WARNING)],
        )
        for code, count in counts.most_common()
    ]


def _configuration(folder: TrialFolder) -> str:
    try:
        return folder.effective_config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


# -- large sweeps: the statistics that their reports keep, and the spread of the leading metrics over the axes


def is_large(rows: Sequence[Row]) -> bool:
    """Return whether these metrics and stats are of a large sweep."""
    return max((row["points"] for row in rows), default=0) > LARGE


def pick_columns(rows: Sequence[Row], most_numbers: int | None = None) -> tuple[list[tuple[str, str]] | None, int]:
    """Return the metrics and stats of a large sweep's report, and how many are left out.

    Return None for a sweep that is not large, and has at most `most_numbers`: its report has all. A metric without
    leading statistics keeps all its statistics.
    """
    if not is_large(rows) and (most_numbers is None or sum(row["points"] for row in rows) <= most_numbers):
        return None, 0
    by_metric = grouped(rows, itemgetter("metric"))
    stats = {metric: [row["stat"] for row in own] for metric, own in by_metric.items()}
    kept = [(metric, stat) for metric, present in stats.items() for stat in headline_stats(present) or present]
    return kept, len(rows) - len(kept)


def first_metrics(columns: Sequence[PointNumber]) -> list[PointNumber]:
    """Return the first leading metrics, each by its first statistic, which rank and summarize a large sweep."""
    leading = [column for column in columns if column.primary] or list(columns)
    return list({column.metric: column for column in reversed(leading)}.values())[::-1][:_MOST_METRICS]


def make_spreads(points: Sequence[Point], columns: Sequence[PointNumber], several_runs: bool) -> list[SpreadFacts]:
    """Return the spreads of the first leading metrics, each by its first statistic."""
    values = [axis_values(point, several_runs=several_runs) for point in points]
    names = [axis["name"] for axis in varying_axes(values)]
    placed = [{name: axes[name] for name in names if name in axes} for axes in values]
    return [_spread(points, placed, column) for column in first_metrics(columns)]


def _spread(points: Sequence[Point], placed: Sequence[Mapping[str, Any]], column: PointNumber) -> SpreadFacts:
    numbers = [
        (axes, number.cell.value)
        for point, axes in zip(points, placed, strict=True)
        if (number := point.number(column.column))
    ]
    count, *quartiles = astuple(spread([value for _, value in numbers]))
    metric, stat, unit = column.column
    return SpreadFacts(
        metric=metric,
        stat=stat,
        unit=unit,
        direction=column.direction,
        points=count,
        quartiles=quartiles,
        axes=[
            AxisSpreadFacts(
                axis=row.axis.removeprefix("@"),
                levels=row.levels,
                highest=str(row.best),
                highest_median=row.best_median,
                lowest=str(row.worst),
                lowest_median=row.worst_median,
                explained=row.explained,
            )
            for row in axis_spreads(numbers, None)  # no load or size is better than another
        ],
    )
