"""Servers that are already there on a real Kubernetes: their address, the pods behind them, and what is told."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from laboratory import Lab, wait_until
from services.inference_crds import inference_crds as inference_crds
from services.kubernetes_accounts import Accounts
from services.kubernetes_cluster import IMAGE, KubernetesCluster

from benchhouse.http.kubeconfig import find_access
from benchhouse.http.kubernetes import KubeClient, path_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes_rights import RIGHTS, Right
from benchhouse.schema.server_pods import named_server
from benchhouse.sites.kubernetes_servers import ServerLookup

pytestmark = pytest.mark.slow
VISIT = """
import os, time, urllib.request
from pathlib import Path
from benchhouse import Context

def visit(target: dict, ctx: Context, n: int = 0):
    urls = [url for text in target.values() for url in text.split(",")]
    for url in urls:
        urllib.request.urlopen(url, timeout=5).read()
    marks = Path(os.environ["LAB"])
    (marks / f"visited-{n}").touch()
    while n and not (marks / "go").exists():
        time.sleep(0.05)
    ctx.emit("visited", len(urls))
    ctx.metadata(urls=urls)
"""


class Serving:
    """A namespace with two pods that answer on port 8000, and what leads to them."""

    def __init__(self, cluster: KubernetesCluster, client: KubeClient) -> None:
        self.cluster, self.client, self.namespace = cluster, client, cluster.make_namespace()

    def make(self, api: str, kind: str, name: str, status: Any = None, **content: Any) -> None:
        plural, metadata = f"{kind.lower()}s", {"name": name, "namespace": self.namespace}
        manifest = {"apiVersion": api, "kind": kind, "metadata": metadata, **content}
        self.client.create(path_of(api, self.namespace, plural), manifest)
        if status:
            self.client.patch(path_of(api, self.namespace, plural, name, "status"), {"status": status})

    def deploy(self, name: str, replicas: int, image: str = IMAGE, **labels: str) -> None:
        container = {
            "name": "main",
            "image": image,
            "command": ["python3", "-m", "http.server", "8000"],
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1, "failureThreshold": 60},
        }
        of_pods = {"app": name, **labels}
        template = {"metadata": {"labels": of_pods}, "spec": {"containers": [container]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": of_pods}, "template": template}
        self.make("apps/v1", "Deployment", name, spec=spec)

    def service(self, name: str, *ports: dict[str, Any], app: str = "web") -> None:
        self.make("v1", "Service", name, spec={"selector": {"app": app}, "ports": list(ports)})

    def pods(self, app: str = "web") -> list[dict[str, Any]]:
        pods = self.cluster.get("pods", "--namespace", self.namespace, "--selector", f"app={app}")
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def is_ready(self) -> bool:
        conditions = [item for pod in self.pods() for item in pod["status"].get("conditions", [])]
        return sum((item["type"], item["status"]) == ("Ready", "True") for item in conditions) == 2

    def addresses(self) -> list[str]:
        return sorted(f"http://{pod['status']['podIP']}:8000" for pod in self.pods())

    def find(self, text: str, **view: bool) -> Any:
        return ServerLookup(self.client, named_server(text), self.namespace).find(**{"names": True} | view)


@pytest.fixture(scope="module")
def serving(kubernetes_cluster: KubernetesCluster) -> Iterator[Serving]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", kubernetes_cluster.kubeconfig)
        made = Serving(kubernetes_cluster, KubeClient(find_access()))
    made.deploy("web", 2, **{"serving.kserve.io/inferenceservice": "llm", "component": "predictor"})
    made.service("web", {"port": 80, "targetPort": "http"})
    wait_until(made.is_ready, "two ready pods")
    yield made
    kubernetes_cluster.forget(made.namespace)


def visiting(lab: Lab) -> Lab:
    lab.install("visit", "1.0", VISIT, "[benchhouse.experiments]\nvisit = visit:visit")
    return lab


@pytest.fixture
def beside(lab: Lab, serving: Serving) -> Lab:
    """A laboratory of this machine that knows the cluster."""
    lab.variables["KUBECONFIG"] = serving.cluster.kubeconfig
    site = {"site": "here", "kubernetes": {"namespace": serving.namespace}}
    (lab.workspace / "site.yaml").write_text(json.dumps(site))
    return visiting(lab)


def test_pods_behind_a_service_are_evidence_and_one_that_is_replaced_in_mid_trial_is_told(
    kubernetes: Lab, serving: Serving
):
    lab = visiting(kubernetes)
    services = {"web": {"kubernetes": f"service/web.{serving.namespace}"}}
    scenario = lab.scenario("visit", services=services, target={"url": "service:web"}, workload={"n": [0, 1]})
    before = serving.pods()
    process = lab.start("run", scenario)
    wait_until((lab.marks / "visited-1").exists, "the second trial")
    first, *_ = sorted(before, key=lambda pod: str(pod["metadata"]["name"]))
    name = first["metadata"]["name"]
    serving.cluster.kubectl("delete", "pod", name, "--namespace", serving.namespace, "--grace-period=0", "--force")
    wait_until(serving.is_ready, "another pod in its place")
    (lab.marks / "go").touch()
    _, shown = process.communicate(timeout=120)
    assert process.returncode == 0 and "server_changed" in shown, shown
    quiet, troubled = (lab.by("n")[n] for n in (0, 1))
    assert [trial.outcome for trial in (quiet, troubled)] == ["succeeded"] * 2
    facts = quiet.meta["custom"]["services"]["web"]
    assert (facts["mode"], facts["kubernetes"], facts["address"]) == ("external", "service/web", "pods")
    assert facts["namespace"] == serving.namespace and facts["changes"] == []
    assert sorted(quiet.meta["custom"]["urls"]) == sorted(facts["endpoints"])
    assert {pod["uid"]: pod["node"] for pod in facts["pods"]} == {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in before
    }
    assert all(pod["ready"] and pod["started"] and "sha256:" in pod["images"]["main"] for pod in facts["pods"])
    changed = troubled.meta["custom"]["services"]["web"]
    told = [{item["code"]: item["message"] for item in trial.meta["warnings"]} for trial in (quiet, troubled)]
    assert "server_changed" not in told[0] and f"the pod {name} is gone" in told[1]["server_changed"]
    assert {pod["uid"] for pod in changed["pods_after"]} == {pod["metadata"]["uid"] for pod in serving.pods()}
    lab.is_tidy()


def test_what_can_not_be_measured_is_refused_before_a_run_is_made(beside: Lab, serving: Serving):
    serving.deploy("bad", 1, "localhost/no-such:1")
    serving.service("bad", {"port": 80}, app="bad")
    serving.service("shut", {"port": 80, "targetPort": 81})
    wait_until(lambda: serving.pods("bad"), "a pod that can't start")
    for name, words in (
        ("service/wep", f"web: there is no service/wep in the namespace {serving.namespace}"),
        ("service/bad", "web: service/bad has no ready pod: bad-"),
        ("service/shut", ":81, which this machine can't reach: [Errno 111] Connection refused"),
    ):
        scenario = beside.scenario("visit", services={"web": {"kubernetes": name}}, target={"url": "service:web"})
        assert words in beside.bench("run", scenario, code=2).stderr
    assert not list((beside.workspace / ".bench" / "runs").glob("*"))


def test_what_is_not_clear_or_not_there_is_told_with_what_is(serving: Serving):
    serving.service("void", {"port": 80}, app="nobody")
    assert "has no pod with the labels app=nobody" in serving.find("service/void", inside=False).problem
    serving.service("two", {"name": "a", "port": 80, "targetPort": "web"}, {"name": "b", "port": 81})
    serving.make("v1", "Service", "free", spec={"ports": [{"port": 80}]})
    for name, words in (
        ("service/two", "has not one port: it has 80 a, 81 b"),
        ("service/two:82", "has no port 82: it has 80 a, 81 b"),
        ("service/two:a", "has no port 'web'"),
        ("service/free", "selects no pods by labels"),
        ("inferencepool/web", "has no inference.networking.k8s.io/v1: no inferencepools"),
    ):
        with pytest.raises(BenchError, match=words):
            serving.find(name, inside=False)


def test_the_address_depends_on_where_trials_are(serving: Serving):
    here = serving.namespace
    assert serving.find("service/web/v1", inside=True).endpoints == [f"http://web.{here}.svc:80/v1"]
    seen = serving.find("service/web", inside=True, names=False)
    assert (seen.address, sorted(seen.endpoints)) == ("pods", serving.addresses())
    ports = [{"name": "https", "port": 8443, "targetPort": 8000}]
    serving.make("v1", "Service", "lb", spec={"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports})
    status = {"loadBalancer": {"ingress": [{"hostname": "lb.example.org"}]}}
    serving.client.patch(path_of("v1", here, "services", "lb", "status"), {"status": status})
    assert serving.find("service/lb", inside=False).endpoints == ["https://lb.example.org:8443"]
    assert sorted(serving.find("service/web", inside=False).endpoints) == serving.addresses()


@pytest.fixture(scope="module")
def inference(serving: Serving, inference_crds: None) -> None:
    """An InferenceService `llm` and an InferencePool `pool` whose controllers have said where they are, and a pool
    `alone` to which nothing leads."""
    first, second = serving.addresses()
    traffic = [{"revisionName": "llm-1", "percent": 100}]
    status = {
        "url": first,
        "address": {"url": "http://llm.serving.svc.cluster.local"},
        "clusterServingRuntimeName": "kserve-huggingfaceserver",
        "deploymentMode": "Standard",
        "components": {"predictor": {"latestReadyRevision": "llm-1", "traffic": traffic}},
        "modelStatus": {"transitionStatus": "UpToDate"},
    }
    model = {"modelFormat": {"name": "huggingface"}, "storageUri": "hf://a/b"}
    serving.make("serving.kserve.io/v1beta1", "InferenceService", "llm", status, spec={"predictor": {"model": model}})
    address = {"addresses": [{"type": "IPAddress", "value": second.split("/")[2].split(":")[0]}]}
    listeners = [{"name": "web", "port": 8000, "protocol": "HTTP"}]
    gateway = {"gatewayClassName": "istio", "listeners": listeners}
    serving.make("gateway.networking.k8s.io/v1", "Gateway", "gate", address, spec=gateway)
    pool = {
        "selector": {"matchLabels": {"app": "web"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": "epp", "port": {"number": 9002}},
    }
    parents = {"parents": [{"parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gate"}}]}
    serving.make("inference.networking.k8s.io/v1", "InferencePool", "pool", parents, spec=pool)
    serving.make("inference.networking.k8s.io/v1", "InferencePool", "alone", spec=pool)


def test_an_inference_service_and_a_pool_are_found_by_their_status(beside: Lab, serving: Serving, inference: None):
    first, second = serving.addresses()
    services = {
        "llm": {"kubernetes": "inferenceservice/llm"},
        "pool": {"kubernetes": "inferencepool/pool"},
        "by_hand": {"kubernetes": "inferencepool/alone", "endpoint": second},
    }
    beside.run("visit", services=services, target={name: f"service:{name}" for name in services})
    (trial,) = beside.trials()
    told = trial.meta["custom"]["services"]
    assert trial.meta["custom"]["urls"] == [first, second, second]
    assert [told[name]["address"] for name in services] == ["status", "gateway", "endpoint"]
    assert all(len(told[name]["pods"]) == 2 for name in services)
    assert told["llm"]["about"] == {
        "generation": 1,
        "runtime": "kserve-huggingfaceserver",
        "model_format": "huggingface",
        "model": "hf://a/b",
        "deployment_mode": "Standard",
        "revision": "llm-1",
        "traffic": [{"revisionName": "llm-1", "percent": 100}],
        "transition": "UpToDate",
    }
    assert {pod["part"] for pod in told["llm"]["pods"]} == {"predictor"}
    assert told["pool"]["about"] | {"generation": 1} == {
        "generation": 1, "endpoint_picker": "epp", "target_ports": [8000], "gateways": ["gate"],
    }  # fmt: skip
    assert serving.find("inferenceservice/llm", inside=True).endpoints == ["http://llm.serving.svc.cluster.local"]
    assert sorted(serving.find("inferenceservice/llm", inside=True, names=False).endpoints) == [first, second]
    refused = beside.bench(
        "run", beside.scenario("visit", services={"pool": {"kubernetes": "inferencepool/alone"}}), code=2
    )
    assert "pool: no Gateway leads to inferencepool/alone" in refused.stderr and "endpoint:" in refused.stderr


def test_one_verb_less_is_told(
    serving: Serving, inference: None, bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    accounts = Accounts(serving.client, serving.namespace, tmp_path)

    def lookups(name: str, rights: Iterable[Right]) -> list[ServerLookup]:
        monkeypatch.setenv("KUBECONFIG", str(accounts.make(name, rights)))
        client = KubeClient(find_access())
        kinds = ("service/web", "inferenceservice/llm", "inferencepool/pool")
        return [ServerLookup(client, named_server(text), serving.namespace) for text in kinds]

    def refusals(items: list[ServerLookup]) -> list[BenchError]:
        found = []
        for item in items:
            try:
                assert item.find(inside=False, names=False).endpoints
            except BenchError as error:
                found.append(error)
        return found

    whole = lookups("finder", RIGHTS)
    wait_until(lambda: not refusals(whole), "the role to hold", 30)
    for right in [right for right in RIGHTS if right.level == "endpoints"]:
        less = lookups(f"no-{right.resource}", [item for item in RIGHTS if item != right])
        wait_until(lambda less=less: len(refusals(less)) == 1, "the role to hold", 30)
        (error,) = refusals(less)
        assert "can't be looked up" in error.message and f'cannot get resource "{right.resource}"' in error.message
        assert "bench site render --endpoints" in error.hint
        told = {item["what"]: item for item in json.loads(bench("site", "check", "--json").out)["findings"]}
        assert told[f"may get {right.api}"]["note"] == f"only to {right.purpose}"
