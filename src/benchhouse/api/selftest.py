"""Run a workload against itself: the false-positive rate and the smallest visible change, kept in the workspace."""

from pathlib import Path
from typing import Any

import yaml

from benchhouse.analysis.selftest import judge_pairs, split
from benchhouse.api import execution
from benchhouse.api.execution import QUIET, RunListener
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence import journals
from benchhouse.evidence.writing import now
from benchhouse.results.numbers import headline_stats
from benchhouse.runs.ledger import Ledger, list_runs
from benchhouse.runs.preparation import Prepared, Where, prepare, prepare_text
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quality import SelftestMetric, SelftestRecord
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse

SUFFIX = "-selftest"
FEWEST_REPETITIONS = 3
_CONFIDENCE = 0.95


def plan_selftest(
    workspace: WorkspaceFolder, path: Path | None, pairs: int, repetitions: int | None
) -> tuple[Prepared, Path, int]:
    """The scenario with as many repetitions as the pairs need; without a file, the scenario of the last run."""
    if path is None:
        path = _last_scenario(workspace)
        prepared = prepare_text(workspace, path.read_text(encoding="utf-8"), str(path), _home(workspace, path), Where())
        home = _home(workspace, path)
    else:
        prepared, home = prepare(workspace, path, Where()), path.parent
    scenario = prepared.plan.scenario
    said = scenario.until.min if scenario.until else scenario.most_repetitions
    each = repetitions or max(FEWEST_REPETITIONS, said)
    document: dict[str, Any] = yaml.safe_load(prepared.file.document.text)
    name = scenario.scenario.removesuffix(SUFFIX)
    document |= {"scenario": name + SUFFIX, "repetitions": 2 * each * pairs, "order": "interleaved"}
    return prepare_text(workspace, dump_yaml(document), str(path), home, Where()), path, each


def _last_scenario(workspace: WorkspaceFolder) -> Path:
    runs = list_runs(workspace)
    if not runs:
        raise BenchError("there is no run here whose workload could be tested", "bench selftest SCENARIO.yaml")
    return workspace.run(runs[-1]).scenario


def _home(workspace: WorkspaceFolder, path: Path) -> Path:
    return Ledger(workspace.run(path.parent.name)).record.folder


def selftest(
    workspace: WorkspaceFolder,
    prepared: Prepared,
    path: Path,
    repetitions: int,
    listener: RunListener = QUIET,
) -> SelftestRecord:
    """Run it (or resume what was interrupted), pair neighbours, and keep what they say."""
    ledger = execution.open_run(workspace, prepared, path, listener)
    execution.carry_out(workspace, ledger, prepared, listener=listener)
    run_id = ledger.folder.run_id
    with Warehouse.open(workspace) as warehouse:
        rows = queries.points(warehouse, [run_id]).dicts()
        hosts = sorted({row["host"] for row in queries.trials(warehouse, [run_id]).dicts()})
    found = _metrics(rows, repetitions)
    if not found:
        raise BenchError(
            f"run {run_id} has too few successful trials for a pair of {repetitions} and {repetitions}",
            f"see why: bench status {run_id}",
            Exit.TRIAL_FAILED,
        )
    record = SelftestRecord(
        time=now(),
        host=", ".join(hosts),
        scenario=prepared.plan.scenario.scenario.removesuffix(SUFFIX),
        run_id=run_id,
        plan_digest=prepared.plan.digest,
        repetitions=repetitions,
        confidence=_CONFIDENCE,
        metrics=found,
    )
    journals.append(journals.selftests(workspace), record, f"bench selftest {path}")
    return record


def _metrics(rows: list[dict[str, Any]], repetitions: int) -> list[SelftestMetric]:
    """Of each metric its headline statistics; the pairs of all points together."""
    pairs: dict[tuple[str, str, str | None], list[tuple[list[float], list[float]]]] = {}
    for row in rows:
        stats = {other["stat"] for other in rows if other["metric"] == row["metric"]}
        if row["stat"] in headline_stats(stats):
            key = row["metric"], row["stat"], row["direction"]
            pairs.setdefault(key, []).extend(split(row["values"], repetitions))
    found = []
    for (metric, stat, direction), mine in pairs.items():
        if not mine:
            continue
        tested = judge_pairs(mine, "higher" if direction == "higher" else "lower", confidence=_CONFIDENCE)
        found.append(
            SelftestMetric(
                metric=metric,
                stat=stat,
                pairs=tested.pairs,
                false_positives=tested.false_positives,
                rate=tested.rate,
                rate_low=tested.rate_interval[0],
                rate_high=tested.rate_interval[1],
                cv=tested.cv,
                smallest_effect=tested.smallest_effect,
            )
        )
    return found
