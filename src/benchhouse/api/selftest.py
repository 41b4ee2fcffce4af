"""Run a workload against itself: the false-positive rate and the smallest visible change, stored in the workspace."""

from pathlib import Path
from typing import Any

from benchhouse.analysis.selftest import judge_pairs, split
from benchhouse.api import execution
from benchhouse.api.execution import QUIET, RunListener
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence import journals
from benchhouse.evidence.writing import now
from benchhouse.results.numbers import headline_stats
from benchhouse.runs.ledger import Ledger, list_runs
from benchhouse.runs.preparation import Where, prepare, prepare_text
from benchhouse.runs.records import open_run
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quality import SelftestMetric, SelftestRecord
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse

SUFFIX = "-selftest"
FEWEST_REPETITIONS = 3
_CONFIDENCE = 0.95


def selftest(
    workspace: WorkspaceFolder,
    path: Path | None,
    pairs: int,
    repetitions: int | None,
    listener: RunListener = QUIET,
) -> SelftestRecord:
    """Run a scenario (or resume an interrupted selftest), compare neighboring repetitions in pairs, and record the
    result.

    Without a file, the scenario of the last run is used.
    """
    if path is None:
        runs = list_runs(workspace)
        if not runs:
            raise BenchError("there is no run here whose workload could be tested", "bench selftest SCENARIO.yaml")
        last = workspace.run(runs[-1])
        path, home = last.scenario, Ledger(last).record.folder
        original = prepare_text(workspace, path.read_text(encoding="utf-8"), str(path), home, Where())
    else:
        original, home = prepare(workspace, path, Where()), path.parent
    scenario = original.plan.scenario
    usual = scenario.until.min if scenario.until else scenario.most_repetitions
    each = repetitions or max(FEWEST_REPETITIONS, usual)
    name = scenario.scenario.removesuffix(SUFFIX)
    document: dict[str, Any] = dict(original.file.document.data)
    document |= {"scenario": name + SUFFIX, "repetitions": 2 * each * pairs, "order": "interleaved"}
    prepared = prepare_text(workspace, dump_yaml(document), str(path), home, Where())
    ledger = open_run(workspace, prepared, path, listener.note)
    execution.carry_out(workspace, ledger, prepared, listener=listener)
    run_id = ledger.folder.run_id
    with Warehouse.open(workspace) as warehouse:
        rows = queries.points(warehouse, [run_id]).dicts()
        hosts = sorted({row["host"] for row in queries.trials(warehouse, [run_id]).dicts()})
    metrics = _metrics(rows, each)
    if not metrics:
        raise BenchError(
            f"run {run_id} has too few successful trials for a pair of {each} and {each}",
            f"see why: bench status {run_id}",
            Exit.TRIAL_FAILED,
        )
    record = SelftestRecord(
        time=now(),
        host=", ".join(hosts),
        scenario=name,
        run_id=run_id,
        plan_digest=prepared.plan.digest,
        repetitions=each,
        confidence=_CONFIDENCE,
        metrics=metrics,
    )
    journals.append(workspace.selftest_journal, record, f"bench selftest {path}")
    return record


def _metrics(rows: list[dict[str, Any]], repetitions: int) -> list[SelftestMetric]:
    """Return the headline statistics of each metric, from the pairs of all points together."""
    pairs: dict[tuple[str, str, str | None], list[tuple[list[float], list[float]]]] = {}
    for row in rows:
        stats = {other["stat"] for other in rows if other["metric"] == row["metric"]}
        if row["stat"] in headline_stats(stats):
            key = row["metric"], row["stat"], row["direction"]
            pairs.setdefault(key, []).extend(split(row["values"], repetitions))
    metrics = []
    for (metric, stat, direction), members in pairs.items():
        if not members:
            continue
        tested = judge_pairs(members, "higher" if direction == "higher" else "lower", confidence=_CONFIDENCE)
        low, high = tested.rate_interval
        metrics.append(
            SelftestMetric(
                metric=metric,
                stat=stat,
                pairs=tested.pairs,
                false_positives=tested.false_positives,
                rate=tested.rate,
                rate_low=low,
                rate_high=high,
                cv=tested.cv,
                smallest_effect=tested.smallest_effect,
            )
        )
    return metrics
