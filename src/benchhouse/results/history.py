"""Histories and accepted baselines: where a level changed, and whether new runs still fit the accepted level."""

import json
import math
import shlex
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from benchhouse.analysis.online import NEEDED, Baseline, LevelAlarm, learn
from benchhouse.evidence import journals
from benchhouse.evidence.writing import now
from benchhouse.results import selftest_record
from benchhouse.results.metric_history import (
    HistoryCase,
    MetricHistory,
    RunValue,
    alarm_since,
    find_case,
    gather,
    list_cases,
)
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quality import AlarmRecord, BaselineRecord
from benchhouse.schema.quoting import shortened
from benchhouse.warehouse.answer_cache import KnownAnswers
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.summaries import Summaries

_BRIEF = KnownAnswers[MetricHistory]()


@dataclass(frozen=True)
class Watched:
    """A history, its current baseline, and the alarm that later runs raise."""

    history: MetricHistory
    baseline: BaselineRecord | None
    later: list[RunValue]
    alarm: LevelAlarm | None
    selftest: str
    note: str = ""
    """Why the alarm could not be recorded; otherwise empty."""

    @property
    def can_be_accepted(self) -> bool:
        """Whether there are enough runs to learn the level and its noise."""
        return learn(self.history.values) is not None

    @property
    def runs_missing(self) -> int:
        """Runs that are still needed before a level can be accepted."""
        return max(0, NEEDED - len(self.history.runs))

    def as_dict(self) -> dict[str, Any]:
        alarm = None
        if self.alarm:
            runs = {"run": self.later[self.alarm.at].run_id, "since_run": self.later[self.alarm.since].run_id}
            alarm = asdict(self.alarm) | runs
        baseline = self.baseline.model_dump(mode="json") if self.baseline else None
        return asdict(self.history) | {"baseline": baseline, "alarm": alarm, "selftest": self.selftest}


@dataclass(frozen=True)
class CaseSummary:
    """A case that has a history."""

    case: str
    experiment: str
    version: str
    benchmark_case_id: str
    runs: int


def cases(workspace: WorkspaceFolder) -> list[CaseSummary]:
    """Return the cases that have a history."""
    with Warehouse.open(workspace) as warehouse, Summaries.of(warehouse) as summaries:
        return [
            CaseSummary(case.label, case.experiment, case.version, case.benchmark_case_id, case.runs)
            for case in list_cases(summaries)
        ]


def only_case(workspace: WorkspaceFolder) -> str:
    """Return the case to use if none is named. Raise BenchError unless there is exactly one."""
    known = [item.case for item in cases(workspace)]
    if len(known) == 1:
        return known[0]
    message = "there are histories of several cases" if known else "no run has been collected yet"
    raise BenchError(message, shortened(known))


def history(
    workspace: WorkspaceFolder, case: str, metric: str | None = None, stat: str | None = None, floor: float = 0.01
) -> Watched:
    """Return one metric of one case over all runs of the workspace."""
    with Warehouse.open(workspace) as warehouse, Summaries.of(warehouse) as summaries:
        return watch(summaries, case, metric, stat, floor)


def watch(
    summaries: Summaries, case: str, metric: str | None = None, stat: str | None = None, floor: float = 0.01
) -> Watched:
    """Return the same from tables that are already open."""
    return _watched(summaries, gather(summaries, find_case(summaries, case), metric, stat, floor=floor))


def watch_briefly(
    summaries: Summaries, case: HistoryCase, metric: str | None = None, stat: str | None = None
) -> Watched:
    """Return a history, by default of its first headline number, without listing what else differs at changes.

    A history is cached until the tables change, because a caller that monitors many cases requests the same ones again.
    """
    asked = json.dumps([case.benchmark_case_id, case.target_name, metric, stat])
    key = str(summaries.warehouse.workspace.root), "history", asked, (summaries.state,)
    series = _BRIEF.find(key)
    if series is None:
        series = gather(summaries, case, metric, stat, circumstances=False)
        _BRIEF.keep(key, series, len(RunValue.__dataclass_fields__) * len(series.runs))
    return _watched(summaries, series)


def _watched(summaries: Summaries, series: MetricHistory) -> Watched:
    workspace = summaries.warehouse.workspace
    record = _current(workspace, series)
    alarm, later, note = None, list[RunValue](), ""
    if record:
        level = math.log(record.level) if record.log_level else record.level
        baseline = Baseline(level, record.spread, record.memory, record.n, record.log_level, tuple(record.noise))
        alarm, later = alarm_since(series, baseline, record.run_id)
    if record and alarm:
        note = _keep_alarm(workspace, series, record, alarm, later)
    return Watched(series, record, later, alarm, selftest_record.sentence(workspace, series.case.scenario), note)


def _keep_alarm(
    workspace: WorkspaceFolder, series: MetricHistory, record: BaselineRecord, alarm: LevelAlarm, later: list[RunValue]
) -> str:
    """Record an alarm the first time it is detected. Return the reason if it can't be recorded, otherwise ""."""
    cited = selftest_record.last(workspace, series.case.scenario)
    line = AlarmRecord(
        time=now(),
        benchmark_case_id=record.benchmark_case_id,
        target_name=record.target_name,
        metric=record.metric,
        stat=record.stat,
        unit=record.unit,
        direction=record.direction,
        level=record.level,
        run_id=later[alarm.at].run_id,
        since_run_id=later[alarm.since].run_id,
        baseline_run_id=record.run_id,
        baseline_time=record.time,
        change=alarm.change,
        difference=alarm.difference,
        z=alarm.z,
        worse=alarm.worse,
        selftest_run_id=cited.run_id if cited else None,
    )
    path = workspace.alarm_journal
    if any(known.what == line.what for known in journals.read(path, AlarmRecord)[0]):
        return ""
    return journals.note(path, [line], f"bench history {shlex.quote(series.case.label)}")


_key = attrgetter("benchmark_case_id", "target_name", "metric", "stat")


def _current(workspace: WorkspaceFolder, series: MetricHistory, *, by_person: bool = False) -> BaselineRecord | None:
    key = series.case.benchmark_case_id, series.case.target_name, series.metric, series.stat
    last = None
    for record in journals.read(workspace.baseline_journal, BaselineRecord)[0]:
        if _key(record) == key and (record.action == "clear" or not by_person or record.by == "person"):
            last = record
    return last if last and last.action == "accept" else None


def baselines(workspace: WorkspaceFolder) -> list[BaselineRecord]:
    """Return the current baselines, by case and metric."""
    last = {_key(record): record for record in journals.read(workspace.baseline_journal, BaselineRecord)[0]}
    return [last[key] for key in sorted(last) if last[key].action == "accept"]


@dataclass(frozen=True)
class Grounds:
    """The grounds on which a baseline is accepted or cleared."""

    why: str = ""
    request: str = ""
    """Id of a server's request, by which its record can be found again."""
    unless_worse: float | None = None


def of_request(workspace: WorkspaceFolder, request: str) -> BaselineRecord | None:
    """Return the record that was written for a request; None if there is none."""
    records = journals.read(workspace.baseline_journal, BaselineRecord)[0] if request else []
    return next((record for record in records if record.request == request), None)


def accept(
    workspace: WorkspaceFolder, case: str, metric: str | None, stat: str | None, grounds: Grounds
) -> BaselineRecord:
    """Accept the current level of the history. A rule may do so only while it is near the level that a person
    accepted.
    """
    with Warehouse.open(workspace) as warehouse, Summaries.of(warehouse) as summaries:
        series = gather(summaries, find_case(summaries, case), metric, stat)
    learned = learn(series.values)
    if learned is None:
        raise BenchError(
            f"{series.case.label} has {len(series.runs)} runs of {series.name}; noise is learned from {NEEDED} or more",
            hint="Run it more often; until then: bench gate BASE..NEW compares two runs by their repetitions.",
        )
    level = math.exp(learned.level) if learned.logs else learned.level
    unless_worse = grounds.unless_worse
    rule = "" if unless_worse is None else f"at most {unless_worse:.2%} worse than what a person accepted"
    if unless_worse is not None:
        _check_rule(workspace, series, level, unless_worse)
    record = BaselineRecord(
        time=now(),
        action="accept",
        benchmark_case_id=series.case.benchmark_case_id,
        target_name=series.case.target_name,
        metric=series.metric,
        stat=series.stat,
        unit=series.unit,
        direction=series.direction,
        run_id=series.runs[-1].run_id,
        runs=[run.run_id for run in series.runs[-learned.n :]],
        level=level,
        log_level=learned.logs,
        spread=learned.spread,
        memory=learned.memory,
        noise=[float(f"{shock:.6g}") for shock in learned.noise],
        n=learned.n,
        by="rule" if rule else "person",
        rule=rule,
        why=grounds.why,
        request=grounds.request,
    )
    journals.append(workspace.baseline_journal, record, f"bench baseline accept {case}")
    return record


def _check_rule(workspace: WorkspaceFolder, series: MetricHistory, level: float, unless_worse: float) -> None:
    """Check a level against the last one that a person accepted, so that a rule can't shift it step by step."""
    anchor = _current(workspace, series, by_person=True)
    if anchor is None:
        raise BenchError(
            f"no person has accepted a baseline of {series.case.label} yet: a rule needs one to compare with",
            hint=f"bench baseline accept {shlex.quote(series.case.label)}",
        )
    if series.direction is None or not anchor.level:
        raise BenchError(f"{series.name} has no direction or no level: only a person can accept it")
    worse = (level - anchor.level) / abs(anchor.level) * (1.0 if series.direction == "lower" else -1.0)
    if worse > unless_worse:
        raise BenchError(
            f"{series.name} of {series.case.label} is {worse:.1%} worse than what was accepted on {anchor.time[:10]}",
            hint=f"If that is right: bench baseline accept {shlex.quote(series.case.label)} --why WORDS",
            exit_code=Exit.REGRESSION,
        )


def clear(
    workspace: WorkspaceFolder, case: str, metric: str | None, stat: str | None, grounds: Grounds
) -> BaselineRecord:
    """Clear the baseline; the accepted record is kept."""
    with Warehouse.open(workspace) as warehouse, Summaries.of(warehouse) as summaries:
        series = gather(summaries, find_case(summaries, case), metric, stat)
    record = _current(workspace, series)
    if record is None:
        raise BenchError(
            f"{series.case.label} has no accepted baseline of {series.name}", hint="See: bench baseline list"
        )
    said = {"why": grounds.why, "request": grounds.request, "by": "person", "rule": ""}
    cleared = record.model_copy(update={"time": now(), "action": "clear", **said})
    journals.append(workspace.baseline_journal, cleared, f"bench baseline clear {case}")
    return cleared
