"""Playbook 3: steps spike and one node, rank or device is slower than its peers. All others wait for it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchhouse.analysis.playbooks.causes import Clue, how_sure, symptom_words
from benchhouse.analysis.playbooks.moving import LEAST_TRIALS, Odd, Stat, Way, odd_one_out, tell, unit_words
from benchhouse.analysis.playbooks.values import Case, Diagnosis, Evidence, Number, Reading, Side, Signal

NAME = "distributed_straggler"
_LEAST_CHANGE = 0.05
_SLOWER = 0.1  # how much slower than the median of its peers a member must be
_OLD_NEWS = 0.7  # of its excess: a member that stood out that much in the base, too, did not make the run slower
_SLOW_SERIES = Clue(
    r".*(step_time|step_duration|collective|allreduce|all_reduce|nccl).*(?<!bytes)", ratio=_SLOWER, least=0.0
)


@dataclass(frozen=True)
class Reason:
    """Why a member may be slow: a series by which it alone stands out."""

    name: str
    title: str
    side: Side
    clues: tuple[Clue, ...]
    change: str


REASONS = (
    Reason("pcie_link", "its PCIe link is narrower or slower", "machine",
           (Clue("pcie_width", "down", least=1.0, ratio=0.2), Clue("pcie_generation", "down", least=1.0, ratio=0.1),
            Clue("pcie_replays", least=1.0)),
           "Reseat or replace the card; the link must train to its full width."),
    Reason("nvlink", "an NVLink is down or has errors", "machine",
           (Clue("nvlink_active", "down", least=1.0, ratio=0.01), Clue("nvlink_(crc|replays)", least=1.0)),
           "Drain the node and reset its NVLinks."),
    Reason("heat", "heat holds its clocks down", "machine",
           (Clue("gpu_throttled(_heat|_hardware)?", least=0.05), Clue("gpu_temperature", least=8.0, ratio=0.1),
            Clue("gpu_sm_clock", "down", least=100.0, ratio=0.05)),
           "Cool the node: fans, filters, placement."),
    Reason("network_errors", "packets are lost on its network", "cluster",
           (Clue("net_(drops|errors)", least=1.0), Clue(r"node_infiniband_.*(error|discard).*", least=1.0),
            Clue(r"node_netstat_tcp_retranssegs.*", least=1.0),
            Clue(r"(ping_.*(loss|lost)|.*packet_loss.*)", least=0.005)),
           "Replace the cable or the port, and look at the switch's counters."),
    Reason("cpu_throttling", "its CPU limit holds it back", "scenario",
           (Clue("cgroup_throttled", least=0.02),), "Give all members the same CPU limit."),
    Reason("storage", "its storage is slow", "machine",
           (Clue("io_pressure(_full)?", least=0.02), Clue("cpu_iowait", least=0.05)), "Look at the disk of that node."),
    Reason("noisy_neighbour", "others use its cores", "cluster",
           (Clue("cpu_wait", least=0.1), Clue("cpu_pressure", least=0.05), Clue("cpu_steal", least=0.02)),
           "Give the job the whole node."),
)  # fmt: skip
_UNKNOWN = Reason("slow_member", "no series of it tells why", "machine", (), "None yet: the experiment comes first.")


@dataclass(frozen=True)
class _Stands:
    """A member that stands out by one series."""

    kind: str
    odd: Odd
    evidence: Evidence


def diagnose(case: Case) -> Diagnosis | None:
    symptoms = [one for one in case.numbers if one.worse and _slower_steps(one)]
    if not symptoms:
        return None
    slow = _slow_members(case)
    reasons = [(reason, stands) for reason in REASONS for stands in _by_reason(reason, case.signals)]
    if slow:
        suspect = slow[0]
        fitting = [(reason, one) for reason, one in reasons if _same(suspect, one)]
    elif reasons:  # no number of each member, but one device or node is not as its peers are
        suspect = max(reasons, key=lambda item: item[1].odd.distance)[1]
        fitting = [(reason, one) for reason, one in reasons if one.odd.member == suspect.odd.member]
    else:
        return None
    return _concluded(case, symptoms, suspect if slow else None, fitting)


def _concluded(
    case: Case, symptoms: Sequence[Number], slow: _Stands | None, reasons: list[tuple[Reason, _Stands]]
) -> Diagnosis:
    reasons = sorted(reasons, key=lambda item: (REASONS.index(item[0]) > 3, -item[1].odd.distance))
    reason, shown = reasons[0] if reasons else (_UNKNOWN, slow)
    assert shown is not None
    evidence = [slow.evidence] if slow else []
    evidence += [one.evidence for other, one in reasons if other is reason]
    certainty, why = how_sure(evidence)
    member = slow.odd.member if slow else shown.odd.member
    where = "" if not reasons or shown.odd.member == member else f" ({shown.odd.member})"
    also = list(dict.fromkeys(other.title for other, _ in reasons if other is not reason))
    if not slow:
        certainty = "weak" if certainty == "weak" else "moderate"
        why += "; no number of each rank says that this one was slow: emit one with window `rank:N`"
    kind = slow.kind if slow else shown.kind
    return Diagnosis(
        playbook=NAME,
        cause=f"straggler:{reason.name}",
        title=f"{member} lags behind its peers: {reason.title}{where}",
        says=f"A step ends when its slowest member does. {member} stands out among the others, so all wait for it.",
        certainty=certainty,
        why_so_sure=why,
        side=reason.side,
        point=case.point,
        suspect=member,
        symptoms=[symptom_words(one) for one in symptoms],
        evidence=evidence,
        next=[_without(kind, member), "Then: bench why @last --vs {base}: the spikes must be gone."],
        change=reason.change,
        also=also,
    )


def _without(kind: str, member: str) -> str:
    if kind == "node":
        return f"Run without it (`slurm: {{flags: [--exclude={member}]}}`, or cordon the node): bench run {{scenario}}"
    return f"Run again with the node of {member} exchanged or left out: bench run {{scenario}}"


def _slower_steps(number: Number) -> bool:
    if number.change is None:
        return False
    return (number.is_time and number.change >= _LEAST_CHANGE) or (number.is_rate and number.change <= -_LEAST_CHANGE)


def _slow_members(case: Case) -> list[_Stands]:
    """Members that are slower than their peers, by numbers of each or by series of each rank; the slowest first."""
    found = []
    groups: dict[tuple[str, str], list[tuple[str, str, str, Sequence[Reading], Sequence[Reading], Way]]] = {}
    for one in case.members:
        way: Way = "up" if one.direction == "lower" else "down"
        row = (one.name, one.kind, one.unit, one.now, one.base, way)
        groups.setdefault((one.kind, one.metric), []).append(row)
    for signal in case.signals:
        if signal.rank is not None and _SLOW_SERIES.fits(signal):
            row = (f"rank {signal.rank}", "rank", signal.unit, signal.now, signal.base, "up")
            groups.setdefault(("rank", signal.series), []).append(row)
    for (kind, metric), rows in groups.items():
        now, base = {row[0]: row[3] for row in rows}, {row[0]: row[4] for row in rows}
        shown = _stands(kind, metric, rows[0][2], "", now, base, Clue("", rows[0][5], least=0.0, ratio=_SLOWER))
        found += [shown] if shown else []
    return sorted(found, key=lambda one: -one.odd.distance)


def _by_reason(reason: Reason, signals: Sequence[Signal]) -> Iterable[_Stands]:
    """Members that stand out by a clue of this reason: devices, ranks, and nodes where trials ran on several."""
    for clue in reason.clues:
        groups: dict[tuple[str, str], list[tuple[str, Signal, Sequence[Reading], Sequence[Reading]]]] = {}
        for signal in signals:
            if not clue.fits(signal):
                continue
            if signal.rank is not None:
                groups.setdefault(("rank", signal.series), []).append(
                    (f"rank {signal.rank}", signal, signal.now, signal.base)
                )
            elif signal.scope.startswith("gpu"):
                groups.setdefault(("gpu", signal.series), []).append((signal.scope, signal, signal.now, signal.base))
            earlier = _by_node(signal.base)
            for node, here in _by_node(signal.now).items():
                row = (node, signal, here, earlier.get(node, []))
                groups.setdefault(("node", f"{signal.scope} {signal.series}"), []).append(row)
        for (kind, _), rows in groups.items():
            first = rows[0][1]
            now, base = {row[0]: row[2] for row in rows}, {row[0]: row[3] for row in rows}
            shown = _stands(kind, first.series, first.unit, first.phase, now, base, clue)
            if shown:
                yield shown


def _stands(
    kind: str,
    series: str,
    unit: str,
    phase: str,
    now: Mapping[str, Sequence[Reading]],
    base: Mapping[str, Sequence[Reading]],
    clue: Clue,
) -> _Stands | None:
    stat: Stat = clue.stat
    odd = odd_one_out(now, clue.way, clue.least, clue.ratio, stat)
    if odd is None:
        return None
    before = odd_one_out(base, clue.way, clue.least, clue.ratio, stat)
    if before and before.member == odd.member and abs(before.excess) >= _OLD_NEWS * abs(odd.excess):
        return None
    middle = sorted(odd.peers)[len(odd.peers) // 2]
    own = sorted(odd.own)[len(odd.own) // 2]
    spreads = f"{odd.distance:.0f} spreads"
    words = f"{series} of {odd.member} is {tell(own)} {unit_words(unit)}where its peers have {tell(middle)} ({spreads})"
    evidence = Evidence(
        scope=odd.member,
        series=series,
        unit=unit,
        phase=phase or "trial",
        stat=stat,
        base=odd.peers,
        now=odd.own,
        trials=[row.trial_id for row in now[odd.member]],
        distance=odd.distance,
        against="peers",
        says=words,
    )
    return _Stands(kind, odd, evidence)


def _by_node(readings: Sequence[Reading]) -> dict[str, list[Reading]]:
    found: dict[str, list[Reading]] = {}
    for one in readings:
        found.setdefault(one.node, []).append(one)
    return {node: rows for node, rows in found.items() if len(rows) >= LEAST_TRIALS}


def _same(slow: _Stands, other: _Stands) -> bool:
    """Whether evidence is about the slow member. Which GPU a rank has is not guessed: one GPU that alone stands out in
    the trials of the slow rank is shown by its own name."""
    return other.odd.member == slow.odd.member or (slow.kind == "rank" and other.kind == "gpu")
