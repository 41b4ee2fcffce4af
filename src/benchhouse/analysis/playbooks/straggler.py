"""Playbook 3: steps spike and one node, rank, or device is slower than its peers. All others wait for it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from benchhouse.analysis.playbooks.causes import Clue, how_sure, symptom_sentence
from benchhouse.analysis.playbooks.signals import LEAST_TRIALS, Outlier, figure, odd_one_out, with_unit
from benchhouse.analysis.playbooks.values import (
    ComparedNumber,
    ComparedPoint,
    PointDiagnosis,
    SeriesReading,
    Side,
    Signal,
    SignalEvidence,
)

NAME = "distributed_straggler"
_LEAST_CHANGE = 0.05
_SLOWER = 0.1  # how much slower than the median of its peers a member must be
# share of its excess: a member that already deviated by this much in the base did not make the run slower
_OLD_NEWS = 0.7
_SLOW_SERIES = Clue(
    r".*(step_time|step_duration|collective|allreduce|all_reduce|nccl).*(?<!bytes)", ratio=_SLOWER, least=0.0
)


@dataclass(frozen=True)
class StragglerReason:
    """Why a member may be slow: a series by which only this member deviates."""

    name: str
    title: str
    side: Side
    clues: tuple[Clue, ...]
    change: str


REASONS = (
    StragglerReason("pcie_link", "its PCIe link is narrower or slower", "machine",
           (Clue("pcie_width", "down", least=1.0, ratio=0.2), Clue("pcie_generation", "down", least=1.0, ratio=0.1),
            Clue("node_(pcidevice_current_link|pci_cur)_width.*", "down", least=1.0, ratio=0.2),
            Clue(r"(pcie_replays|dcgm_fi_dev_pcie_replay_counter.*)", least=1.0)),
           "Reseat or replace the card; the link must train to its full width."),
    StragglerReason("nvlink", "an NVLink is down or has errors", "machine",
           (Clue("nvlink_active", "down", least=1.0, ratio=0.01), Clue("nvlink_(crc|replays)", least=1.0),
            Clue("dcgm_fi_dev_nvlink_(crc|replay)_.*", least=1.0)),
           "Drain the node and reset its NVLinks."),
    StragglerReason("heat", "heat holds its clocks down", "machine",
           (Clue("gpu_throttled(_heat|_hardware)?", least=0.05), Clue("dcgm_fi_dev_thermal_violation.*", least=0.05),
            Clue("(gpu_temperature|dcgm_fi_dev_gpu_temp.*)", least=8.0, ratio=0.1),
            Clue("(gpu_sm_clock|dcgm_fi_dev_sm_clock.*)", "down", least=100.0, ratio=0.05)),
           "Cool the node: fans, filters, placement."),
    StragglerReason("network_errors", "packets are lost on its network", "cluster",
           (Clue("net_(drops|errors)", least=1.0), Clue(r"node_infiniband_.*(error|discard).*", least=1.0),
            Clue(r"node_netstat_tcp_retranssegs.*", least=1.0),
            Clue(r"(ping_.*(loss|lost)|.*packet_loss.*)", least=0.005)),
           "Replace the cable or the port, and look at the switch's counters."),
    StragglerReason("cpu_throttling", "its CPU limit holds it back", "scenario",
           (Clue("cgroup_throttled", least=0.02),), "Give all members the same CPU limit."),
    StragglerReason("data", "it waits for its data", "scenario",
           (Clue("rank_data_time", least=1.0),), "Look at what feeds that rank: its files, its loader's workers."),
    StragglerReason("storage", "its storage is slow", "machine",
           (Clue("io_pressure(_full)?", least=0.02), Clue("cpu_iowait", least=0.05)), "Look at the disk of that node."),
    StragglerReason("noisy_neighbour", "others use its cores", "cluster",
           (Clue("cpu_wait", least=0.1), Clue("cpu_pressure", least=0.05), Clue("cpu_steal", least=0.02)),
           "Give the job the whole node."),
    StragglerReason("memory", "its memory is short", "machine",
           (Clue("memory_pressure(_full)?", least=0.02), Clue("(major_faults|swap_in)", least=10.0)),
           "Give it more memory, or less to hold."),
    StragglerReason("slow_core", "its core needs more time for the same work", "machine",
           (Clue("rank_cpu_time", least=1.0, ratio=_SLOWER),),
           "Compare the clocks and the neighbours of its cores with those of the others."),
)  # fmt: skip
_UNKNOWN = StragglerReason(
    "slow_member", "no series of it tells why", "machine", (), "None yet: the experiment comes first."
)


class _MemberReadings(NamedTuple):
    """One member's readings of a series, which the clue compares with those of the same kind and group."""

    clue: Clue
    kind: str
    group: str
    name: str
    series: str
    unit: str
    phase: str
    now: Sequence[SeriesReading]
    base: Sequence[SeriesReading]


class _Standout(NamedTuple):
    """A member that deviates in one series."""

    kind: str
    odd: Outlier
    evidence: SignalEvidence


def diagnose(case: ComparedPoint) -> PointDiagnosis | None:
    symptoms = [number for number in case.numbers if number.worse and _slower_steps(number)]
    if not symptoms:
        return None
    slow = _slow_members(case)
    reasons = [(reason, shown) for reason in REASONS for shown in _by_reason(reason, case)]
    if slow:
        # The GPU of a rank is not guessed: one that alone deviates in the slow rank's trials is shown by its name. The
        # same holds for a node that the trainer itself reports as slow.
        first = next((shown for shown in slow if shown.kind == "rank"), slow[0])
        members = {first.odd.member, *(shown.odd.member for shown in slow if shown.kind == "node")}
        rank = first.kind == "rank"
        fitting = [pair for pair in reasons if pair[1].odd.member in members or (rank and pair[1].kind == "gpu")]
        node = next((shown.odd.member for shown in slow if rank and shown.kind == "node"), "")
        return _conclude(case, symptoms, first, fitting, node)
    if not reasons:
        return None
    # There is no number of each member, but one device or node differs from its peers.
    suspect = max((shown for _, shown in reasons), key=lambda shown: shown.odd.distance)
    return _conclude(case, symptoms, None, [pair for pair in reasons if pair[1].odd.member == suspect.odd.member])


def _conclude(
    case: ComparedPoint,
    symptoms: Sequence[ComparedNumber],
    slow: _Standout | None,
    reasons: list[tuple[StragglerReason, _Standout]],
    node: str = "",
) -> PointDiagnosis:
    reasons = sorted(reasons, key=lambda item: (REASONS.index(item[0]) > 3, -item[1].odd.distance))
    reason, shown = reasons[0] if reasons else (_UNKNOWN, slow)
    suspect = slow or shown
    assert shown is not None and suspect is not None
    evidence = [slow.evidence] if slow else []
    evidence += [item.evidence for other, item in reasons if other is reason]
    certainty, why = how_sure(evidence)
    member = suspect.odd.member
    where = "" if not reasons or shown.odd.member in (member, node) else f" ({shown.odd.member})"
    if not slow:
        certainty = "weak" if certainty == "weak" else "moderate"
        why += "; no number of each rank says that this one was slow: emit one with window `rank:N`"
    without = f"Run again with the node of {member} exchanged or left out"
    called = f"{member} on {node}" if node else member
    node = node or (member if suspect.kind == "node" else "")
    if node:
        without = f"Run without {node} (`slurm: {{flags: [--exclude={node}]}}`, or cordon the node)"
    return PointDiagnosis(
        playbook=NAME,
        cause=f"straggler:{reason.name}",
        title=f"{called} lags behind its peers: {reason.title}{where}",
        says=f"A step ends when its slowest member does. {member} stands out among the others, so all wait for it.",
        certainty=certainty,
        why_so_sure=why,
        side=reason.side,
        point=case.point,
        suspect=member,
        node=node,
        symptoms=[symptom_sentence(number) for number in symptoms],
        evidence=evidence,
        next=[f"{without}: bench run {{scenario}}", "Then: bench why @last --vs {base}: the spikes must be gone."],
        change=reason.change,
        also=list(dict.fromkeys(other.title for other, _ in reasons if other is not reason)),
    )


def _slower_steps(number: ComparedNumber) -> bool:
    if number.change is None:
        return False
    return (number.is_time and number.change >= _LEAST_CHANGE) or (number.is_rate and number.change <= -_LEAST_CHANGE)


def _slow_members(case: ComparedPoint) -> list[_Standout]:
    """Return members that are slower than their peers, by numbers of each or by series of each rank; the
    slowest first.
    """
    parts = []
    for item in case.members:
        if any(clue.fits_name("", item.metric) for reason in REASONS for clue in reason.clues):
            continue  # the reason for slowness, not slowness itself
        clue = _SLOW_SERIES if item.direction == "lower" else replace(_SLOW_SERIES, way="down")
        parts.append(
            _MemberReadings(
                clue, item.kind, item.metric, item.name, item.metric, item.unit, "trial", item.now, item.base
            )
        )
    ranks = [signal for signal in case.signals if signal.rank is not None and _SLOW_SERIES.fits(signal)]
    parts += [_part(_SLOW_SERIES, signal, "rank", f"rank {signal.rank}")._replace(phase="trial") for signal in ranks]
    return sorted(_stand_out(parts), key=lambda shown: -shown.odd.distance)


def _by_reason(reason: StragglerReason, case: ComparedPoint) -> Iterable[_Standout]:
    """Return members that deviate by a clue of this reason: devices, ranks, and nodes if trials ran on several."""
    for clue in reason.clues:
        parts = [
            _MemberReadings(
                clue, item.kind, item.metric, item.name, item.metric, item.unit, "trial", item.now, item.base
            )
            for item in case.members
            if clue.fits_name("", item.metric)
        ]
        for signal in filter(clue.fits, case.signals):
            if signal.rank is not None:
                parts.append(_part(clue, signal, "rank", f"rank {signal.rank}"))
            elif signal.part.startswith("gpu"):
                parts.append(_part(clue, signal, "gpu", signal.scope))
            base, group = _by_node(signal.base), f"{signal.part} {signal.series}"
            for node, now in _by_node(signal.now).items():
                part = _part(clue, signal, "node", node)
                parts.append(part._replace(group=group, now=now, base=base.get(node, [])))
        yield from _stand_out(parts)


def _part(clue: Clue, signal: Signal, kind: str, name: str) -> _MemberReadings:
    return _MemberReadings(
        clue, kind, signal.series, name, signal.series, signal.unit, signal.phase, signal.now, signal.base
    )


def _stand_out(parts: Iterable[_MemberReadings]) -> Iterable[_Standout]:
    """Yield the outlier of each group, unless it deviated as much in the base."""
    groups: dict[tuple[str, str], list[_MemberReadings]] = {}
    for part in parts:
        groups.setdefault((part.kind, part.group), []).append(part)
    for rows in groups.values():
        first, now, base = rows[0], {part.name: part.now for part in rows}, {part.name: part.base for part in rows}
        clue = first.clue
        odd = odd_one_out(now, clue.way, clue.least, clue.ratio, clue.stat)
        before = odd_one_out(base, clue.way, clue.least, clue.ratio, clue.stat)
        if odd is None:
            continue
        if before and before.member == odd.member and abs(before.excess) >= _OLD_NEWS * abs(odd.excess):
            continue
        own, peers = (figure(sorted(side)[len(side) // 2]) for side in (odd.own, odd.peers))
        about = f"{first.series} of {odd.member} is {own} {with_unit(first.unit)}where its peers have {peers}"
        evidence = SignalEvidence(
            scope=odd.member,
            series=first.series,
            unit=first.unit,
            phase=first.phase or "trial",
            stat=clue.stat,
            base=odd.peers,
            now=odd.own,
            trials=[row.trial_id for row in now[odd.member]],
            distance=odd.distance,
            against="peers",
            says=f"{about} ({odd.distance:.0f} spreads)",
        )
        yield _Standout(first.kind, odd, evidence)


def _by_node(readings: Sequence[SeriesReading]) -> dict[str, list[SeriesReading]]:
    nodes: dict[str, list[SeriesReading]] = {}
    for reading in readings:
        nodes.setdefault(reading.node, []).append(reading)
    return {node: rows for node, rows in nodes.items() if len(rows) >= LEAST_TRIALS}
