"""Progress messages: sent where something slow begins, shown by the command line and by nobody else."""

from collections.abc import Callable
from contextvars import ContextVar

_show: ContextVar[Callable[[str], None] | None] = ContextVar("show", default=None)


def show_by(show: Callable[[str], None]) -> None:
    """From now on, in this context."""
    _show.set(show)


def tell(text: str) -> None:
    """Say what is about to take more than a moment."""
    if (show := _show.get()) is not None:
        show(text)
