"""The machine as one source: `/proc`, and the energy of its processors."""

from benchhouse.schema.telemetry import SeriesSource
from benchhouse.worker.monitors.procfs import (
    Disks,
    Joined,
    LoadAverageFile,
    MemoryFile,
    NetworkFile,
    Paced,
    Pressure,
    Processors,
)
from benchhouse.worker.monitors.rapl import Energy


def node() -> Joined:
    """Return CPU and energy, read at every tick; memory, disks, network, load, and pressure, at most once a second."""
    energy = Energy()
    fast: list[SeriesSource] = [Processors(), energy] if energy.series else [Processors()]
    return Joined("node", [*fast, Paced(Joined("node", besides_processors()))])


def besides_processors() -> list[SeriesSource]:
    pressures = [Pressure(name) for name in ("cpu", "memory", "io")]
    return [MemoryFile(), Disks(), NetworkFile(), LoadAverageFile(), *(part for part in pressures if part.series)]
