"""Numbers that are watched: accepted baselines, alarm rules and the channels that are notified."""

import builtins

from benchhouse.api.verb_group import VerbGroup
from benchhouse.automation import alarms
from benchhouse.automation.alarms import AlarmCheck, AlarmState
from benchhouse.results import history
from benchhouse.results.history import Grounds
from benchhouse.schema.alarms import Notice
from benchhouse.schema.quality import BaselineRecord


class Alarms(VerbGroup):
    """The rules of alarms.yaml."""

    def list(self) -> "builtins.list[AlarmState]":
        """How each alarm stands now; nobody is notified."""
        return alarms.standings(self._folder)

    def check(self) -> AlarmCheck:
        """Look at each alarm, record what changed, and notify the channels of what is new, and of what waited."""
        from benchhouse.automation import notices

        checked = alarms.check(self._folder)
        waited = notices.deliver(self._folder, alarms.read_alarms(self._folder))
        return AlarmCheck(checked.standings, checked.lines + waited)

    def mute(self, name: str, why: str, *, for_s: float | None = None, request: str = "") -> Notice:
        """Notify nobody of an alarm, with a reason: for so many seconds, or until it is unmuted.

        `request` names who asked, where that may ask twice: the second time nothing is written.
        """
        return alarms.mute(self._folder, name, why, for_s, request)

    def unmute(self, name: str, *, request: str = "") -> Notice:
        """Notify of it again."""
        return alarms.unmute(self._folder, name, request)

    def try_channel(self, name: str) -> None:
        """Send a test message to a channel; raises where it does not arrive."""
        alarms.try_channel(self._folder, name)

    def log(self) -> "builtins.list[Notice]":
        """What fired, what was over, and who was notified, oldest first."""
        return alarms.recorded(self._folder)


class Baselines(VerbGroup):
    """Levels that were accepted, and that new runs are held to."""

    def list(self) -> "builtins.list[BaselineRecord]":
        """All baselines that count now."""
        return history.baselines(self._folder)

    def accept(
        self,
        case: str,
        metric: str | None = None,
        *,
        stat: str | None = None,
        why: str = "",
        unless_worse: float | None = None,
        request: str = "",
    ) -> BaselineRecord:
        """Accept the level that the history of a case has now: its runs since the last change.

        `unless_worse`: refuse if worse by more than this share than what a person accepted last.
        `request` names who asked, where that may ask twice: the second time nothing is written.
        """
        if kept := history.of_request(self._folder, request):
            return kept
        return history.accept(self._folder, case, metric, stat, Grounds(why, request, unless_worse))

    def clear(
        self, case: str, metric: str | None = None, *, stat: str | None = None, why: str = "", request: str = ""
    ) -> BaselineRecord:
        """No baseline counts for a case any more; what was accepted stays on record."""
        if kept := history.of_request(self._folder, request):
            return kept
        return history.clear(self._folder, case, metric, stat, Grounds(why, request))
