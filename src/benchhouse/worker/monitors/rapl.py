"""Energy of processors and their memory, from the kernel's powercap tree: RAPL of Intel and AMD.

Only packages and memory count. Cores and graphics are parts of a package, `psys` includes the packages, and
`intel-rapl-mmio` is another interface to the same counters.
"""

import os
import time
from collections.abc import Iterable, Sequence
from math import nan
from pathlib import Path

from benchhouse.schema.telemetry import Series
from benchhouse.worker.monitors.procfs import OpenFile, series

ROOT = Path("/sys/class/powercap")
_PACKAGE, _MEMORY = "package", "dram"  # prefixes of zone names
_MOST_W = 1000.0  # of one zone: if it is not read for too long, it may have exceeded its range more than once
PACKAGES = series("cpu_energy", "J", "Energy used by processor packages.", counter=True, family="energy")
MEMORY = series("dram_energy", "J", "Energy used by the memory of processors.", counter=True, family="energy")
SERIES: tuple[Series, ...] = (PACKAGES, MEMORY)


class _Zone:
    """One counter of microjoules, which restarts at 0 after its range: minutes of a busy package."""

    def __init__(self, folder: Path) -> None:
        self._file = OpenFile(folder / "energy_uj")
        self._range_j = _microjoules(OpenFile(folder / "max_energy_range_uj"), close=True)
        self._last_j, self._read_s, self._used_j = _microjoules(self._file), time.monotonic(), 0.0

    @property
    def is_readable(self) -> bool:
        return self._last_j == self._last_j

    def used_j(self) -> float:
        """Return the energy since it was opened; NaN from the time on at which that becomes unknown."""
        read_j, now_s = _microjoules(self._file), time.monotonic()
        grown_j = read_j - self._last_j
        self._used_j += grown_j if grown_j >= 0 else grown_j + self._range_j
        if now_s - self._read_s > self._range_j / _MOST_W:
            self._used_j = nan
        self._last_j, self._read_s = read_j, now_s
        return self._used_j

    def close(self) -> None:
        self._file.close()


class Energy:
    """All packages of the machine together, and all their memory; no series if nothing can be read."""

    name = "node"

    def __init__(self, root: Path = ROOT) -> None:
        self._zones: list[list[_Zone]] = []
        self.series: Sequence[Series] = ()
        for item, kind in zip(SERIES, (_PACKAGE, _MEMORY), strict=True):
            zones = [_Zone(folder) for folder in _folders(root, kind)]
            if zones and all(zone.is_readable for zone in zones):
                self._zones.append(zones)
                self.series = (*self.series, item)
            else:
                _close(zones)

    def sample(self) -> list[float]:
        return [sum(zone.used_j() for zone in zones) for zones in self._zones]

    def close(self) -> None:
        for zones in self._zones:
            _close(zones)


def unreadable_reason(root: Path = ROOT) -> str:
    """Return why the energy of processors is unknown; empty if it is known."""
    if not root.is_dir():
        return f"this machine has no {root}"
    folders = _folders(root, _PACKAGE)
    if not folders:
        return f"{root} has no processor package"
    hidden = [folder / "energy_uj" for folder in folders if not os.access(folder / "energy_uj", os.R_OK)]
    return f"{hidden[0]} can't be read: by default only root may" if hidden else ""


def _folders(root: Path, kind: str) -> list[Path]:
    return [folder for folder in sorted(root.glob("intel-rapl:*")) if _text(folder / "name").startswith(kind)]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _microjoules(file: OpenFile, *, close: bool = False) -> float:
    """Return the value in joules; NaN if it can't be read."""
    text = file.read().strip()
    if close:
        file.close()
    return int(text) / 1e6 if text.isdigit() else nan


def _close(zones: Iterable[_Zone]) -> None:
    for zone in zones:
        zone.close()
