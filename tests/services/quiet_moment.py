"""Measurements of times that a test has planted, on a machine that does other work."""

import time
from collections.abc import Callable
from pathlib import Path

PRESSURE = Path("/proc/pressure/cpu")
QUIET_SHARE = 0.02


def in_a_quiet_moment(measure: Callable[[], None], attempts: int = 10) -> None:
    """Call `measure`, and call it again if it failed while processes waited for a core.

    A measurement that other work has disturbed says nothing about the product. A failure on an idle machine counts at
    once, and so does the last one.
    """
    for attempt in range(1, attempts + 1):
        start, waited = time.monotonic(), _waited_s()
        try:
            measure()
            return
        except AssertionError:
            disturbed = _waited_s() - waited > QUIET_SHARE * (time.monotonic() - start)
            if attempt == attempts or (PRESSURE.exists() and not disturbed):
                raise


def _waited_s() -> float:
    """Return how long any process of this machine has waited for a core since the start, in seconds."""
    if not PRESSURE.exists():
        return 0.0
    some = PRESSURE.read_text().splitlines()[0]
    return int(some.rpartition("total=")[2]) / 1e6
