"""The deadline of an answer: when its caller no longer waits for it, its queries of the tables end.

The deadline is in the context of the caller, which the threads of the answer share, so it is not passed as an argument.
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
    """An engine or a process that answers queries and can be interrupted from another thread."""

    def interrupt(self) -> None: ...


class Deadline:
    """The deadline of one caller in this context from now on; `end` may be called from any thread."""

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
        """Use the engine within the deadline. Raise BenchError if it has already ended."""
        with self._lock:
            self.refuse_if_over()
            self._engines.append(engine)
        try:
            yield
        finally:
            with self._lock:
                self._engines.remove(engine)


def refuse_unwanted() -> None:
    """Raise BenchError if the caller in this context no longer waits for the answer."""
    if patience := _ours.get():
        patience.refuse_if_over()


def forget_patience() -> None:
    """Complete all further work in this context, whether or not a caller waits for it."""
    _ours.set(None)
    check_cancellation_by(None)


@contextmanager
def while_wanted(engine: Interruptible) -> Iterator[None]:
    """Use the engine; it is interrupted when the answer is no longer wanted."""
    patience = _ours.get()
    if patience is None:
        yield
        return
    with patience.using(engine):
        yield
