"""The kernel's counters of a trial's cgroup, v1 or v2: to the nanosecond, and whether its limits throttled it."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import nan
from pathlib import Path

from benchhouse.schema.telemetry import Series
from benchhouse.worker.monitors.procfs import OpenFile, series

_process = partial(series, family="process")
_CPU = _process("cgroup_cpu", "s", "CPU time that the cgroup used.", counter=True)
_THROTTLED = _process("cgroup_throttled", "s", "Time that its CPU limit held it back.", counter=True)
_PERIODS = _process("cgroup_periods", "1", "Periods of its CPU limit.", counter=True)
_HELD = _process("cgroup_throttled_periods", "1", "Periods in which it was held back.", counter=True)
_MEMORY = _process("cgroup_memory", "B", "Memory of the cgroup, page cache included.")
_OOM = _process("cgroup_oom_kills", "1", "Processes killed for want of memory.", counter=True)

_File = tuple[str, tuple[tuple[Series, bytes, float], ...]]

# A file, then each of its series: the word before its number (empty: the file is the number), and its scale.
V2: tuple[_File, ...] = (
    ("cpu.stat", ((_CPU, b"usage_usec", 1e-6), (_THROTTLED, b"throttled_usec", 1e-6), (_PERIODS, b"nr_periods", 1.0),
                  (_HELD, b"nr_throttled", 1.0))),
    ("memory.current", ((_MEMORY, b"", 1.0),)),
    ("memory.events", ((_OOM, b"oom_kill", 1.0),)),
)  # fmt: skip
_V1: dict[str, tuple[_File, ...]] = {
    "cpuacct": (("cpuacct.usage", ((_CPU, b"", 1e-9),)),),
    "cpu": (("cpu.stat", ((_THROTTLED, b"throttled_time", 1e-9), (_PERIODS, b"nr_periods", 1.0),
                          (_HELD, b"nr_throttled", 1.0))),),
    "memory": (("memory.usage_in_bytes", ((_MEMORY, b"", 1.0),)), ("memory.oom_control", ((_OOM, b"oom_kill", 1.0),))),
}  # fmt: skip


class Cgroup:
    """A trial's cgroup as a source. `folders` are those of a Cage: "v2" and v1 controllers with their folders. Missing
    counters have no series."""

    name = "trial"

    def __init__(self, folders: Mapping[str, Path]) -> None:
        groups = {"v2": V2, **_V1}
        wanted = [(folders[group], file) for group, files in groups.items() if group in folders for file in files]
        self._files: list[tuple[OpenFile, list[tuple[bytes, float]]]] = []
        self.series: Sequence[Series] = []
        for folder, (name, columns) in wanted:
            file = OpenFile(folder / name)
            fields = file.read().split()
            known = {series.name for series in self.series}  # v1's cpu and cpuacct are often one folder
            there = [
                (series, word, scale)
                for series, word, scale in columns
                if fields and (not word or word in fields) and series.name not in known
            ]
            if there:
                self.series = [*self.series, *(series for series, _, _ in there)]
                self._files.append((file, [(word, scale) for _, word, scale in there]))
            else:
                file.close()

    def sample(self) -> list[float]:
        values: list[float] = []
        for file, columns in self._files:
            fields = file.read().split()
            for word, scale in columns:
                try:
                    values.append(int(fields[fields.index(word) + 1 if word else 0]) * scale)
                except (ValueError, IndexError):
                    values.append(nan)
        return values

    def close(self) -> None:
        for file, _ in self._files:
            file.close()
