"""Values that are watched: accepted baselines, alarm rules, and the channels that are notified."""

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
        """Return the current state of each alarm, without notifying anybody."""
        return alarms.standings(self._folder)

    def check(self) -> AlarmCheck:
        """Check each alarm, record changes, and notify the channels of new changes and of notices that were waiting."""
        from benchhouse.automation import notices

        checked = alarms.check(self._folder)
        waited = notices.deliver(self._folder, alarms.read_alarms(self._folder))
        return AlarmCheck(checked.standings, checked.lines + waited)

    def mute(self, name: str, why: str, *, for_s: float | None = None, request: str = "") -> Notice:
        """Mute an alarm for `for_s` seconds, or until it is unmuted. `why` is recorded as the reason.

        `request` identifies a caller that may send its request twice: nothing is written the second time.
        """
        return alarms.mute(self._folder, name, why, for_s, request)

    def unmute(self, name: str, *, request: str = "") -> Notice:
        """Unmute an alarm, so that channels are notified of it again."""
        return alarms.unmute(self._folder, name, request)

    def try_channel(self, name: str) -> None:
        """Send a test message to a channel. Raises BenchError if it does not arrive."""
        alarms.try_channel(self._folder, name)

    def log(self) -> "builtins.list[Notice]":
        """Return when alarms fired and ended, and who was notified, oldest first."""
        return alarms.recorded(self._folder)


class Baselines(VerbGroup):
    """Accepted levels, with which new runs are compared."""

    def list(self) -> "builtins.list[BaselineRecord]":
        """Return all baselines that are in force."""
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
        """Accept the current level of a case's history, which is the level of its runs since the last change.

        `unless_worse`: refuse if the level is worse than the one that a person last accepted by more than this share.
        `request` identifies a caller that may send its request twice: nothing is written the second time.
        """
        if kept := history.of_request(self._folder, request):
            return kept
        return history.accept(self._folder, case, metric, stat, Grounds(why, request, unless_worse))

    def clear(
        self, case: str, metric: str | None = None, *, stat: str | None = None, why: str = "", request: str = ""
    ) -> BaselineRecord:
        """Remove the baseline of a case from use. The record of its acceptance is kept."""
        if kept := history.of_request(self._folder, request):
            return kept
        return history.clear(self._folder, case, metric, stat, Grounds(why, request))
