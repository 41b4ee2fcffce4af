"""The Role of `bench site render` is enough for a run, and one verb less is told by the check and breaks the executor.

On a real API server with RBAC: each account has the Role, without one of its verbs.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from laboratory import wait_until

from benchhouse.executors.cluster_engine import Ask, Slot
from benchhouse.executors.kubernetes_engine import KubernetesEngine, delete_run
from benchhouse.executors.kubernetes_manifest import Pods
from benchhouse.http.kubeconfig import find_access
from benchhouse.http.kubernetes import KubeClient, Refused, path_of, selector
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.kubernetes_rights import RIGHTS
from benchhouse.schema.pod_template import RUN_LABEL
from benchhouse.sites.kubernetes_manifests import role

pytestmark = pytest.mark.slow
NEEDED = [(right, verb) for right in RIGHTS if right.level in ("run", "evidence") for verb in right.verbs]
_RBAC = "rbac.authorization.k8s.io/v1"


@dataclass
class Accounts:
    """Accounts of one namespace, by what they may not do."""

    admin: KubeClient
    namespace: str
    folder: Path

    def make(self, name, rights):
        """A kubeconfig of an account with just these rights."""
        labels = {"name": name, "namespace": self.namespace}
        self._create("v1", "serviceaccounts", {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": labels})
        self._create(_RBAC, "roles", role(self.namespace, name, rights))
        binding = {
            "kind": "RoleBinding",
            "apiVersion": _RBAC,
            "metadata": labels,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", **labels}],
        }
        self._create(_RBAC, "rolebindings", binding)
        asked = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"expirationSeconds": 3600}}
        token = self.admin.create(path_of("v1", self.namespace, "serviceaccounts", name, "token"), asked)
        access = self.admin.access
        cluster = {"server": access.server, "certificate-authority": "ca.pem"}
        document = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token["status"]["token"]}}],
            "contexts": [{"name": name, "context": {"cluster": "c", "user": name, "namespace": self.namespace}}],
            "current-context": name,
        }
        (self.folder / "ca.pem").write_text(access.authority)
        (path := self.folder / f"{name}.json").write_text(json.dumps(document))
        return path

    def _create(self, api, plural, manifest):
        self.admin.create(path_of(api, self.namespace, plural), manifest)


@pytest.fixture(scope="module")
def accounts(kubernetes_cluster, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", kubernetes_cluster.kubeconfig)
        admin = KubeClient(find_access())
    namespace = kubernetes_cluster.make_namespace()
    yield Accounts(admin, namespace, tmp_path_factory.mktemp("accounts"))
    kubernetes_cluster.forget(namespace)


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
    later.start(slot)  # of a session that comes after one that was killed
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
    engine.stop([slot.name])
    wait_until(lambda: engine.lost or slot.name in engine.gone(), "the end of the pod")
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
