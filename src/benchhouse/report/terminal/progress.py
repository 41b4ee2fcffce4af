"""A progress bar with live values on a terminal; otherwise an occasional plain line."""

import sys
import time
from typing import TYPE_CHECKING, Any

from benchhouse.report.terminal import screen

if TYPE_CHECKING:
    from benchhouse.plan.expand import Plan
    from benchhouse.runs.orchestrate import ProgressReport

_NEWS_S, _STILL_S = 10.0, 60.0


class RunProgress:
    """The progress display of a run that a person waits for."""

    def __init__(self) -> None:
        self.started = self.logged = time.monotonic()
        self.shown = ""
        self.first: int | None = None
        self.bar: Any = None
        self.task: Any = None

    def begin(self, run_id: str, plan: "Plan") -> None:
        self.started = self.logged = time.monotonic()
        self.first = None
        versions = ", ".join(item.experiment.version for item in plan.plans)
        total, experiment = plan.trial_count, f"{plan.experiment.name} {versions}"
        most = "up to " if plan.scenario.until else ""
        amount = f"{screen.count(plan.points, 'point')}, {most}{screen.count(total, 'trial')}"
        screen.note(f"run {run_id}: {amount} of {experiment} on {plan.scenario.executor}")
        if sys.stderr.isatty() and (console := screen.console(stderr=True)).is_terminal:
            from rich import progress as bars

            self.bar = bars.Progress(
                bars.TextColumn("{task.description}"),
                bars.BarColumn(),
                bars.MofNCompleteColumn(),
                bars.TimeElapsedColumn(),
                bars.TextColumn("{task.fields[figures]}"),
                console=console,
                transient=True,
            )
            self.bar.start()
            self.task = self.bar.add_task(plan.scenario.scenario, total=total, figures="")

    def end(self) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None

    def note(self, text: str) -> None:
        """Print a line above the bar; printed directly, it would be in the middle of a line."""
        if self.bar:
            self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            screen.note(text)

    def update(self, progress: "ProgressReport") -> None:
        if self.first is None:
            self.first = progress.done
        elapsed, fresh = time.monotonic() - self.started, progress.done - self.first
        left = ""
        if fresh and progress.done < progress.total:
            from benchhouse.schema.quantities import show_seconds

            left = f"about {show_seconds(elapsed / fresh * (progress.total - progress.done))} left"
        invalid = progress.outcomes.get("invalid", 0)
        failed = sum(count for name, count in progress.outcomes.items() if name != "succeeded") - invalid
        trouble = (f"{failed} failed" if failed else "", f"{invalid} INVALID" if invalid else "")
        figures = ", ".join(item for item in (*trouble, left, progress.last) if item)
        if self.bar:
            self.bar.update(self.task, completed=progress.done, figures=figures)
        else:
            self._log(f"{progress.done}/{progress.total} trials", figures)

    def _log(self, done: str, figures: str) -> None:
        """Print changes every ten seconds, and an unchanged state once a minute to show that the run continues."""
        quiet_s = _NEWS_S if done != self.shown else _STILL_S
        if time.monotonic() - self.logged > quiet_s:
            self.logged, self.shown = time.monotonic(), done
            screen.note(f"{done}, {figures}" if figures else done)
