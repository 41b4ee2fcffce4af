"""`bench site render`: manifests for an admin."""

import json

import pytest
import yaml
from services.on_demand import module

from benchhouse.schema.kubernetes_rights import RIGHTS


def rendered(bench, *args):
    done = bench("site", "render", *args)
    assert done.code == 0, done.err
    return {item["kind"]: item for item in yaml.safe_load_all(done.out)}


def rules_without(*levels):
    return [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)}
        for right in RIGHTS
        if right.level not in levels
    ]


def test_all_that_a_team_needs_and_no_more(bench):
    plain = rendered(bench, "--namespace", "team")
    assert list(plain) == [
        "Namespace", "ServiceAccount", "Role", "RoleBinding", "LimitRange", "PersistentVolumeClaim",
    ]  # fmt: skip
    assert plain["Role"]["rules"] == rules_without("cluster", "services", "endpoints", "ray", "schedules")
    finding = rendered(bench, "--namespace", "team", "--endpoints")
    assert finding["Role"]["rules"] == rules_without("cluster", "services", "ray", "schedules")
    assert not [rule for rule in plain["Role"]["rules"] if "secrets" in rule["resources"] or "*" in str(rule)]
    assert "cpu" not in plain["LimitRange"]["spec"]["limits"][0]["default"]  # it would throttle what is measured
    assert plain["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.starts  # it installs the schemas
def test_quotas_users_nodes_and_no_egress_are_valid_by_the_published_schema(bench):
    kubernetes_validate = module("kubernetes-schemas", "kubernetes_validate")
    full = rendered(
        bench, "--namespace", "team", "--cpus", "64", "--memory", "256G", "--gpus", "8", "--size", "500G", "--nodes",
        "--no-egress", "--user", "ann@example.com", "--user", "bob", "--service-account", "runs", "--claim", "data",
        "--storage-class", "nfs",
    )  # fmt: skip
    for manifest in full.values():
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    assert full["ResourceQuota"]["spec"]["hard"] == {
        "requests.cpu": "64",
        "requests.memory": "256Gi",
        "limits.memory": "256Gi",
        "requests.nvidia.com/gpu": "8",
    }
    claim = full["PersistentVolumeClaim"]
    assert (claim["metadata"]["name"], claim["spec"]["storageClassName"]) == ("data", "nfs")
    assert claim["spec"]["resources"]["requests"]["storage"] == "500Gi"
    assert [item["name"] for item in full["RoleBinding"]["subjects"]] == ["runs", "ann@example.com", "bob"]
    assert full["ClusterRole"]["rules"][0]["resources"] == ["nodes"]
    assert full["NetworkPolicy"]["spec"]["policyTypes"] == ["Egress"]


def test_servers_need_rights_of_their_own(bench):
    rules = rendered(bench, "--namespace", "team", "--servers")["Role"]["rules"]
    verbs = {rule["resources"][0]: rule["verbs"] for rule in rules}
    assert verbs["statefulsets"] == verbs["secrets"] == verbs["services"] == ["create"]


def test_whole_runs_on_kuberay_and_schedules_need_rights_of_their_own(bench):
    rules = rendered(bench, "--namespace", "team", "--ray", "--schedules")["Role"]["rules"]
    verbs = {rule["resources"][0]: rule["verbs"] for rule in rules}
    assert verbs["rayjobs"] == ["create", "get", "list", "delete"]
    assert verbs["cronjobs"] == ["create", "get", "patch", "delete"]


def test_the_profile_says_what_is_not_given(bench, tmp_path):
    (tmp_path / "site.yaml").write_text(
        "site: team\nnetwork: {egress: false}\n"
        "kubernetes: {namespace: bench-team, gpu_resource: amd.com/gpu, volume: {claim: evidence, path: /data}}\n"
    )
    named = rendered(bench, "--gpus", "2")
    assert named["Namespace"]["metadata"]["name"] == "bench-team" and "NetworkPolicy" in named
    assert named["PersistentVolumeClaim"]["metadata"]["name"] == "evidence"
    assert named["ResourceQuota"]["spec"]["hard"] == {"requests.amd.com/gpu": "2"}
    document = json.loads(bench("site", "render", "--json").out)
    assert document["kind"] == "List" and len(document["items"]) == 7


def test_what_is_no_name_or_amount_is_refused(bench):
    assert "give --namespace" in bench("site", "render").err
    for args, words in (
        (("--namespace", "My_Team"), "'My_Team' is no namespace"),
        (("--namespace", "a" * 64), "at most 63"),
        (("--namespace", "team", "--service-account", "A B"), "--service-account: 'A B' is no name"),
        (("--namespace", "team", "--cpus", "0"), "--cpus"),
        (("--namespace", "team", "--gpus", "-1"), "--gpus"),
        (("--namespace", "team", "--size", "0"), "--size"),
        (("--namespace", "team", "--memory", "lots"), "--memory"),
    ):
        done = bench("site", "render", *args)
        assert done.code == 2 and words in done.err and not done.out, done
