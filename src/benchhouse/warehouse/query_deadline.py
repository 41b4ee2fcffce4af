"""How long an answer is wanted: where nobody waits for it any more, its questions to the tables end.

Kept in the context of who asks, which threads that answer have too, so that no answer has to hand it on.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from benchhouse.schema.cancellation import check_cancellation_by
from benchhouse.schema.errors import BenchError

_ours: ContextVar["Deadline | None"] = ContextVar("patience", default=None)


class Interruptible(Protocol):
    """An engine, or a process that answers queries: what it does can be ended from another thread."""

    def interrupt(self) -> None: ...


class Deadline:
    """That of one caller, from now on, in this context; `end` is called from anywhere."""

    def __init__(self) -> None:
        self._lock, self._over = threading.Lock(), False
        self._engines: list[Interruptible] = []
        _ours.set(self)
        check_cancellation_by(self.refuse_if_over)

    def refuse_if_over(self) -> None:
        if self._over:
            raise BenchError("nobody waits for this answer any more")

    def end(self) -> None:
        with self._lock:
            self._over = True
            for engine in self._engines:
                engine.interrupt()

    @contextmanager
    def using(self, engine: Interruptible) -> Iterator[None]:
        """Ask the engine something. Raises BenchError where it is over already."""
        with self._lock:
            self.refuse_if_over()
            self._engines.append(engine)
        try:
            yield
        finally:
            with self._lock:
                self._engines.remove(engine)


def refuse_unwanted() -> None:
    """Raises BenchError where nobody waits any more for what is to be answered in this context."""
    if patience := _ours.get():
        patience.refuse_if_over()


def forget_patience() -> None:
    """What is done from here on in this context is done to its end, whether or not somebody waits."""
    _ours.set(None)
    check_cancellation_by(None)


@contextmanager
def while_wanted(engine: Interruptible) -> Iterator[None]:
    """Ask the engine something; it is interrupted when the answer is not wanted any more."""
    patience = _ours.get()
    if patience is None:
        yield
        return
    with patience.using(engine):
        yield
