"""Servers that already exist on Kubernetes, and the pods behind them, in `pods/NAME.json` of a run.

The orchestrator of the run updates the file, and its trials read it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from benchhouse.schema.model import Model, empty_list

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAMED = re.compile(
    rf"(?P<kind>service|inferenceservice|inferencepool)/(?P<name>{_LABEL})(?:\.(?P<namespace>{_LABEL}))?"
    rf"(?::(?P<port>\d{{1,5}}|{_LABEL}))?(?P<path>/\S*)?"
)
MOST_CHANGES = 200


@dataclass(frozen=True)
class NamedServer:
    """The parts of `service/NAME.NAMESPACE:PORT/PATH`."""

    kind: Literal["service", "inferenceservice", "inferencepool"]
    name: str
    namespace: str = ""
    port: str = ""
    """Number or name; only a Service has several."""
    path: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def named_server(text: str) -> NamedServer:
    match = _NAMED.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} names nothing on Kubernetes: expected service/NAME, inferenceservice/NAME or "
            "inferencepool/NAME, then .NAMESPACE where it is another, :PORT of a Service that has several, and /PATH"
        )
    server = NamedServer(**{key: value or "" for key, value in match.groupdict().items()})  # type: ignore[arg-type]
    if server.port and server.kind != "service":
        raise ValueError(f"{text!r}: only a service is asked for a port; an {server.kind} says its address itself")
    return server


def _check(text: str) -> str:
    named_server(text)
    return text


KubernetesServer = Annotated[str, AfterValidator(_check)]


class ServerPod(Model):
    """A pod behind a server, as the cluster describes it."""

    name: str
    uid: str
    node: str = ""
    images: dict[str, str] = Field(description="Of each container: the id of its image, as the node reports it.")
    started: str = Field("", description="When its containers had begun, the last of them; by the node's clock.")
    restarts: int = 0
    ready: bool = False
    part: str = Field("", description="KServe: predictor, transformer or explainer.")
    revision: str = Field("", description="Knative's, where it is one of its pods.")


class PodChange(Model):
    """A change behind a server."""

    look: int = Field(description="Number of the look that found it.")
    at: str
    message: str


class ServerPods(Model):
    """pods/NAME.json: the address of a server that already existed, and the pods behind it."""

    schema_version: Literal[1] = 1
    look: int = Field(0, description="Counts the looks of the orchestrator; a larger one is a later one.")
    looked: str = ""
    server: str = Field(description="Kind and name.")
    context: str = Field(description="Of the kubeconfig.")
    namespace: str
    address: Literal["endpoint", "name", "load balancer", "pods", "status", "gateway"] = Field(
        description="Where the endpoints come from: the scenario, the name of the Service, its load balancer, the "
        "addresses of its pods, the status of an InferenceService, the Gateway of an InferencePool."
    )
    endpoints: list[str]
    pods: list[ServerPod]
    about: dict[str, Any] = Field(default_factory=dict, description="What else its object says of it.")
    problem: str = Field("", description="Why nothing can be measured there.")
    changes: list[PodChange] = Field(default_factory=empty_list, description="Since the run began; the last ones.")


def differences(before: ServerPods, after: ServerPods) -> Iterator[str]:
    """Yield the changes of a server between two observations, in words."""
    if after.problem and after.problem != before.problem:
        yield after.problem
    yield from _of_pods(before.pods, after.pods)
    for key in sorted({*before.about, *after.about}):
        if (old := before.about.get(key)) != (new := after.about.get(key)):
            yield f"its {key} was {old}, and is {new}"


def _of_pods(before: Sequence[ServerPod], after: Sequence[ServerPod]) -> Iterator[str]:
    old, new = {pod.uid: pod for pod in before}, {pod.uid: pod for pod in after}
    names = {pod.name for pod in before if pod.uid not in new}
    for uid, pod in old.items():
        if uid not in new and pod.name not in {other.name for other in after}:
            yield f"the pod {pod.name} is gone"
    for uid, pod in new.items():
        if uid not in old:
            yield f"the pod {pod.name} {'was replaced by another of its name' if pod.name in names else 'is new'}"
        elif pod.restarts > old[uid].restarts:
            yield f"a container of {pod.name} was started again ({pod.restarts} times so far)"
        elif any(image and pod.images.get(name) != image for name, image in old[uid].images.items()):
            yield f"the pod {pod.name} has another image"
        elif pod.ready != old[uid].ready:
            yield f"the pod {pod.name} {'is ready' if pod.ready else 'is no longer ready'}"
