"""Exporters by name: the names of their metrics, and what values mean if the page itself does not define it.

A page's own types and names are not enough: SLINKY ends gauges in `_total` and counts microseconds in `_seconds`, dcgm
writes 2^63 if a GPU does not answer, and eight GPUs that are each half busy are not 400% busy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from benchhouse.schema.telemetry import EXPORTERS, ExporterName, Family

_MIB, _US = float(1 << 20), 1e-6
_BLANK = float(1 << 47)  # DCGM's smallest marker for "no value"; integers have larger ones
_WIDEST = 32.0  # lanes; an idle port reads 63


@dataclass(frozen=True)
class ExporterMetric:
    """How a metric is read: its value times `factor` is in `unit`, with one series per value of its labels."""

    unit: str
    labels: tuple[str, ...] = ()
    factor: float = 1.0
    counter: bool = False
    mean: bool = False  # over labels that are not separate series; otherwise they are added
    family: Family = "node"
    least: float = -math.inf
    below: float = math.inf
    """Values outside of `least` to `below` are the exporter's marker for "unknown"."""


@dataclass(frozen=True)
class Exporter:
    """One exporter: the family of its series, and its metrics by their names on the page."""

    name: ExporterName
    family: Family
    programs: str
    metrics: Mapping[str, ExporterMetric]
    state: str = "contract-tested"


def _gpu(unit: str, factor: float = 1.0, family: Family = "gpu", *, counter: bool = False) -> ExporterMetric:
    mean = not counter and unit in ("1", "degC", "MHz", "code")
    return ExporterMetric(unit, ("gpu",), factor, counter, mean, family, below=_BLANK)


def _link(unit: str, labels: tuple[str, ...], below: float = math.inf) -> ExporterMetric:
    return ExporterMetric(unit, labels, mean=True, family="pcie", least=0.0, below=below)


def _ping(unit: str, factor: float = 1.0) -> ExporterMetric:
    return ExporterMetric(unit, ("target", "dest_nodename"), factor, mean=True, family="network")


def _queue(unit: str = "workloads", *labels: str, counter: bool = False) -> ExporterMetric:
    return ExporterMetric(unit, ("cluster_queue", *labels), counter=counter, family="scheduler")


def _slurm(unit: str, *labels: str, factor: float = 1.0) -> ExporterMetric:
    return ExporterMetric(unit, labels, factor, family="scheduler")


_DCGM = {
    "DCGM_FI_DEV_GPU_UTIL": _gpu("1", 0.01),
    "DCGM_FI_DEV_MEM_COPY_UTIL": _gpu("1", 0.01),
    "DCGM_FI_DEV_SM_CLOCK": _gpu("MHz"),
    "DCGM_FI_DEV_MEM_CLOCK": _gpu("MHz"),
    "DCGM_FI_DEV_GPU_TEMP": _gpu("degC"),
    "DCGM_FI_DEV_MEMORY_TEMP": _gpu("degC"),
    "DCGM_FI_DEV_POWER_USAGE": _gpu("W", family="energy"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _gpu("J", 1e-3, "energy", counter=True),
    "DCGM_FI_DEV_FB_USED": _gpu("B", _MIB),
    "DCGM_FI_DEV_FB_FREE": _gpu("B", _MIB),
    "DCGM_FI_DEV_XID_ERRORS": _gpu("code"),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _gpu("errors", counter=True),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _gpu("errors", counter=True),
    "DCGM_FI_DEV_POWER_VIOLATION": _gpu("s", 1e-9, counter=True),
    "DCGM_FI_DEV_THERMAL_VIOLATION": _gpu("s", 1e-9, counter=True),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _gpu("1"),
    "DCGM_FI_PROF_SM_ACTIVE": _gpu("1"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _gpu("1"),
    "DCGM_FI_PROF_DRAM_ACTIVE": _gpu("1"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": _gpu("B/s", family="pcie"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": _gpu("B/s", family="pcie"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": _gpu("replays", family="pcie", counter=True),
}
_NVLINK = {
    "DCGM_FI_PROF_NVLINK_TX_BYTES": _gpu("B/s", family="nvlink"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": _gpu("B/s", family="nvlink"),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _gpu("errors", family="nvlink", counter=True),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": _gpu("errors", family="nvlink", counter=True),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": _gpu("replays", family="nvlink", counter=True),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": _gpu("recoveries", family="nvlink", counter=True),
}
_BUS = ("segment", "bus", "device", "function")
_PCI = {
    "node_pcidevice_current_link_width": _link("lanes", _BUS, _WIDEST + 1),
    "node_pcidevice_max_link_width": _link("lanes", _BUS, _WIDEST + 1),
    "node_pcidevice_current_link_transfers_per_second": _link("1/s", _BUS),
    "node_pcidevice_max_link_transfers_per_second": _link("1/s", _BUS),
    "node_pci_cur_width": _link("lanes", ("device",), _WIDEST + 1),
    "node_pci_cur_speed": _link("1/s", ("device",)),
}
_PING = {
    "ping_loss_ratio": _ping("1"),
    "ping_loss_percent": _ping("1"),  # a ratio despite its name, until version 1.0
    "ping_rtt_best_seconds": _ping("s"),
    "ping_rtt_worst_seconds": _ping("s"),
    "ping_rtt_mean_seconds": _ping("s"),
    "ping_rtt_std_deviation_seconds": _ping("s"),
    "ping_rtt_worst_ms": _ping("s", 1e-3),
    "ping_rtt_mean_ms": _ping("s", 1e-3),
}
_PROBLEMS = {
    "problem_counter": ExporterMetric("problems", ("reason",), counter=True),
    # while the node has the problem, one of all reasons of a type is 1
    "problem_gauge": ExporterMetric("1", ("type",)),
}
_KUEUE = {
    "kueue_pending_workloads": _queue("workloads", "status"),
    "kueue_reserving_active_workloads": _queue(),
    "kueue_admitted_active_workloads": _queue(),
    "kueue_admitted_workloads_total": _queue(counter=True),
    "kueue_evicted_workloads_total": _queue("workloads", "reason", counter=True),
    "kueue_quota_reserved_wait_time_seconds_sum": _queue("s", counter=True),
    "kueue_quota_reserved_wait_time_seconds_count": _queue(counter=True),
    "kueue_admission_wait_time_seconds_sum": _queue("s", counter=True),
    "kueue_admission_wait_time_seconds_count": _queue(counter=True),
    "kueue_admission_checks_wait_time_seconds_sum": _queue("s", counter=True),
    "kueue_admission_attempt_duration_seconds_sum": ExporterMetric("s", ("result",), counter=True, family="scheduler"),
    "kueue_admission_attempts_total": ExporterMetric("attempts", ("result",), counter=True, family="scheduler"),
    "kueue_cluster_queue_resource_usage": _queue("1", "flavor", "resource"),
    "kueue_cluster_queue_resource_reservation": _queue("1", "flavor", "resource"),
    "kueue_cluster_queue_nominal_quota": _queue("1", "flavor", "resource"),
}
_SLINKY = {
    # SLINKY's own exporter, up to version 0.4.
    "slurm_scheduler_queue_total": _slurm("jobs"),
    "slurm_scheduler_cycle_last_seconds": _slurm("s", factor=_US),
    "slurm_scheduler_cycle_mean_seconds": _slurm("s", factor=_US),
    "slurm_bfscheduler_cycle_mean_seconds": _slurm("s", factor=_US),
    "slurm_jobs_pending_total": _slurm("jobs"),
    "slurm_jobs_running_total": _slurm("jobs"),
    "slurm_nodes_idle_total": _slurm("nodes"),
    "slurm_nodes_down_total": _slurm("nodes"),
    "slurm_nodes_drain_total": _slurm("nodes"),
    "slurm_partition_jobs_pending_total": _slurm("jobs", "partition"),
    "slurm_partition_jobs_pending_maxnodecount_total": _slurm("nodes", "partition"),
    "slurm_partition_nodes_idle_total": _slurm("nodes", "partition"),
    "slurm_partition_nodes_cpus_idle_total": _slurm("cores", "partition"),
    # slurmctld's own pages, from Slurm 25.11 on.
    "slurm_schedule_queue_len": _slurm("jobs"),
    "slurm_schedule_cycle_last": _slurm("s", factor=_US),
    "slurm_sched_mean_cycle": _slurm("s", factor=_US),
    "slurm_bf_mean_cycle": _slurm("s", factor=_US),
    "slurm_jobs_pending": _slurm("jobs"),
    "slurm_jobs_running": _slurm("jobs"),
    "slurm_nodes_idle": _slurm("nodes"),
    "slurm_nodes_down": _slurm("nodes"),
    "slurm_nodes_drain": _slurm("nodes"),
    "slurm_partition_jobs_pending": _slurm("jobs", "partition"),
    "slurm_partition_nodes_idle": _slurm("nodes", "partition"),
}

KNOWN: dict[str, Exporter] = {
    exporter.name: exporter
    for exporter in (
        Exporter("dcgm", "gpu", "dcgm-exporter", _DCGM),
        Exporter("nvlink", "nvlink", "dcgm-exporter with its NVLink fields", _NVLINK),
        Exporter("pci", "pcie", "node exporter (pcidevice), node-pci-exporter", _PCI),
        Exporter("ping", "network", "ping_exporter, one on each node for a mesh", _PING),
        Exporter("node-problem-detector", "node", "node-problem-detector", _PROBLEMS),
        Exporter("kueue", "scheduler", "Kueue's controller", _KUEUE),
        Exporter("slinky", "scheduler", "SLINKY's slurm-exporter, slurmctld from 25.11 on", _SLINKY),
    )
}
METRICS: dict[str, ExporterMetric] = {
    name: metric for exporter in KNOWN.values() for name, metric in exporter.metrics.items()
}
assert tuple(KNOWN) == EXPORTERS
