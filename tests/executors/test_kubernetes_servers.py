"""Servers of a scenario on a real Kubernetes: in the trial's pod, in a pod of their own, and from their own image."""

import json
import shutil
import sys
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
        for url in target["url"].split(","):
            urllib.request.urlopen(url, timeout=5).read()
        Path(os.environ["LAB"], f"asked-{n}").touch()
        if kill:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url + "/die", timeout=5)
            time.sleep(60)
        if time.monotonic() >= until:
            break
        time.sleep(0.1)
    ctx.emit("asked", 1)
    ctx.metadata(url=target["url"])
"""
pytestmark = pytest.mark.slow
Objects = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def served(kubernetes: Lab) -> Lab:
    """The experiment `ask`, and the recipe `small` of a server whose program every pod has."""
    kubernetes.install("ask", "1.0", ASK, "[benchhouse.experiments]\nask = ask:ask")
    (kubernetes.workspace / "recipes").mkdir()
    shutil.copy(small_server.__file__, kubernetes.workspace / "small_server.py")
    write_recipe(kubernetes, "answer")
    return kubernetes


def write_recipe(lab: Lab, *words: str, **more: Any) -> None:
    recipe = small_server.recipe(*words, program=["python3"], **more)
    recipe["command"][1] = str(lab.workspace / "small_server.py")
    (lab.workspace / "recipes" / "small.yaml").write_text(json.dumps(recipe))


def attached(use: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    web = {"recipe": "small", "mode": "attached"} | (use or {})
    return {"services": {"web": web}, "target": {"url": "service:web"}} | more


@pytest.fixture
def objects(served: Lab, kubernetes_cluster: KubernetesCluster) -> Objects:
    """What there is of benchhouse in the laboratory's namespace."""
    namespace = json.loads((served.workspace / "site.yaml").read_text())["kubernetes"]["namespace"]
    of_ours = "app.kubernetes.io/managed-by=benchhouse"
    return lambda *kinds: kubernetes_cluster.get(",".join(kinds), "--namespace", namespace, "--selector", of_ours)


EVERYTHING = ("jobs", "configmaps", "statefulsets", "secrets")  # Kubernetes takes its time to forget pods


def folder(lab: Lab, name: str = "web") -> Path:
    return lab.workspace / ".bench" / "runs" / lab.run_id() / "services" / name


def state(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder(lab) / "state.json").read_text())
    return found


def test_an_embedded_server_runs_in_the_pod_of_its_trial_whoever_brings_our_code(served: Lab):
    services = {"web": {"recipe": "small"}}
    served.run("ask", services=services, target={"url": "service:web"}, workload={"n": [1, 2]})
    trials = served.trials()
    assert [trial.outcome for trial in trials] == ["succeeded"] * 2
    assert all(trial.meta["custom"]["url"].startswith("http://127.0.0.1:") for trial in trials)
    _let_the_image_have_benchhouse(served)
    served.run("ask", name="again", services=services, target={"url": "service:web"})
    (trial,) = served.trials("again")
    assert trial.outcome == "succeeded"
    assert (trial.folder / "logs" / "web.log").read_text().startswith("starting on")
    served.is_tidy()


def _let_the_image_have_benchhouse(lab: Lab) -> None:
    """An environment of the pods' Python on the volume stands for one in the image."""
    path = lab.workspace / "site.yaml"
    site = json.loads(path.read_text())
    brought = Path(site["kubernetes"]["volume"]["path"], ".benchhouse")
    packages = [*brought.glob("code-*"), *(brought / "layers").glob("python*")]
    home = lab.root / "environment"
    inside = home / "lib" / "python3.11" / "site-packages"
    inside.mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "bin" / "python").symlink_to("/usr/bin/python3")
    (home / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (inside / "benchhouse.pth").write_text("\n".join(map(str, packages)))
    site["kubernetes"] |= {"code": "image", "python": str(home / "bin" / "python")}
    path.write_text(json.dumps(site))


def test_an_attached_server_is_one_pod_for_all_trials_and_ends_with_the_run(served: Lab, objects: Objects):
    served.run("ask", workload={"n": [1, 2, 3]}, parallel=2, **attached())
    trials = served.trials()
    assert [trial.outcome for trial in trials] == ["succeeded"] * 3
    (url,) = {trial.meta["custom"]["url"] for trial in trials}
    assert not url.startswith("http://127.")
    assert {trial.meta["custom"]["services"]["web"]["mode"] for trial in trials} == {"attached"}
    assert state(served)["phase"] == "stopped" and state(served)["host"].startswith(f"bench-{served.run_id()}-web")
    assert (folder(served) / "logs" / "web.log").read_text().startswith("starting on")
    wait_until(lambda: not objects("jobs", "configmaps"), "all objects to be deleted")
    served.is_tidy()


def test_an_attached_server_that_dies_fails_the_trial_with_its_last_words(served: Lab, objects: Objects):
    write_recipe(served, "answer", "mortal")
    told = served.run("ask", code=1, workload={"kill": True}, **attached())
    (failure,) = told["failures"]
    assert failure["code"] == "server_died" and "out of memory" in failure["message"]
    wait_until(lambda: not objects("jobs", "configmaps"), "all objects to be deleted")


def test_a_server_whose_program_no_pod_has_ends_the_run_before_a_trial_begins(served: Lab, objects: Objects):
    write_recipe(served, "answer")
    path = served.workspace / "recipes" / "small.yaml"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"program": ["no-such-program"]}))
    said = served.bench("run", served.scenario("ask", **attached()), code=1).stderr
    assert "web could not be started" in said and "no-such-program" in said
    wait_until(lambda: not objects("jobs", "configmaps"), "all objects to be deleted")


@pytest.mark.parametrize("kind", ["program", "image"])
def test_a_server_by_itself_lives_until_it_is_stopped(
    served: Lab, objects: Objects, request: pytest.FixtureRequest, kind: str
):
    if kind == "image":
        request.getfixturevalue("from_image")("answer")
    started = json.loads(served.bench("servers", "start", "small", "--executor", "kubernetes", "--json").stdout)
    (row,) = json.loads(served.bench("servers", "ps", "--json").stdout)
    assert (row["id"], row["phase"]) == (started["id"], "ready")
    served.run("ask", services={"web": {"server": started["id"]}}, target={"url": "service:web"})
    assert served.trials()[0].meta["custom"]["url"] == started["endpoints"][0]
    assert "starting on" in served.bench("servers", "logs", started["id"]).stdout
    served.bench("servers", "stop", started["id"])
    assert not json.loads(served.bench("servers", "ps", "--json").stdout)
    wait_until(lambda: not objects(*EVERYTHING), "all objects to be deleted")


@pytest.fixture
def from_image(served: Lab, kubernetes_cluster: KubernetesCluster) -> Callable[..., None]:
    """Writes the recipe `small` as one of an image of its own."""
    image = kubernetes_cluster.pin_image()
    return lambda *words, **more: write_recipe(served, *words, image=image, image_program="python3", **more)


@pytest.mark.parametrize(("use", "beside"), [({"node": 0}, True), ({"node": "others"}, False)], ids=["beside", "away"])
def test_a_server_from_its_own_image_is_ready_when_the_cluster_says_so(
    served: Lab, objects: Objects, from_image: Callable[..., None], use: dict[str, Any], beside: bool
):
    first = ["{program}", "-c", "open('{folder}/first', 'w')"]
    from_image("answer", "secret", files={"notes/hello.txt": "{host} {port}"}, prepare=[first])
    scenario = served.scenario("ask", workload={"seconds": 4}, **attached(use))
    process = served.start("run", scenario, "--json")
    wait_until(lambda: list(served.marks.glob("asked-*")), "a trial that asks")
    (stateful,) = objects("statefulsets")
    secret = json.loads((folder(served) / "endpoints.json").read_text())["servers"][0]["places"]["secret"]
    assert secret not in json.dumps(stateful)
    assert process.wait(120) == 0
    (trial,) = served.trials()
    (replica,) = state(served)["replicas"]
    assert (trial.meta["placed"]["node"] == replica["node"]) is beside
    assert trial.meta["custom"]["services"]["web"]["image"]
    assert state(served)["phase"] == "stopped"
    log = (folder(served) / "logs" / "web.log").read_text()
    assert "starting on 8000" in log and secret not in log
    wait_until(lambda: not objects(*EVERYTHING), "all objects to be deleted")
    served.is_tidy()


def test_a_server_that_kubernetes_started_again_has_died(
    served: Lab, objects: Objects, from_image: Callable[..., None]
):
    from_image("answer", "mortal")
    told = served.run("ask", code=1, workload={"kill": True}, **attached({"replicas": 2}))
    (failure,) = told["failures"]
    assert failure["code"] == "server_died"
    assert "web-1 ended with 3" in failure["message"] and "out of memory" in failure["message"]
    logs = [(folder(served) / "logs" / f"{name}.log").read_text() for name in ("web", "web-1")]
    assert ["out of memory" in log for log in logs] == [False, True]


def test_a_server_that_is_never_ready_is_told_with_its_words(served: Lab, from_image: Callable[..., None]):
    from_image("never", ready={"kind": "tcp", "timeout": 2})
    said = served.bench("run", served.scenario("ask", **attached()), code=1).stderr
    assert "was not up within 2 s" in said and "starting on 8000" in said


def test_a_killed_orchestrator_leaves_no_server(
    served: Lab, objects: Objects, kubernetes_cluster: KubernetesCluster, from_image: Callable[..., None]
):
    shutil.copy(served.workspace / "recipes" / "small.yaml", served.workspace / "recipes" / "kept.yaml")
    kept = json.loads((served.workspace / "recipes" / "kept.yaml").read_text()) | {"name": "kept"}
    (served.workspace / "recipes" / "kept.yaml").write_text(json.dumps(kept))
    from_image("answer")
    more = attached()
    more["services"]["db"] = {"recipe": "kept", "mode": "attached"}
    process = served.start("run", served.scenario("ask", workload={"seconds": 600}, **more))
    wait_until(lambda: list(served.marks.glob("asked-*")), "a trial that asks")
    process.kill()
    process.wait()
    wait_until(lambda: not objects("statefulsets", "secrets"), "the watchdog's Job to take its server along", 120)
    pods = "its pods to have ended"
    wait_until(lambda: all(pod["status"]["phase"] == "Succeeded" for pod in objects("pods")), pods, 120)
    served.bench("stop", "@last")
    wait_until(lambda: not objects(*EVERYTHING), "all objects to be deleted")
    assert state(served)["phase"] == "stopped"
    served.is_tidy()


def test_a_dry_run_shows_the_objects_of_servers(served: Lab, from_image: Callable[..., None]):
    from_image("answer")
    more = attached()
    more["services"]["db"] = {"recipe": "small", "mode": "attached", "parameters": {"program": sys.executable}}
    shown = served.bench("run", "--dry-run", served.scenario("ask", **more)).stdout
    assert shown.count("kind: StatefulSet") == 1 and shown.count("kind: Secret") == 1
    assert shown.count("kind: Job") == 3  # the watchdog, the keeper, a slot
