"""What is read from objects of Kubernetes: pure, from objects as its API gives them."""

import pytest

from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.sites import kubernetes_facts as facts


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("500m", 0.5), ("2Gi", 2**31), ("12219230Ki", 12219230 * 1024), ("1e3", 1000), ("100M", 1e8), ("0", 0)],
)
def test_quantities(text, value):
    assert facts.read_quantity(text) == pytest.approx(value)


def test_what_is_no_quantity_is_refused():
    for text in ("", "8 cores", "Gi", "1Zi"):
        with pytest.raises(ValueError, match="no quantity"):
            facts.read_quantity(text)


def quota(hard, used):
    return {"metadata": {"name": "team"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}}


def test_what_is_left_of_a_quota():
    found = facts.quota_finding(quota({"requests.cpu": "8", "limits.memory": "16Gi"}, {"requests.cpu": "1500m"}))
    assert found.state == "good"
    assert found.value == "left: requests.cpu 6.5 of 8, limits.memory 16.0 GiB of 16.0 GiB"


def test_a_quota_is_in_the_way_only_where_every_pod_needs_it():
    spent = facts.quota_finding(quota({"pods": "0", "requests.nvidia.com/gpu": "0"}, {}))
    assert spent.state == "missing" and "no pods left, so no pod can start" in spent.note
    assert facts.quota_finding(quota({"requests.nvidia.com/gpu": "0", "services": "0"}, {})).state == "good"
    assert facts.quota_finding(quota({"requests.cpu": "2"}, {"requests.cpu": "3"})).value.endswith(
        "requests.cpu 0 of 2"
    )


def test_a_quota_on_memory_asks_for_a_default():
    limits = {"metadata": {"name": "team"}, "spec": {"limits": [{"type": "Container", "default": {"memory": "1Gi"}}]}}
    counted = [quota({"limits.memory": "1Gi"}, {})]
    assert facts.unset_memory(counted, [], KubernetesSite())
    assert not facts.unset_memory(counted, [limits], KubernetesSite())
    assert not facts.unset_memory(counted, [], KubernetesSite(memory="1GiB"))
    assert not facts.unset_memory([quota({"pods": "3"}, {})], [], KubernetesSite())


def claim(phase="Bound", mode="ReadWriteMany", **metadata):
    status = {"phase": phase, "capacity": {"storage": "10Gi"}}
    return {"metadata": {"name": "data"} | metadata, "spec": {"accessModes": [mode]}, "status": status}


@pytest.mark.parametrize(
    ("claim", "state", "words"),
    [
        (claim(), "good", ""),
        (claim("Pending"), "unknown", "bound when the first pod uses it"),
        (claim("Lost"), "missing", "kubectl describe pvc data"),
        (claim(mode="ReadOnlyMany"), "missing", "can only read"),
        (claim(mode="ReadWriteOnce"), "unknown", "pods of one node only"),
        (claim(deletionTimestamp="2026-11-18T13:00:00Z"), "missing", "being deleted"),
    ],
)
def test_a_claim(claim, state, words):
    found = facts.claim_finding(claim, several_nodes=True)
    assert (found.state, found.what) == (state, "volume data") and words in found.note


def node(name, arch="amd64", *, taints=(), ready="True", **allocatable):
    amounts = {"cpu": "4", "memory": "8Gi"} | {key.replace("__", "/"): value for key, value in allocatable.items()}
    conditions = [{"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": name, "labels": {"pool": name}},
        "spec": {"taints": list(taints)},
        "status": {"nodeInfo": {"architecture": arch}, "allocatable": amounts, "conditions": conditions},
    }


def found(nodes, **site):
    return {item.what: item for item in facts.node_findings(nodes, KubernetesSite.model_validate(site))}


def test_nodes_and_who_offers_gpus():
    gpu = {"nvidia.com__gpu": "4"}
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    nodes = [node("a"), node("b", "arm64"), node("c", taints=[taint], **gpu), node("d", ready="False", **gpu)]
    plain = found(nodes)
    assert plain["nodes"].value.startswith("2 of 4 ready, amd64 or arm64, 4 cores, 8.0 GiB")
    assert plain["architecture"].state == "unknown" and "kubernetes.io/arch" in plain["architecture"].note
    assert plain["nvidia.com/gpu"].state == "missing" and "no devices" in plain["nvidia.com/gpu"].note
    tolerant = found(nodes, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}])
    assert tolerant["nvidia.com/gpu"].value == "c 4"
    slices = [node("m", **{"nvidia.com__mig-1g.5gb": "7"})]
    assert "offered: nvidia.com/mig-1g.5gb" in found(slices)["nvidia.com/gpu"].note
    assert found(slices, gpu_resource="nvidia.com/mig-1g.5gb")["nvidia.com/mig-1g.5gb"].value == "m 7"


def test_a_selector_that_no_node_has():
    missing = found([node("a")], node_selector={"pool": "fast"})["nodes"]
    assert missing.state == "missing" and "no node of 1 is ready with pool=fast" in missing.note


def test_a_queue_of_kueue():
    queue = {"metadata": {"name": "gpus"}, "spec": {"clusterQueue": "shared"}, "status": {"pendingWorkloads": 3}}
    assert facts.queue_finding(queue).value == "shared, 3 waiting, 0 admitted"
    inactive = queue | {"status": {"conditions": [{"type": "Active", "status": "False", "message": "no ClusterQueue"}]}}
    assert facts.queue_finding(inactive).note == "it admits nothing: no ClusterQueue"
    assert "Hold" in facts.queue_finding(queue | {"spec": {"stopPolicy": "Hold"}}).note


def test_fields_that_a_server_keeps():
    fields = {"properties": {"suspend": {}, "completionMode": {}, "parallelism": {}}}
    schema = {"definitions": {"io.k8s.api.batch.v1.JobSpec": fields}}
    assert facts.job_features(schema) == ["completionMode", "suspend"]
    assert facts.job_features({}) == []
