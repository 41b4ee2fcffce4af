"""The due slots of a schedule (pure): from a schedule, its history, and a time to the slots to run or skip."""

from dataclasses import dataclass

from benchhouse.automation.schedules.cron import may_begin, opening, slots, starts_at
from benchhouse.schema.schedules import Schedule

ON_TIME_S = 120.0  # a slot that begins within this time is not missed: an agent that a timer starts comes once a minute
NEVER = 1e12
_LONGEST_BACKOFF_S = 86400.0


@dataclass(frozen=True)
class ScheduleHistory:
    """The relevant history of a schedule."""

    looked_to: float
    """The time up to which all slots are decided."""
    running: bool = False
    failures: int = 0
    """The number of consecutive failures."""
    failed_at: float = 0.0


@dataclass(frozen=True)
class SlotDecision:
    """The decision about one slot."""

    due: float
    skip: str = ""
    """The reason why it is skipped; empty if it runs."""


@dataclass(frozen=True)
class Outlook:
    """The current decisions, and when to check again."""

    choices: tuple[SlotDecision, ...]
    looked_to: float
    next_look: float
    """The time of the next check; the end of a run is a reason to check earlier."""


def outlook(schedule: Schedule, standing: ScheduleHistory, now: float) -> Outlook:
    """Decide slots in order, each once. After a clock went back, slots may be decided again: the store detects that."""
    looked_to = min(standing.looked_to, now)
    choices = list(_expired(schedule, looked_to, now))
    looked_to = max(looked_to, now - schedule.max_age_s) if choices else looked_to
    ready, following = _ready(schedule, looked_to, now)
    if ready and not may_begin(schedule, now):
        if schedule.missed != "skip":
            return Outlook(tuple(choices), looked_to, opening(schedule, now))
        choices += [SlotDecision(due, "outside the hours in which runs may begin") for due in ready]
    else:
        choices += _chosen(schedule, standing, ready, now)
    looked_to = max([looked_to, *(choice.due for choice in choices)])
    return Outlook(tuple(choices), looked_to, following)


def _expired(schedule: Schedule, looked_to: float, now: float) -> list[SlotDecision]:
    """Return one decision for all slots that are too old, however many there are."""
    oldest = now - schedule.max_age_s
    first = next(slots(schedule, looked_to), None) if looked_to < oldest else None
    if first is None or first > oldest:
        return []
    return [SlotDecision(first, f"this slot and those after it are later than {schedule.max_age_s / 3600:g} h")]


def _ready(schedule: Schedule, looked_to: float, now: float) -> tuple[list[float], float]:
    """Return slots that may begin, and when the next one may. One with a longer jitter delays those after it."""
    ready: list[float] = []
    for due in slots(schedule, looked_to):
        if (begin := starts_at(schedule, due)) > now:
            return ready, begin
        ready.append(due)
    return ready, NEVER


def _chosen(schedule: Schedule, standing: ScheduleHistory, ready: list[float], now: float) -> list[SlotDecision]:
    """Decide slots up to the first that waits for a run: it is decided when that run has ended."""
    choices: list[SlotDecision] = []
    busy = standing.running
    resting = now < rests_until(schedule, standing)
    for due in ready:
        if why := _left_out(schedule, due, ready[-1], now):
            choices.append(SlotDecision(due, why))
        elif resting:
            choices.append(SlotDecision(due, f"backing off after {standing.failures} failures in a row"))
        elif busy and schedule.overlap == "skip":
            choices.append(SlotDecision(due, "the run before was still going on"))
        elif busy and schedule.overlap == "wait":
            break
        else:
            choices.append(SlotDecision(due))
            busy = True
    return choices


def _left_out(schedule: Schedule, due: float, newest: float, now: float) -> str:
    if now - starts_at(schedule, due) <= ON_TIME_S or schedule.missed == "all":
        return ""
    if schedule.missed == "skip":
        return "missed: nobody could begin it when it was due"
    return "missed: made up for by the newest slot" if due != newest else ""


def rests_until(schedule: Schedule, standing: ScheduleHistory) -> float:
    """Return the end of the pause after failures; 0 if there is none."""
    if not standing.failures or not schedule.backoff_s:
        return 0.0
    pause = schedule.backoff_s * 2.0 ** min(standing.failures - 1, 20)
    return standing.failed_at + min(pause, _LONGEST_BACKOFF_S)
