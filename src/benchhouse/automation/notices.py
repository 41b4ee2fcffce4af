"""Messages about runs and approvals for the recipients in `notify:` of alarms.yaml: each is queued once and delivered.

A message that cannot be delivered now, because its channel is quiet or unreachable, waits in the journal; all waiting
messages of a channel are sent as one. Delivery is at least once: after a kill between sending and recording, a message
is sent again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from benchhouse.automation.alarms import read_alarms, recorded
from benchhouse.automation.channels import is_quiet, linked, tell
from benchhouse.evidence import journals
from benchhouse.evidence.writing import now
from benchhouse.runs.ledger import Ledger
from benchhouse.schema.alarms import AlarmsFile, Happening, Notice
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder

Say = Callable[[str], None]
_KEPT = timedelta(days=7)
_MOST_LINES = 20


def _nothing(text: str) -> None:
    pass


@dataclass(frozen=True)
class NoticeEvent:
    """An event that recipients subscribed to; `cause` identifies it, so that it is reported once."""

    happening: Happening
    cause: str
    sentence: str
    scenario: str = ""
    run_id: str = ""


def notify(workspace: WorkspaceFolder, event: NoticeEvent, say: Say) -> None:
    """Queue an event once per channel of the rules, and deliver what waits. A mistake in the file is only reported."""
    if not workspace.alarms.is_file():
        return
    try:
        file = read_alarms(workspace)
        rules = [rule for rule in file.notify if event.happening in rule.on]
        names = [name for rule in rules if fnmatchcase(event.scenario, rule.scenario) for name in rule.tell]
        known = {(line.alarm, line.channel, line.sentence) for line in recorded(workspace) if line.action == "queued"}
        lines = [
            Notice(
                time=now(), action="queued", alarm=event.cause, run_id=event.run_id, channel=name,
                sentence=event.sentence,
            )
            for name in file.reach(names)
            if (event.cause, name, event.sentence) not in known
        ]  # fmt: skip
        if lines:
            journals.append(workspace.notice_journal, lines, "bench alarms check")
            deliver(workspace, file, say)
    except BenchError as error:
        say(f"nobody was notified: {error}")


def run_ended(workspace: WorkspaceFolder, run_id: str, say: Say) -> None:
    """Notify how a run ended; do nothing while it runs."""
    ledger = Ledger(workspace.run(run_id))
    last = ledger.last_event()
    if last in ("started", "resumed", "submitted", "stopped", ""):
        return
    newest = {event.trial_id: event.outcome or "" for event in ledger.events() if event.event == "ended"}
    counts = {name: list(newest.values()).count(name) for name in sorted(set(newest.values()))}
    good = last == "finished" and set(counts) <= {"succeeded"}
    record = ledger.record
    outcomes = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items()) or "no trial"
    how = "is finished" if last == "finished" else f"ended early ({last})"
    sentence = f"run {run_id} of {record.scenario} {how}: {outcomes}"
    notify(
        workspace,
        NoticeEvent("finished" if good else "failed", f"run {run_id}", sentence, record.scenario, run_id),
        say,
    )


def deliver(
    workspace: WorkspaceFolder, file: AlarmsFile, say: Say = _nothing, moment: datetime | None = None
) -> list[Notice]:
    """Send each channel its waiting notices as one message, except for channels that are quiet now."""
    moment, delivered = moment or datetime.now(UTC), list[Notice]()
    for name, waiting in waiting_for(recorded(workspace), moment).items():
        channel = file.channels.get(name)
        if channel is None or is_quiet(*file.quiet_hours(name), moment):
            continue
        error = tell(channel, _message(file, waiting))
        told = [
            Notice(time=now(), action="told", alarm=line.alarm, run_id=line.run_id, channel=name, error=error)
            for line in waiting
        ]
        delivered += told
        if error:
            say(f"{name} could not be notified: {error}")
        else:
            journals.append(workspace.notice_journal, told, "bench alarms check")
    return delivered


def waiting_for(journal: Sequence[Notice], moment: datetime) -> dict[str, list[Notice]]:
    """Return by channel what was queued in the last days and not delivered; per cause only the newest sentence."""
    waiting: dict[str, dict[str, Notice]] = {}
    for line in journal:
        if line.action == "queued" and moment - datetime.fromisoformat(line.time) < _KEPT:
            waiting.setdefault(line.channel, {})[line.alarm] = line
        elif line.action == "told" and not line.error:
            waiting.get(line.channel, {}).pop(line.alarm, None)
    return {name: list(lines.values()) for name, lines in waiting.items() if lines}


def _message(file: AlarmsFile, lines: Sequence[Notice]) -> dict[str, Any]:
    messages = [
        linked(file.address, {"alarm": line.alarm, "state": "news", "text": line.sentence, "run_id": line.run_id})
        for line in lines
    ]
    if len(messages) == 1:
        return messages[0]
    shown = [f"- {message['text']}" for message in messages[:_MOST_LINES]]
    shown += [f"- and {len(messages) - _MOST_LINES} more"] if len(messages) > _MOST_LINES else []
    text = "\n".join([f"{len(messages)} messages:", *shown])
    return {"alarm": f"{len(messages)} messages", "state": "news", "text": text, "run_id": "", "messages": messages}
