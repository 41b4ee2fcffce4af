"""Ends calls that hang: libpq waits for a silent server as long as it takes, and gives no way to say how long."""

import os
import socket
import threading
from time import monotonic, sleep
from typing import Protocol

_LOOK_S = 0.5
_SPARE_S = 1.0  # the server's own limit comes first, and it names the reason


class Caller(Protocol):
    calls: int  # odd while one is under way


class Watch:
    """One thread for all connections of a process; it shuts the socket under a call that takes too long.

    Nothing is asked of a call but to count itself: a call that is still the same at each look is hanging.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[Caller, tuple[int, float]] = {}
        self._pid = 0  # of the process that the thread runs in: a fork does not take it along

    def add(self, caller: Caller, fd: int, timeout_s: float) -> None:
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._watched.clear()
                threading.Thread(target=self._look, daemon=True).start()
            self._watched[caller] = (fd, timeout_s)

    def forget(self, caller: Caller) -> None:
        """To be called before the descriptor is closed: its number may soon be another's."""
        with self._lock:
            self._watched.pop(caller, None)

    def _look(self) -> None:
        seen: dict[Caller, tuple[int, float]] = {}  # the call, and since when
        while True:
            sleep(_LOOK_S)
            now = monotonic()
            with self._lock:
                seen = {caller: seen.get(caller, (-1, now)) for caller in self._watched}
                for caller, (fd, timeout_s) in self._watched.items():
                    call, since = seen[caller]
                    if caller.calls != call:
                        seen[caller] = (caller.calls, now)
                    elif call % 2 and now - since > timeout_s + _SPARE_S:
                        _shut(fd)


def _shut(fd: int) -> None:
    with socket.socket(fileno=os.dup(fd)) as other:
        try:
            other.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


WATCH = Watch()
