"""Progress messages, sent when something slow begins; only the command line shows them."""

from collections.abc import Callable
from contextvars import ContextVar

_show: ContextVar[Callable[[str], None] | None] = ContextVar("show", default=None)


def show_by(show: Callable[[str], None]) -> None:
    """Show messages with this function from now on, in this context."""
    _show.set(show)


def tell(text: str) -> None:
    """Show a message about something that is about to take time."""
    if (show := _show.get()) is not None:
        show(text)
