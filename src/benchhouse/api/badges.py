"""One value for a README: `ws.badge("first/name=short", "rate")`."""

from dataclasses import dataclass
from typing import Literal

from benchhouse.results import history
from benchhouse.results.history import Watched
from benchhouse.results.numbers import quantity
from benchhouse.schema.layout import WorkspaceFolder

BadgeVerdict = Literal["good", "regressed", "unknown"]


@dataclass(frozen=True)
class Badge:
    """The newest valid value of a metric, and whether it holds the accepted level."""

    case: str
    metric: str
    stat: str
    name: str
    """Metric and statistic, as a table names them."""
    value: float
    unit: str
    text: str
    """Value and unit, as a table shows them."""
    verdict: BadgeVerdict
    """good: the value holds the accepted baseline; regressed: later runs break it; unknown: not decidable."""
    reason: str
    """Why the verdict is what it is."""
    run_id: str
    """The run that the value is from."""
    started: str
    n: int
    """Number of valid trials."""

    def svg(self) -> str:
        """Return an SVG image that holds no script and requests nothing from the network."""
        from benchhouse.report.badge import badge

        return badge(self.name, self.text, self.verdict, f"{self.case}: {self.name} {self.text}, {self.reason}")


def make(workspace: WorkspaceFolder, case: str, metric: str, stat: str | None) -> Badge:
    """Return the badge of a metric. Trials that are invalid, failed, or warmups give no value and never reach a
    badge."""
    watched = history.history(workspace, case, metric, stat)
    past = watched.history
    newest = past.runs[-1]
    verdict, reason = _verdict(watched)
    return Badge(
        case=past.case.label,
        metric=past.metric,
        stat=past.stat,
        name=past.name,
        value=newest.mean,
        unit=past.unit,
        text=quantity(newest.mean, past.unit, newest.stdev),
        verdict=verdict,
        reason=reason,
        run_id=newest.run_id,
        started=newest.started,
        n=newest.n,
    )


def _verdict(watched: Watched) -> tuple[BadgeVerdict, str]:
    past, alarm = watched.history, watched.alarm
    without = [run_id for run_id in past.left_out if run_id > past.runs[-1].run_id]
    if without:
        return "unknown", f"the newest run {max(without)} gave no valid number"
    if watched.baseline is None:
        return "unknown", "no baseline is accepted"
    if alarm is not None and alarm.worse:
        return "regressed", f"worse than the accepted baseline since run {watched.later[alarm.since].run_id}"
    if past.direction is None:
        return "unknown", "neither higher nor lower is better"
    return "good", "better than the accepted baseline" if alarm else "fits the accepted baseline"
