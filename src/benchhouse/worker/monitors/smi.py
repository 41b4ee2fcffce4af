"""GPUs through `nvidia-smi`, where NVML itself can't be loaded: one process that prints a line a GPU each interval."""

import contextlib
import csv
import math
import os
import shutil
import subprocess
import time
from collections.abc import Sequence

from benchhouse.schema.telemetry import Series
from benchhouse.worker.monitors import nvml

_START_LIMIT_S = 10.0  # the first call may have to load the driver
_STALE_INTERVALS = 5
_MIB = 1024.0 * 1024.0
_MASK = "clocks_throttle_reasons.active"  # newer programs take the old name too
_KEPT_BYTES = 1 << 16

# How nvidia-smi calls it, what it is here, and the factor between the units.
_COLUMNS: tuple[tuple[str, Series, float], ...] = (
    ("utilization.gpu", nvml.BUSY, 0.01),
    ("utilization.memory", nvml.MEMORY_BUSY, 0.01),
    ("memory.used", nvml.MEMORY_USED, _MIB),
    ("memory.total", nvml.MEMORY_TOTAL, _MIB),
    ("clocks.sm", nvml.SM_CLOCK, 1.0),
    ("clocks.mem", nvml.MEMORY_CLOCK, 1.0),
    ("power.draw", nvml.POWER, 1.0),
    ("temperature.gpu", nvml.TEMPERATURE, 1.0),
    ("temperature.memory", nvml.MEMORY_TEMPERATURE, 1.0),
    ("ecc.errors.corrected.volatile.total", nvml.ECC_CORRECTED, 1.0),
    ("ecc.errors.uncorrected.volatile.total", nvml.ECC_UNCORRECTED, 1.0),
    ("pcie.link.width.current", nvml.PCIE_WIDTH, 1.0),
    ("pcie.link.width.max", nvml.PCIE_WIDTH_MOST, 1.0),
    ("pcie.link.gen.current", nvml.PCIE_GENERATION, 1.0),
    ("pcie.link.gen.max", nvml.PCIE_GENERATION_MOST, 1.0),
)
_KNOWN = {name: (series, factor) for name, series, factor in _COLUMNS}


def open_gpus(interval_s: float, program: str = "nvidia-smi") -> "list[Gpu]":
    """A source for each GPU that the program lists; none where there is no such program, or it finds no GPU."""
    path = shutil.which(program)
    if path is None:
        return []
    names = [name for name, _, _ in _COLUMNS] + [_MASK]
    first = ""
    for _ in range(len(names)):  # an older program refuses a column by its name; go on without it
        first, refused = _ask(path, names)
        if refused not in names:
            break
        names.remove(refused)
    rows = _rows(first, len(names))
    if not rows:
        return []
    loop = _Loop(path, names, interval_s)
    loop.latest = rows
    return [Gpu(loop, index, row) for index, row in sorted(rows.items())]


def _ask(program: str, names: Sequence[str]) -> tuple[str, str]:
    """What it prints, and the column that it refused."""
    try:
        done = subprocess.run(
            _command(program, names), capture_output=True, text=True, timeout=_START_LIMIT_S, check=False, env=_plain()
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    if done.returncode == 0:
        return done.stdout, ""
    _, _, rest = done.stdout.partition('Field "')
    return "", rest.partition('"')[0]


def _command(program: str, names: Sequence[str]) -> list[str]:
    return [program, f"--query-gpu=index,name,{','.join(names)}", "--format=csv,noheader,nounits"]


def _plain() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C"}


def _rows(text: str, columns: int) -> dict[int, list[str]]:
    """The last row of each GPU, by its index; other lines are left out."""
    rows: dict[int, list[str]] = {}
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) == columns + 2 and row[0].isdigit():
            rows[int(row[0])] = row
    return rows


class _Loop:
    """The process that prints. It is asked by all GPUs, and reads what has come without waiting."""

    def __init__(self, program: str, names: Sequence[str], interval_s: float) -> None:
        self.names, self.latest, self.users = list(names), dict[int, list[str]](), 0
        self._stale_s = max(1.0, _STALE_INTERVALS * interval_s)
        self._text, self._at = b"", time.monotonic()
        self._process = subprocess.Popen(
            [*_command(program, names), f"--loop-ms={max(100, round(interval_s * 1000))}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_plain(),
        )
        assert self._process.stdout is not None
        self._handle = self._process.stdout.fileno()
        os.set_blocking(self._handle, False)

    def look(self) -> str:
        """Take what was printed since; returns why there are no values, else nothing."""
        while True:
            try:
                read = os.read(self._handle, _KEPT_BYTES)
            except BlockingIOError:
                break
            if not read:
                self.latest = {}
                return f"nvidia-smi ended (exit code {self._process.poll()})"
            self._text = (self._text + read)[-_KEPT_BYTES:]
        whole, newline, self._text = self._text.rpartition(b"\n")
        if newline and (rows := _rows(whole.decode(errors="replace"), len(self.names))):
            self.latest, self._at = self.latest | rows, time.monotonic()
        if time.monotonic() - self._at > self._stale_s:
            return f"nvidia-smi has printed nothing for {self._stale_s:g} s"
        return ""

    def leave(self) -> None:
        self.users -= 1
        if self.users == 0:
            self._process.kill()
            self._process.wait()
            if self._process.stdout:
                self._process.stdout.close()


class Gpu:
    """One GPU of those that nvidia-smi prints; the values are at most an interval old."""

    slow = False  # reading never waits; the process beside it does
    model: str

    def __init__(self, loop: _Loop, index: int, row: Sequence[str]) -> None:
        self.name, self.model = f"gpu{index}", row[1]
        self.problems: list[str] = []
        self._loop, self._index, self._reported, self._open = loop, index, False, True
        loop.users += 1
        self._columns: list[tuple[int, str]] = []
        series: list[Series] = []
        for at, name in enumerate(loop.names, start=2):
            if not all(map(math.isnan, _values(name, row[at]))):  # [N/A] on this GPU
                series += nvml.THROTTLES if name == _MASK else (_KNOWN[name][0],)
                self._columns.append((at, name))
        self.series: Sequence[Series] = tuple(series)

    def sample(self) -> Sequence[float]:
        trouble = self._loop.look() if self._open else ""
        row = self._loop.latest.get(self._index)
        if trouble or row is None:
            if trouble and not self._reported:
                self._reported = True
                self.problems.append(f"{self.name}: {trouble}; its values are missing from here on")
            return [math.nan] * len(self.series)
        return [value for at, name in self._columns for value in _values(name, row[at])]

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.leave()


def _values(name: str, text: str) -> Sequence[float]:
    """What a column says; NaN where it is not a number."""
    with contextlib.suppress(ValueError):
        return nvml.throttles(int(text, 16)) if name == _MASK else [float(text) * _KNOWN[name][1]]
    return [math.nan] * (len(nvml.THROTTLES) if name == _MASK else 1)
