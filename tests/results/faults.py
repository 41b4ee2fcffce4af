"""Runs with an injected fault, and healthy ones: sealed folders with telemetry, written and collected as real ones are.

A fault moves what it moves in reality: its own series, what follows from it downstream, and the numbers that users
see. Every run also has what is nobody's fault: levels that differ from run to run and from trial to trial, samples that
hang together in time, outliers, and series that drift for no reason.
"""

import math
import sys
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random

from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.measurement import Measurement
from benchhouse.schema.telemetry import Series
from benchhouse.warehouse.ingest import collect
from benchhouse.worker.monitors.sampler import Recording, Track
from benchhouse.worker.monitors.series_catalog import all_series

sys.path.insert(0, str(Path(__file__).parents[1] / "warehouse"))
from trial_maker import START, make_trial

SAMPLES = 31
RANKS = 8
_DECLARED = {one.name: one for one in reversed(all_series())}
_RUN, _TRIAL, _SAMPLE = 0.01, 0.02, 0.08  # relative spread of a level from run to run, trial to trial, and inside one
_OUTLIER = 0.03  # of the trials of a series: they lie several spreads off

Levels = dict[tuple[str, str], float]
"""Scope and series to the usual level: of a counter, its growth a second."""

NODE: Levels = {
    ("node", name): level
    for name, level in {
        "cpu_busy": 6.0, "cpu_iowait": 0.02, "cpu_steal": 0.001, "io_pressure": 0.01, "cpu_pressure": 0.03,
        "disk_busy": 0.05, "disk_read": 2e7, "blocked": 0.1, "memory_used": 4e10, "swap_used": 0.0,
        "net_received": 1e7, "net_sent": 1e7, "net_drops": 0.02, "net_errors": 0.0, "context_switches": 3e4,
        "load1": 6.0,
    }.items()
}  # fmt: skip
TRIAL: Levels = {
    ("trial", name): level
    for name, level in {
        "cpu": 5.0, "cpu_wait": 0.05, "rss": 2e10, "major_faults": 0.5, "cgroup_throttled": 0.002,
        "cgroup_throttled_periods": 0.05, "cgroup_oom_kills": 0.0, "threads": 80.0,
    }.items()
}  # fmt: skip
GPUS: Levels = {
    (f"gpu{at}", name): level
    for at in range(4)
    for name, level in {
        "gpu_busy": 0.93, "gpu_temperature": 64.0, "gpu_sm_clock": 1700.0, "gpu_throttled_heat": 0.0,
        "pcie_width": 16.0, "pcie_generation": 4.0, "pcie_replays": 0.0, "nvlink_active": 12.0, "nvlink_crc": 0.0,
        "gpu_power": 400.0,
    }.items()
}  # fmt: skip
SERVER: Levels = {
    ("service:vllm", name): level
    for name, level in {
        "requests_waiting": 1.5, "requests_running": 20.0, "kv_cache_used": 0.55, "requests_preempted": 0.0,
        "queue_time": 0.06, "processes": 4.0, "cpu": 2.0,
    }.items()
} | {
    ("service:kube", "kube_pod_container_status_restarts_total"): 0.0,
    ("service:ping", "ping_rtt_mean_seconds"): 0.0004,
    ("service:ping", "ping_packet_loss_ratio"): 0.0,
}  # fmt: skip
CLUSTER: Levels = {
    ("service:slurm", "slurm_queue_pending"): 6.0, ("service:slurm", "slurm_nodes_idle"): 5.0,
    ("service:slurm", "slurm_scheduler_backfill_mean_cycle"): 0.2,
    ("service:kueue", "kueue_pending_workloads"): 4.0, ("service:kueue", "kueue_cluster_queue_resource_usage"): 40.0,
    ("service:kueue", "kueue_admission_wait_time_seconds_sum"): 0.5,
    ("service:kube", "scheduler_unschedulable_pods"): 0.1,
}  # fmt: skip
_FIXED = ("pcie_width", "pcie_generation", "nvlink_active", "processes")  # whole numbers that don't flicker


@dataclass(frozen=True)
class Kind:
    """A sort of workload: its usual series and numbers, and how its users see it."""

    name: str
    component: str
    levels: Levels
    numbers: Mapping[tuple[str, str], tuple[float, str, str]]
    """Metric and stat to level, unit and direction."""
    ranks: int = 0
    hosts: int = 1
    wait_s: float | None = None


SERVING = Kind("serving", "inference", NODE | TRIAL | GPUS | SERVER, {
    ("e2e", "mean"): (120.0, "ms", "lower"), ("e2e", "p99"): (260.0, "ms", "lower"),
    ("ttft", "mean"): (30.0, "ms", "lower"), ("ttft", "p99"): (70.0, "ms", "lower"),
    ("requests_per_s", "value"): (480.0, "1/s", "higher"),
})  # fmt: skip
TRAINING = Kind("training", "training", NODE | TRIAL | GPUS, {
    ("step_time", "mean"): (300.0, "ms", "lower"), ("step_time", "p99"): (330.0, "ms", "lower"),
    ("tokens_per_s", "value"): (9e5, "tokens/s", "higher"),
}, ranks=RANKS)  # fmt: skip
SPREAD = Kind("spread", "training", NODE | TRIAL, TRAINING.numbers, hosts=4)
QUEUED = Kind("queued", "training", NODE | TRIAL | CLUSTER, TRAINING.numbers, wait_s=40.0)


@dataclass
class Effect:
    """What a fault does: factors on numbers, additions to and factors on series, and who alone is hit."""

    numbers: dict[tuple[str, str], float] = field(default_factory=dict)
    add: dict[tuple[str, str], float] = field(default_factory=dict)
    times: dict[tuple[str, str], float] = field(default_factory=dict)
    bursts: dict[tuple[str, str], float] = field(default_factory=dict)
    """Added in one sample of ten only."""
    steps_up: tuple[str, str] | None = None
    """A series that grows by one, once, in the middle."""
    slow_rank: int | None = None
    slow_by: float = 1.0
    slow_host: int | None = None
    wait: float = 1.0


@dataclass(frozen=True)
class Fault:
    """An injected fault: which kind of run, the cause that must be named, and what it does at a strength of 0 to 1."""

    playbook: str
    cause: str
    kind: Kind
    effect: Callable[[float, Random], Effect]
    suspect: str = ""

    @property
    def name(self) -> str:
        return f"{self.playbook}/{self.cause}"


def make_fault_run(
    workspace: WorkspaceFolder, run_id: str, kind: Kind, seed: int, fault: Fault | None = None, strength: float = 0.5,
    repetitions: int = 5, minute: int = 0,
) -> None:  # fmt: skip
    """Write and collect a run of one point; without a fault, a healthy one."""
    draw = Random(f"{seed}/{run_id}")
    effect = fault.effect(strength, draw) if fault else Effect()
    drift = {key: math.exp(draw.gauss(0, _RUN)) for key in kind.levels}
    drift |= {key: draw.uniform(0.85, 1.15) for key in draw.sample(sorted(kind.levels), 3)}  # nobody's fault
    shift = {key: math.exp(draw.gauss(0, _RUN / 3)) for key in kind.numbers}
    folders = []
    count = repetitions * kind.hosts
    for at in range(count):
        host = at % kind.hosts
        hit = effect.slow_host is None or effect.slow_host == host
        submitted = None
        if kind.wait_s is not None:
            waited = kind.wait_s * effect.wait * math.exp(draw.gauss(0, 0.2))
            submitted = (START + timedelta(minutes=minute, seconds=at + 1 - waited)).isoformat(timespec="milliseconds")
        folders.append(
            make_trial(
                workspace,
                run_id,
                at + 1,
                scenario=kind.name,
                minute=minute,
                component=kind.component,
                numbers=_numbers(kind, effect if hit else Effect(), shift, draw),
                host=f"node{host + 1}",
                recording=_record(kind, effect if hit else Effect(), drift, draw),
                submitted=submitted,
                executor="slurm" if kind.wait_s is not None else "local",
            )
        )
    collect(workspace, run_id, folders)


def _numbers(kind: Kind, effect: Effect, shift: Mapping[tuple[str, str], float], draw: Random) -> list[Measurement]:
    made = []
    for key, (level, unit, direction) in kind.numbers.items():
        value = level * shift[key] * effect.numbers.get(key, 1.0) * _noise(draw, _TRIAL)
        made.append(_measured(key, value, unit, direction))
    for rank in range(kind.ranks):
        slow = effect.slow_by if rank == effect.slow_rank else 1.0
        value = 280.0 * slow * _noise(draw, 0.01)
        made.append(_measured(("rank_compute", "mean"), value, "ms", "lower", f"rank:{rank}"))
    return made


def _measured(key: tuple[str, str], value: float, unit: str, direction: str, window: str = "") -> Measurement:
    return Measurement(metric=key[0], stat=key[1], value=value, unit=unit, direction=direction, n=500, window=window)


def _record(kind: Kind, effect: Effect, drift: Mapping[tuple[str, str], float], draw: Random) -> Recording:
    scopes: dict[str, list[str]] = {}
    for scope, series in kind.levels:
        scopes.setdefault(scope, []).append(series)
    tracks = []
    for scope, names in scopes.items():
        columns = [_samples((scope, name), kind.levels[scope, name], effect, drift, draw) for name in names]
        rows = array("d")
        for at in range(SAMPLES):
            rows.extend([float(at), *(column[at] for column in columns)])
        tracks.append(Track(scope, [_series(name) for name in names], rows))
    return Recording(1.0, tracks, 0, 0.001, SAMPLES, [])


def _samples(
    key: tuple[str, str], level: float, effect: Effect, drift: Mapping[tuple[str, str], float], draw: Random
) -> list[float]:
    fixed = key[1] in _FIXED
    level = level * effect.times.get(key, 1.0) + effect.add.get(key, 0.0)
    level *= 1.0 if fixed else drift[key] * _noise(draw, 2 * _TRIAL)
    values, before = list[float](), 0.0
    for at in range(SAMPLES):
        before = 0.6 * before + draw.gauss(0, _SAMPLE)  # what is high now is high a second later
        value = level * (1.0 if fixed else max(0.0, 1 + before))
        if key in effect.bursts and at % 10 == 4:
            value += effect.bursts[key] * _noise(draw, 0.1)
        if key == effect.steps_up and at == SAMPLES // 2:
            value += 1.0
        values.append(value)
    if _series(key[1]).kind == "gauge":
        return values
    total, sums = 1e4, []
    for value in values:
        total += value
        sums.append(total)
    return sums


def _noise(draw: Random, spread: float) -> float:
    wide = 4.0 if draw.random() < _OUTLIER else 1.0
    return math.exp(draw.gauss(0, spread * wide))


def _series(name: str) -> Series:
    if name in _DECLARED:
        return _DECLARED[name]
    counter = name.endswith(("_total", "_sum"))
    return Series(name=name, kind="counter" if counter else "gauge", family="service")


def _tail(strength: float, mean: float = 0.12) -> dict[tuple[str, str], float]:
    tail = 1.4 + 2.6 * strength  # p99 by 1.4 to 4 times
    centre = 1 + mean * (tail - 1)
    numbers = {("e2e", "p99"): tail, ("e2e", "mean"): centre, ("ttft", "p99"): 1 + 0.8 * (tail - 1)}
    return numbers | {("ttft", "mean"): centre, ("requests_per_s", "value"): 1 - 0.02 * strength}


def _lower(strength: float) -> dict[tuple[str, str], float]:
    factor = 1.15 + 0.45 * strength
    numbers = {("step_time", "mean"): factor, ("step_time", "p99"): factor * 1.1}
    return numbers | {("tokens_per_s", "value"): 1 / factor}


def _spikes(strength: float) -> dict[tuple[str, str], float]:
    factor = 1.12 + 0.3 * strength
    numbers = {("step_time", "mean"): factor, ("step_time", "p99"): 1.3 + strength}
    return numbers | {("tokens_per_s", "value"): 1 / factor}


def _queue(strength: float) -> dict[tuple[str, str], float]:
    """What any stall of a server does downstream."""
    return {("service:vllm", "requests_waiting"): 6 + 20 * strength}


NODE1, T, V = "node", "trial", "service:vllm"


def _serving(add: Callable[[float], dict[tuple[str, str], float]], **more: object) -> Callable[[float, Random], Effect]:
    def effect(strength: float, draw: Random) -> Effect:
        return Effect(numbers=_tail(strength), add=add(strength), bursts=_queue(strength), **more)  # type: ignore[arg-type]

    return effect


def _training(
    add: Callable[[float], dict[tuple[str, str], float]], **times: float
) -> Callable[[float, Random], Effect]:
    def effect(strength: float, draw: Random) -> Effect:
        busy = {("node", name): factor for name, factor in times.items()}
        return Effect(numbers=_lower(strength), add=add(strength), times={**_idle_times(strength), **busy})

    return effect


def _idle_times(strength: float) -> dict[tuple[str, str], float]:
    return dict.fromkeys(((f"gpu{at}", "gpu_busy") for at in range(4)), 1 / (1.18 + 0.5 * strength))


def _straggler(
    series: dict[str, tuple[float, float]] | None, slow_rank: bool = True
) -> Callable[[float, Random], Effect]:
    """`series` of gpu2: a factor and an addition, at full strength."""

    def effect(strength: float, draw: Random) -> Effect:
        amount = 0.5 + 0.5 * strength
        made = Effect(numbers=_spikes(strength))
        for name, (factor, add) in (series or {}).items():
            made.times["gpu2", name] = 1 + (factor - 1) * amount
            made.add["gpu2", name] = add * amount
        if slow_rank:
            made.slow_rank, made.slow_by = 5, 1.2 + 0.5 * strength
        return made

    return effect


def _half_width(strength: float, draw: Random) -> Effect:
    made = _straggler({})(strength, draw)
    made.times["gpu2", "pcie_width"] = 0.5 if strength < 0.6 else 0.25
    return made


def _link_down(strength: float, draw: Random) -> Effect:
    made = _straggler({"nvlink_crc": (1.0, 40.0)})(strength, draw)
    made.times["gpu2", "nvlink_active"] = 11 / 12
    return made


def _slow_host(add: Callable[[float], dict[tuple[str, str], float]]) -> Callable[[float, Random], Effect]:
    """One node of four: its trials are slow, the run as a whole a little."""

    def effect(strength: float, draw: Random) -> Effect:
        factor = 1.5 + strength
        numbers = {("step_time", "mean"): factor, ("step_time", "p99"): factor, ("tokens_per_s", "value"): 1 / factor}
        return Effect(numbers=numbers, add=add(strength), slow_host=2)

    return effect


def _waiting(add: Callable[[float], dict[tuple[str, str], float]], **idle: float) -> Callable[[float, Random], Effect]:
    def effect(strength: float, draw: Random) -> Effect:
        times = {("service:slurm", name): factor for name, factor in idle.items()}
        return Effect(add=add(strength), times=times, wait=3 + 10 * strength)

    return effect


_TAIL, _IDLE, _LAG, _PEND = (
    "tail_latency_regression", "low_gpu_utilization", "distributed_straggler", "scheduler_backpressure",
)  # fmt: skip

FAULTS = (
    Fault(_TAIL, "cpu_throttling", SERVING, _serving(
        lambda s: {(T, "cgroup_throttled"): 0.05 + 0.6 * s, (T, "cgroup_throttled_periods"): 2 + 6 * s,
                   (T, "cpu_wait"): 0.05 + 0.3 * s, (NODE1, "cpu_pressure"): 0.02 + 0.2 * s})),
    Fault(_TAIL, "restart", SERVING, _serving(
        lambda s: {(V, "queue_time"): 0.1 * s}, steps_up=("service:kube", "kube_pod_container_status_restarts_total"))),
    Fault(_TAIL, "network_or_dns", SERVING, _serving(
        lambda s: {(NODE1, "net_drops"): 3 + 40 * s, ("service:ping", "ping_packet_loss_ratio"): 0.01 + 0.05 * s})),
    Fault(_TAIL, "cache_full", SERVING, _serving(
        lambda s: {(V, "requests_preempted"): 0.1 + 2 * s, (V, "kv_cache_used"): 0.4})),
    Fault(_TAIL, "gpu_clocks_held_down", SERVING, _serving(
        lambda s: {(f"gpu{at}", "gpu_throttled_heat"): 0.12 + 0.4 * s for at in range(4)}
        | {(f"gpu{at}", "gpu_temperature"): 20.0 for at in range(4)})),
    Fault(_TAIL, "storage_stalls", SERVING, _serving(
        lambda s: {(NODE1, "io_pressure"): 0.06 + 0.3 * s, (NODE1, "cpu_iowait"): 0.1 + s,
                   (NODE1, "blocked"): 1 + 3 * s, (NODE1, "cpu_pressure"): 0.02})),
    Fault(_TAIL, "noisy_neighbour", SERVING, _serving(
        lambda s: {(T, "cpu_wait"): 0.15 + s, (NODE1, "cpu_pressure"): 0.1 + 0.4 * s, (NODE1, "cpu_busy"): 1 + 4 * s,
                   (NODE1, "load1"): 4 + 10 * s})),
    Fault(_TAIL, "queueing", SERVING, _serving(
        lambda s: {(V, "requests_waiting"): 2 + 12 * s, (V, "queue_time"): 0.15 + s})),
    Fault(_IDLE, "cpu_throttling", TRAINING, _training(
        lambda s: {(T, "cgroup_throttled"): 0.1 + 0.8 * s, (T, "cgroup_throttled_periods"): 3 + 6 * s,
                   (T, "cpu_wait"): 0.1 + 0.3 * s}, cpu_busy=0.8)),
    Fault(_IDLE, "storage", TRAINING, _training(
        lambda s: {(NODE1, "io_pressure"): 0.08 + 0.4 * s, (NODE1, "cpu_iowait"): 0.15 + s,
                   (NODE1, "blocked"): 1 + 4 * s},
        disk_read=0.6, cpu_busy=0.85)),
    Fault(_IDLE, "network", TRAINING, _training(
        lambda s: {(NODE1, "net_drops"): 5 + 50 * s, (NODE1, "net_errors"): 2 + 10 * s}, net_received=0.7)),
    Fault(_IDLE, "input_pipeline", TRAINING, _training(
        lambda s: {(T, "cpu_wait"): 0.2 + s, (NODE1, "cpu_pressure"): 0.1 + 0.4 * s, (NODE1, "cpu_busy"): 2 + 4 * s,
                   (T, "cpu"): 2 + 4 * s})),
    Fault(_LAG, "straggler:pcie_link", TRAINING, _half_width, "rank 5"),
    Fault(_LAG, "straggler:nvlink", TRAINING, _link_down, "rank 5"),
    Fault(_LAG, "straggler:heat", TRAINING, _straggler(
        {"gpu_throttled_heat": (1.0, 0.5), "gpu_temperature": (1.0, 22.0), "gpu_sm_clock": (0.75, 0.0)}), "rank 5"),
    Fault(_LAG, "straggler:slow_member", TRAINING, _straggler(None), "rank 5"),
    Fault(_LAG, "straggler:network_errors", SPREAD, _slow_host(
        lambda s: {(NODE1, "net_drops"): 10 + 40 * s, (NODE1, "net_errors"): 5 + 20 * s}), "node3"),
    Fault(_PEND, "quota", QUEUED, _waiting(
        lambda s: {("service:kueue", "kueue_cluster_queue_resource_usage"): 20 + 40 * s,
                   ("service:kueue", "kueue_pending_workloads"): 4 + 20 * s})),
    Fault(_PEND, "over_constrained", QUEUED, _waiting(
        lambda s: {("service:kube", "scheduler_unschedulable_pods"): 1.5 + 8 * s,
                   ("service:slurm", "slurm_queue_pending"): 2 + 4 * s})),
    Fault(_PEND, "fragmentation", QUEUED, _waiting(
        lambda s: {("service:slurm", "slurm_queue_pending"): 6 + 20 * s,
                   ("service:slurm", "slurm_nodes_idle"): 3 + 5 * s})),
    Fault(_PEND, "admission", QUEUED, _waiting(
        lambda s: {("service:kueue", "kueue_admission_wait_time_seconds_sum"): 2 + 10 * s,
                   ("service:slurm", "slurm_scheduler_backfill_mean_cycle"): 0.5 + 2 * s})),
    Fault(_PEND, "capacity", QUEUED, _waiting(
        lambda s: {("service:slurm", "slurm_queue_pending"): 8 + 30 * s}, slurm_nodes_idle=0.1)),
)  # fmt: skip
KINDS = (SERVING, TRAINING, SPREAD, QUEUED)
