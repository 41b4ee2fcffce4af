"""Alarms: values beyond a limit, reported once to their recipients, and once more when the alarm ends.

The state is a journal of lines. A channel that failed or was quiet is tried again at the next check: delivery is at
least once, and only of the newest state.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from benchhouse.analysis.gating import stands
from benchhouse.automation.channels import Message, is_quiet, linked, tell
from benchhouse.documents.document import Document
from benchhouse.documents.problems import Problem, ProblemsError, did_you_mean
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.evidence import journals
from benchhouse.evidence.writing import after, now
from benchhouse.results import history
from benchhouse.results.metric_history import find_case
from benchhouse.results.numbers import mean_interval, quantity
from benchhouse.schema.alarms import AlarmRule, AlarmsFile, Notice, State
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quoting import quote
from benchhouse.warehouse.query import Warehouse, own
from benchhouse.warehouse.summaries import Summaries

_MUTING = ("muted", "unmuted")

_EXAMPLE = """alarms:
  - {name: slow, case: SCENARIO, metric: METRIC, above: 250, tell: [me]}
channels:
  me: {command: [cat]}"""

TRIED = own(
    "SELECT count(*) FROM trial_fact "
    "WHERE benchmark_case_id = $case_id AND target_name IS NOT DISTINCT FROM $target AND NOT warmup"
)


@dataclass(frozen=True)
class AlarmState:
    """The state of one alarm."""

    alarm: str
    state: State
    sentence: str
    case: str = ""
    benchmark_case_id: str = ""
    target_name: str = ""
    metric: str = ""
    stat: str = ""
    unit: str = ""
    run_id: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    muted: str = ""
    """The reason and the end of the mute; empty if the alarm is not muted."""


@dataclass(frozen=True)
class AlarmCheck:
    """The result of a check and the channels that it notified."""

    standings: list[AlarmState]
    lines: list[Notice]

    @property
    def firing(self) -> list[AlarmState]:
        """The alarms that fire and are not muted."""
        return [standing for standing in self.standings if standing.state == "firing" and not standing.muted]

    def as_dict(self) -> dict[str, Any]:
        lines = [line.model_dump(mode="json") for line in self.lines]
        return {"alarms": [asdict(standing) for standing in self.standings], "recorded": lines}


def read_alarms(workspace: WorkspaceFolder) -> AlarmsFile:
    """Return alarms.yaml of the workspace. Raise ProblemsError with the position of every mistake."""
    path = workspace.alarms
    if not path.is_file():
        raise NotFoundError("there is no alarms.yaml in this workspace", f"Write one, such as\n{_EXAMPLE}")
    document = load_yaml(path)
    file = validated(document, AlarmsFile)
    if problems := _misnamed(file, document):
        raise ProblemsError(problems)
    return file


def _misnamed(file: AlarmsFile, document: Document) -> list[Problem]:
    names = [rule.name for rule in file.alarms]
    problems = [
        document.problem(("alarms", at, "name"), f"two alarms are called {name}")
        for at, name in enumerate(names)
        if name in names[:at]
    ]
    owners: dict[str, str] = {}
    for name, person in file.people.items():
        if name in file.channels:
            problems.append(document.problem(("people", name), f"a channel is called {name}, too", key=True))
        problems += _unknown(file.channels, person.channels, document, ("people", name, "channels"))
        for place, channel in enumerate(person.channels):
            where, owner = ("people", name, "channels", place), owners.setdefault(channel, name)
            if owner != name:
                problems.append(document.problem(where, f"the channel {channel} is already that of {owner}"))
            if person.quiet and channel in file.channels and file.channels[channel].quiet:
                text = f"both {name} and the channel {channel} have quiet hours"
                problems.append(document.problem(where, text, "quiet in one of the two places"))
    known = [*file.channels, *file.people]
    for at, rule in enumerate(file.alarms):
        problems += _unknown(known, rule.tell, document, ("alarms", at, "tell"))
    for at, notified in enumerate(file.notify):
        problems += _unknown(known, notified.tell, document, ("notify", at, "tell"))
    return problems


def _unknown(
    known: Collection[str], names: Sequence[str], document: Document, where: tuple[str | int, ...]
) -> Iterator[Problem]:
    for place, name in enumerate(names):
        if name not in known:
            guess = did_you_mean(name, known) or ""
            yield document.problem((*where, place), f"no channel is called {quote(name)}", ", ".join(known), guess)


def standings(workspace: WorkspaceFolder) -> list[AlarmState]:
    """Return the current state of all alarms, without notifying anyone."""
    return _with_mutes(_stand_all(workspace, read_alarms(workspace).alarms), recorded(workspace))


def _with_mutes(standings: Sequence[AlarmState], journal: Sequence[Notice]) -> list[AlarmState]:
    return [replace(standing, muted=_mute(standing.alarm, journal)) for standing in standings]


def _mute(alarm: str, journal: Sequence[Notice]) -> str:
    """Return the reason why an alarm is muted now; empty if it is not."""
    last = next((line for line in reversed(journal) if line.alarm == alarm and line.action in _MUTING), None)
    if last is None or last.action == "unmuted" or (last.until and last.until <= now()):
        return ""
    return f"{last.why} (until {last.until[:16]} UTC)" if last.until else last.why


def mute(workspace: WorkspaceFolder, name: str, why: str, for_s: float | None, request: str) -> Notice:
    """Mute an alarm for some seconds, or until it is unmuted. A repeated request writes nothing."""
    if not why.strip():
        raise BenchError("an alarm is muted with a reason", "--why 'known, a fix is on its way'")
    stamp = now()
    until = after(stamp, for_s) if for_s else ""
    return _speak(workspace, Notice(time=stamp, action="muted", alarm=name, until=until, why=why, request=request))


def unmute(workspace: WorkspaceFolder, name: str, request: str) -> Notice:
    """Unmute an alarm."""
    return _speak(workspace, Notice(time=now(), action="unmuted", alarm=name, request=request))


def _speak(workspace: WorkspaceFolder, line: Notice) -> Notice:
    names, journal = [rule.name for rule in read_alarms(workspace).alarms], recorded(workspace)
    if line.alarm not in names:
        guess = did_you_mean(line.alarm, names)
        raise BenchError(f"no alarm {quote(line.alarm)} in alarms.yaml", guess or f"there are {', '.join(names)}")
    if line.request and (kept := next((item for item in journal if item.request == line.request), None)):
        return kept
    if line.action == "unmuted" and not _mute(line.alarm, journal):
        raise BenchError(f"alarm {line.alarm} is not muted", "see: bench alarms list")
    journals.append(workspace.notice_journal, line, "bench alarms mute")
    return line


def _stand_all(workspace: WorkspaceFolder, rules: Sequence[AlarmRule]) -> list[AlarmState]:
    """Return the states of alarms. The tables are opened once for all: opening costs as much as several queries."""
    if not rules:
        return []
    with Warehouse.open(workspace) as warehouse, Summaries.of(warehouse) as summaries:
        return [_stand(summaries, rule) for rule in rules]


def check(workspace: WorkspaceFolder) -> AlarmCheck:
    """Check every alarm, record changes, and notify the recipients that are due."""
    file = read_alarms(workspace)
    journal = recorded(workspace)
    standing_now = _with_mutes(_stand_all(workspace, file.alarms), journal)
    lines, due = list[Notice](), list[_Due]()
    for rule, standing in zip(file.alarms, standing_now, strict=True):
        kept = [line for line in journal if line.alarm == rule.name and line.action not in _MUTING]
        last = next((line for line in reversed(kept) if line.action != "told"), None)
        fires = last is not None and last.action == "fired"
        if standing.state == ("ok" if fires else "firing"):
            last = _keep(workspace, standing, "cleared" if fires else "fired")
            lines.append(last)
            kept = [last]
        if last is not None and not standing.muted:
            due += _unnotified_changes(file, rule, standing, kept[kept.index(last) :])
    return AlarmCheck(standing_now, lines + _notify_channels(workspace, file, due))


def after_run(workspace: WorkspaceFolder, say: Callable[[str], None]) -> None:
    """Check alarms at the end of a run; a mistake in the file does not fail the run."""
    try:
        checked = check(workspace)
    except BenchError as error:
        say(f"alarms were not checked: {error}")
        return
    for line in checked.lines:
        if line.action != "told":
            say(f"alarm {line.alarm} {line.action}: {line.sentence}")
        elif line.error:
            say(f"alarm {line.alarm}: {line.channel} could not be notified: {line.error}")


def try_channel(workspace: WorkspaceFolder, name: str) -> None:
    """Send a trial message. Raise BenchError if it does not arrive."""
    file = read_alarms(workspace)
    if name not in file.channels and name not in file.people:
        raise BenchError(
            f"no channel {name!r} in alarms.yaml", f"There are {', '.join([*file.channels, *file.people])}"
        )
    text = "a trial message of `bench alarms try`: nothing is wrong"
    message = asdict(AlarmState("trial", "ok", text)) | {"state": "trial", "text": text}
    for channel in file.reach([name]):
        if error := tell(file.channels[channel], message):
            raise BenchError(
                f"channel {channel} could not be reached: {error}", "correct alarms.yaml, or set the variable"
            )


def recorded(workspace: WorkspaceFolder) -> list[Notice]:
    """Return all lines, oldest first."""
    return journals.read(workspace.notice_journal, Notice)[0]


@dataclass(frozen=True)
class _Due:
    """The newest change of one alarm, which a channel has not received."""

    channel: str
    change: Notice
    message: Message
    errors: frozenset[str]
    """The errors of earlier attempts, as they were recorded."""


def _unnotified_changes(
    file: AlarmsFile, rule: AlarmRule, standing: AlarmState, since: Sequence[Notice]
) -> Iterator[_Due]:
    """Yield the newest change, `since[0]`, for each channel that has not received it and is not quiet now."""
    change, moment = since[0], datetime.now(UTC)
    told = [line for line in since if line.action == "told"]
    heard = {line.channel for line in told if not line.error}
    state = "firing" if change.action == "fired" else "over"
    text = f"{change.alarm} is {state}: {change.sentence}"
    message = linked(file.address, asdict(standing) | {"state": state, "text": text})
    for name in file.reach(rule.tell):
        if name not in heard and not is_quiet(*file.quiet_hours(name), moment):
            yield _Due(name, change, message, frozenset(line.error for line in told if line.channel == name))


def _notify_channels(workspace: WorkspaceFolder, file: AlarmsFile, due: Sequence[_Due]) -> list[Notice]:
    """Send each channel one message with all alarms that one run made fire or end."""
    causes: dict[tuple[str, str, str], list[_Due]] = {}
    for item in due:
        causes.setdefault((item.channel, item.change.run_id, item.message["state"]), []).append(item)
    lines = []
    for (channel, run_id, state), items in causes.items():
        error = tell(file.channels[channel], _together([item.message for item in items], state, run_id))
        for item in items:
            line = Notice(
                time=now(), action="told", alarm=item.change.alarm, run_id=run_id, channel=channel, error=error
            )
            if not error or error not in item.errors:
                journals.append(workspace.notice_journal, line, "bench alarms check")
            lines.append(line)
    return lines


def _together(messages: Sequence[Message], state: str, run_id: str) -> Message:
    if len(messages) == 1:
        return messages[0]
    count = f"{len(messages)} alarms"
    text = "\n".join([f"{count} are {state} since run {run_id}:", *(f"- {item['text']}" for item in messages)])
    return {"alarm": count, "state": state, "text": text, "run_id": run_id, "messages": list(messages)}


def _keep(workspace: WorkspaceFolder, standing: AlarmState, action: Any) -> Notice:
    fields = {name: value for name, value in asdict(standing).items() if name in Notice.model_fields}
    record = Notice(time=now(), action=action, **fields)
    journals.append(workspace.notice_journal, record, "bench alarms check")
    return record


def _stand(summaries: Summaries, rule: AlarmRule) -> AlarmState:
    try:
        watched = history.watch_briefly(summaries, find_case(summaries, rule.case), rule.metric, rule.stat)
    except BenchError as error:
        return AlarmState(rule.name, "no data", str(error))
    past, case = watched.history, watched.history.case
    known = AlarmState(
        rule.name, "no data", "", case.label, case.benchmark_case_id, case.target_name,
        past.metric, past.stat, past.unit, past.runs[-1].run_id,
    )  # fmt: skip
    if rule.unit is not None and rule.unit != past.unit:
        text = f"{past.name} of {case.label} is in {past.unit or 'no unit'}, the limit in {rule.unit}"
        return replace(known, sentence=text)
    parameters = {"case_id": case.benchmark_case_id, "target": case.target_name}
    newest = summaries.last_run(case.benchmark_case_id, case.target_name)
    if newest != known.run_id:
        tried = summaries.warehouse.query(TRIED, parameters, runs=[newest], name="tried").rows[0][0]
        text = f"none of {tried} trials of {case.label} in run {newest} succeeded"
        return replace(known, state="firing", sentence=text, run_id=newest)
    return _held_to_history(watched, known) if rule.regressed else _held_to_limit(rule, watched, known)


def _held_to_history(watched: history.Watched, known: AlarmState) -> AlarmState:
    """Apply the rule of `bench history`: a few new runs are compared with the accepted baseline."""
    past, baseline, alarm = watched.history, watched.baseline, watched.alarm
    if baseline is None:
        return replace(known, sentence=_no_baseline(watched))
    known = replace(known, value=past.runs[-1].mean, limit=baseline.level)
    number, level = f"{past.name} of {past.case.label}", f"its baseline of {quantity(baseline.level, past.unit)}"
    if alarm is None or not alarm.worse:
        return replace(known, state="ok", sentence=f"{number} fits {level}")
    change = "" if alarm.change is None else f" by {abs(alarm.change):.1%}"
    since = watched.later[alarm.since].run_id
    return replace(known, state="firing", sentence=f"{number} is worse{change} than {level} since run {since}")


def _held_to_limit(rule: AlarmRule, watched: history.Watched, known: AlarmState) -> AlarmState:
    past, unit, last = watched.history, watched.history.unit, watched.history.runs[-1]
    side: Literal["above", "below"] = "above" if rule.above is not None else "below"
    limit = rule.above if rule.above is not None else rule.below
    meaning = ""
    if rule.worse_by is not None:
        if watched.baseline is None or past.direction not in ("higher", "lower"):
            return replace(known, sentence=_no_baseline(watched))
        side = "below" if past.direction == "higher" else "above"
        level = watched.baseline.level
        limit = level + abs(level) * (rule.worse_by if side == "above" else -rule.worse_by)
        meaning = f", {rule.worse_by:.1%} worse than the baseline of {quantity(level, unit)}"
    assert limit is not None  # one of them is given: the file was checked
    ends = mean_interval(last.mean, last.stdev, last.n, min(run.min for run in past.runs))
    spread = " (one trial: how sure is not known)"
    if ends:
        spread = f" ({quantity(ends[0], unit)} to {quantity(ends[1], unit)}, n={last.n})"
    states: dict[str, tuple[State, str]] = {
        "beyond": ("firing", side),
        "within": ("ok", f"not {side}"),
        "unsure": ("unsure", f"perhaps {side}"),
    }
    state, where = states[stands(last.mean, ends, limit, side)]
    text = f"{past.name} of {past.case.label} is {quantity(last.mean, unit)}{spread} in run {last.run_id}"
    text += f": {where} {quantity(limit, unit)}{meaning}"
    low, high = ends or (None, None)
    return replace(known, state=state, sentence=text, value=last.mean, low=low, high=high, limit=limit)


def _no_baseline(watched: history.Watched) -> str:
    past = watched.history
    if watched.baseline is not None:
        return f"{past.name} of {past.case.label} has no direction: nothing says which way is worse"
    return f"no baseline of {past.name} is accepted: bench baseline accept {past.case.label} --metric {past.metric}"
