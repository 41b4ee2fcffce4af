"""Objects of a run on Kubernetes: valid by the published schemas, named as Kubernetes allows, and without a secret."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from services.on_demand import module

from benchhouse.documents.manifest_yaml import as_yaml
from benchhouse.executors.cluster_engine import SlotRequest, WorkerSlot
from benchhouse.executors.kubernetes_manifest import Pods, name, supported_fields
from benchhouse.executors.kubernetes_nodes import place_of
from benchhouse.executors.kubernetes_server import ImageServer
from benchhouse.executors.kubernetes_status import deletion_reason, read_pod
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.pod_template import label, read_quantity
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.service import ServiceSpec

INDEXED = frozenset(["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "suspend"])
EVERYTHING = {
    "image": f"registry.example/bench@sha256:{'0' * 64}",
    "code": "volume",
    "volume": {"claim": "shared", "path": "/data"},
    "service_account": "bench",
    "pull_secrets": ["registry"],
    "secrets": ["keys"],
    "queue": "team",
    "priority_class": "low",
    "node_selector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "spread": "kubernetes.io/hostname",
    "gpu_resource": "nvidia.com/mig-1g.5gb",
    "runtime_class": "nvidia",
    "shm": "1GiB",
}


def pods(known: frozenset[str] = frozenset(), **settings: Any) -> Pods:
    site = KubernetesSite.model_validate({"image": "localhost/python:3.11", **settings})
    return Pods(site, "team", "20260101-000000-1", "s", "me", ("python3",), known=known)


def slots(count: int = 1, **ask: Any) -> list[WorkerSlot]:
    return [
        WorkerSlot(name=f"20260101-000000-1-{n}", ask=SlotRequest(**ask), folder=f"/data/{n}", python=())
        for n in range(count)
    ]


def validate(manifests: list[dict[str, Any]], *versions: str) -> None:
    """Compare manifests with the published schemas of these versions, by default of the oldest and the latest one."""
    kubernetes_validate = module("kubernetes-schemas", "kubernetes_validate")

    for version in versions or ("1.29", kubernetes_validate.latest_version()):
        for manifest in manifests:
            kubernetes_validate.validate(manifest, version, strict=True)


def without_code(text: str) -> str:
    """Leave out the digest of our own code, which every change of the source changes."""
    return re.sub(r"code-[0-9a-f]+", "code-DIGEST", text)


def test_the_objects_of_a_run_are_valid_and_as_stored(golden: Any):
    gangs = [slot.model_copy(update={"gang": f"gang-{at // 2}"}) for at, slot in enumerate(slots(4, nodes=2))]
    asked = {"cpus": 2, "gpus": 1, "memory": 10**9}
    runs = {
        "least": (pods(), slots(2, **asked)),
        "everything": (pods(**EVERYTHING), slots(1, **asked)),
        "indexed": (pods(INDEXED, **EVERYTHING), slots(3, **asked)),
        "gangs": (pods(INDEXED), [*gangs, *slots(2)]),
        "near-a-server": (replace(pods(), beside=("db",), away=("llm",)), slots()),
    }
    for case, (made, wanted) in runs.items():
        manifests = [made.anchor(), made.probe(), *(made.job(kind, "uid") for kind in made.kinds(wanted))]
        validate(manifests)
        golden(f"kubernetes/run-{case}.yaml", without_code(as_yaml(manifests)))


def server(**settings: Any) -> ImageServer:
    """Of a recipe with all that an image may need."""
    recipe = Recipe.model_validate(
        {
            "name": "big",
            "image": f"registry.example/big@sha256:{'1' * 64}",
            "image_program": "/bin/big",
            "parameters": {"model": None, "token": None},
            "prepare": [["{program}", "init", "{folder}"]],
            "command": ["{program}", "--at={host}:{port}", "--key={secret}", "{model}", "{token}", "$(date)"],
            "files": {"conf/big.yaml": "key: {secret}"},
            "environment": {"BIG_KEY": "{secret}", "HF_TOKEN": "$HF_TOKEN", "PLAIN": "1"},
            "binds": ["/data/models:/models:ro"],
            "endpoint": "http://{host}:{port}/v1",
            "ready": {"kind": "http", "url": "http://{host}:{port}/health?deep=1", "in_a_row": 2},
            "resources": {"cpus": 4, "gpus": 1, "memory": "8GB"},
            "refuses_root": True,
        }
    )
    chosen = {"model": "/models/a", "token": "$BIG_TOKEN"}
    spec = ServiceSpec(id="llm", recipe=recipe, parameters=chosen, replicas=2, run_id="r", alive="/data/slots/alive")
    made = replace(pods(**settings), beside=("llm",))
    return ImageServer(made, spec, "llm", "bench-r-llm-1", "sesame", {"HF_TOKEN": "hf-sesame", "BIG_TOKEN": "t-sesame"})


def test_the_objects_of_a_server_are_valid_and_as_stored(golden: Any):
    for case, settings in (("least", {}), ("everything", EVERYTHING | {"names": True})):
        made = server(**{"volume": EVERYTHING["volume"]} | settings)
        made.refuse()
        manifests = [made.watchdog("uid"), *(manifest for _, _, manifest in made.objects("uid"))]
        validate(manifests)
        golden(f"kubernetes/server-{case}.yaml", without_code(as_yaml(manifests)))


def test_the_secrets_of_a_server_are_in_its_secret_alone():
    made = server(volume=EVERYTHING["volume"])
    (_, _, secret), (_, _, stateful) = made.objects("uid")
    assert "sesame" not in json.dumps([stateful, made.watchdog("uid")])
    assert json.dumps(secret["stringData"]).count("sesame") == 4
    assert made.places("10.0.0.7")["token"] == "t-sesame"


def test_names_of_servers_are_those_of_their_pods_where_the_cluster_resolves_them():
    pod = {"metadata": {"name": "bench-r-llm-1-0"}, "status": {"podIP": "10.0.0.7"}}
    assert server().host_of(pod) == "10.0.0.7"
    named = server(names=True, volume=EVERYTHING["volume"])
    assert named.host_of(pod) == "bench-r-llm-1-0.bench-r-llm-1.team.svc"
    assert [plural for _, plural, _ in named.objects()] == ["secrets", "services", "statefulsets"]


def test_what_a_pod_cannot_see_is_refused():
    with pytest.raises(BenchError, match="/data/models, which is not on the volume"):
        server(volume={"claim": "shared", "path": "/elsewhere"}).refuse()


def test_the_validator_finds_what_is_wrong():
    kubernetes_validate = module("kubernetes-schemas", "kubernetes_validate")

    job = pods().job(slots())
    job["spec"]["completionsMode"] = "Indexed"
    with pytest.raises(kubernetes_validate.ValidationError):
        validate([job])


def test_the_pods_of_a_gang_need_jobs_of_their_own_only_without_indexed_jobs():
    gangs = [slot.model_copy(update={"gang": f"gang-{at // 2}"}) for at, slot in enumerate(slots(4, nodes=2))]
    sizes = {known: [len(kind) for kind in pods(known).kinds([*gangs, *slots(2)])] for known in (frozenset(), INDEXED)}
    assert sizes == {frozenset(): [1] * 6, INDEXED: [2, 2, 2]}


def test_a_server_that_drops_a_field_is_never_sent_it():
    answer = {"spec": {"backoffLimit": 0, "completions": 1, "template": {}}}  # as 1.20 answers to the probe
    job = pods(supported_fields(answer), queue="team").job(slots())
    assert not INDEXED & job["spec"].keys()
    assert job["spec"]["backoffLimit"] == 0


def test_pods_have_no_credentials_and_secrets_only_by_name():
    pod = pods(**EVERYTHING).job(slots())["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "keys"}}]


@hypothesis_settings(max_examples=25)
@given(st.text(min_size=1, max_size=120))
def test_any_text_becomes_a_name_and_a_label(text: str):
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?", name("bench", text))
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", label(text))


@hypothesis_settings(max_examples=25)
@given(st.text(max_size=20), st.sampled_from(["yes", "1e3", "0x10", "null", "~", "1_000", "12:30", "a: b", "'", "#"]))
def test_text_stays_text_for_every_reader_of_yaml(text: str, odd: str):
    assert list(yaml.safe_load_all(as_yaml([{"a": text, "b": odd}]))) == [{"a": text, "b": odd}]
    assert f'b: "{odd}"' in as_yaml([{"b": odd}])


@pytest.mark.parametrize(
    ("text", "value"), [("2", 2), ("100m", 0.1), ("1536Mi", 1536 * 2**20), ("1e3", 1000), ("12k", 12000)]
)
def test_quantities(text: str, value: float):
    assert read_quantity(text) == pytest.approx(value)


def pod(state: dict[str, Any], phase: str = "Pending", **status: Any) -> dict[str, Any]:
    return {"status": {"phase": phase, "containerStatuses": [{"image": "i", "state": state}], **status}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return pod({"waiting": {"reason": reason, "message": message}})


@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        (pod({"running": {}}, "Running"), "runs", ""),
        (waiting("ContainerCreating"), "waits", "its pod is being made"),
        (waiting("ErrImageNeverPull"), "refused", "the image is not on the node"),
        (waiting("CreateContainerConfigError", 'secret "x" not found'), "refused", 'secret "x" not found'),
        (pod({}, "Failed", reason="Evicted", message="low on memory"), "ended", "the node evicted its pod: low on"),
        (pod({}, "Failed", reason="Preempting"), "ended", "higher priority"),
        (pod({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "Failed"), "ended", "more memory than its"),
        (pod({"terminated": {"exitCode": 137}}, "Failed"), "ended", "killed by signal 9"),
        (pod({"terminated": {"exitCode": 1, "message": "no\nwords"}}, "Failed"), "ended", "code 1: no words"),
        (waiting("ErrImagePull", "connection refused"), "waits", "tried again: connection refused"),
        (waiting("ErrImagePull", "x:1: not found"), "refused", "can't be pulled"),
        (waiting("ErrImagePull", "no match for platform in manifest"), "refused", "no match for platform"),
        (pod({"terminated": {"exitCode": 128, "reason": "StartError"}}, "Failed"), "refused", "can't be started"),
        (pod({"terminated": {"exitCode": 1, "message": "exec /x: exec format error"}}, "Failed"), "refused", "format"),
        (
            pod({"terminated": {"exitCode": 2, "message": "can't open file '/v/.benchhouse/a/start.py'"}}, "Failed"),
            "refused",
            "what this machine has at /v:",
        ),
        (
            {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}]}},
            "waits",
            "waits for a node: 0/2 nodes",
        ),
    ],
)
def test_what_the_cluster_says_of_a_pod_is_told_in_words(seen: dict[str, Any], state: str, words: str):
    told = read_pod(seen)
    assert told.state == state
    assert words in told.text
    assert told.out_of_memory == ("memory than" in words)


def test_an_image_that_cannot_be_pulled_is_told_in_the_registry_s_words():
    told = read_pod(waiting("ImagePullBackOff", "Back-off pulling image"), "manifest unknown")
    assert (told.state, "manifest unknown" in told.text, "pull_secrets" in told.hint) == ("refused", True, True)


def test_why_a_pod_was_deleted_stands_in_its_job_or_its_events():
    late = {"type": "Failed", "reason": "DeadlineExceeded", "message": "too long"}
    assert "lived longer" in deletion_reason([], [late])
    assert "higher priority" in deletion_reason([{"reason": "Preempted", "message": "by x"}], [])
    assert deletion_reason([{"reason": "Killing"}], []) == "its pod was deleted"


def test_evidence_names_the_place_as_the_cluster_knows_it():
    seen = pod({"running": {"startedAt": "2026-01-01T00:00:02Z"}}, "Running", qosClass="Guaranteed")
    seen |= {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}
    seen |= {"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}}
    labels = {
        "topology.kubernetes.io/zone": "a",
        "node.kubernetes.io/instance-type": "p5",
        "agentpool": "gpu",
        "x": "y",
    }
    place = place_of(seen, labels)
    assert place
    assert (place["zone"], place["instance_type"], place["pool"]) == ("a", "p5", "gpu")
    assert (place["qos"], place["limits"], place["pod_started"]) == ("Guaranteed", "cpu=1", "2026-01-01T00:00:02Z")
    assert place_of(pod({"waiting": {}}), labels) is None
