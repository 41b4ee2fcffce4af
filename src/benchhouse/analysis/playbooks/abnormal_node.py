"""Find the node of one trial that differs from its peers, by series that explain a slow node. No base is needed.

Windows of the trial's time serve as repetitions. Only nodes with the same work are compared: one that runs a server, or
uses a different amount of CPU, differs for a legitimate reason.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from benchhouse.analysis.playbooks.causes import Clue
from benchhouse.analysis.playbooks.signals import LEAST_TRIALS, Outlier, figure, odd_of_levels, with_unit
from benchhouse.analysis.playbooks.straggler import REASONS, StragglerReason
from benchhouse.schema.telemetry import AbnormalNode

LEAST_WINDOWS = LEAST_TRIALS + 1
_FEWEST_PEERS = 3
_ALIKE = 2.0  # factor relative to the median CPU time, up or down
_IDLE = 0.05  # cores: nodes that use less count as equal


class NodeSeries(NamedTuple):
    """One series of one node, by window."""

    node: str
    scope: str
    series: str
    unit: str
    values: Sequence[float]


def find_abnormal(rows: Iterable[NodeSeries], servers: Collection[str]) -> AbnormalNode | None:
    """Return the node that deviates most, None if no node does; `servers` are nodes that run one.

    All `rows` have equally many windows. Scopes are relative to a node: `trial` is the trial's part on that node.
    """
    rows = [row for row in rows if len(row.values) >= LEAST_WINDOWS and row.node not in servers]
    peers = _same_work(rows)
    groups: dict[tuple[str, str, str], dict[str, Sequence[float]]] = {}
    for row in rows:
        if row.node in peers:
            groups.setdefault((row.scope, row.series, row.unit), {})[row.node] = row.values
    standouts = [
        (reason, *name, odd)
        for reason in REASONS
        for clue in reason.clues
        for name, members in groups.items()
        if clue.fits_name(*name[:2]) and (odd := _odd(clue, members))
    ]
    if not standouts:
        return None
    best = max(standouts, key=lambda item: item[-1].distance)
    same = [item for item in standouts if item[-1].member == best[-1].member]
    return _describe(*min(same, key=lambda item: (-item[-1].distance, item[1])))


def _same_work(rows: Sequence[NodeSeries]) -> set[str]:
    used = {row.node: max(_IDLE, median(row.values)) for row in rows if (row.scope, row.series) == ("trial", "cpu")}
    if len(used) < _FEWEST_PEERS:
        return set()
    usual = median(used.values())
    return {node for node, cores in used.items() if usual / _ALIKE <= cores <= usual * _ALIKE}


def _odd(clue: Clue, members: Mapping[str, Sequence[float]]) -> Outlier | None:
    """Return the outlier, after subtracting what affects all nodes in a window equally."""
    if len(members) < _FEWEST_PEERS:
        return None
    centres = [median(window) for window in zip(*members.values(), strict=True)]
    whole = median(centres)
    level = {
        node: [value - centre + whole for value, centre in zip(values, centres, strict=True)]
        for node, values in members.items()
    }
    return odd_of_levels(level, clue.way, clue.least, clue.ratio)


def _describe(reason: StragglerReason, scope: str, series: str, unit: str, odd: Outlier) -> AbnormalNode:
    own, peers = median(odd.own), median(odd.peers)
    seen = f"{series} of {scope} is {figure(own)} {with_unit(unit)}where its peers have {figure(peers)}"
    return AbnormalNode(
        node=odd.member,
        reason=reason.name,
        scope=scope,
        series=series,
        unit=unit,
        value=own,
        peers=peers,
        distance=odd.distance,
        says=f"{odd.member} is not as the other {len(odd.peers)} nodes: {reason.title} ({seen})",
    )
