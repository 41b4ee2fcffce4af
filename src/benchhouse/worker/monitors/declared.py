"""Every series that a monitor may sample, on any machine: what dashboards and rules are made of."""

from benchhouse.schema.telemetry import Series
from benchhouse.worker.monitors import cgroup, nvml, procfs, prometheus, tree

_NODE = (procfs.Processors, procfs.Memory, procfs.Disks, procfs.Network, procfs.Load)


def all_series() -> list[Series]:
    return [
        *(item for source in _NODE for item in source.series),
        *(item for resource in ("cpu", "memory", "io") for item in procfs.pressures(resource)),
        *tree.SERIES,
        *(item for _, columns in cgroup.V2 for item, _, _ in columns),
        *nvml.SERIES,
        *prometheus.SERIES,
    ]
