"""Definitions of InferenceServices, InferencePools and Gateways, from the fields that their projects publish.

The names and kinds of KServe's v1beta1 types, of the Gateway API and of its Inference Extension (v1), as far as an
address, the pods behind it and its state are told by them. Their controllers are not here: tests write the status.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from laboratory import wait_until
from services.kubernetes_cluster import KubernetesCluster

Schema = dict[str, Any]
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def fields(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def several(item: Schema) -> Schema:
    return {"type": "array", "items": item}


_CONDITIONS = several(fields(type=TEXT, status=TEXT, reason=TEXT, message=TEXT, lastTransitionTime=TEXT))
_REFERENCE = fields(group=TEXT, kind=TEXT, name=TEXT, namespace=TEXT)
_PORT = fields(number=WHOLE)
_ADDRESS = fields(url=TEXT)
_TRAFFIC = fields(revisionName=TEXT, percent=WHOLE, latestRevision={"type": "boolean"}, tag=TEXT, url=TEXT)
_MODEL = fields(modelFormat=fields(name=TEXT, version=TEXT), runtime=TEXT, storageUri=TEXT, protocolVersion=TEXT)
_COMPONENT = fields(
    latestReadyRevision=TEXT, latestCreatedRevision=TEXT, latestRolledoutRevision=TEXT, url=TEXT, restUrl=TEXT,
    address=_ADDRESS, traffic=several(_TRAFFIC),
)  # fmt: skip
DEFINITIONS = {
    ("serving.kserve.io", "v1beta1", "InferenceService"): fields(
        spec=fields(predictor=fields(minReplicas=WHOLE, maxReplicas=WHOLE, model=_MODEL)),
        status=fields(
            url=TEXT, address=_ADDRESS, conditions=_CONDITIONS, observedGeneration=WHOLE, deploymentMode=TEXT,
            servingRuntimeName=TEXT, clusterServingRuntimeName=TEXT,
            components={"type": "object", "additionalProperties": _COMPONENT},
            modelStatus=fields(transitionStatus=TEXT),
        ),
    ),
    ("inference.networking.k8s.io", "v1", "InferencePool"): fields(
        spec=fields(
            selector=fields(matchLabels={"type": "object", "additionalProperties": TEXT}),
            targetPorts=several(_PORT),
            endpointPickerRef=fields(group=TEXT, kind=TEXT, name=TEXT, port=_PORT, failureMode=TEXT),
        ),
        status=fields(parents=several(fields(conditions=_CONDITIONS, controllerName=TEXT, parentRef=_REFERENCE))),
    ),
    ("gateway.networking.k8s.io", "v1", "Gateway"): fields(
        spec=fields(
            gatewayClassName=TEXT, listeners=several(fields(name=TEXT, hostname=TEXT, port=WHOLE, protocol=TEXT))
        ),
        status=fields(addresses=several(fields(type=TEXT, value=TEXT)), conditions=_CONDITIONS),
    ),
}  # fmt: skip


def _definition(group: str, version: str, kind: str, schema: Schema) -> dict[str, Any]:
    names = {"kind": kind, "listKind": f"{kind}List", "plural": f"{kind.lower()}s", "singular": kind.lower()}
    served = {
        "name": version, "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    # Groups of the project itself are refused by its API server without this word.
    approved = {"api-approved.kubernetes.io": "unapproved, as fields of tests"} if group.endswith("k8s.io") else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}", "annotations": approved},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


@pytest.fixture(scope="module")
def inference_crds(kubernetes_cluster: KubernetesCluster) -> Iterator[None]:
    items = [_definition(*names, schema) for names, schema in DEFINITIONS.items()]
    names = [item["metadata"]["name"] for item in items]
    kubernetes_cluster.kubectl(
        "apply", "--filename", "-", document={"apiVersion": "v1", "kind": "List", "items": items}
    )
    kubernetes_cluster.kubectl("wait", "--for", "condition=established", "--timeout", "60s", "crd", *names)
    wait_until(lambda: _are_served(kubernetes_cluster, names), "the API server to serve them")
    yield
    kubernetes_cluster.kubectl("delete", "crd", *names, "--wait=false")


def _are_served(cluster: KubernetesCluster, names: list[str]) -> bool:
    known = cluster.kubectl("api-resources", "--output", "name").split()
    return set(names) <= set(known)
