"""Servers of a scenario on a real Kubernetes: in the trial's pod, in a pod of their own, and from their own image."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from laboratory import Lab, wait_until
from services import small_server
from services.kubernetes_cluster import KubernetesCluster

ASK = """
import contextlib, os, time, urllib.request
from pathlib import Path
from benchhouse import Context

def ask(target: dict, ctx: Context, seconds: float = 0.0, n: int = 0, kill: bool = False):
    until = time.monotonic() + seconds
    while True:
        urls = ",".join(target.values()).split(",")
        for url in urls:
            urllib.request.urlopen(url, timeout=5).read()
        is_second = any(Path(os.environ["LAB"]).glob("request-*"))
        Path(os.environ["LAB"], f"request-{n}").touch()
        if kill and is_second:
            url = target["url"].split(",")[-1]
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url + "/die", timeout=5)
            time.sleep(60)
        if time.monotonic() >= until:
            break
        time.sleep(0.1)
    ctx.emit("requests", 1)
    ctx.metadata(**target)
"""
Objects = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def served(kubernetes: Lab) -> Lab:
    """The experiment `ask`, and the recipe `small` of a server whose program every pod has."""
    kubernetes.install("ask", "1.0", ASK, "[benchhouse.experiments]\nask = ask:ask")
    (kubernetes.workspace / "recipes").mkdir()
    shutil.copy(small_server.__file__, kubernetes.workspace / "small_server.py")
    write_recipe(kubernetes, "answer")
    return kubernetes


def write_recipe(lab: Lab, *words: str, name: str = "small", **more: Any) -> None:
    recipe = small_server.recipe(*words, program=["python3"], name=name, **more)
    recipe["command"][1] = str(lab.workspace / "small_server.py")
    (lab.workspace / "recipes" / f"{name}.yaml").write_text(json.dumps(recipe))


@pytest.fixture
def objects(served: Lab, kubernetes_cluster: KubernetesCluster) -> Objects:
    """Return the objects of benchhouse in the laboratory's namespace."""
    namespace = json.loads((served.workspace / "site.yaml").read_text())["kubernetes"]["namespace"]
    of_ours = "app.kubernetes.io/managed-by=benchhouse"
    return lambda *kinds: kubernetes_cluster.get(",".join(kinds), "--namespace", namespace, "--selector", of_ours)


EVERYTHING = ("jobs", "configmaps", "statefulsets", "secrets")  # Kubernetes takes its time to forget pods


def folder(lab: Lab, name: str = "web") -> Path:
    return lab.workspace / ".bench" / "runs" / lab.run_id() / "services" / name


def state(lab: Lab, name: str = "web") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder(lab, name) / "state.json").read_text())
    return found


def test_embedded_and_attached_servers_run_the_program_of_the_trial_s_image(served: Lab, objects: Objects):
    services = {"web": {"recipe": "small", "mode": "attached"}, "near": {"recipe": "small"}}
    target = {"url": "service:web", "near": "service:near"}
    served.run("ask", workload={"n": [1, 2, 3]}, parallel=2, services=services, target=target)
    trials = served.trials()
    assert [trial.outcome for trial in trials] == ["succeeded"] * 3
    assert all(trial.meta["custom"]["near"].startswith("http://127.0.0.1:") for trial in trials)
    assert all((trial.folder / "logs" / "near.log").read_text().startswith("starting on") for trial in trials)
    (url,) = {trial.meta["custom"]["url"] for trial in trials}
    assert not url.startswith("http://127.")
    assert {trial.meta["custom"]["services"]["web"]["mode"] for trial in trials} == {"attached"}
    assert state(served)["phase"] == "stopped" and state(served)["host"].startswith(f"bench-{served.run_id()}-web")
    assert (folder(served) / "logs" / "web.log").read_text().startswith("starting on")
    wait_until(lambda: not objects("jobs", "configmaps"), "all objects to be deleted")
    served.is_tidy()


@pytest.mark.slow("it starts two servers, a run that uses them, and stops them, each of them a pod")
def test_servers_without_a_run_serve_later_runs_until_they_are_stopped(served: Lab, objects: Objects, image: str):
    """One runs the program of the trials' image, and one has an image of its own."""
    write_recipe(served, "answer", name="own", image=image, image_program="python3")
    started = {
        name: json.loads(served.bench("servers", "start", name, "--executor", "kubernetes", "--json").stdout)
        for name in ("small", "own")
    }
    rows = json.loads(served.bench("servers", "ps", "--json").stdout)
    assert {(row["id"], row["phase"]) for row in rows} == {(item["id"], "ready") for item in started.values()}
    services = {name: {"server": item["id"]} for name, item in started.items()}
    served.run("ask", services=services, target={"url": "service:small", "near": "service:own"})
    custom = served.trials()[0].meta["custom"]
    assert [custom["url"], custom["near"]] == [item["endpoints"][0] for item in started.values()]
    for item in started.values():
        assert "starting on" in served.bench("servers", "logs", item["id"]).stdout
        served.bench("servers", "stop", item["id"])
    assert not json.loads(served.bench("servers", "ps", "--json").stdout)
    wait_until(lambda: not objects(*EVERYTHING), "all objects to be deleted")


@pytest.fixture
def image(kubernetes_cluster: KubernetesCluster) -> str:
    return kubernetes_cluster.pin_image()


@pytest.mark.slow("two servers from images start on two nodes before the trials do, and one of them dies")
def test_servers_from_images_have_places_and_secrets_and_their_death_is_reported(
    served: Lab, objects: Objects, image: str
):
    """The first trial uses both servers; the second one ends the server on its own node."""
    first = ["{program}", "-c", "open('{folder}/first', 'w')"]
    more = {"image": image, "image_program": "python3", "prepare": [first]}
    write_recipe(served, "answer", "secret", "mortal", files={"notes/hello.txt": "{host} {port}"}, **more)
    services = {
        "web": {"recipe": "small", "mode": "attached", "node": 0},
        "far": {"recipe": "small", "mode": "attached", "node": "others"},
    }
    scenario = served.scenario(
        "ask", workload={"n": [1, 2], "kill": True}, services=services,
        target={"url": "service:web", "near": "service:far"}, retries={"max_retries": 0},
    )  # fmt: skip
    rendered = served.bench("run", "--dry-run", scenario).stdout
    assert rendered.count("kind: StatefulSet") == rendered.count("kind: Secret") == 2
    process = served.start("run", scenario, "--json")
    wait_until(lambda: list(served.marks.glob("request-*")), "a trial that uses the servers", 280)
    stateful = objects("statefulsets")
    secret = json.loads((folder(served) / "endpoints.json").read_text())["servers"][0]["places"]["secret"]
    assert len(stateful) == 2 and secret not in json.dumps(stateful)
    out, words = process.communicate(timeout=240)
    assert process.returncode == 1, words
    (failure,) = json.loads(out)["failures"]
    assert failure["code"] == "server_died"
    assert "web ended with 3" in failure["message"] and "out of memory" in failure["message"]
    logs = [(folder(served, name) / "logs" / f"{name}.log").read_text() for name in ("web", "far")]
    assert ["out of memory" in log for log in logs] == [True, False]
    assert all("starting on 8000" in log and secret not in log for log in logs)
    done, _ = sorted(served.trials(), key=lambda trial: trial.outcome != "succeeded")
    assert done.outcome == "succeeded" and done.meta["custom"]["services"]["web"]["image"]
    node = done.meta["placed"]["node"]
    assert [replica["node"] for replica in state(served)["replicas"]] == [node]
    assert [replica["node"] for replica in state(served, "far")["replicas"]] != [node]
    assert state(served, "far")["phase"] == "stopped"
    wait_until(lambda: not objects(*EVERYTHING), "all objects to be deleted")
    served.is_tidy()


@pytest.mark.slow("Pods give up an orchestrator that they have not heard of for 30 seconds.")
def test_a_killed_orchestrator_leaves_no_server_and_no_trial(served: Lab, objects: Objects, image: str):
    write_recipe(served, "answer", name="kept")
    write_recipe(served, "answer", image=image, image_program="python3")
    services = {"web": {"recipe": "small", "mode": "attached"}, "db": {"recipe": "kept", "mode": "attached"}}
    target = {"url": "service:web"}
    process = served.start("run", served.scenario("ask", workload={"seconds": 600}, services=services, target=target))
    wait_until(lambda: list(served.marks.glob("request-*")), "a trial that uses the server", 280)
    process.kill()
    process.wait()
    wait_until(lambda: not objects("statefulsets", "secrets"), "the watchdog's Job to take its server along", 120)
    pods = "its pods to have ended"
    wait_until(lambda: all(pod["status"]["phase"] == "Succeeded" for pod in objects("pods")), pods, 120)
    wait_until(lambda: not served.left_running(), "the trial to end", 120)
    served.bench("stop", "@last")
    wait_until(lambda: not objects(*EVERYTHING), "all objects to be deleted")
    assert state(served)["phase"] == "stopped"
    served.is_tidy()
