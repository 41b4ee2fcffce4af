"""What the kernel counts for a trial's cgroup, v1 or v2: to the nanosecond, and whether its limits held it back."""

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path

from benchhouse.schema.telemetry import Series
from benchhouse.worker.monitors.procfs import Kept, series

_CPU = series("cgroup_cpu", "s", "CPU time that the cgroup used.", counter=True, family="process")
_THROTTLED = series("cgroup_throttled", "s", "Time that its CPU limit held it back.", counter=True, family="process")
_PERIODS = series("cgroup_periods", "1", "Periods of its CPU limit.", counter=True, family="process")
_HELD = series("cgroup_throttled_periods", "1", "Periods in which it was held back.", counter=True, family="process")
_MEMORY = series("cgroup_memory", "B", "Memory of the cgroup, page cache included.", family="process")
_OOM = series("cgroup_oom_kills", "1", "Processes killed for want of memory.", counter=True, family="process")

_File = tuple[str, tuple[tuple[Series, bytes, float], ...]]

# A file, then each series of it: the word before its number (none: the file is the number), and its scale.
_V2: tuple[_File, ...] = (
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
    """`folders` is that of a Cage: "v2" and v1 controllers with their folders. What is not there has no series."""

    name = "trial"

    def __init__(self, folders: Mapping[str, Path]) -> None:
        wanted = [(folders["v2"], one) for one in _V2] if "v2" in folders else []
        for controller, files in _V1.items():
            if controller in folders:
                wanted += [(folders[controller], one) for one in files]
        self._files: list[tuple[Kept, list[tuple[bytes, float]]]] = []
        self.series: Sequence[Series] = []
        for folder, (name, columns) in wanted:
            file = Kept(folder / name)
            words = file.read().split()
            there = [column for column in columns if words and (not column[1] or column[1] in words)]
            known = {one.name for one in self.series}  # v1's cpu and cpuacct are often one folder
            there = [column for column in there if column[0].name not in known]
            if there:
                self.series = [*self.series, *(column[0] for column in there)]
                self._files.append((file, [(word, scale) for _, word, scale in there]))
            else:
                file.close()

    def sample(self) -> list[float]:
        values: list[float] = []
        for file, columns in self._files:
            words = file.read().split()
            for word, scale in columns:
                try:
                    values.append(int(words[words.index(word) + 1 if word else 0]) * scale)
                except (ValueError, IndexError):
                    values.append(nan)
        return values

    def close(self) -> None:
        for file, _ in self._files:
            file.close()
