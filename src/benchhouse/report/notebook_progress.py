"""The progress of a run in the output of a notebook cell: one line that is redrawn, and stays at the end."""

import sys
import time
from typing import TYPE_CHECKING, Any

from benchhouse.report.tags import join, tag
from benchhouse.report.terminal.screen import count

if TYPE_CHECKING:
    from benchhouse.plan.expand import Plan
    from benchhouse.runs.orchestrate import ProgressReport

_EVERY_S = 0.2
_MOST_NOTES = 20


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which has already imported IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookProgress:
    """The listener of a run that a person waits for in a notebook."""

    def __init__(self) -> None:
        self._head = ""
        self._reset()

    def _reset(self) -> None:
        self._started = self._drawn = time.monotonic()
        self._display: Any = None
        self._progress: ProgressReport | None = None
        self._notes: list[str] = []
        self._over = False

    def begin(self, run_id: str, plan: "Plan") -> None:
        if self._over:  # another run of the same call: a separate output
            self._reset()
        self._started = time.monotonic()
        most = "up to " if plan.scenario.until else ""
        amount = f"{count(plan.points, 'point')}, {most}{count(plan.trial_count, 'trial')}"
        self._head = f"run {run_id}: {amount} of {plan.experiment.name} on {plan.scenario.executor}"
        self._draw()

    def update(self, progress: "ProgressReport") -> None:
        self._progress = progress
        if time.monotonic() - self._drawn >= _EVERY_S:
            self._draw()

    def note(self, text: str) -> None:
        """Add a note below the line."""
        self._notes.append(text)
        self._draw()

    def end(self) -> None:
        self._over = True
        self._draw()

    def _draw(self) -> None:
        from IPython.display import display

        self._drawn = time.monotonic()
        if self._display is None:
            self._display = display(self._html(), raw=True, display_id=True)  # type: ignore[no-untyped-call, unused-ignore]
        else:
            self._display.update(self._html(), raw=True)

    def _html(self) -> dict[str, str]:
        """Return the line as HTML, and as text for front ends that show no HTML."""
        done, total = (self._progress.done, self._progress.total) if self._progress else (0, 0)
        seconds = f"{time.monotonic() - self._started:.0f} s"
        outcomes = sorted(self._progress.outcomes.items()) if self._progress else []
        trouble = "".join(f", {number} {name}" for name, number in outcomes if name != "succeeded")
        state = f"{done} of {total} done, {seconds}{trouble}" if self._progress else ""
        going_on = total and not self._over
        bar = tag("progress", value=done, max=total, style="vertical-align:middle") if going_on else None
        notes = self._notes[-_MOST_NOTES:]
        lines = [tag("div", line, style="color:gray") for line in notes]
        html = join(tag("div", self._head), tag("div", bar, " " if bar else "", state), *lines)
        return {"text/html": html, "text/plain": "\n".join(line for line in [self._head, state, *notes] if line)}
