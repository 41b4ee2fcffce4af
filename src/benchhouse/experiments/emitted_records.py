"""Records that a program emits, with `benchhouse_client` or without: a folder of JSON lines, one file per process."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "BENCHHOUSE_EMIT"
"""The environment variable with the folder for programs."""
_LENT = ("benchhouse_client.py", "benchhouse_training.py")
_BESIDE_US = Path(__file__).resolve().parents[2]
LABELS = frozenset({"rank", "step", "t"})
"""Members that identify a record, and are not values."""


@dataclass
class Emitted:
    """Records of one process. Lines that a program in another language writes may lack writer and time."""

    writer: dict[str, Any] = field(default_factory=dict)
    """The process: pid, host, rank, world, local_rank, attempt, and `utc` and `mono`, the same moment by two clocks."""
    records: list[dict[str, Any]] = field(default_factory=list)
    lost: int = 0
    """Number of records that the process could not write, or wrote only in part."""
    raw: bytes = b""

    @property
    def figures(self) -> Iterator[dict[str, Any]]:
        return ({name: value for name, value in item.items() if name not in LABELS} for item in self.records)


def install_emit_client(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which Python finds the modules that emit, if it has not installed them; installed ones have
    priority. The modules are copied, so that Python does not find the files next to them."""
    own = folder / "modules"
    own.mkdir()
    for name in _LENT:
        shutil.copyfile(_BESIDE_US / name, own / name)
    return {"PYTHONPATH": os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(own)]))}


def read_emitted(path: Path, most_bytes: int) -> Emitted:
    """Read the first `most_bytes` of a file. Content after them, and lines that are not JSON, count as lost."""
    broken = 0
    with path.open("rb") as file:
        emitted = Emitted(raw=file.read(most_bytes))
        rest = file.read(1)
    *lines, tail = emitted.raw.split(b"\n")
    for line in filter(None, lines):
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            item = None
        if not isinstance(item, dict):
            broken += 1
        elif "emit" in item and "pid" in item:
            emitted.writer = item
        elif item.keys() == {"lost"} and isinstance(item["lost"], int):
            emitted.lost = item["lost"]
        else:
            emitted.records.append(item)
    emitted.lost = max(emitted.lost, broken) + bool(tail or rest)
    return emitted


def collect_emitted(folder: Path, most_bytes: int) -> list[Emitted]:
    """Read the files in the folder, by name, and remove them for the next execution."""
    processes = []
    for path in sorted(folder.glob("*.jsonl")):
        processes.append(read_emitted(path, most_bytes))
        path.unlink()
    return processes
