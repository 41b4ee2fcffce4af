"""Playbook 2: throughput fell and the GPUs are not busy. They wait; find out for what."""

import re
from collections.abc import Iterable
from dataclasses import replace

from benchhouse.analysis.playbooks.causes import Cause, Clue, ScoredCause, conclude, weigh
from benchhouse.analysis.playbooks.signals import Slowness
from benchhouse.analysis.playbooks.tail import CPU_THROTTLED
from benchhouse.analysis.playbooks.values import (
    ComparedNumber,
    ComparedPoint,
    PointDiagnosis,
    SeriesReading,
    Signal,
    SignalEvidence,
)
from benchhouse.analysis.summary import mean

NAME = "low_gpu_utilization"
_LEAST_CHANGE = 0.1
_BUSY = r"(gpu_busy|dcgm_fi_dev_gpu_util|dcgm_fi_prof_gr_engine_active|nv_gpu_utilization)(_\d+)?"
_LESS_BUSY = Clue(_BUSY, way="down", least=0.05, ratio=0.1)
_LOW = 0.8
_A_SHARE = 1.5  # above this, the exporter reports percent

CAUSES = (
    replace(CPU_THROTTLED, says="The CPU limit of the cgroup held back the processes that feed the GPUs."),
    Cause(
        "storage",
        "the storage delivers too little",
        "Input is read more slowly than before while threads wait for it: the GPUs run out of batches.",
        "machine",
        (
            Clue("io_pressure(_full)?", scope="node"),
            Clue("cpu_iowait", scope="node", least=0.05),
            Clue("disk_busy", scope="node", least=0.2),
            Clue("blocked", scope="node", least=0.5),
        ),
        (
            "Copy the input to local disk or memory and run again: bench run {scenario}",
            "Measure the storage alone: bench run with the experiment `storage.file` on the same folder.",
        ),
        "Read ahead, cache the input on the node, or mend the file system.",
    ),
    Cause(
        "network",
        "the network stalls",
        "Packets are lost or sent again, or far less comes in: the GPUs wait for data or for each other.",
        "cluster",
        (
            Clue("net_(drops|errors)", least=1.0, normal=0.0),
            Clue(r"node_netstat_tcp_retranssegs.*", least=1.0),
            Clue(r"(ping_.*(loss|lost)|.*packet_loss.*)", least=0.005, normal=0.0),
            Clue(r"node_infiniband_.*(error|discard|wait).*", least=1.0, normal=0.0),
        ),
        (
            "Run on one node with its input local, so that nothing crosses the network: bench run {scenario}",
            "If the GPUs are busy then, it is the network.",
        ),
        "Mend or avoid the link with errors.",
    ),
    Cause(
        "input_pipeline",
        "the input pipeline is short of CPU",
        "The cores are full with preparing batches, or its threads wait for one: the loader can't keep up.",
        "scenario",
        (
            Clue("cpu_wait", least=0.1),
            Clue("cpu_pressure", scope="node", least=0.05),
            Clue("cpu_busy", scope="node", least=0.5, ratio=0.15),
            Clue("cpu", scope="(trial|service:.*)", least=0.5, ratio=0.15),
        ),
        (
            "Run with cached or synthetic input, which needs no preparing: bench run {scenario}",
            "If the throughput is back, the model code is innocent: give the loader more workers or cores.",
        ),
        "More loader workers or cores, or prepare the input once and keep it.",
        depth=1,
    ),
)

UNEXPLAINED = Cause(
    "waiting_unexplained",
    "the GPUs wait, and no series tells what for",
    "The GPUs are less busy than in the base, while nothing sampled of CPU, storage and network moved.",
    "unknown",
    (),
    (
        "Run with cached or synthetic input to tell model code from input path: bench run {scenario}",
        "Sample more: `monitors: {interval: 0.2s}`, and exporters of storage and network (`prometheus:`).",
    ),
    "None yet: the experiment comes first.",
)


def diagnose(case: ComparedPoint) -> PointDiagnosis | None:
    slower = [number for number in case.numbers if number.worse and _enough(number)]
    waiting = _waiting(case, case.slow_trials(slower))
    if not slower or not waiting:
        return None
    weighed = weigh(CAUSES, case.signals, case.slow_trials(slower))
    if not weighed:
        return conclude(case, NAME, [ScoredCause(UNEXPLAINED, waiting, 1.0)], slower)
    return conclude(case, NAME, weighed, slower, waiting[:1])


def _enough(number: ComparedNumber) -> bool:
    """Whether throughput fell, or a step takes longer, by at least a tenth."""
    if number.change is None:
        return False
    slow = number.is_time and "step" in number.metric and number.stat in ("mean", "p50", "value")
    return (number.is_rate and number.change <= -_LEAST_CHANGE) or (slow and number.change >= _LEAST_CHANGE)


def _waiting(case: ComparedPoint, slowness: Slowness) -> list[SignalEvidence]:
    """Return evidence of GPUs that are less busy than before, and not nearly full; averaged, because all have the same
    input.
    """
    shown = (_LESS_BUSY.ask(signal, slowness) for signal in _together(filter(_LESS_BUSY.fits, case.signals)))
    return [
        evidence
        for evidence in shown
        if evidence and mean(evidence.now[: evidence.hits]) < _LOW * (100.0 if max(evidence.base) > _A_SHARE else 1.0)
    ]


def _together(signals: Iterable[Signal]) -> list[Signal]:
    """Return one signal per series: the mean over the GPUs of each trial."""
    by_series: dict[str, list[Signal]] = {}
    for signal in signals:  # exporters have one series per GPU, whose name ends in its number
        by_series.setdefault(re.sub(r"_\d+$", "", signal.series), []).append(signal)
    together = []
    for name, same in by_series.items():
        scope = same[0].scope if len(same) == 1 else "all GPUs"
        base = _means(row for signal in same for row in signal.base)
        now = _means(row for signal in same for row in signal.now)
        together.append(same[0].model_copy(update={"series": name, "scope": scope, "base": base, "now": now}))
    return together


def _means(readings: Iterable[SeriesReading]) -> list[SeriesReading]:
    trials: dict[str, list[SeriesReading]] = {}
    for reading in readings:
        trials.setdefault(reading.trial_id, []).append(reading)
    return [
        SeriesReading(trial_id=trial, node=rows[0].node, avg=mean([row.avg for row in rows]))
        for trial, rows in trials.items()
    ]
