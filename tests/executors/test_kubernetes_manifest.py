"""Objects of a run on Kubernetes: valid by the published schemas, named as Kubernetes allows, and without a secret."""

import json
import re
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchhouse.documents.manifest_yaml import as_yaml
from benchhouse.executors.cluster_engine import Ask, Slot
from benchhouse.executors.kubernetes_manifest import Pods, kept_fields, name
from benchhouse.executors.kubernetes_nodes import place_of
from benchhouse.executors.kubernetes_server import ImageServer
from benchhouse.executors.kubernetes_words import read_pod, why_deleted
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.pod_template import label, read_quantity
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.service import ServiceSpec

VERSIONS = ("1.29", "1.33", kubernetes_validate.latest_version())
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


def slots(count: int = 1, **ask: Any) -> list[Slot]:
    return [Slot(name=f"20260101-000000-1-{n}", ask=Ask(**ask), folder=f"/data/{n}", python=()) for n in range(count)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("known", [frozenset[str](), INDEXED], ids=["plain", "indexed"])
@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["least", "everything"])
def test_both_renderings_are_valid_by_the_published_schema(version: str, known: frozenset[str], settings: Any):
    made = pods(known, **settings)
    for manifest in [made.anchor(), made.job(slots(3 if known else 1, gpus=1, memory=10**9), "uid"), made.probe()]:
        kubernetes_validate.validate(manifest, version, strict=True)


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


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("settings", [{}, EVERYTHING | {"names": True}], ids=["least", "everything"])
def test_the_objects_of_a_server_are_valid_by_the_published_schema(version: str, settings: Any):
    made = server(**{"volume": EVERYTHING["volume"]} | settings)
    made.refuse()
    kubernetes_validate.validate(made.watchdog("uid"), version, strict=True)
    for _, _, manifest in made.objects("uid"):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_server_s_secrets_are_in_its_secret_alone_and_its_words_are_its_recipe_s():
    made = server(volume=EVERYTHING["volume"])
    (_, _, secret), (_, _, stateful) = made.objects("uid")
    assert "sesame" not in json.dumps([stateful, made.watchdog("uid")])
    assert secret["stringData"] == {
        "BENCHHOUSE_SECRET": "sesame",
        "BENCHHOUSE_TOKEN": "t-sesame",
        "HF_TOKEN": "hf-sesame",
        "file-0": "key: sesame",
    }
    container = stateful["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == [
        "/bin/big", "--at=$(POD_IP):8000", "--key=$(BENCHHOUSE_SECRET)", "/models/a", "$(BENCHHOUSE_TOKEN)", "$$(date)",
    ]  # fmt: skip
    probe = container["readinessProbe"]
    assert probe["httpGet"] == {"path": "/health?deep=1", "port": 8000, "scheme": "HTTP"}
    assert probe["successThreshold"] == 2
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "8000000000", "nvidia.com/gpu": "1"}
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


def test_slots_go_beside_a_server_or_keep_away_from_it():
    made = replace(pods(), beside=("db",), away=("llm",))
    affinity = made.job(slots())["spec"]["template"]["spec"]["affinity"]
    kubernetes_validate.validate(made.job(slots()), VERSIONS[-1], strict=True)
    (beside,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (away,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert beside["labelSelector"]["matchLabels"]["benchhouse.dev/server"] == "db"
    assert away["labelSelector"]["matchLabels"]["benchhouse.dev/server"] == "llm"


def test_the_validator_finds_what_is_wrong():
    job = pods().job(slots())
    job["spec"]["completionsMode"] = "Indexed"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)


def test_one_indexed_job_holds_all_slots_where_a_failed_pod_ends_no_other():
    job = pods(INDEXED).job(slots(4))
    assert (job["spec"]["completions"], job["spec"]["parallelism"], job["spec"]["backoffLimitPerIndex"]) == (4, 4, 0)
    assert json.loads(job["spec"]["template"]["spec"]["containers"][0]["env"][-1]["value"])["folders"] == [
        f"/data/{n}" for n in range(4)
    ]


@pytest.mark.parametrize("known", [frozenset[str](), INDEXED], ids=["plain", "indexed"])
def test_the_pods_of_a_gang_are_on_different_nodes(known: frozenset[str]):
    made = pods(known, **EVERYTHING)
    gangs = [slot.model_copy(update={"gang": f"gang-{at // 2}"}) for at, slot in enumerate(slots(4, nodes=2))]
    kinds = made.kinds([*gangs, *slots(2)])
    assert [len(kind) for kind in kinds] == ([2, 2, 2] if known else [1] * 6)
    jobs = [made.job(kind) for kind in kinds]
    for job in jobs[:-1] if known else jobs[:4]:
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)
        template = job["spec"]["template"]
        (term,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert term["topologyKey"] == "kubernetes.io/hostname"
    assert "affinity" not in jobs[-1]["spec"]["template"]["spec"]


def test_a_server_that_drops_a_field_is_never_sent_it():
    answer = {"spec": {"backoffLimit": 0, "completions": 1, "template": {}}}  # as 1.20 answers to the probe
    job = pods(kept_fields(answer), queue="team").job(slots())
    assert not INDEXED & job["spec"].keys()
    assert job["spec"]["backoffLimit"] == 0


def test_what_a_trial_asks_for_is_reserved_and_the_most_it_gets():
    container = pods(**EVERYTHING).job(slots(cpus=2, gpus=1, memory=10**9))["spec"]["template"]["spec"]["containers"][0]
    amounts = {"cpu": "2", "memory": "1000000000", "nvidia.com/mig-1g.5gb": "1"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}


def test_pods_have_no_credentials_and_secrets_only_by_name():
    pod = pods(**EVERYTHING).job(slots())["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]


@given(st.text(min_size=1, max_size=120))
def test_any_text_becomes_a_name_and_a_label(text: str):
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,55}[a-z0-9])?", name("bench", text))
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", label(text))


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
    assert "lived longer" in why_deleted([], [late])
    assert "higher priority" in why_deleted([{"reason": "Preempted", "message": "by x"}], [])
    assert why_deleted([{"reason": "Killing"}], []) == "its pod was deleted"


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
