"""Everything that a monitor can sample on any machine, for dashboards and rules, and for the list of monitors."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchhouse.schema.telemetry import Series
from benchhouse.worker.monitors import cgroup, exporters, nvml, procfs, prometheus, rapl, tree, waits

_NODE = (procfs.Processors, procfs.MemoryFile, procfs.Disks, procfs.NetworkFile, procfs.LoadAverageFile)


@dataclass(frozen=True)
class Monitored:
    """Something that can be monitored."""

    name: str
    ask: str
    """How a scenario requests it, below `monitors`."""
    families: tuple[str, ...]
    metrics: tuple[str, ...]
    """Our names of the series; for an exporter, the names of its metrics on its page."""
    programs: str
    """The programs or files that are read."""
    state: str
    """works, or contract-tested: tested with pages in the documented format, but never with the program itself."""


def all_series() -> list[Series]:
    return [*_node_series(), *_process_series(), *nvml.SERIES, *prometheus.SERIES, *waits.SERIES]


def monitored() -> list[Monitored]:
    """Return everything that can be monitored, by name."""
    own = [
        _own("node", "the kernel's /proc and /sys", _node_series()),
        _own("trial", "processes below the worker, and their cgroup", _process_series()),
        _own("services", "each server's processes", _process_series()),
        _own("gpu", "NVML", nvml.SERIES),
        _own("scheduler", "what Kubernetes and Kueue say of the trial's pod", waits.SERIES, ask="sources: [node]"),
        _own("serving engines", "vLLM, Triton", prometheus.SERIES, ask="prometheus: [{url: ...}]"),
    ]
    return own + [
        Monitored(
            exporter.name,
            f"prometheus: [{{url: ..., exporter: {exporter.name}}}]",
            tuple(dict.fromkeys(metric.family for metric in exporter.metrics.values())),
            tuple(exporter.metrics),
            exporter.programs,
            exporter.state,
        )
        for exporter in exporters.KNOWN.values()
    ]


def _own(name: str, programs: str, series: Iterable[Series], ask: str = "") -> Monitored:
    items = list(series)
    families = tuple(dict.fromkeys(item.family for item in items))
    names = tuple(dict.fromkeys(item.name for item in items))
    return Monitored(name, ask or f"sources: [{name}]", families, names, programs, "works")


def _node_series() -> list[Series]:
    pressures = [item for resource in ("cpu", "memory", "io") for item in procfs.pressures(resource)]
    return [*(item for source in _NODE for item in source.series), *pressures, *rapl.SERIES]


def _process_series() -> list[Series]:
    return [*tree.SERIES, *(item for _, columns in cgroup.V2 for item, _, _ in columns)]
