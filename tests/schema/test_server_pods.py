"""Names of servers on Kubernetes, and what is told of a change behind them."""

import pytest
from tables import check_table

from benchhouse.schema.server_pods import NamedServer, ServerPod, ServerPods, differences, named_server
from benchhouse.schema.service import ServiceUse, TrialService


@check_table(
    "text, server",
    [
        ("service/llm", NamedServer("service", "llm")),
        ("service/llm.serving:http/v1", NamedServer("service", "llm", "serving", "http", "/v1")),
        ("service/llm:8000", NamedServer("service", "llm", port="8000")),
        ("inferenceservice/llm.serving/openai", NamedServer("inferenceservice", "llm", "serving", path="/openai")),
        ("inferencepool/llama-8b", NamedServer("inferencepool", "llama-8b")),
    ],
)
def test_a_server_is_named_by_kind_and_name(text, server):
    assert named_server(text) == server


@check_table(
    "text, words",
    [
        ("llm", "names nothing on Kubernetes"),
        ("service/LLM", "expected service/NAME"),
        ("deployment/llm", "expected service/NAME"),
        ("service/llm:", "expected service/NAME"),
        ("service/a/../b c", "expected service/NAME"),
        ("inferencepool/llm:8000", "only a service is asked for a port"),
    ],
)
def test_an_unknown_server_is_reported_with_the_known_ones(text, words):
    with pytest.raises(ValueError, match=words):
        ServiceUse(kubernetes=text)


def test_a_server_there_may_have_an_address_beside_its_name_and_nothing_else():
    use = ServiceUse(kubernetes="inferencepool/llm", endpoint="http://gate")
    assert TrialService(use=use).identity() == {"endpoint": "http://gate", "kubernetes": "inferencepool/llm"}
    for more in ({"recipe": "vllm"}, {"server": "x"}):
        with pytest.raises(ValueError, match="either a recipe"):
            ServiceUse(kubernetes="service/llm", **more)
    with pytest.raises(ValueError, match="not started here"):
        ServiceUse(kubernetes="service/llm", replicas=2)


def pod(name="a", uid="1", **more):
    return ServerPod(name=name, uid=uid, **{"images": {"main": "sha256:1"}, "ready": True} | more)


def seen(*pods, problem="", **about):
    place = {"server": "service/llm", "context": "c", "namespace": "n", "address": "pods", "endpoints": []}
    return ServerPods.model_validate(place | {"pods": list(pods), "about": about, "problem": problem})


@check_table(
    "before, after, told",
    [
        (seen(pod()), seen(pod()), []),
        (seen(pod()), seen(pod(restarts=2)), ["a container of a was started again (2 times so far)"]),
        (seen(pod()), seen(pod(uid="2")), ["the pod a was replaced by another of its name"]),
        (seen(pod()), seen(pod("b", "2")), ["the pod a is gone", "the pod b is new"]),
        (seen(pod()), seen(pod(ready=False)), ["the pod a is no longer ready"]),
        (seen(pod(ready=False)), seen(pod()), ["the pod a is ready"]),
        (seen(pod()), seen(pod(images={"main": "sha256:2"})), ["the pod a has another image"]),
        (seen(pod(images={}, ready=False)), seen(pod()), ["the pod a is ready"]),
        (seen(pod(images={"main": ""}, ready=False)), seen(pod()), ["the pod a is ready"]),
        (seen(pod()), seen(problem="gone"), ["gone", "the pod a is gone"]),
        (seen(generation=1), seen(generation=2), ["its generation was 1, and is 2"]),
    ],
)
def test_changes_behind_a_server_are_described(before, after, told):
    assert list(differences(before, after)) == told
