"""Playbook 4: jobs are pending too long. The scheduler lacks a resource, or too much was requested at once."""

import re

from benchhouse.analysis.playbooks.causes import Cause, Clue, ScoredCause, conclude, weigh
from benchhouse.analysis.playbooks.values import ComparedNumber, ComparedPoint, PointDiagnosis, SignalEvidence

NAME = "scheduler_backpressure"
_LEAST_S = 10.0
_LEAST_CHANGE = 0.5

_PENDING = r"(kueue_pending_workloads|slurm_(queue|jobs|partition_jobs|account_jobs)_pending|scheduler_pending_pods).*"
_IDLE = r"slurm_(nodes|cpus|gpus|partition_nodes|partition_cpus)_idle.*"

CAUSES = (
    Cause(
        "quota",
        "a quota or limit is used up",
        "Workloads wait because the queue's share is taken, not because the cluster is full.",
        "cluster",
        (
            Clue(r"kueue_(cluster_queue_resource_(usage|reservation)|.*inadmissible|quota_reserved_wait_time).*",
                 least=0.01, ratio=0.2),
            Clue(r"slurm_.*(qos|assoc|account).*(limit|pending).*", least=1.0),
        ),
        (
            "Submit the same plan to a queue with free quota (`qos:`, `account:`), then: bench why @last --vs {base}",
            "What counts against it now: sacctmgr show assoc, or kubectl describe clusterqueue",
        ),
        "Raise the quota, borrow from the cohort, or move the runs to another queue or hour.",
    ),
    Cause(
        "over_constrained",
        "asked for what few nodes can give",
        "Pods or jobs are refused by every node: labels, affinities, exclusive topology or a size that no node has.",
        "scenario",
        (
            Clue(r"(scheduler_unschedulable_pods|kube_pod_status_unschedulable).*", least=0.5, normal=0.0),
            Clue(r"scheduler_pending_pods.*unschedulable.*", least=0.5, normal=0.0),
        ),
        ("Drop one constraint after another and look where it would start: bench plan {scenario}; sbatch --test-only",),
        "Ask for less: no exclusive topology, fewer labels, smaller jobs.",
    ),
    Cause(
        "fragmentation",
        "enough is free, but not in one piece",
        "Nodes stand idle while jobs wait: what is free is scattered over segments or too small for the job.",
        "cluster",
        (Clue(_PENDING, least=1.0, ratio=0.3), Clue(_IDLE, least=1.0, ratio=0.2)),
        ("Submit the plan with half the nodes a job (`resources: {nodes: N}`): bench submit {scenario}",),
        "Smaller jobs, or let the scheduler pack: topology blocks, defragmentation, backfill.",
        both=True,
    ),
    Cause(
        "admission",
        "admission is slow",
        "The time until a workload is admitted grew: webhooks, checks or the queue's controller are behind.",
        "cluster",
        (
            Clue(r"kueue_(admission_(wait_time|attempt_duration|checks_wait_time)|admission_attempts).*", least=0.01),
            Clue(r"apiserver_admission_.*duration.*", least=0.01),
            Clue(r"slurm_(bf)?scheduler_cycle_(mean|last)_seconds", least=0.1),
            Clue(r"slurm_((sched|bf)_mean_cycle|schedule_cycle_last)", least=0.1),
            Clue(r"slurm_scheduler_(backfill_)?(mean|last)_cycle.*", least=0.1),
        ),
        ("Look at the controller's own latency and log, then submit again: bench submit {scenario}",),
        "Mend or scale the admission controller.",
        depth=1,
    ),
    Cause(
        "capacity",
        "the cluster is full",
        "More jobs wait than before and nothing is idle: others use what this run needs.",
        "cluster",
        (Clue(_PENDING, least=1.0, ratio=0.3), Clue(_IDLE, "down", least=1.0, ratio=0.3)),
        ("Submit at another hour or to another partition: bench submit {scenario}",),
        "Wait, reserve nodes, or take a partition with room.",
        depth=2,
    ),
)  # fmt: skip
_BY_REASON = (
    ("quota", r"QOS|Assoc|Max.*Limit|.*Grp|Quota|ExceededQuota|Inadmissible"),
    ("over_constrained", r"ReqNodeNotAvail|BadConstraints|Partition(NodeLimit|TimeLimit|Config)|Unschedulable"),
    ("fragmentation", r"Topology|Fragment"),
    ("capacity", r"Resources|Priority|NodeDown|PartitionDown|ScaleUp|Nominated"),
)  # fmt: skip


def diagnose(case: ComparedPoint) -> PointDiagnosis | None:
    wait = case.wait
    if wait is None or not wait.worse or wait.now - wait.base < _LEAST_S:
        return None
    if wait.change is not None and wait.change < _LEAST_CHANGE:
        return None
    weighed = weigh(CAUSES, case.signals)
    named = cause_of(case.reasons)
    if named:
        weighed.sort(key=lambda item: item.cause.name != named)
    if not weighed:
        return _by_word_alone(case, named, wait) if named else None
    result = conclude(case, NAME, weighed, [wait])
    if result.cause == named:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in case.reasons.items())
        return result.model_copy(update={"why_so_sure": f"{result.why_so_sure}; the batch system says {reasons}"})
    # The jobs of one array share one queue: the waits of its trials are not independent, and the text states that.
    certainty = "moderate" if result.certainty == "strong" else "weak"
    shared = "trials of one submission share its wait"
    return result.model_copy(update={"certainty": certainty, "why_so_sure": f"{result.why_so_sure}; {shared}"})


def _by_word_alone(case: ComparedPoint, named: str, wait: ComparedNumber) -> PointDiagnosis:
    """Return a diagnosis from the scheduler's recorded reasons for waiting alone, because none of its series was
    sampled.
    """
    cause = next(cause for cause in CAUSES if cause.name == named)
    evidence = [
        SignalEvidence(
            scope="scheduler", series="pending", unit="trials", phase="queue", stat="peak", base=[], now=[float(count)],
            trials=[], distance=0.0, against="scheduler", says=f"the batch system said {reason} of {count} waiting",
        )
        for reason, count in sorted(case.reasons.items(), key=lambda item: -item[1])
        if cause_of({reason: count}) == named
    ]  # fmt: skip
    result = conclude(case, NAME, [ScoredCause(cause, evidence, 0.0)], [wait])
    why = "the batch system's own word; none of its series was sampled, and trials of one submission share its wait"
    return result.model_copy(update={"certainty": "moderate", "why_so_sure": why})


def cause_of(reasons: dict[str, int]) -> str | None:
    """Return the cause that the batch system reports for most pending jobs; None if no reason is known."""
    for reason, _ in sorted(reasons.items(), key=lambda item: -item[1]):
        for cause, pattern in _BY_REASON:
            if re.search(pattern, reason):
                return cause
    return None
