"""The heartbeat of an orchestrator, without which its slots on cluster nodes end."""

import contextlib
import itertools
import threading
from pathlib import Path

_BEAT_S = 2.0


class Heartbeat:
    """A thread that writes a growing count to a file while this process is alive, even when it is busy."""

    def __init__(self, path: Path) -> None:
        self._path, self._over = path, threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="heart")
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        for count in itertools.count(1):
            with contextlib.suppress(OSError):  # others who write more report a full disk
                self._path.write_text(f"{count}\n")
            if self._over.wait(_BEAT_S):
                return
