"""A progress bar with live figures on a terminal; a plain line now and then where there is none."""

import sys
import time
from types import TracebackType
from typing import Any

from benchhouse.cli import show

_NEWS_S, _STILL_S = 10.0, 60.0


class RunProgress:
    """Shows how far a run is: `with RunProgress(run_id, plan) as progress: execute(..., progress.update)`."""

    def __init__(self, run_id: str, plan: Any) -> None:
        self.run_id, self.plan = run_id, plan
        self.live = sys.stderr.isatty()
        self.started = self.told = time.monotonic()
        self.said = ""
        self.first: int | None = None
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> "RunProgress":
        plan, total = self.plan, self.plan.trial_count
        versions = ", ".join(item.experiment.version for item in plan.plans)
        experiment = f"{plan.experiment.name} {versions}"
        amount = (
            f"{show.count(plan.points, 'point')}, {'up to ' if plan.scenario.until else ''}{show.count(total, 'trial')}"
        )
        show.note(f"run {self.run_id}: {amount} of {experiment} on {plan.scenario.executor}")
        if self.live:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self.bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                TextColumn("{task.fields[figures]}"), console=show.console(stderr=True), transient=True,
            )  # fmt: skip
            self.bar.start()
            self.task = self.bar.add_task(plan.scenario.scenario, total=total, figures="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()

    def say(self, text: str) -> None:
        """A line above the bar; printed past it, it would be left in the middle of a line."""
        if self.bar:
            self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            show.note(text)

    def update(self, progress: Any) -> None:
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
        """What is new every ten seconds, the same once a minute: that it still goes on."""
        quiet_s = _NEWS_S if done != self.said else _STILL_S
        if time.monotonic() - self.told > quiet_s:
            self.told, self.said = time.monotonic(), done
            show.note(f"{done}, {figures}" if figures else done)
