"""Settings for Kubernetes, in site profiles and scenarios."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from benchhouse.schema.clusters import AbsolutePath, Patience
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Bytes, Seconds

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def _matches(pattern: re.Pattern[str], kind: str) -> Any:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"{text!r} is no {kind}")
        return text

    return AfterValidator(check)


ObjectName = Annotated[
    str, _matches(re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"), "name of a Kubernetes object: a-z, 0-9, - and .")
]
Namespace = Annotated[str, _matches(_LABEL, "namespace: at most 63 of a-z, 0-9 and -")]
LabelKey = Annotated[str, _matches(_KEY, "key of a label, such as pool or example.com/pool")]
LabelValue = Annotated[str, _matches(_VALUE, "value of a label: at most 63 letters, digits, - _ and .")]


class Volume(Model, strict=True):
    """A volume that all pods of a run and this machine share; workspaces are in it."""

    claim: ObjectName = Field(description="PersistentVolumeClaim, in the namespace.")
    path: AbsolutePath = Field(
        description="Where this machine has the volume's root; pods see it under the same name, so paths mean the same."
    )


class Toleration(Model, strict=True):
    """A taint that the pods tolerate."""

    key: LabelKey | None = None
    operator: Literal["Equal", "Exists"] = "Equal"
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class KubernetesSite(Model, strict=True):
    """A Kubernetes cluster, and how pods are made there."""

    context: str | None = Field(None, description="Of the kubeconfig; by default its current one.")
    namespace: Namespace | None = Field(None, description="By default the context's.")
    image: str | None = Field(None, description="Image of the pods, pinned: registry/name@sha256:...")
    python: str = Field("python3", min_length=1, description="Interpreter inside of the image, 3.11 or newer.")
    code: Literal["image", "volume"] = Field(
        "image", description="Where benchhouse comes from: the image has it; or a folder of the volume, made once."
    )
    volume: Volume | None = Field(None, description="What pods and this machine share; without it, `bucket`.")
    bucket: str | None = Field(
        None, pattern=r"^s3://\S+$", description="s3://BUCKET/PREFIX that carries orders and evidence without a volume."
    )
    bucket_secret: ObjectName | None = Field(None, description="Secret with the bucket's AWS_* variables, by name.")
    service_account: ObjectName | None = Field(None, description="Account of the pods; by default the namespace's.")
    pull_secrets: tuple[ObjectName, ...] = Field(
        (), strict=False, description="Secrets of private registries, by name."
    )
    secrets: tuple[ObjectName, ...] = Field(
        (), strict=False, description="Secrets whose keys become variables of the pods, by name."
    )
    queue: ObjectName | None = Field(None, description="LocalQueue of Kueue that admits the run's pods.")
    restricted: bool = Field(
        False,
        description="Pods as the Pod Security Standard `restricted` wants them, on a read-only root with a /tmp; "
        "the image must name a user that is not root, unless `bench` itself runs as one.",
    )
    priority_class: ObjectName | None = Field(None, description="PriorityClass of the pods.")
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, description="Labels that nodes must have.")
    tolerations: tuple[Toleration, ...] = Field((), strict=False, description="Taints that pods put up with.")
    spread: LabelKey | None = Field(None, description="Spread pods over the values of this node label.")
    gpu_resource: LabelKey = Field("nvidia.com/gpu", description="What a GPU is called: also nvidia.com/mig-1g.5gb.")
    runtime_class: ObjectName | None = Field(None, description="RuntimeClass of the pods, such as nvidia.")
    shm: Bytes | None = Field(None, description="Size of /dev/shm; counts as memory of the pod.")
    memory: Bytes | None = Field(None, description="Memory of a pod whose trial asks for none.")
    time: Seconds = Field(86400.0, gt=0, description="Longest life of a pod; trials of several pods are cut by it.")
    keep: Seconds = Field(600.0, ge=0, description="How long finished Jobs stay, for a look with kubectl.")
    names: bool = Field(
        False, description="Whether pods resolve names of Services: then servers have one; else the address of a pod."
    )
    autoscaled: bool = Field(
        False, description="Nodes come when pods wait for them: a trial that no node of now can hold is not refused."
    )
    patience: Patience = None


class KubernetesSettings(KubernetesSite):
    """How trials run on Kubernetes. It does not change what they measure, so it is not part of any digest."""


class NamespaceRequest(Model, strict=True):
    """The setup of a namespace for a team: an account with the fewest rights, limits, and a volume."""

    namespace: Namespace
    service_account: ObjectName = Field("bench", description="ServiceAccount that runs are started with.")
    users: tuple[str, ...] = Field((), strict=False, description="Users of the cluster that get the same rights.")
    claim: ObjectName = Field("bench", description="PersistentVolumeClaim of the evidence.")
    size: Bytes = Field(100 * 2**30, gt=0, description="Size of the volume.")
    storage_class: ObjectName | None = Field(None, description="By default the cluster's.")
    cpus: int | None = Field(None, ge=1, description="Cores of all pods together.")
    memory: Bytes | None = Field(None, gt=0, description="Memory of all pods together.")
    gpus: int | None = Field(None, ge=0, description="GPUs of all pods together.")
    gpu_resource: LabelKey = "nvidia.com/gpu"
    egress: bool = Field(True, description="Whether pods reach anything outside of the namespace.")
    nodes: bool = Field(False, description="Whether the account may see nodes, priority and runtime classes.")
    servers: bool = Field(False, description="Whether the account may start servers from images of their own.")
    ray: bool = Field(False, description="Whether the account may hand whole runs to KubeRay.")
    schedules: bool = Field(False, description="Whether the account may keep schedules as CronJobs.")
    endpoints: bool = Field(False, description="Whether the account may look up servers that are already there.")
