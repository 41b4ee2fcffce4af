"""The odd node of one trial: planted, and never where there is none."""

import random

import pytest
from tables import check_table

from benchhouse.analysis.playbooks.abnormal_node import NodeSeries, find_abnormal

NODES = ("n1", "n2", "n3", "n4")


def trial(
    seed: int, waits: dict[str, float], cpu: dict[str, float] | None = None, windows: int = 8
) -> list[NodeSeries]:
    """Four nodes that wait about 0.05 cores and are hit alike by what comes and goes; and more where it is planted."""
    chance = random.Random(seed)
    shared = [chance.expovariate(5) for _ in range(windows)]
    rows = []
    for node in NODES:
        wait = [max(0.0, chance.gauss(0.05, 0.03)) + both + waits.get(node, 0.0) for both in shared]
        work = [chance.gauss((cpu or {}).get(node, 0.5), 0.02) for _ in range(windows)]
        rows += [NodeSeries(node, "trial", "cpu_wait", "1", wait), NodeSeries(node, "trial", "cpu", "1", work)]
    return rows


def test_a_node_that_waits_more_than_its_peers_is_named():
    for seed in range(100):
        abnormal = find_abnormal(trial(seed, {"n3": 0.4}), ())
        assert abnormal is not None and (abnormal.node, abnormal.reason) == ("n3", "noisy_neighbour"), seed
        assert abnormal.value - abnormal.peers == pytest.approx(0.4, abs=0.1)
        assert abnormal.says.startswith("n3 is not as the other 3 nodes: others use its cores (cpu_wait of trial is 0.")


def test_healthy_nodes_are_not_named():
    assert [seed for seed in range(500) if find_abnormal(trial(seed, {}), ())] == []


@check_table("what", ["server", "other work", "few windows", "few nodes", "two of them"])
def test_a_difference_with_an_independent_reason_is_not_named(what):
    rows, servers = trial(1, {"n3": 0.4}), ()
    if what == "server":
        servers = ("n3",)
    elif what == "other work":
        rows = trial(1, {"n3": 0.4}, cpu={"n3": 1.5})
    elif what == "few windows":
        rows = trial(1, {"n3": 0.4}, windows=3)
    elif what == "few nodes":
        rows = [row for row in rows if row.node in ("n2", "n3")]
    else:
        rows = trial(1, {"n3": 0.4, "n2": 0.4})
    assert find_abnormal(rows, servers) is None


def test_idle_nodes_are_peers_and_errors_of_a_network_are_named():
    idle = dict.fromkeys(NODES, 0.0)
    drops = [NodeSeries(node, "node", "net_drops", "1/s", [30.0 if node == "n2" else 0.0] * 8) for node in NODES]
    abnormal = find_abnormal(trial(1, {}, cpu=idle) + drops, ())
    assert abnormal is not None and (abnormal.node, abnormal.reason) == ("n2", "network_errors")
    assert (abnormal.value, abnormal.peers) == (30.0, 0.0)
