"""What the cluster says of a server's pods becomes its state; another server is never taken for the first."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from benchhouse.executors.kubernetes_manifest import Pods
from benchhouse.executors.kubernetes_server import ImageServer
from benchhouse.executors.kubernetes_server_state import PodServerState
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.service import ServiceFolder, ServiceSpec, ServiceState, read_state

RECIPE: dict[str, Any] = {
    "name": "small",
    "image": f"registry.example/small@sha256:{'1' * 64}",
    "image_program": "small",
    "command": ["{program}", "{host}", "{port}", "{secret}"],
    "endpoint": "http://:{secret}@{host}:{port}",
}


@pytest.fixture
def folder(tmp_path: Path) -> ServiceFolder:
    made = ServiceFolder(tmp_path)
    state = ServiceState(id="web", recipe="small", phase="starting", keeper="", since="now")
    made.state.write_text(state.model_dump_json())
    return made


def followed(folder: ServiceFolder, replicas: int = 1, **more: Any) -> PodServerState:
    recipe = Recipe.model_validate(RECIPE | more)
    pods = Pods(KubernetesSite(image="i"), "team", "r", "s", "me", ("python3",))
    spec = ServiceSpec(id="web", recipe=recipe, replicas=replicas, run_id="r")
    server = ImageServer(pods, spec, "web", "bench-r-web-1", "sesame-open-1234", {})
    return PodServerState(
        folder, server, lambda pod, query: f"{pod} says sesame-open-1234 {sorted(query.items())[-1]}\n"
    )


def pod(number: int = 0, uid: str = "a", ready: bool = True, **container: Any) -> dict[str, Any]:
    status = {"state": {"running": {}}, "restartCount": 0, "imageID": "x@sha256:abc"} | container
    return {
        "metadata": {"name": f"bench-r-web-1-{number}", "uid": uid},
        "spec": {"nodeName": f"node{number}"},
        "status": {
            "phase": "Running",
            "podIP": f"10.0.0.{number}",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [status],
        },
    }


def test_all_replicas_must_be_ready_and_their_addresses_are_for_the_user_alone(folder: ServiceFolder):
    state = followed(folder, replicas=2)
    state.take(pod(1), is_deleted=False)
    assert read_state(folder).phase == "starting"  # type: ignore[union-attr]
    state.take(pod(0), is_deleted=False)
    told = read_state(folder)
    assert told and told.phase == "ready" and told.host == "node0, node1"
    assert [item.node for item in told.replicas] == ["node0", "node1"] and told.replicas[0].image == "abc"
    assert "sesame" not in told.model_dump_json()
    servers = json.loads(folder.endpoints.read_text())["servers"]
    assert [item["endpoint"] for item in servers] == [f"http://:sesame-open-1234@10.0.0.{n}:8000" for n in (0, 1)]
    assert stat.S_IMODE(folder.endpoints.stat().st_mode) == 0o600


def test_one_that_does_not_answer_is_unhealthy_and_goes_on(folder: ServiceFolder):
    state = followed(folder)
    state.take(pod(), is_deleted=False)
    state.take(pod(ready=False), is_deleted=False)
    state.look()
    told = read_state(folder)
    assert told and told.phase == "unhealthy" and "web does not answer" in told.message


ENDED = {"terminated": {"exitCode": 3}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (pod(ready=False, state=ENDED), "web ended with 3"),
        (pod(restartCount=1, lastState=ENDED), "web ended with 3:\nbench-r-web-1-0 says"),
        (pod(state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), "by signal 9, as it used more memory"),
        (pod(uid="b"), "web was replaced"),
        ({**pod(), "deleted": True}, "its pod was deleted"),
    ],
    ids=["ended", "started-again", "memory", "replaced", "deleted"],
)
def test_another_server_is_never_taken_for_the_first(folder: ServiceFolder, change: dict[str, Any], words: str):
    state = followed(folder)
    state.take(pod(), is_deleted=False)
    state.take(change, is_deleted=change.pop("deleted", False))
    told = read_state(folder)
    assert told and told.phase == "failed" and words in told.message and "sesame" not in told.message
    assert not folder.endpoints.exists()
    assert (folder.path / "logs" / "web.log").read_text().startswith("bench-r-web-1-0 says")
    assert "sesame" not in (folder.path / "logs" / "web.log").read_text()


def test_one_that_is_late_or_could_not_be_prepared_is_told(folder: ServiceFolder):
    state = followed(folder, ready={"kind": "tcp", "timeout": 1e-9})
    state.take(pod(ready=False), is_deleted=False)
    state.look()
    told = read_state(folder)
    assert told and "web was not up within" in told.message
    broken = pod(ready=False) | {"status": {"initContainerStatuses": [{"name": "prepare-0", "state": ENDED}]}}
    folder.state.write_text(told.model_copy(update={"phase": "starting"}).model_dump_json())
    followed(folder).take(broken, is_deleted=False)
    assert "web could not be prepared (prepare-0)" in read_state(folder).message  # type: ignore[union-attr]
