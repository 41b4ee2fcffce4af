"""Find existing servers on Kubernetes: from a name to an address, and to the pods behind it.

A Service and an InferencePool select their pods by labels; KServe labels the pods of an InferenceService.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from benchhouse.http.kubernetes import KubeClient, KubernetesRefused, Object, path_of, selector
from benchhouse.schema.errors import BenchError
from benchhouse.schema.server_pods import NamedServer, ServerPod, ServerPods

_KSERVE = "serving.kserve.io"
_APIS = {
    "service": "v1",
    "inferenceservice": f"{_KSERVE}/v1beta1",
    "inferencepool": "inference.networking.k8s.io/v1",
    "gateway": "gateway.networking.k8s.io/v1",
}
_OVER = ("Succeeded", "Failed")
Address = Literal["endpoint", "name", "load balancer", "pods", "status", "gateway"]


class ServerLookup:
    """Finds one server, repeatedly if needed."""

    def __init__(self, client: KubeClient, server: NamedServer, namespace: str, endpoint: str | None = None) -> None:
        """Create the lookup. `namespace` is the default of the server's; `endpoint` is the scenario's own, or None."""
        self._client, self.server, self._endpoint = client, server, endpoint
        self.namespace = server.namespace or namespace
        self._labels: Mapping[str, str] = {}

    def find(self, *, inside: bool, names: bool) -> ServerPods:
        """Return the server's address, as seen from inside or outside the cluster's network, and its pods.

        `names` states whether names of Services can be resolved there. Raise BenchError if there is no server, or if
        this account may not look it up.
        """
        found = self._object(self.server.kind, self.server.name, self.namespace)
        self._labels = self._selector(found)
        pods = self._list()
        ready = [pod for pod in pods if _is_ready(pod)]
        about = _about(self.server.kind, found)
        problem, endpoints = "", []
        address: Address = "endpoint"
        if not ready:
            problem = self._no_pod(pods, found)
        elif self._endpoint is not None:
            endpoints = [self._endpoint]
        elif self.server.kind == "service":
            address, endpoints = self._of_service(found, ready, inside=inside, names=names)
        elif self.server.kind == "inferenceservice":
            address, endpoints = self._of_inference_service(found, ready, inside=inside, names=names)
        else:
            address, endpoints = "gateway", [self._of_gateway(found)]
        return ServerPods(
            server=str(self.server),
            context=self._client.access.context,
            namespace=self.namespace,
            address=address,
            endpoints=[url if self._endpoint else url.rstrip("/") + self.server.path for url in endpoints],
            pods=[_described(pod) for pod in pods],
            about=about,
            problem=problem,
        )

    def pods(self) -> list[ServerPod]:
        """Return the pods that are behind the server now, with one request."""
        return [_described(pod) for pod in self._list()]

    def _list(self) -> list[Object]:
        path = path_of("v1", self.namespace, "pods")
        try:
            items: list[Object] = self._client.get(path, labelSelector=selector(self._labels))["items"]
        except KubernetesRefused as error:
            raise self._explained(error) from error
        there = [pod for pod in items if pod["status"].get("phase") not in _OVER]
        return sorted(there, key=lambda pod: str(pod["metadata"]["name"]))

    def _object(self, kind: str, name: str, namespace: str) -> Object:
        try:
            return self._client.get(path_of(_APIS[kind], namespace, f"{kind}s", name))
        except KubernetesRefused as error:
            if error.status != 404:
                raise self._explained(error) from error
            context = self._client.access.context
            if error.reason != "NotFound":  # an HTTP page, not an API object
                hint = "look: kubectl api-resources; another cluster is chosen by kubernetes: {context: ...}"
                raise BenchError(f"the cluster (context {context}) has no {_APIS[kind]}: no {kind}s", hint) from error
            hint = (
                f"look: kubectl get {kind}s --namespace {namespace}; in another namespace it is {kind}/NAME.NAMESPACE"
            )
            raise BenchError(
                f"there is no {kind}/{name} in the namespace {namespace} (context {context})", hint
            ) from error

    def _explained(self, error: KubernetesRefused) -> BenchError:
        if error.status != 403:
            return error
        hint = f"bench site render --endpoints makes the Role for the namespace {self.namespace}, for an admin"
        return BenchError(f"what is behind {self.server} can't be looked up. {error.message}", hint)

    # -- which pods ------------------------------------------------------------------------------------------------

    def _selector(self, found: Object) -> Mapping[str, str]:
        if self.server.kind == "inferenceservice":
            return {f"{_KSERVE}/inferenceservice": self.server.name}
        labels = found["spec"].get("selector") or {}
        labels = labels.get("matchLabels") if self.server.kind == "inferencepool" else labels
        if not labels:
            hint = "write endpoint: with its address in place of kubernetes:"
            raise BenchError(f"{self.server} selects no pods by labels, so nobody knows what is behind it", hint)
        return dict(labels)

    def _no_pod(self, pods: Sequence[Object], found: Object) -> str:
        if pods:
            return f"{self.server} has no ready pod: {'; '.join(map(_why_not, pods[:3]))}"
        words = f"{self.server} has no pod with the labels {selector(self._labels)}"
        if self.server.kind == "inferenceservice":
            words += f"{_not_ready(found)}; where it is scaled to zero, its start would be measured (minReplicas: 1)"
        return words

    # -- which address ---------------------------------------------------------------------------------------------

    def _of_service(
        self, found: Object, ready: Sequence[Object], *, inside: bool, names: bool
    ) -> tuple[Address, list[str]]:
        port = self._port(found["spec"].get("ports") or [])
        words = (port.get("appProtocol"), port.get("name"), str(port["port"]))
        scheme = "https" if {"https", "443"} & set(words) else "http"
        if inside and names:
            return "name", [f"{scheme}://{self.server.name}.{self.namespace}.svc:{port['port']}"]
        entrances = ((found.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
        if entrances and not inside:
            host = entrances[0].get("ip") or entrances[0]["hostname"]
            return "load balancer", [f"{scheme}://{_bracketed(host)}:{port['port']}"]
        target = port.get("targetPort") or port["port"]
        return "pods", [f"{scheme}://{_bracketed(pod['status']['podIP'])}:{_number(pod, target)}" for pod in ready]

    def _port(self, ports: Sequence[Object]) -> Object:
        asked = self.server.port
        matches = [port for port in ports if asked in (str(port["port"]), port.get("name"))] if asked else ports
        if len(matches) == 1:
            return matches[0]
        known = ", ".join(" ".join(map(str, filter(None, (port["port"], port.get("name"))))) for port in ports)
        hint = f"write {self.server}:PORT with one of them"
        message = f"{self.server} has no port {asked}" if asked else f"{self.server} has not one port"
        raise BenchError(f"{message}: it has {known or 'none'}", hint)

    def _of_inference_service(
        self, found: Object, ready: Sequence[Object], *, inside: bool, names: bool
    ) -> tuple[Address, list[str]]:
        if inside and not names:
            predictors = [pod for pod in ready if _part(pod) in ("", "predictor")]
            return "pods", [f"http://{_bracketed(pod['status']['podIP'])}:{_first_port(pod)}" for pod in predictors]
        status = found.get("status") or {}
        url = (status.get("address") or {}).get("url") if inside else status.get("url")
        if not url:
            hint = f"kubectl describe {self.server} --namespace {self.namespace}; or write endpoint: beside kubernetes:"
            raise BenchError(f"{self.server} says no address yet{_not_ready(found)}", hint)
        return "status", [str(url)]

    def _of_gateway(self, found: Object) -> str:
        """Return the address of a Gateway that is a parent of an InferencePool, which has no address of its own."""
        hint = f"write endpoint: with the address that leads to {self.server} beside kubernetes:"
        for parent in _parents(found):
            gateway = self._object("gateway", parent["name"], parent.get("namespace") or self.namespace)
            places = (gateway.get("status") or {}).get("addresses") or []
            for listener in gateway["spec"].get("listeners") or ():
                if places and listener.get("protocol") in ("HTTP", "HTTPS"):
                    host = listener.get("hostname") or places[0]["value"]
                    return f"{listener['protocol'].lower()}://{_bracketed(host)}:{listener['port']}"
            raise BenchError(f"the Gateway {parent['name']} of {self.server} has no HTTP address yet", hint)
        raise BenchError(f"no Gateway leads to {self.server}", hint)


# -- contents of objects --------------------------------------------------------------------------------------------


def _about(kind: str, found: Object) -> dict[str, Any]:
    """Return the facts that distinguish states of a server, in addition to its pods."""
    spec, status = found["spec"], found.get("status") or {}
    if kind == "service":
        return {"type": spec.get("type", "ClusterIP")}
    facts: dict[str, Any] = {"generation": found["metadata"].get("generation")}
    if kind == "inferencepool":
        picker, ports = spec.get("endpointPickerRef") or {}, [port["number"] for port in spec.get("targetPorts") or ()]
        gateways = [f"{parent.get('namespace', '')}/{parent['name']}".lstrip("/") for parent in _parents(found)]
        return facts | {"endpoint_picker": picker.get("name"), "target_ports": ports, "gateways": gateways}
    predictor = spec.get("predictor") or {}
    model, part = predictor.get("model") or {}, (status.get("components") or {}).get("predictor") or {}
    runtime = status.get("servingRuntimeName") or status.get("clusterServingRuntimeName") or model.get("runtime")
    facts |= {
        "runtime": runtime,
        "model_format": (model.get("modelFormat") or {}).get("name"),
        "model": model.get("storageUri"),
        "deployment_mode": status.get("deploymentMode"),
        "revision": part.get("latestReadyRevision"),
        "traffic": part.get("traffic"),
        "transition": (status.get("modelStatus") or {}).get("transitionStatus"),
    }
    return {key: value for key, value in facts.items() if value is not None}


def _parents(pool: Object) -> Iterator[Object]:
    for parent in (pool.get("status") or {}).get("parents") or ():
        reference = parent["parentRef"]
        if reference.get("kind", "Gateway") == "Gateway":  # `Status` means that there is no parent
            yield reference


def _not_ready(found: Object) -> str:
    conditions = (found.get("status") or {}).get("conditions") or ()
    words = [f"{item['type']}: {item.get('message') or item.get('reason', '')}" for item in conditions
             if item["status"] != "True"]  # fmt: skip
    return f" ({'; '.join(words)[:300]})" if words else ""


def _described(pod: Object) -> ServerPod:
    metadata, statuses = pod["metadata"], pod["status"].get("containerStatuses") or ()
    begun = [((item.get("state") or {}).get("running") or {}).get("startedAt", "") for item in statuses]
    labels = metadata.get("labels") or {}
    return ServerPod(
        name=metadata["name"],
        uid=metadata["uid"],
        node=pod["spec"].get("nodeName") or "",
        images={item["name"]: item.get("imageID") or "" for item in statuses},
        started=max(begun, default=""),
        restarts=sum(item.get("restartCount", 0) for item in statuses),
        ready=_is_ready(pod),
        part=_part(pod),
        revision=labels.get("serving.knative.dev/revision", ""),
    )


def _part(pod: Object) -> str:
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get("component", "")) if f"{_KSERVE}/inferenceservice" in labels else ""


def _is_ready(pod: Object) -> bool:
    """Return whether a pod is ready as an endpoint of a Service; a terminating one gets no new connections."""
    conditions = pod["status"].get("conditions") or ()
    is_ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


def _why_not(pod: Object) -> str:
    name, status = pod["metadata"]["name"], pod["status"]
    if pod["metadata"].get("deletionTimestamp"):
        return f"{name} is being deleted"
    for item in status.get("containerStatuses") or ():
        state = item.get("state") or {}
        if reason := (state.get("waiting") or state.get("terminated") or {}).get("reason"):
            return f"{name} is not ready ({item['name']}: {reason})"
    for item in status.get("conditions") or ():
        if item.get("reason") == "Unschedulable":
            return f"{name} waits for a node ({item.get('message', '')})"
    return f"{name} is not ready ({status.get('phase', 'unknown')})"


def _number(pod: Object, port: int | str) -> int:
    """Return the number of a port, which may be the name of a port of the pod."""
    if isinstance(port, int):
        return port
    for container in pod["spec"]["containers"]:
        for item in container.get("ports") or ():
            if item.get("name") == port:
                return int(item["containerPort"])
    raise BenchError(f"the pod {pod['metadata']['name']} has no port {port!r}", "correct targetPort of the Service")


def _first_port(pod: Object) -> int:
    """Return the first port of a pod; KServe's own default is 8080."""
    ports = [item["containerPort"] for container in pod["spec"]["containers"] for item in container.get("ports") or ()]
    return int(ports[0]) if ports else 8080


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
