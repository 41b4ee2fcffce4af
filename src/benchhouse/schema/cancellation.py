"""Cancellation of long computations, which check at short intervals whether their result is still needed.

The check is part of the context of a request, which the threads that work for it share, so that no function has to pass
it on. Without a check, a computation runs to its end.
"""

from collections.abc import Callable
from contextvars import ContextVar

_check: ContextVar[Callable[[], None] | None] = ContextVar("cancellation_check", default=None)


def check_cancellation_by(check: Callable[[], None] | None) -> None:
    """Make `stop_if_cancelled` call `check`, which raises if the work is to end, from now on in this context."""
    _check.set(check)


def stop_if_cancelled() -> None:
    """Call the check of this context, which raises if the result is no longer needed."""
    if check := _check.get():
        check()
