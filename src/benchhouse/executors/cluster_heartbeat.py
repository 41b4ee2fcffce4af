"""The sign of life of an orchestrator, by which what it has on the nodes of a cluster goes on."""

import contextlib
import itertools
import threading
from pathlib import Path

_BEAT_S = 2.0


class Heartbeat:
    """Beats in a file for as long as this process lives, whatever it is busy with."""

    def __init__(self, path: Path) -> None:
        self._path, self._over = path, threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="heart")
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        for count in itertools.count(1):
            with contextlib.suppress(OSError):  # a full disk is told by those who have more to write
                self._path.write_text(f"{count}\n")
            if self._over.wait(_BEAT_S):
                return
