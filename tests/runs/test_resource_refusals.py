"""What an executor lacks at one value of an axis over resources is refused before anything runs, by that value."""

import json

import pytest
from services import small_server


@pytest.mark.parametrize(
    ("executor", "nodes", "message"),
    [
        ("local", [1, 2], "at resources.nodes=2: this machine can't give what a trial asks for: 2 nodes"),
        (
            "dask",
            [2, 4],
            "at resources.nodes=2: a trial asks for 2 nodes, but a Dask cluster of its own is this machine",
        ),
        ("ray", [2, 4], "at resources.nodes=2: a trial asks for 2 nodes, but a Ray cluster of its own is this machine"),
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


def test_pods_that_share_only_a_bucket_have_one_node_each(lab):
    lab.variables |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    pods = {"image": "localhost/python:3.11", "code": "image", "bucket": "s3://b/p", "bucket_secret": "keys"}
    (lab.workspace / "site.yaml").write_text(json.dumps({"site": "t", "executor": "kubernetes", "kubernetes": pods}))
    refused = lab.bench("run", lab.scenario("once", resources={"nodes": 2}), code=2)
    assert "a trial asks for 2 nodes, but without a shared volume a trial runs on one" in refused.stderr


def test_all_nodes_of_a_trial_can_t_be_that_of_its_server(lab):
    pods = {"image": "localhost/python:3.11", "volume": {"claim": "c", "path": str(lab.root)}}
    (lab.workspace / "site.yaml").write_text(json.dumps({"site": "t", "executor": "kubernetes", "kubernetes": pods}))
    (lab.workspace / "recipes").mkdir()
    recipe = small_server.recipe("answer")
    (lab.workspace / "recipes" / "small.yaml").write_text(json.dumps(recipe))
    services = {"web": {"recipe": "small", "mode": "attached", "node": 0}}
    refused = lab.bench("run", lab.scenario("once", resources={"nodes": 2}, services=services), code=2)
    assert "a trial asks for 2 nodes, but its pods are to be on the node of web (node: 0)" in refused.stderr
