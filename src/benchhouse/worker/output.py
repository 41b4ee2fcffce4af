"""The child's stdout and stderr: always drained, kept within a cap, and told line by line in `trial.jsonl`."""

import fcntl
import json
import os
import selectors
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CAP_BYTES = 8 << 20
RING_BYTES = 64 << 10
LINE_BYTES = 8 << 10
NOTE_BYTES = 1 << 20  # on top of the cap: the worker's own words survive a chatty experiment
_READ_BYTES = 1 << 20
_LONG_LINE_BYTES = 1 << 20  # with redaction a line is held until it ends, up to here
_CUT_MARGIN_BYTES = 4 << 10  # a secret that straddles the cut of such a line goes with it

Redact = Callable[[str], str]
_encode = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False).encode


def _stamp(now_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s * 1000) % 1000:03d}Z"


class _Sink:
    """A file that takes bytes until its cap or the first failed write; what it refuses, the caller counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.trouble: str | None = None
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def write(self, data: bytes | memoryview) -> bool:
        """All or nothing: a write that fails half-way is cut off again, so that no torn line is left."""
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError as error:
            self.trouble = self.trouble or f"{self.path.name}: {error.strerror}"
            try:
                os.ftruncate(self._fd, self.size)
                os.lseek(self._fd, self.size, os.SEEK_SET)
            except OSError:
                self.size += done
            return False
        self.size += done
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Journal:
    """`trial.jsonl`: one JSON object a line, from both streams and from the worker."""

    def __init__(self, sink: _Sink, trial_id: str, cap_bytes: int, clock: Callable[[], float]) -> None:
        self.sink = sink
        self._clock = clock
        self._trial = _encode(trial_id)
        self._room = cap_bytes
        self._note_room = NOTE_BYTES
        self.full = False
        self.lines_left_out = 0
        self.bytes_left_out = 0

    def lines(self, stream: str, lines: list[tuple[str, bool]]) -> None:
        """Appends lines that came in together; each with whether it was cut."""
        head = f'{{"time":"{_stamp(self._clock())}","trial_id":{self._trial},"component":"experiment","stream":"{stream}"'
        batch: list[bytes] = []
        for at, (line, cut) in enumerate(lines):
            text = f'{head},"line":{_encode(line)}{",\"cut\":true" if cut else ""}}}\n' if False else (
                head + ',"line":' + _encode(line) + (',"cut":true}\n' if cut else "}\n")
            )
            row = text.encode("utf-8", "replace")
            if len(row) > self._room:
                self.full = True
                self.lines_left_out += len(lines) - at
                self.bytes_left_out += sum(len(rest.encode("utf-8", "replace")) + 1 for rest, _ in lines[at:])
                break
            self._room -= len(row)
            batch.append(row)
        if batch and not self.sink.write(b"".join(batch)):
            self.lines_left_out += len(batch)
            self.bytes_left_out += sum(map(len, batch))
            self.full = True

    def note(self, fields: dict[str, Any]) -> None:
        row = {"time": _stamp(self._clock()), "trial_id": None, "component": "worker", **fields}
        try:
            text = _encode(row)
        except ValueError:  # NaN and infinity are no JSON
            text = _encode({key: value if isinstance(value, str) else repr(value) for key, value in row.items()})
        data = (text.replace('"trial_id": null', f'"trial_id": {self._trial}', 1) + "\n").encode("utf-8", "replace")
        if len(data) > self._note_room or not self.sink.write(data):
            self.lines_left_out += 1
            self.bytes_left_out += len(data)
        else:
            self._note_room -= len(data)
