"""Runs on a real Kubernetes: what is refused before anything is made, what is told, what is kept, and nothing left."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from executors.test_gang import summary_of
from laboratory import Lab, wait_until
from services.kubernetes_accounts import Accounts
from services.kubernetes_accounts import accounts as accounts
from services.kubernetes_cluster import IMAGE, KubernetesCluster

from benchhouse.schema.kubernetes_rights import RIGHTS

BENCHMARK_AI = Path(__file__).parents[2] / "examples" / "benchmark-ai"


@pytest.fixture
def objects(kubernetes: Lab, kubernetes_cluster: KubernetesCluster) -> Callable[..., list[dict[str, Any]]]:
    """Objects of runs in the laboratory's namespace, such as `objects("pods", "jobs")`."""
    namespace = settings(kubernetes)["namespace"]

    def get(*kinds: str) -> list[dict[str, Any]]:
        return kubernetes_cluster.get(
            ",".join(kinds), "--namespace", namespace, "--selector", "app.kubernetes.io/managed-by=benchhouse"
        )

    return get


def settings(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((lab.workspace / "site.yaml").read_text())["kubernetes"]
    return found


def change_site(lab: Lab, **more: Any) -> None:
    path = lab.workspace / "site.yaml"
    site = json.loads(path.read_text())
    site["kubernetes"] |= more
    path.write_text(json.dumps(site))


def slot_folders(lab: Lab) -> list[Path]:
    return [
        path for path in sorted((lab.workspace / ".bench" / "runs" / lab.run_id() / "slots").iterdir()) if path.is_dir()
    ]


def test_evidence_names_pod_node_and_image_under_the_least_rights(
    kubernetes: Lab, kubernetes_cluster: KubernetesCluster, objects: Any, accounts: Accounts
):
    """The second trial allocates more memory than its pod has, and the kernel ends that pod."""
    account = replace(accounts, namespace=settings(kubernetes)["namespace"]).make("runner", RIGHTS)
    kubernetes.variables["KUBECONFIG"] = str(account)
    before = len(kubernetes_cluster.requests())
    work = {"workload": {"act": ["ok", "fill"]}, "parallel": 2, "resources": {"memory": "200MB"}}
    kubernetes.bench("run", kubernetes.scenario("mischief", **work), code=1, timeout_s=280)
    events = kubernetes_cluster.requests(before)
    requests = [event["requestURI"] for event in events if event["user"]["username"].endswith(":runner")]
    for look in ("dryRun=All", "/persistentvolumeclaims/shared"):
        assert sum(look in address for address in requests) == 1, "the run does not repeat the requests of the check"
    outcomes = {"ok": "succeeded", "fill": "out_of_memory"}
    trials = kubernetes.trials()
    assert len(trials) == 2
    for trial in trials:
        assert trial.outcome == outcomes[trial.spec["parameters"]["act"]]
        placed = trial.meta["placed"]
        assert placed["node"] in ("node1", "node2")
        assert placed["id"].startswith(f"bench-{kubernetes.run_id()}")
        assert placed["namespace"] == settings(kubernetes)["namespace"]
        assert placed["qos"] == "Guaranteed"
        assert placed["limits"] == placed["requests"] == "cpu=1, memory=200M"
        assert "sha256:" in placed["image_id"]  # another test may have given the image a pinned name
        assert placed["pod_created"] <= placed["pod_scheduled"] <= placed["pod_started"]
        assert placed["pod_uid"]
    wait_until(lambda: not objects("jobs", "configmaps"), "the end of what the run has made")
    kubernetes.is_tidy()


def test_a_descriptor_of_benchmark_ai_runs_in_pods_on_two_nodes(kubernetes: Lab):
    shutil.copytree(BENCHMARK_AI, kubernetes.workspace / "descriptors")
    path = kubernetes.workspace / "descriptors" / "horovod-nodes.toml"
    path.write_text(path.read_text().replace("example.com/horovod:100719", IMAGE))
    site = json.loads((kubernetes.workspace / "site.yaml").read_text())
    site["instance_types"] = {"p3.8xlarge": {"cpus": 1, "memory": "500MB"}}
    (kubernetes.workspace / "site.yaml").write_text(json.dumps(site))
    done = json.loads(kubernetes.bench("run", path, "--json").stdout)
    rows = {(row["metric"], row["stat"]): row["mean"] for row in done["points"]}
    assert rows["throughput", "mean"] == pytest.approx(801.5), "two nodes with four ranks each"
    (trial,) = kubernetes.trials(done["scenario"])
    assert trial.meta["placed"]["nodes"].count("node") == 2
    kubernetes.is_tidy()


STEPS = """
import json, os, time
print(os.environ["RANK"], os.environ["MASTER_ADDR"], os.environ["BENCHHOUSE_NODE"], flush=True)
for step in range(4):
    time.sleep(0.02)
    print(json.dumps({"step": step, "step_s": 0.5}), flush=True)
"""


def test_a_training_over_two_nodes_has_a_pod_on_each(kubernetes: Lab, objects: Any):
    target = {"argv": ["python3", "-S", "-c", STEPS], "name": "t"}
    workload = {"ranks_per_node": 2, "warmup": 0}
    kubernetes.run("training.run", target=target, workload=workload, resources={"nodes": 2, "memory": "500MB"})
    (trial,) = kubernetes.trials()
    facts, placed = trial.meta["custom"], trial.meta["placed"]
    first, second = facts["nodes"]
    assert {first, second} == {"node1", "node2"} and facts["world"] == 4
    assert [place["node"] for place in facts["ranks"]] == [first, first, second, second]
    assert (placed["node"], placed["nodes"]) == (first, f"{first},{second}")
    words = (trial.folder / "artifacts" / "rank-3.attempt-0.log").read_text()
    assert words.startswith(f"3 {placed['address']} {second}\n"), "ranks meet at the address of the first pod"
    (sampled,) = summary_of(trial).nodes
    assert sampled.name == second and not sampled.problem and sampled.samples
    wait_until(lambda: not objects("jobs", "configmaps"), "the end of what the run has made")
    kubernetes.is_tidy()


def test_with_one_of_its_pods_a_trial_of_two_nodes_is_lost_and_run_again(
    kubernetes: Lab, kubernetes_cluster: KubernetesCluster, objects: Any
):
    kubernetes.hold(0)
    process = kubernetes.start("run", kubernetes.scenario("slow", workload={"seconds": 0}, resources={"nodes": 2}))
    kubernetes.wait_for_mark("slow-*")
    namespace = settings(kubernetes)["namespace"]
    (far,) = [folder for folder in slot_folders(kubernetes) if json.loads((folder / "gang.json").read_text())["member"]]
    (pod,) = [item["metadata"]["name"] for item in objects("pods") if far.name in item["metadata"]["name"]]
    kubernetes_cluster.kubectl("delete", "pod", pod, "--namespace", namespace, "--wait=false")
    kubernetes.wait_for_lost(1)
    kubernetes.release()
    _, words = process.communicate(timeout=280)
    assert process.returncode == 0, words
    assert [item["outcome"] for item in kubernetes.trials()[0].meta["attempts"]] == ["lost", "succeeded"]
    wait_until(lambda: not objects("jobs", "configmaps"), "the end of what the run has made")
    kubernetes.is_tidy()


def test_a_dry_run_prints_what_kubectl_takes(kubernetes: Lab, kubernetes_cluster: KubernetesCluster, objects: Any):
    change_site(kubernetes, volume={"claim": "shared", "path": str(kubernetes.root)})
    done = kubernetes.bench("run", "--dry-run", kubernetes.scenario("once", workload={"n": [0, 1, 2]}, parallel=2))
    taken = subprocess.run(
        [kubernetes_cluster.folder / "bin" / "kubectl", "--kubeconfig", kubernetes_cluster.kubeconfig, "apply",
         "--dry-run=server", "--filename", "-"],
        input=done.stdout, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert taken.stdout.count("job.batch/bench-") == 2
    wait_until(lambda: not objects("jobs", "configmaps"), "the end of what the run has made")
    assert not (kubernetes.root / ".benchhouse").exists()


def test_a_deleted_pod_costs_one_attempt_though_its_trial_ignores_signals(
    kubernetes: Lab, kubernetes_cluster: KubernetesCluster, objects: Any
):
    """The scenario has a name that is too long for a label."""
    marks = kubernetes.marks
    code = f"trap '' TERM INT HUP; touch {marks}/began-$$$$; while [ -e {marks}/hold ]; do sleep 0.1; done"
    kubernetes.hold(0)
    work = {"target": {"argv": ["sh", "-c", code]}, "workload": {"executions": 1, "warmup": 0}}
    name = "Long_Name." + "x" * 90
    process = kubernetes.start("run", kubernetes.scenario("command", name, **work))
    kubernetes.wait_for_mark("began-*")
    pod = objects("pods")[0]["metadata"]
    kubernetes_cluster.kubectl("delete", "pod", pod["name"], "--namespace", pod["namespace"], "--wait=false")
    kubernetes.wait_for_lost(1)
    assert any("its pod was deleted" in event.get("reason", "") for event in kubernetes.events()), kubernetes.events()
    kubernetes.release()
    _, messages = process.communicate(timeout=240)
    assert process.returncode == 0, messages
    attempts = kubernetes.trials(name)[0].meta["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["lost", "succeeded"]
    assert json.loads((slot_folders(kubernetes)[0] / "pod.json").read_text())["metadata"]["name"] == pod["name"]
    wait_until(lambda: not objects("jobs", "configmaps"), "the end of what the run has made")
    kubernetes.is_tidy()


def test_stop_deletes_what_a_killed_orchestrator_left_and_nothing_of_another_user(
    kubernetes: Lab, objects: Any, tmp_path_factory: pytest.TempPathFactory
):
    """Both users have a scenario of one name in one namespace."""
    other = Lab(tmp_path_factory.mktemp("other"), variables=kubernetes.variables | {"LOGNAME": "bo"})
    site = json.loads((kubernetes.workspace / "site.yaml").read_text()) | {"environment": other.own_variables}
    (other.workspace / "site.yaml").write_text(json.dumps(site))
    kubernetes.variables["LOGNAME"] = "ann"
    processes = []
    for lab in (kubernetes, other):
        lab.hold(0)
        processes.append(lab.start("run", lab.scenario("slow", workload={"seconds": 0})))
    for lab in (kubernetes, other):
        lab.wait_for_mark("slow-*")

    def owners(*kinds: str) -> list[str]:
        return sorted(item["metadata"]["labels"]["benchhouse.dev/owner"] for item in objects(*kinds))

    everything = ("configmaps", "jobs", "pods")
    assert owners(*everything) == ["ann"] * 3 + ["bo"] * 3
    processes[0].kill()
    processes[0].communicate()
    kubernetes.bench("stop", "@last")
    assert owners("configmaps") == ["bo"], "what owned the objects of the first is gone, and nothing of the other's"
    assert owners(*everything).count("bo") == 3
    other.release()
    _, words = processes[1].communicate(timeout=120)
    assert processes[1].returncode == 0, words
    [trial] = other.trials()
    assert (trial.outcome, len(trial.meta["attempts"])) == ("succeeded", 1)
    assert kubernetes.trials() == []
    assert not owners("configmaps"), "nothing owns an object any more"
    kubernetes.is_tidy()


def test_a_secret_reaches_the_pod_by_name_alone(kubernetes: Lab, kubernetes_cluster: KubernetesCluster, objects: Any):
    kubernetes.variables["DB_PASSWORD"] = "another-word"  # stays here
    target = {"password": "$DB_PASSWORD"}
    scenario = kubernetes.scenario("secretive", target=target)
    done = kubernetes.bench("run", scenario, code=2)
    assert "kubectl create secret generic NAME --from-literal=DB_PASSWORD=" in done.stderr
    namespace = settings(kubernetes)["namespace"]
    kubernetes_cluster.kubectl(
        "create", "secret", "generic", "keys", "--namespace", namespace, "--from-literal=DB_PASSWORD=sesame-open"
    )
    change_site(kubernetes, secrets=["keys"])
    kubernetes.bench("run", scenario, code=1)
    assert (kubernetes.marks / "told").read_text() == "sesame-open"
    run = kubernetes.workspace / ".bench" / "runs" / kubernetes.run_id()
    everything = [
        path.read_bytes() for path in [*run.rglob("*"), *kubernetes.folders()[0].rglob("*")] if path.is_file()
    ]
    assert not [text for text in everything if b"sesame-open" in text or b"another-word" in text]


SHARED_MEMORY = """
import os
size = os.statvfs("/dev/shm")
assert size.f_blocks * size.f_frsize > 64 << 20, "as large as without the setting"
"""


@pytest.fixture
def gpu_node(kubernetes_cluster: KubernetesCluster) -> Iterator[str]:
    """A node with one GPU that nobody gets by accident, and the classes that a profile may name."""
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 7}
    classes = [item | {"metadata": {"name": "bench"}} for item in (runtime, priority)]
    everything = {"apiVersion": "v1", "kind": "List", "items": classes}
    kubernetes_cluster.kubectl("apply", "--filename", "-", document=everything)
    kubernetes_cluster.kubectl("taint", "node", "node2", "gpus=here:NoSchedule")
    kubernetes_cluster.kubectl("label", "node", "node2", "pool=gpus")
    kubernetes_cluster.plant("node2", "nvidia.com/mig-1g.5gb", 1)
    yield "node2"
    kubernetes_cluster.plant("node2", "nvidia.com/mig-1g.5gb", 0)
    kubernetes_cluster.kubectl("label", "node", "node2", "pool-")
    kubernetes_cluster.kubectl("taint", "node", "node2", "gpus-")
    kubernetes_cluster.kubectl("delete", "runtimeclass,priorityclass", "bench")


def test_a_slice_of_a_gpu_and_all_that_a_profile_says_of_pods_hold_on_a_cluster(
    kubernetes: Lab, kubernetes_cluster: KubernetesCluster, gpu_node: str, objects: Any
):
    work = {"target": {"argv": ["python3", "-c", SHARED_MEMORY]}, "workload": {"executions": 1, "warmup": 0}}
    work |= {"resources": {"gpus": 1, "memory": "300MB"}}
    tainted = {"tolerations": [{"key": "gpus", "operator": "Exists"}], "node_selector": {"pool": "gpus"}}
    classes = {"runtime_class": "bench", "priority_class": "bench", "spread": "kubernetes.io/hostname"}
    change_site(kubernetes, gpu_resource="example.com/card", shm="128MiB", **tainted, **classes)
    assert "1 GPU" in kubernetes.bench("run", kubernetes.scenario("command", **work), code=2).stderr
    change_site(kubernetes, gpu_resource="nvidia.com/mig-1g.5gb")
    kubernetes.run("command", **work)
    (trial,) = kubernetes.trials()
    assert trial.outcome == "succeeded"
    assert trial.meta["placed"]["node"] == gpu_node
    assert "nvidia.com/mig-1g.5gb=1" in trial.meta["placed"]["limits"]
