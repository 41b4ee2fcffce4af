"""Look at results: points, compare, report, trace, verify. Everything reads the warehouse and the evidence."""

import contextlib
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.analysis.summary import shaky_quantiles
from benchhouse.api import following
from benchhouse.evidence.folder import read_spec
from benchhouse.evidence.verify import Damage, verify
from benchhouse.report.cells import make_cells
from benchhouse.report.numbers import number, percent, quantity, spread_text, titled
from benchhouse.report.order import declared_order
from benchhouse.runs.ledger import Ledger
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.layout import TrialFolder, Workspace
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse

if TYPE_CHECKING:
    from benchhouse.report.comparison import ComparisonTable, PointRow
    from benchhouse.report.curves import Scaling, Tradeoff
    from benchhouse.report.lineage import Trace
    from benchhouse.report.selected import SideBySide
    from benchhouse.warehouse.ingest import Rebuilt


__all__ = ["number", "percent", "quantity", "spread_text", "titled"]  # how numbers are written, for the command line


def points(workspace: Workspace, run_ids: list[str]) -> list[dict[str, Any]]:
    """The points of runs with every metric: mean, spread, n, and the reference that `bench trace` takes."""
    with Warehouse.open(workspace) as warehouse:
        result = queries.points(warehouse, run_ids)
    rows = result.dicts()
    order = declared_order(_first_sealed(workspace, rows))
    for row, cell in zip(rows, make_cells(result), strict=True):
        row["ref"] = cell.ref
        row["shaky"] = row["stat"] in shaky_quantiles(int(row["samples"] / row["n"])) if row["n"] else False
        row["headline"] = row["stat"] in ("value", "mean")
    return sorted(rows, key=lambda row: order.get(row["metric"], len(order)))


def _first_sealed(workspace: Workspace, rows: list[dict[str, Any]]) -> list[TrialFolder]:
    folders = (workspace.trial(row["scenario"], row["trials"][0]) for row in rows)
    return list(islice((folder for folder in folders if folder.sealed), 1))


def spread_lines(rows: list[dict[str, Any]], most_axes: int) -> list[str]:
    """How one metric spreads over many points, from their rows of `points`: over all of them, then by axis."""
    import json

    from benchhouse.analysis.axis_spread import axis_spreads, spread
    from benchhouse.report.numbers import name_of

    first = rows[0]
    name, unit, direction = name_of(first["metric"], first["stat"]), first["unit"], first["direction"]
    over_all = spread([row["mean"] for row in rows])
    low, middle, high = (quantity(value, unit) for value in (over_all.minimum, over_all.median, over_all.maximum))
    best, worst = ("best", "worst") if direction else ("highest", "lowest")
    lines = [f"{name}: {low} to {high}, median {middle}, over {over_all.points:,} points"]
    axes = axis_spreads([(json.loads(row["axes"]), row["mean"]) for row in rows], direction)
    lines += [
        f"  {axis.axis}: {best} at {axis.best} (median {quantity(axis.best_median, unit)}), {worst} at {axis.worst} "
        f"({quantity(axis.worst_median, unit)}); explains {percent(axis.explained, signed=False)} of the variance"
        for axis in axes[:most_axes]
    ]
    return lines + ([f"  and {len(axes) - most_axes} more axes: bench report"] if len(axes) > most_axes else [])


def tried(workspace: Workspace, run_ids: list[str]) -> list[dict[str, Any]]:
    """Every point that was tried, in the order of `points`: its label, all its trials, and how many succeeded."""
    with Warehouse.open(workspace) as warehouse:
        trials = queries.trials(warehouse, run_ids).dicts()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in trials:
        if row["warmup"]:
            continue
        names = {name: row[name] for name in ("run_id", "instance_digest", "point", "target_name", "scenario")}
        point = found.setdefault((row["run_id"], row["instance_digest"]), names | {"succeeded": 0, "trials": 0})
        point["trials"] += 1
        point["succeeded"] += row["outcome"] == "succeeded"
    return list(found.values())


def verify_run(workspace: Workspace, run_id: str) -> tuple[int, list[Damage]]:
    """Re-hash every sealed folder of a run, set-aside attempts too, and compare each manifest with the ledger."""
    ledger = Ledger(workspace.run(run_id))
    scenario = ledger.record.scenario
    sealed: dict[tuple[str, int], str] = {}
    for event in ledger.events():
        if event.event == "ended" and event.trial_id and event.manifest:
            sealed[event.trial_id, event.attempt or 1] = event.manifest
    damage: list[Damage] = []
    for (name, attempt), manifest in sealed.items():
        aside = workspace.superseded(scenario, name, attempt)
        damage += verify(aside if aside.path.exists() else workspace.trial(scenario, name), manifest)
    strays = _unrecorded(workspace, scenario, run_id, {name for name, _ in sealed})
    for folder in strays:
        damage += verify(folder)
    return len(sealed) + len(strays), damage


def _unrecorded(workspace: Workspace, scenario: str, run_id: str, recorded: Collection[str]) -> list[TrialFolder]:
    """Sealed folders of a run that its ledger does not know: it was damaged, or killed at the last moment."""
    found = []
    for path in sorted((workspace.results / scenario).glob("*/trial.json")):
        folder = TrialFolder(path.parent)
        if path.parent.name.partition(".")[0] not in recorded and folder.sealed:
            with contextlib.suppress(OSError, ValueError):
                if read_spec(folder).run_id == run_id:
                    found.append(folder)
    return found


def verify_all(workspace: Workspace) -> tuple[int, list[Damage]]:
    """Every trial of the tables, the tables, their catalog, and the claims."""
    from benchhouse.report.claims import shelf
    from benchhouse.warehouse.auditing import audit_evidence, audit_tables

    if not workspace.warehouse.exists() and not workspace.results.exists():
        return 0, []  # nothing was ever run here
    lines = audit_tables(workspace)
    checked, damage = (0, list[Damage]()) if lines else audit_evidence(workspace)
    damage += [Damage(trial="warehouse", file=".", kind="changed", detail=line) for line in lines]
    for claim_id in shelf.list_ids(workspace):
        try:
            shelf.read(workspace, claim_id)
        except BenchError as error:
            file = f"{claim_id}.json"
            damage.append(Damage(trial="claims", file=file, kind="changed", detail=error.message))
    return checked, damage


def outdated(workspace: Workspace) -> list[str]:
    """Runs whose tables an older benchhouse made: no damage, but made again they hold more."""
    from benchhouse.warehouse.auditing import outdated_runs

    return outdated_runs(workspace) if workspace.warehouse.exists() else []


def verify_folder(path: Path) -> list[Damage]:
    return verify(TrialFolder(path))


def report(
    workspace: Workspace, run_ids: list[str], asked: "Tradeoff | None" = None, say: Callable[[str], None] | None = None
) -> Path:
    """Write reports/<scenario>/<run>/ for these runs (runs of several scenarios: reports/<a>+<b>/); returns the page.

    `asked` is the trade-off to show; otherwise there is one where a search parameter was swept. `say` is told of
    sealed trials that are in no number of it, as they could not be read.
    """
    from benchhouse.report.data import gather
    from benchhouse.report.files import write_report

    for run_id in run_ids:
        for line in following.collect_missing(workspace, run_id):
            if say:
                say(f"left out: {line}")
    data = gather(workspace, run_ids, rerun=lambda run_id, trial: _rerun(workspace, run_id, trial), asked=asked)
    try:
        return write_report(workspace, data)
    except OSError as error:
        raise unwritable(workspace.reports, error, f"bench report {' '.join(run_ids)}") from error


def _rerun(workspace: Workspace, run_id: str, trial: str) -> str:
    return following.rerun_line(workspace.trial(Ledger(workspace.run(run_id)).record.scenario, trial))


def compare(
    workspace: Workspace,
    a: str,
    b: str,
    metrics: list[str],
    confidence: float,
    *,
    every: bool = False,
    outliers: str = "keep",
    paired: bool | None = None,
) -> "ComparisonTable":
    """B against A; each is a run, or points of a run: `RUN:key=value,...`. `every` statistic, or the headline ones.

    `paired` None: repetition with repetition where start times show that both sides took turns.
    """
    from benchhouse.report import stopped
    from benchhouse.report.comparison import compare_selected

    with Warehouse.open(workspace) as warehouse:
        made = stopped.confidence_for(workspace, _runs_of(warehouse, [a, b]), confidence)
        table = compare_selected(
            warehouse, a, b, metrics=metrics or None, every=every, confidence=made,
            outliers="mad" if outliers == "mad" else "keep", paired=paired,
        )  # fmt: skip
    return replace(table, notes=[*table.notes, *stopped.told(made, confidence)])


def _runs_of(warehouse: Warehouse, selectors: list[str]) -> list[str]:
    return [warehouse.resolve_run(side.partition(":")[0]) for side in selectors]


def scenario_of(workspace: Workspace, selector: str) -> str:
    """The name of the scenario that a run, or points of a run, are of."""
    with Warehouse.open(workspace) as warehouse:
        run_id = warehouse.resolve_run(selector.partition(":")[0])
        return next((run.scenario for run in warehouse.runs() if run.run_id == run_id), "")


def compare_at(
    workspace: Workspace, selectors: list[str], at: str, of: str | None, along: str, confidence: float
) -> "tuple[Tradeoff, list[str]]":
    """Targets at equal quality (`recall=0.95`), and the runs that they are from."""
    from benchhouse.report.selected import at_level
    from benchhouse.report.stopped import confidence_for

    with Warehouse.open(workspace) as warehouse:
        made = confidence_for(workspace, _runs_of(warehouse, selectors), confidence)
        return at_level(warehouse, selectors, at, of, along, made)


def compare_along(
    workspace: Workspace, selectors: list[str], along: str, of: str | None, confidence: float
) -> "Scaling":
    """Targets along an axis: throughput, latency, efficiency, and where scaling stops."""
    from benchhouse.report.selected import along_axis
    from benchhouse.report.stopped import confidence_for

    with Warehouse.open(workspace) as warehouse:
        made = confidence_for(workspace, _runs_of(warehouse, selectors), confidence)
        return along_axis(warehouse, selectors, along, of, made)


def compare_beside(workspace: Workspace, selectors: list[str], metrics: list[str], confidence: float) -> "SideBySide":
    """Targets side by side under identical load."""
    from benchhouse.report.selected import beside
    from benchhouse.report.stopped import confidence_for

    with Warehouse.open(workspace) as warehouse:
        made = confidence_for(workspace, _runs_of(warehouse, selectors), confidence)
        return beside(warehouse, selectors, metrics, made)


def curves_markdown(found: "Tradeoff | Scaling") -> str:
    from benchhouse.report import markdown
    from benchhouse.report.curves import Tradeoff

    return markdown.tradeoff_markdown(found) if isinstance(found, Tradeoff) else markdown.scaling_markdown(found)


def stage_table(found: "Scaling", at: int) -> tuple[list[str], list[list[str]]]:
    """Heads and lines of one curve."""
    from benchhouse.report.curve_sections import stage_heads, stage_rows

    return stage_heads(found, found.curves[at]), stage_rows(found, found.curves[at])


def comparison_markdown(compared: "ComparisonTable") -> str:
    from benchhouse.report.pull_request import comparison_markdown as render

    return render(compared)


def comparison_svg(compared: "ComparisonTable", file: Path) -> None:
    """Write the changes of a comparison as a chart."""
    from benchhouse.evidence.writing import write_text
    from benchhouse.report.pull_request import comparison_svg as render

    try:
        write_text(file, render(compared))
    except OSError as error:
        raise BenchError(f"{file} can't be written: {error.strerror or error}") from error


def comparison_digest(compared: "ComparisonTable", most: int) -> "tuple[str, list[PointRow]]":
    """The verdicts counted, and the rows that weigh most: all, in their order, where there are no more than `most`."""
    from benchhouse.report.pull_request import by_weight, verdict_sentence

    rows = compared.rows if len(compared.rows) <= most else by_weight(compared.rows)[:most]
    return verdict_sentence(compared.rows), rows


def trace(workspace: Workspace, token: str) -> "Trace":
    from benchhouse.api import tracing

    return tracing.trace(workspace, token)


def rebuild(workspace: Workspace, progress: Callable[[int, int, str], None]) -> "Rebuilt":
    from benchhouse.warehouse.ingest import rebuild as again

    try:
        return again(workspace, progress)
    except OSError as error:
        raise unwritable(workspace.warehouse, error, "bench warehouse rebuild") from error
