"""Playbook 1: the 99th percentile grew while the mean hardly did. Something affects few requests strongly.

If the mean grew as well, a root cause is still named, with less certainty.
"""

from benchhouse.analysis.playbooks.causes import Cause, Clue, conclude, weigh
from benchhouse.analysis.playbooks.values import ComparedNumber, ComparedPoint, PointDiagnosis

NAME = "tail_latency_regression"
_LEAST_CHANGE = 0.3
_TAILS = ("p99", "p99.9")
# share of the tail's change: if the mean grew by more, the problem is not only in the tail
_MEAN_SHARE = 0.35

CPU_THROTTLED = Cause(
    "cpu_throttling",
    "held back by its CPU limit",
    "The CPU limit of the cgroup stopped the processes for parts of its periods; requests that met such a pause waited "
    "for its end, the others did not notice.",
    "scenario",
    (
        Clue("(cgroup_throttled|container_cpu_cfs_throttled_seconds.*)", normal=0.0),
        Clue("(cgroup_throttled_periods|container_cpu_cfs_throttled_periods.*)", least=0.5, normal=0.0),
    ),
    (
        "Run the same scenario with `limits: {cpus: N}` one core higher, or without: bench run {scenario}",
        "Then: bench why @last --vs {base}: the throttled time must be gone, and the tail with it.",
    ),
    "Raise `limits.cpus`, or give the pod no CPU limit but a request.",
)
CAUSES = (
    CPU_THROTTLED,
    Cause(
        "restart",
        "a restart, a cold start or autoscaling",
        "Processes were replaced or added while requests were under way: the first answers of a new one are slow.",
        "service",
        (
            Clue(r"(kube_pod_container_status_restarts|.*container_restarts|.*_restarts).*", least=0.005, normal=0.0),
            Clue(r".*process_start_time_seconds.*", stat="range", least=1.0, normal=0.0),
            Clue(r"kube_(deployment|hpa)_status_(current_)?replicas.*", stat="range", least=1.0, normal=0.0),
            Clue("cgroup_oom_kills", least=0.005, normal=0.0),
            Clue("processes", scope="service:.*", stat="range", least=1.0),
        ),
        (
            "Pin the number of replicas and keep the servers warm (`warmup: 1`), then: bench run {scenario}",
            "What it said when it went: bench logs get {run}",
        ),
        "Fix the replicas for the time of the test, and find what ended the process in its log.",
    ),
    Cause(
        "network_or_dns",
        "name resolution or the network",
        "Packets were lost or names took long to resolve: a retry costs a timeout, and only few requests need one.",
        "cluster",
        (
            Clue("net_(drops|errors)", least=1.0, normal=0.0),
            Clue(r"(ping_.*(loss|lost)|.*packet_loss.*)", least=0.005, normal=0.0),
            Clue(r"(ping_.*(rtt|latency|duration)|probe_dns_lookup_time|probe_duration|coredns_.*duration).*",
                 least=0.002, stat="peak"),
            Clue(r"node_netstat_tcp_retranssegs.*", least=1.0),
        ),
        (
            "Give the target's address instead of its name, or run client and server on one node: bench run {scenario}",
            "If the tail is gone, it is the way there and not the server.",
        ),
        "Use the node-local resolver or the address, and mend the link that loses packets.",
    ),
    Cause(
        "cache_full",
        "the key-value cache ran full",
        "Requests were put back for want of cache and done again from their start.",
        "service",
        (Clue("requests_preempted", least=0.02, normal=0.0),),
        ("Halve the concurrency, or give the server more cache memory, then: bench run {scenario}",),
        "Lower the server's most concurrent sequences, or raise its share of GPU memory.",
    ),
    Cause(
        "gpu_clocks_held_down",
        "the GPU's clocks were held down",
        "Heat or the power limit held the GPU's clocks down for part of the time.",
        "machine",
        (Clue("gpu_throttled(_heat|_hardware|_power)?", scope="gpu.*", least=0.05, normal=0.0),),
        ("Run it on another node: bench run {scenario}; then: bench why @last --vs {base}",),
        "Cool the node, or set its power limit back.",
    ),
    Cause(
        "storage_stalls",
        "stalls of the storage",
        "Threads waited for a disk: requests that touched it waited, too.",
        "machine",
        (
            Clue("io_pressure(_full)?", scope="node"),
            Clue("cpu_iowait", scope="node", least=0.05),
            Clue("major_faults", least=20.0),
            Clue("swap_used", least=64e6, ratio=0.2),
        ),
        ("Put the data in memory or on a local disk, then: bench run {scenario}",),
        "Move the data off the slow disk, or give more memory so that it stays cached.",
        depth=1,
    ),
    Cause(
        "noisy_neighbour",
        "others on the same cores",
        "Threads were ready to run and had no core: something else used the node's CPU at the same time.",
        "cluster",
        (
            Clue("cpu_wait", least=0.05),
            Clue("cpu_pressure", scope="node", least=0.05),
            Clue("cpu_steal", scope="node", least=0.02),
        ),
        ("Run it on a node of its own (`slurm: {exclusive: true}`, or a dedicated node pool): bench run {scenario}",),
        "Reserve the node, or pin the servers to cores of their own.",
        depth=1,
    ),
    Cause(
        "stall",
        "the server stood still at moments",
        "Requests that were under way at the same time were held for as long as each other and ended together, right "
        "behind others that took the usual time: something that all of them need stopped and went on.",
        "service",
        (Clue("held_together", scope="requests", least=0.02, ratio=1.0),),
        (
            "See what it did then (garbage collection, checkpoints, a lock, a slow service): bench logs get {run}",
            "Halve the load, keep each request (`records: true`): bench run {scenario}; a stall stays, a queue goes.",
        ),
        "Take what stops the server off the path of requests, or spread it over time.",
        depth=2,
    ),
    Cause(
        "queueing",
        "requests queued in the server",
        "The server's queue grew and nothing else moved: at moments there was more to do than it takes in.",
        "service",
        (
            Clue("requests_waiting", stat="peak", least=2.0),
            Clue("requests_waiting", least=0.5),
            Clue("queue_time", least=0.05),
        ),
        (
            "Halve the offered load and look whether the tail goes with the queue: bench run {scenario}",
            "If it does, the server's batching or its number of workers is what to change.",
        ),
        "Lower the offered load a replica, or raise the server's batch size or workers.",
        depth=3,
    ),
)  # fmt: skip


def diagnose(case: ComparedPoint) -> PointDiagnosis | None:
    tails = fitting(case)
    if tails:
        weighed = weigh(CAUSES, case.signals, case.slow_trials(tails))
        return conclude(case, NAME, weighed, tails) if weighed else None
    # What stops a process intermittently also raises the mean if it happens often enough. Only direct evidence of stops
    # counts here: a root cause, or a stall visible in the requests themselves.
    slower = grown(case)
    stops = [cause for cause in CAUSES if cause.depth == 0 or cause.name == "stall"]
    weighed = weigh(stops, case.signals, case.slow_trials(slower)) if slower else []
    if not weighed:
        return None
    result = conclude(case, NAME, weighed, slower)
    certainty = "moderate" if result.certainty == "strong" else result.certainty
    tail = any(number.stat in _TAILS for number in slower)
    which = " with the tail, so more than few requests are hit" if tail else ", no tail for sure"
    why = f"{result.why_so_sure}; the mean grew{which}"
    return result.model_copy(update={"certainty": certainty, "why_so_sure": why})


def grown(case: ComparedPoint) -> list[ComparedNumber]:
    """Return latencies of any statistic that are significantly worse."""
    return [number for number in case.numbers if _longer(number)]


def _longer(number: ComparedNumber) -> bool:
    return number.is_time and number.worse and (number.change or 0.0) >= _LEAST_CHANGE


def fitting(case: ComparedPoint) -> list[ComparedNumber]:
    """Return latencies whose p99 is significantly worse while their center moved far less."""
    centres = {number.metric: number.change for number in case.numbers if number.stat in ("mean", "p50", "value")}
    tails = []
    for number in case.numbers:
        moved = centres.get(number.metric)
        tail = number.stat in _TAILS and _longer(number)
        if tail and moved is not None and moved <= _MEAN_SHARE * (number.change or 0.0):
            tails.append(number)
    return tails
