"""The definition of RayJobs (ray.io/v1), from the fields that KubeRay publishes, around a server's own pod template.

KubeRay ships it generated from its types, a megabyte of mostly pod templates. Here are the names and kinds of those
types (github.com/ray-project/kuberay, ray-operator/apis/ray/v1: rayjob_types.go, raycluster_types.go), and the template
is what the API server that admits it says a pod is. Its operator is not here: nothing runs such a job.
"""

from typing import Any

Schema = dict[str, Any]
TEXT, WHOLE, NUMBER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
_POD = "io.k8s.api.core.v1.PodTemplateSpec"
_AMOUNTS = "io.k8s.api.core.v1.ResourceRequirements"
_META = {"labels": TEXTS, "annotations": TEXTS, "finalizers": {"type": "array", "items": TEXT}, "name": TEXT}


def fields(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


def spec_schema(definitions: dict[str, Schema]) -> Schema:
    """Of a RayJob's `spec`; `definitions` as a server publishes them at /openapi/v2."""
    pod = inlined(definitions, definitions[_POD])
    pod["properties"]["metadata"] = fields(**_META, namespace=TEXT)
    autoscaler = fields(
        idleTimeoutSeconds=WHOLE,
        image=TEXT,
        imagePullPolicy=TEXT,
        resources=inlined(definitions, definitions[_AMOUNTS]),
        upscalingMode={"type": "string", "enum": ["Default", "Aggressive", "Conservative"]},
    )
    head = fields(
        ("rayStartParams", "template"), enableIngress=FLAG, rayStartParams=TEXTS, serviceType=TEXT, template=pod
    )
    workers = fields(
        ("groupName", "maxReplicas", "minReplicas", "rayStartParams", "template"),
        groupName=TEXT,
        replicas=WHOLE,
        minReplicas=WHOLE,
        maxReplicas=WHOLE,
        numOfHosts=WHOLE,
        rayStartParams=TEXTS,
        scaleStrategy=fields(workersToDelete={"type": "array", "items": TEXT}),
        template=pod,
    )
    cluster = fields(
        ("headGroupSpec",),
        headGroupSpec=head,
        workerGroupSpecs={"type": "array", "items": workers},
        rayVersion=TEXT,
        enableInTreeAutoscaling=FLAG,
        autoscalerOptions=autoscaler,
        headServiceAnnotations=TEXTS,
        suspend=FLAG,
    )
    return fields(
        activeDeadlineSeconds=WHOLE,
        backoffLimit=WHOLE,
        rayClusterSpec=cluster,
        submitterPodTemplate=pod,
        metadata=TEXTS,
        clusterSelector=TEXTS,
        submitterConfig=fields(backoffLimit=WHOLE),
        managedBy=TEXT,
        entrypoint=TEXT,
        runtimeEnvYAML=TEXT,
        jobId=TEXT,
        submissionMode=TEXT,
        entrypointResources=TEXT,
        entrypointNumCpus=NUMBER,
        entrypointNumGpus=NUMBER,
        ttlSecondsAfterFinished=WHOLE,
        shutdownAfterJobFinishes=FLAG,
        suspend=FLAG,
    )


def definition(definitions: dict[str, Schema]) -> Schema:
    status = fields(jobId=TEXT, jobStatus=TEXT, jobDeploymentStatus=TEXT, reason=TEXT, message=TEXT)
    whole = fields(spec=spec_schema(definitions), status=status)
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": whole}}
    names = {"kind": "RayJob", "listKind": "RayJobList", "plural": "rayjobs", "singular": "rayjob"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "rayjobs.ray.io"},
        "spec": {
            "group": "ray.io",
            "names": names,
            "scope": "Namespaced",
            "versions": [version | {"subresources": {"status": {}}}],
        },
    }


def inlined(definitions: dict[str, Schema], schema: Schema) -> Schema:
    """Without references and words, in the form that a definition may have."""
    if reference := schema.get("$ref"):
        name = reference.removeprefix("#/definitions/")
        if name.endswith(("resource.Quantity", "util.intstr.IntOrString")):
            return {"x-kubernetes-int-or-string": True}
        return inlined(definitions, definitions[name])
    made = {key: schema[key] for key in ("type", "required") if key in schema}
    if "properties" in schema:
        made["properties"] = {key: inlined(definitions, value) for key, value in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in schema:
            made[key] = inlined(definitions, schema[key])
    return made or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def closed(schema: Schema) -> Schema:
    """For jsonschema: what is not named is refused, as the server would drop it."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = dict(schema)
    if "properties" in made:
        made["properties"] = {key: closed(value) for key, value in made["properties"].items()}
        made["additionalProperties"] = False
    elif isinstance(made.get("additionalProperties"), dict):
        made["additionalProperties"] = closed(made["additionalProperties"])
    if "items" in made:
        made["items"] = closed(made["items"])
    return made
