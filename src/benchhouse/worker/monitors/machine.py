"""The machine as one source: `/proc`, and the energy of its processors."""

from benchhouse.schema.telemetry import Source
from benchhouse.worker.monitors.procfs import Disks, Joined, Load, Memory, Network, Paced, Pressure, Processors
from benchhouse.worker.monitors.rapl import Energy


def node() -> Joined:
    """CPU and energy at every tick; memory, disks, network, load and pressure once a second at the most."""
    energy = Energy()
    fast: list[Source] = [Processors(), energy] if energy.series else [Processors()]
    return Joined("node", [*fast, Paced(Joined("node", besides_processors()))])


def besides_processors() -> list[Source]:
    pressures = [Pressure(name) for name in ("cpu", "memory", "io")]
    return [Memory(), Disks(), Network(), Load(), *(part for part in pressures if part.series)]
