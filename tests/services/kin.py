"""For servers that tests start: they end when the test process does, however that ends."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def end_with_parent() -> None:
    """To be called in the new process, before its program: `Popen(..., preexec_fn=end_with_parent)`."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
