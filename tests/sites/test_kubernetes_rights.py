"""The Role of `bench site render`: a run uses exactly its verbs, and the check and the executor report a missing verb.

A real API server with RBAC decides, and its audit log shows which verbs each account has used.
"""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from laboratory import wait_until
from services.kubernetes_accounts import accounts as accounts

from benchhouse.automation.cron_jobs import CronRun, cron_job
from benchhouse.executors.cluster_engine import SlotRequest, WorkerSlot
from benchhouse.executors.kubernetes_engine import KubernetesEngine, delete_run
from benchhouse.executors.kubernetes_manifest import Pods
from benchhouse.http.kubeconfig import find_access
from benchhouse.http.kubernetes import KubeClient, KubernetesRefused, path_of, selector
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.kubernetes_rights import RIGHTS
from benchhouse.schema.pod_template import RUN_LABEL

NEEDED = [(right, verb) for right in RIGHTS if right.level in ("run", "evidence") for verb in right.verbs]
RUN_VERBS = [(right, verb) for right, verb in NEEDED if right.level == "run"]


def without(right, verb):
    """All rights but this verb."""
    rest = replace(right, verbs=tuple(one for one in right.verbs if one != verb))
    return [rest if item == right else item for item in RIGHTS]


def missing_rights(bench):
    """The rights that `bench site check` reports as missing."""
    findings = json.loads(bench("site", "check", "--json").out)["findings"]
    return [item["what"] for item in findings if item["what"].startswith("may ") and item["state"] == "missing"]


def is_allowed(access, namespace, right, verb):
    attributes = {"namespace": namespace, "verb": verb, "group": right.group, "resource": right.resource}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return KubeClient(access).create(path, review | {"spec": {"resourceAttributes": attributes}})["status"]["allowed"]


def access_of(accounts, monkeypatch, name, rights):
    """Make an account with these rights, select it, and wait until the API server grants the first of them."""
    monkeypatch.setenv("KUBECONFIG", str(accounts.make(name, rights)))
    access, first = find_access(), rights[0]
    wait_until(lambda: is_allowed(access, accounts.namespace, first, first.verbs[-1]), "the role to take effect", 60)
    return access


def use_all_rights(access, namespace, folder):
    """Make every API request that the executor makes, with a pod that no node accepts; raise the first refusal."""
    client, followed = KubeClient(access), KubeClient(access)
    site = KubernetesSite(image="i", node_selector={"benchhouse.dev/nowhere": "yes"})
    name = access.context
    pods = Pods(site=site, namespace=namespace, run_id=name, scenario="s", owner="o", command=("true",))
    slot = WorkerSlot(name=f"{name}-1", ask=SlotRequest(), folder=str(folder), python=())
    delete_run(client, namespace, name, pods.anchor_name)
    engine, later = (KubernetesEngine(one, pods, 600, lambda text: None) for one in (followed, client))
    engine.start(slot)
    engine.gone()
    wait_until(lambda: engine.lost or followed.requests >= 4, "two objects made, pods listed and watched")
    second = slot.model_copy(update={"name": f"{name}-2"})
    later.start(second)  # of a session that comes after one that was killed
    later.gone()
    of_run = {"labelSelector": selector({RUN_LABEL: name})}
    wait_until(lambda: engine.lost or client.get(path_of("v1", namespace, "pods"), **of_run)["items"], "the pod")
    client.get(path_of("v1", namespace, "events"))
    client.delete(path_of("v1", namespace, "pods", "no-such-pod"))  # pods of an Indexed Job, which 1.20 lacks
    for path in (path_of("v1", namespace, "pods", "no-such-pod", "log"), path_of("batch/v1", namespace, "jobs", "no")):
        try:
            client.text(path)
        except KubernetesRefused as error:
            if error.status != 404:
                raise
    later.stop([second.name])
    wait_until(lambda: engine.lost or second.name in later.gone(), "the end of the pod")
    if engine.lost:
        raise KubernetesRefused(403, "Forbidden", engine.lost)
    engine.close()
    later.close()


@pytest.mark.slow("it performs a run and a schedule under the audit log of the API server")
def test_the_role_allows_exactly_what_a_run_needs(accounts, kubernetes_cluster, bench, monkeypatch, tmp_path):
    access = access_of(accounts, monkeypatch, "whole", RIGHTS)
    assert missing_rights(bench) == []
    before = len(kubernetes_cluster.requests())
    use_all_rights(access, accounts.namespace, tmp_path)
    user = f"system:serviceaccount:{accounts.namespace}:whole"
    wait_until(lambda: len(kubernetes_cluster.used_verbs(user, before)) >= len(NEEDED), "the last audit events", 180)
    assert kubernetes_cluster.used_verbs(user, before) == {(item.group, item.resource, verb) for item, verb in NEEDED}
    for path in (path_of("v1", accounts.namespace, "secrets"), path_of("v1", "default", "pods"), "/api/v1/nodes"):
        with pytest.raises(KubernetesRefused, match="cannot list"):
            KubeClient(access).get(path)


def test_the_check_reports_each_missing_verb_and_rights_that_only_the_profile_needs(
    accounts, bench, monkeypatch, tmp_path
):
    held = NEEDED[::2]
    rights = [
        replace(item, verbs=tuple(verb for verb in item.verbs if (item, verb) in held or (item, verb) not in NEEDED))
        for item in RIGHTS
    ]
    access_of(accounts, monkeypatch, "half", rights)
    assert missing_rights(bench) == [f"may {verb} {right.api}" for right, verb in NEEDED[1::2]]
    access_of(accounts, monkeypatch, "plain", [right for right in RIGHTS if right.level == "run"])
    cluster = {"kuberay": {"workers": [{"cpus": 4, "memory": "8GiB"}]}}
    site = {"site": "t", "kubernetes": {"namespace": accounts.namespace, "queue": "q"}, "ray": {"cluster": cluster}}
    (tmp_path / "site.yaml").write_text(json.dumps(site))
    assert {"may list workloads.kueue.x-k8s.io", "may create rayjobs.ray.io"} <= set(missing_rights(bench))


def test_the_executor_reports_each_verb_that_its_account_lacks(accounts, monkeypatch, tmp_path):
    def name_of(right, verb):
        return f"no-{verb}-{right.resource}"

    made = [access_of(accounts, monkeypatch, name_of(*item), without(*item)) for item in RUN_VERBS]

    def refusal(access):
        try:
            use_all_rights(access, accounts.namespace, tmp_path)
        except KubernetesRefused as error:
            return error.message, error.hint or ""
        return "", ""

    with ThreadPoolExecutor(len(made)) as pool:
        refusals = list(pool.map(refusal, made))
    failures = [
        (name_of(right, verb), message, hint)
        for (right, verb), (message, hint) in zip(RUN_VERBS, refusals, strict=True)
        if f'cannot {verb} resource "{right.resource}"' not in message or "bench site check" not in hint
    ]
    assert not failures


def test_applying_a_schedule_uses_exactly_the_rights_on_schedules(accounts, kubernetes_cluster, monkeypatch, tmp_path):
    (right,) = [right for right in RIGHTS if right.level == "schedules"]
    access_of(accounts, monkeypatch, "schedules", [right])
    volume = {"claim": "shared", "path": str(tmp_path)}
    settings = KubernetesSite(namespace=accounts.namespace, image="i@sha256:0", volume=volume)
    run = CronRun("nightly", tmp_path / "s.yaml", tmp_path, "0 2 * * *")
    first, second = (cron_job(replace(run, cron=cron), settings, (1, 20)) for cron in ("0 2 * * *", "0 3 * * *"))
    for verb, document in (("apply", first), ("apply", second), ("delete", second)):
        command = [kubernetes_cluster.folder / "bin" / "kubectl", verb, "--filename", "-"]
        subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, check=True)
    user = f"system:serviceaccount:{accounts.namespace}:schedules"
    used = kubernetes_cluster.used_verbs(user, client="kubectl")
    assert used == {(right.group, right.resource, verb) for verb in right.verbs}
