"""The Role of `bench site render` is enough for a run, and one verb less is told by the check and breaks the executor.

On a real API server with RBAC: each account has the Role, without one of its verbs.
"""

import json
import subprocess
from dataclasses import replace

import pytest
from executors.test_kubernetes_ray import IMAGE, WORKERS
from executors.test_kubernetes_ray import definitions as definitions
from laboratory import wait_until
from services.kubernetes_accounts import accounts as accounts

from benchhouse.automation.cron_jobs import CronRun, cron_job
from benchhouse.executors.cluster_engine import Ask, Slot
from benchhouse.executors.kuberay import KubeRayJobs
from benchhouse.executors.kubernetes_engine import KubernetesEngine, delete_run
from benchhouse.executors.kubernetes_manifest import Pods
from benchhouse.http.kubeconfig import find_access
from benchhouse.http.kubernetes import KubeClient, Refused, path_of, selector
from benchhouse.schema.kuberay import KubeRay
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.kubernetes_rights import RIGHTS
from benchhouse.schema.layout import RunFolder
from benchhouse.schema.pod_template import RUN_LABEL
from benchhouse.schema.protocols import Assignment
from benchhouse.schema.site import Site

pytestmark = pytest.mark.slow
NEEDED = [(right, verb) for right in RIGHTS if right.level in ("run", "evidence") for verb in right.verbs]
OPTIONAL = [right for right in RIGHTS if right.level in ("ray", "schedules")]


def lacking(bench):
    """What the check says that the account may not do, of what it must."""
    found = json.loads(bench("site", "check", "--json").out)["findings"]
    return [item["what"] for item in found if item["what"].startswith("may ") and item["state"] == "missing"]


def work(access, namespace, folder):
    """All that the executor asks of the API, with a pod that no node takes; raises where one thing is refused."""
    client, followed = KubeClient(access), KubeClient(access)
    site = KubernetesSite(image="i", node_selector={"benchhouse.dev/nowhere": "yes"})
    name = access.context
    pods = Pods(site=site, namespace=namespace, run_id=name, scenario="s", owner="o", command=("true",))
    slot = Slot(name=f"{name}-1", ask=Ask(), folder=str(folder), python=())
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
    client.delete(path_of("v1", namespace, "pods", "no-such-pod"))  # asked of an Indexed Job's pods, which 1.20 has not
    for path in (path_of("v1", namespace, "pods", "no-such-pod", "log"), path_of("batch/v1", namespace, "jobs", "no")):
        try:
            client.text(path)
        except Refused as error:
            if error.status != 404:
                raise
    later.stop([second.name])
    wait_until(lambda: engine.lost or second.name in later.gone(), "the end of the pod")
    if engine.lost:
        raise Refused(403, "Forbidden", engine.lost)
    engine.close()
    later.close()


def test_an_account_with_the_role_can_do_all_and_nothing_else(accounts, bench, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(accounts.make("whole", RIGHTS)))
    wait_until(lambda: not lacking(bench), "the role to hold", 30)
    access = find_access()
    work(access, accounts.namespace, tmp_path)
    for path in (path_of("v1", accounts.namespace, "secrets"), path_of("v1", "default", "pods"), "/api/v1/nodes"):
        with pytest.raises(Refused, match="cannot list"):
            KubeClient(access).get(path)


@pytest.mark.parametrize(("right", "verb"), NEEDED, ids=[f"{verb}-{right.resource}" for right, verb in NEEDED])
def test_one_verb_less_is_told_and_breaks_the_executor(accounts, bench, monkeypatch, tmp_path, right, verb):
    less = [
        replace(item, verbs=tuple(one for one in item.verbs if one != verb)) if item == right else item
        for item in RIGHTS
    ]
    name = f"no-{verb}-{right.resource.replace('/', '-')}"
    monkeypatch.setenv("KUBECONFIG", str(accounts.make(name, less)))
    wait_until(lambda: len(lacking(bench)) == 1, "the role to hold", 30)
    assert lacking(bench) == [f"may {verb} {right.api}"]
    with pytest.raises(Refused) as refused:
        work(find_access(), accounts.namespace, tmp_path)
    assert f'cannot {verb} resource "{right.resource}"' in refused.value.message
    assert "bench site check" in refused.value.hint


def test_a_run_succeeds_with_the_role(accounts, kubernetes):
    """The laboratory of `kubernetes` has a namespace of its own: the account gets its role there."""
    namespace = json.loads((kubernetes.workspace / "site.yaml").read_text())["kubernetes"]["namespace"]
    there = replace(accounts, namespace=namespace)
    kubernetes.variables["KUBECONFIG"] = str(there.make("runner", RIGHTS))
    scenario = {"scenario": "quick", "experiment": "command", "target": {"argv": ["true"]}, "repetitions": 2}
    (kubernetes.workspace / "quick.yaml").write_text(json.dumps(scenario))
    done = kubernetes.bench("run", "quick.yaml")
    assert done.returncode == 0 and "2 succeeded" in done.stderr, done.stderr


def hand_over(access, namespace, folder):
    """All that a whole run on KubeRay asks of the API."""
    settings = KubernetesSite(namespace=namespace, image=IMAGE, volume={"claim": "shared", "path": str(folder)})
    run = RunFolder(folder / "ws" / ".bench" / "runs" / "r")
    jobs = KubeRayJobs(Assignment(site=Site(kubernetes=settings), run=run), KubeRay(version="2.60.0", workers=WORKERS))
    jobs.check(Ask(cpus=1))
    name = jobs.carry(access.context, ["bench", "run"])
    assert jobs.goes_on(name)
    jobs.stop(name)


def keep_schedule(cluster, kubeconfig, namespace, folder):
    """All that whoever applies a schedule, changes and deletes it asks of the API, with kubectl; raises its words."""
    settings = KubernetesSite(namespace=namespace, image=IMAGE, volume={"claim": "shared", "path": str(folder)})
    run = CronRun(kubeconfig.stem, folder / "s.yaml", folder, "0 2 * * *")
    first, second = (cron_job(replace(run, cron=cron), settings, (1, 20)) for cron in ("0 2 * * *", "0 3 * * *"))
    for verb, document in (("apply", first), ("apply", second), ("delete", second)):
        command = [cluster.folder / "bin" / "kubectl", "--kubeconfig", kubeconfig, verb, "--filename", "-"]
        done = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, check=False)
        if done.returncode:
            raise Refused(403, "Forbidden", done.stderr)


@pytest.mark.parametrize("right", OPTIONAL, ids=lambda right: right.resource)
def test_whole_runs_and_schedules_work_with_their_rights_and_with_no_verb_less(
    accounts, kubernetes_cluster, definitions, monkeypatch, tmp_path, right
):
    def work_as(name, rights):
        path = accounts.make(name, rights)
        monkeypatch.setenv("KUBECONFIG", str(path))
        access = find_access()
        held = [verb for item in rights for verb in item.verbs]
        wait_until(lambda: all(may(access, accounts.namespace, right, verb) for verb in held), "the role to hold", 30)
        if right.level == "ray":
            hand_over(access, accounts.namespace, tmp_path)
        else:
            keep_schedule(kubernetes_cluster, path, accounts.namespace, tmp_path)

    work_as(f"all-{right.resource}", [right])
    for verb in right.verbs:
        with pytest.raises(Refused) as refused:
            work_as(f"no-{verb}-{right.resource}", [replace(right, verbs=tuple(v for v in right.verbs if v != verb))])
        assert f'cannot {verb} resource "{right.resource}"' in refused.value.message


def may(access, namespace, right, verb):
    asked = {"namespace": namespace, "verb": verb, "group": right.group, "resource": right.resource}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return KubeClient(access).create(path, review | {"spec": {"resourceAttributes": asked}})["status"].get("allowed")


def test_the_check_asks_for_rights_on_kuberay_and_kueue_where_the_profile_needs_them(
    accounts, bench, monkeypatch, tmp_path
):
    monkeypatch.setenv("KUBECONFIG", str(accounts.make("plain", [right for right in RIGHTS if right.level == "run"])))
    cluster = {"kuberay": {"workers": WORKERS}}
    site = {"site": "t", "kubernetes": {"namespace": accounts.namespace, "queue": "q"}, "ray": {"cluster": cluster}}
    (tmp_path / "site.yaml").write_text(json.dumps(site))
    wait_until(lambda: "may create jobs.batch" not in lacking(bench), "the role to hold", 30)
    assert {"may list workloads.kueue.x-k8s.io", "may create rayjobs.ray.io"} <= set(lacking(bench))
