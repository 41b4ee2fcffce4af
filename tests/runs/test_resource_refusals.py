"""What an executor lacks at one value of an axis over resources is refused before anything runs, by that value."""

import pytest


@pytest.mark.parametrize(
    ("executor", "nodes", "message"),
    [
        ("local", [1, 2], "at resources.nodes=2: this machine can't give what a trial asks for: 2 nodes"),
        ("dask", [2, 4], "at resources.nodes=2: a trial asks for 2 nodes, but on Dask a trial runs on one"),
        ("ray", [2, 4], "at resources.nodes=2: a trial asks for 2 nodes, but on Ray a trial runs on one"),
    ],
)
def test_nodes_that_an_executor_lacks_are_refused_at_their_value(lab, executor, nodes, message):
    refused = lab.bench("run", lab.scenario("once", executor=executor, resources={"nodes": nodes}), code=None)
    assert refused.returncode != 0
    assert message in refused.stderr
    assert lab.trials() == []


def test_a_dry_run_refuses_it_too_and_shows_each_trials_own_resources(lab):
    refused = lab.bench("run", lab.scenario("once", resources={"cpus": [1, 5000]}), "--dry-run", code=None)
    assert refused.returncode != 0
    assert "at resources.cpus=5000: this machine can't give what a trial asks for: 5000 cores" in refused.stderr
