"""The log files of a trial: `trial.jsonl`, line by line from every component, and log files that never raise."""

import json
import os
import time
from pathlib import Path
from typing import Any

LINE_BYTES = 8 << 10
NOTE_BYTES = 1 << 20  # in addition to the caps: the worker's own events survive a chatty experiment

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False).encode


def _stamp() -> str:
    ms = int(time.time() * 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03d}Z"


class LogFile:
    """A log file. Errors such as a full disk are stored in `trouble`, never raised."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.trouble: str | None = None
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def write(self, data: bytes | memoryview) -> bool:
        """Write everything or nothing: a partial write is truncated again, so that no incomplete line is left
        behind."""
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError as error:
            self._remember(error)
            try:
                os.ftruncate(self._fd, self.size)
                os.lseek(self._fd, self.size, os.SEEK_SET)
            except OSError:
                self.size += done
            return False
        self.size += done
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        try:
            if fd >= 0:
                os.close(fd)
        except OSError as error:  # network file systems report a full quota only here
            self._remember(error)

    def _remember(self, error: OSError) -> None:
        self.trouble = self.trouble or f"{self.path.name}: {error.strerror}"


class Journal:
    """`trial.jsonl`: one JSON object per line, from every component and from the worker."""

    def __init__(self, sink: LogFile, trial_id: str, cap_bytes: int) -> None:
        self.sink = sink
        self._trial_id = trial_id
        self._cap_bytes = cap_bytes
        self._pages: dict[str, ComponentJournal] = {}
        self._note_room = NOTE_BYTES
        self._notes_left_out = 0

    def page(self, component: str) -> "ComponentJournal":
        if component not in self._pages:
            self._pages[component] = ComponentJournal(self, component, self._cap_bytes)
        return self._pages[component]

    def head(self, component: str) -> dict[str, Any]:
        return {"time": _stamp(), "trial_id": self._trial_id, "component": component}

    def note(self, fields: dict[str, Any], *, last: bool = False) -> None:
        row = self.head("worker") | fields
        try:
            text = _encode(row)
        except (ValueError, TypeError):  # JSON has no NaN, and no tuples as keys
            text = _encode({key: value if isinstance(value, str) else repr(value) for key, value in row.items()})
        data = text.encode("utf-8", "replace") + b"\n"
        self._note_room -= len(data)
        if (self._note_room < 0 and not last) or not self.sink.write(data):
            self._notes_left_out += 1

    def close(self) -> None:
        for page in self._pages.values():
            if page.lines_left_out:
                self._count(page.component, page.lines_left_out, page.bytes_left_out)
        if self._notes_left_out:
            self._count("worker", self._notes_left_out, max(0, -self._note_room))
        self.sink.close()

    def _count(self, component: str, lines: int, size: int) -> None:
        message = f"{lines} lines ({size} bytes) of {component} are not kept in {self.sink.path.name}"
        counts = {"of": component, "lines_left_out": lines, "bytes_left_out": size}
        self.note({"level": "warning", "message": message} | counts, last=True)


class ComponentJournal:
    """One component's part of the journal. Each has its own limit, so that a chatty one does not suppress others."""

    def __init__(self, journal: Journal, component: str, room_bytes: int) -> None:
        self.component = component
        self.full = False
        self.lines_left_out = 0
        self.bytes_left_out = 0
        self._journal = journal
        self._room = room_bytes

    def add(self, stream: str, lines: list[bytes]) -> None:
        """Add lines that were received together, without their line ends."""
        head = _encode(self._journal.head(self.component) | {"stream": stream})[:-1] + ',"line":'
        rows: list[bytes] = []
        for at, line in enumerate(lines):
            cut = len(line) > LINE_BYTES
            text = line[:LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
            row = (head + _encode(text) + (',"cut":true}\n' if cut else "}\n")).encode("utf-8", "replace")
            if len(row) > self._room:
                self.full = True
                self.leave_out(len(lines) - at, sum(map(len, lines[at:])) + len(lines) - at)
                break
            self._room -= len(row)
            rows.append(row)
        if rows and not self._journal.sink.write(b"".join(rows)):
            self.full = True
            self.leave_out(len(rows), sum(map(len, lines[: len(rows)])) + len(rows))

    def leave_out(self, lines: int, size: int) -> None:
        self.lines_left_out += lines
        self.bytes_left_out += size
