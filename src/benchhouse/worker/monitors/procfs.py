"""Parts of the node, read from /proc through descriptors that stay open: a sample costs tens of microseconds."""

import os
import time
from collections.abc import Iterable, Sequence
from functools import cache
from math import nan
from pathlib import Path

from benchhouse.schema.telemetry import Family, Series, SeriesSource

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CHUNK = 16384
_WHOLE = 2048  # /proc answers in pieces of up to a page: a shorter answer is complete
_SECTOR = 512
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # exist as soon as a driver is loaded; the second inside Windows
_PACE_S = 0.9  # slightly less than a second, so that a tick of one second never comes too early


class OpenFile:
    """A file that is opened once and read many times; it reads as empty if it can't be opened."""

    __slots__ = ("handle",)

    def __init__(self, path: str | Path) -> None:
        try:
            self.handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.handle = -1

    def read(self) -> bytes:
        if self.handle < 0:
            return b""
        try:
            text = piece = os.pread(self.handle, _CHUNK, 0)
            while len(piece) >= _WHOLE:
                piece = os.pread(self.handle, _CHUNK, len(text))
                text += piece
        except OSError:
            return b""
        return text

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


def series(name: str, unit: str, description: str, *, counter: bool = False, family: Family = "node") -> Series:
    return Series(name=name, unit=unit, kind="counter" if counter else "gauge", family=family, description=description)


def driver_is_here() -> bool:
    """Whether a GPU driver is loaded. The check takes microseconds, so that a machine without a GPU pays for nothing
    else."""
    return any(map(os.path.exists, _DRIVERS))


class Joined:
    """Several sources under one name; if one can't be read, the others are not affected."""

    def __init__(self, name: str, parts: Sequence[SeriesSource]) -> None:
        self.name, self._parts = name, parts
        self.series: Sequence[Series] = [series for part in parts for series in part.series]

    def sample(self) -> list[float]:
        values: list[float] = []
        for part in self._parts:
            missing = [nan] * len(part.series)
            try:
                sample = part.sample()
            except (OSError, ValueError, LookupError):
                sample = missing
            values += sample if len(sample) == len(missing) else missing
        return values

    def refresh(self) -> None:
        refresh(self._parts)

    def close(self) -> None:
        for part in self._parts:
            part.close()


def refresh(sources: Iterable[SeriesSource]) -> None:
    """Make the next sample read everything, including what is normally read less often."""
    for source in sources:
        if again := getattr(source, "refresh", None):
            again()


class Paced:
    """A source that is read at most once a second, and is NaN in between: after a pause all caches are cold, and each
    file of /proc costs ten times as much to read as in a loop."""

    def __init__(self, source: SeriesSource) -> None:
        self.name, self.series, self._source = source.name, source.series, source
        self._nothing = [nan] * len(source.series)
        self._due_s = 0.0

    def sample(self) -> Sequence[float]:
        now_s = time.monotonic()
        if now_s < self._due_s:
            return self._nothing
        self._due_s = now_s + _PACE_S
        return self._source.sample()

    def refresh(self) -> None:
        self._due_s = 0.0

    def close(self) -> None:
        self._source.close()


class _File:
    """A source that consists of one file."""

    name = "node"
    path = ""
    series: Sequence[Series] = ()

    def __init__(self, path: str = "") -> None:
        self._file = OpenFile(path or self.path)

    def close(self) -> None:
        self._file.close()


class Processors(_File):
    path = "/proc/stat"
    series = (
        series("cpu_busy", "s", "Time that cores worked, all together.", counter=True),
        series("cpu_user", "s", "Of that: in programs.", counter=True),
        series("cpu_system", "s", "Of that: in the kernel, interrupts included.", counter=True),
        series("cpu_iowait", "s", "Time that cores were idle while something waited for a disk.", counter=True),
        series("cpu_steal", "s", "Time that the hypervisor gave to others.", counter=True),
        series("context_switches", "1", "Switches from one thread to another.", counter=True),
        series("forks", "1", "Processes and threads started.", counter=True),
        series("running", "1", "Threads that run or could."),
        series("blocked", "1", "Threads that wait for a disk."),
    )

    def sample(self) -> list[float]:
        text = self._file.read()
        user, nice, system, _, iowait, irq, softirq, steal = map(int, text.split(None, 9)[1:9])
        work, kernel = user + nice, system + irq + softirq
        counts = text[text.rindex(b"\nctxt ") :].split(None, 10)  # ctxt, btime, processes, procs_running, procs_blocked
        times = [ticks / TICKS_PER_S for ticks in (work + kernel, work, kernel, iowait, steal)]
        return [*times, *(float(counts[at]) for at in (1, 5, 7, 9))]


class LoadAverageFile(_File):
    path = "/proc/loadavg"
    series = (series("load1", "1", "Load average of a minute."),)

    def sample(self) -> list[float]:
        return [float(self._file.read().split(None, 1)[0])]


class MemoryFile(_File):
    path = "/proc/meminfo"
    series = (
        series("memory_used", "B", "Memory that programs could not have at once: total less available."),
        series("memory_available", "B", "Memory that programs could have without swapping."),
        series("memory_cached", "B", "Page cache."),
        series("memory_dirty", "B", "Page cache that is still to be written."),
        series("swap_used", "B", "Swap space in use."),
    )

    def sample(self) -> list[float]:
        text = self._file.read()

        def size(key: bytes) -> int:
            at = text.index(key) + len(key)
            return int(text[at : text.index(b"k", at)]) * 1024

        total, available = size(b"MemTotal:"), size(b"MemAvailable:")
        swap = size(b"SwapTotal:") - size(b"SwapFree:")
        return [total - available, available, size(b"\nCached:"), size(b"Dirty:"), swap]


class Disks(_File):
    """All physical disks together; partitions, loop devices, and mapped devices would count their bytes twice."""

    path = "/proc/diskstats"
    series = (
        series("disk_read", "B", "Bytes read from disks.", counter=True),
        series("disk_written", "B", "Bytes written to disks.", counter=True),
        series("disk_reads", "1", "Reads that disks have done.", counter=True),
        series("disk_writes", "1", "Writes that disks have done.", counter=True),
        series("disk_busy", "s", "Time that disks had something to do, summed over disks.", counter=True),
    )

    def __init__(self, path: str = "", blocks: str = "/sys/block") -> None:
        super().__init__(path)
        self._names = _devices(blocks)[0]

    def sample(self) -> list[float]:
        read = written = reads = writes = busy = 0
        for line in self._file.read().splitlines():
            fields = line.split(None, 13)
            if fields[2] in self._names:
                reads, read = reads + int(fields[3]), read + int(fields[5])
                writes, written = writes + int(fields[7]), written + int(fields[9])
                busy += int(fields[12])
        return [read * _SECTOR, written * _SECTOR, reads, writes, busy / 1000]


@cache
def _devices(folder: str) -> tuple[set[bytes], set[bytes]]:
    """Return the physical devices in a folder of sysfs, and all but the loopback; cached, also for forked processes."""
    try:
        devices = [device for device in Path(folder).iterdir() if device.name != "lo"]
    except OSError:
        return set(), set()
    real = {device.name.encode() for device in devices if (device / "device").exists()}
    return real, {device.name.encode() for device in devices}


class NetworkFile(_File):
    """All network cards together, and the loopback separately. Without a card (in a container): all but the
    loopback."""

    path = "/proc/net/dev"
    series = (
        series("net_received", "B", "Bytes received.", counter=True, family="network"),
        series("net_sent", "B", "Bytes sent.", counter=True, family="network"),
        series("net_errors", "1", "Packets with errors, either way.", counter=True, family="network"),
        series("net_drops", "1", "Packets dropped, either way.", counter=True, family="network"),
        series("loopback", "B", "Bytes that passed between programs of this machine.", counter=True, family="network"),
    )

    def __init__(self, path: str = "", cards: str = "/sys/class/net") -> None:
        super().__init__(path)
        real, every = _devices(cards)
        self._names = real or every

    def sample(self) -> list[float]:
        received = sent = errors = drops = loopback = 0
        for line in self._file.read().splitlines()[2:]:
            name, _, rest = line.partition(b":")
            name = name.strip()
            if name in self._names:
                fields = rest.split(None, 12)
                received, sent = received + int(fields[0]), sent + int(fields[8])
                errors += int(fields[2]) + int(fields[10])
                drops += int(fields[3]) + int(fields[11])
            elif name == b"lo":
                loopback = int(rest.split(None, 1)[0])
        return [received, sent, errors, drops, loopback]


class Pressure(_File):
    """Pressure stall information of one resource; no series if the kernel does not provide it."""

    def __init__(self, resource: str, folder: str = "/proc/pressure") -> None:
        super().__init__(f"{folder}/{resource}")
        self.series = pressures(resource) if self._file.read() else ()

    def sample(self) -> list[float]:
        totals = self._file.read().split(b"total=")
        return [int(total.split(None, 1)[0]) / 1e6 for total in totals[1 : 1 + len(self.series)]]


@cache
def pressures(resource: str) -> tuple[Series, ...]:
    some = series(f"{resource}_pressure", "s", f"Time that some thread waited for {resource}.", counter=True)
    if resource == "cpu":  # for the cores of a whole machine, `full` is meaningless
        return (some,)
    description = f"Time that all threads waited for {resource}."
    return some, series(f"{resource}_pressure_full", "s", description, counter=True)
