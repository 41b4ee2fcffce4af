"""Delayed Ctrl-C, so that no folder is half made and no job half submitted."""

import signal
import threading
from types import FrameType
from typing import Self

from benchhouse.schema.errors import BenchError


class Interrupts:
    """A context in which the first SIGINT is raised only by `check`, and a second one at once."""

    def __init__(self) -> None:
        self.requested = False
        self._installed = False

    def __enter__(self) -> Self:
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if usual and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def __exit__(self, *exception: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        if self.requested:
            raise KeyboardInterrupt

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def reason_of(error: BaseException) -> str:
    """Return why a run was interrupted, for its ledger."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return error.message if isinstance(error, BenchError) else f"{type(error).__name__}: {error}"
