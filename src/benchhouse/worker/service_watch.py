"""Watches the services of a trial in a thread, so that a trial ends with its server, not after a timeout."""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable
from time import monotonic

from benchhouse.processes.services import end_of
from benchhouse.schema.service import ServiceFolder, read_state

_LOOK_S = 0.2
_SILENT_S = 60.0
_GRACE_S = 5.0  # for the experiment to react


class ServerDiedError(BaseException):
    """A server of the trial has ended; raised in the experiment's main thread. No `except Exception` may catch it."""


class ServiceWatch:
    """Interrupts the main thread when a watched server has ended.

    If the main thread is stuck in a call that nothing interrupts, `give_up` is called from the watching thread instead.
    """

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self._abandon = give_up
        self._processes: dict[int, Callable[[], str]] = {}  # by descriptor
        self._folders: dict[str, ServiceFolder] = {}
        # last written state of a service supervisor, and our time when it was new
        self._seen: dict[str, tuple[str, float]] = {}
        self._closed = threading.Event()
        self._news, self._bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._reason = ""
        self._main = threading.main_thread().ident
        signal.signal(signal.SIGUSR2, self._raise)
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self._thread.start()

    def process(self, pid: int, died: Callable[[], str]) -> None:
        """Watch a server that this process started; `died` returns how it ended."""
        with contextlib.suppress(OSError):  # an old kernel: its death is found at the end of the trial
            self._processes[os.pidfd_open(pid)] = died
            os.write(self._bell, b".")

    def folder(self, name: str, folder: ServiceFolder) -> None:
        """Watch a server with a service supervisor, by its state."""
        self._folders[name] = folder
        os.write(self._bell, b".")

    def close(self) -> None:
        """Stop watching: from now on, servers end intentionally."""
        self._closed.set()
        os.write(self._bell, b".")
        self._thread.join()
        for handle in (self._news, self._bell, *self._processes):
            os.close(handle)

    def _raise(self, *_: object) -> None:
        if not self._closed.is_set():
            raise ServerDiedError(self._reason)

    def _look(self) -> None:
        while not self._closed.is_set():
            ready = self._wait(_LOOK_S if self._folders else None)
            ended = next((died for handle, died in list(self._processes.items()) if handle in ready), None)
            self._reason = ended() if ended else self._kept()
            if self._reason and not self._closed.is_set():
                self._interrupt()
                return

    def _wait(self, most_s: float | None) -> set[int]:
        poll = select.poll()
        for handle in (self._news, *list(self._processes)):
            poll.register(handle, select.POLLIN)
        ready = {handle for handle, _ in poll.poll(None if most_s is None else most_s * 1000)}
        if self._news in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._news, 4096)
        return ready

    def _kept(self) -> str:
        for name, folder in list(self._folders.items()):
            if reason := end_of(name, folder) or self._silent(name, folder):
                return reason
        return ""

    def _silent(self, name: str, folder: ServiceFolder) -> str:
        """Return a message if a server on another node was killed with its node, otherwise an empty text: its
        supervisor writes every few seconds."""
        state = read_state(folder)
        if state is None or not state.host or state.host == os.uname().nodename:
            return ""
        wrote, now_s = f"{state.phase} {state.checked}", monotonic()
        last, at_s = self._seen.setdefault(name, (wrote, now_s))
        if last != wrote:
            self._seen[name] = (wrote, now_s)
        elif now_s - at_s > _SILENT_S:
            return f"{name} is over: its keeper on {state.host} has written nothing for {_SILENT_S:g} s"
        return ""

    def _interrupt(self) -> None:
        assert self._main is not None
        until = monotonic() + _GRACE_S
        while monotonic() < until:
            signal.pthread_kill(self._main, signal.SIGUSR2)
            if self._closed.wait(0.5):
                return
        self._abandon(self._reason)
