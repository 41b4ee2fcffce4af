"""The parts of each provider: its files, and the commands that apply and remove them, as argument lists."""

import json
import os
import pwd
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.schema.errors import BenchError
from benchhouse.schema.infra import InfraManifest, InfraRequest

TEMPLATES = Path(__file__).parent / "templates"
DISK_GB = 100
NOT_APPLIED = frozenset({".gitignore", "site.yaml", "prices.yaml"})
"""Files for people and for `bench`: editing them changes nothing that a provider creates."""
_NAMESPACE = "bench"
_KEYS = "kubernetes.bucket_secret: name a Secret of the namespace with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_PLANS = ("create.tfplan", "destroy.tfplan")
_LONGEST_SOCKET = 107
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._+-]+")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9._-]+")
Command = tuple[str, ...]


@dataclass(frozen=True)
class ProvisioningCommands:
    """The commands that create and remove the infrastructure. `{tofu}` is the installed OpenTofu or Terraform."""

    create: tuple[Command, ...]
    destroy: tuple[Command, ...]
    read_too: tuple[str, ...] = ()
    """Suffixes of other files that these programs would read too."""
    makes: tuple[str, ...] = ()
    """Files that these programs leave in the folder."""


def steps(request: InfraRequest, folder: Path) -> ProvisioningCommands:
    """Return the commands of a request."""
    name, at = request.name, str(folder)
    kubectl = ("kubectl", "--context", _context(request), "apply", "--filename")
    if request.provider == "kind":
        create = ("kind", "create", "cluster", "--name", name, "--config", f"{at}/kind.yaml", "--wait", "120s")
        return ProvisioningCommands(
            (create, (*kubectl, f"{at}/kubernetes.yaml")), (("kind", "delete", "cluster", "--name", name),)
        )
    if request.provider == "slurm":
        script = ("bash", f"{at}/cluster.sh")
        return ProvisioningCommands(((*script, "start"),), ((*script, "stop"),), makes=("cluster",))
    tofu = ("{tofu}", f"-chdir={at}")
    manifests = ["kubernetes.yaml", "autoscaler.yaml", *(["nvidia.yaml"] if request.gpu_nodes.max else [])]
    return ProvisioningCommands(
        (
            (*tofu, "init", "-input=false"),
            (*tofu, "plan", "-input=false", f"-out={_PLANS[0]}"),
            (*tofu, "apply", "-input=false", _PLANS[0]),
            ("aws", "eks", "update-kubeconfig", "--name", name, "--region", request.region, "--alias", name),
            *((*kubectl, f"{at}/{manifest}") for manifest in manifests),
        ),
        (
            (*tofu, "init", "-input=false"),
            (*tofu, "plan", "-input=false", "-destroy", f"-out={_PLANS[1]}"),
            (*tofu, "apply", "-input=false", _PLANS[1]),
        ),
        (".tf", ".tf.json", ".tofu", ".tofu.json", ".tfvars", ".tfvars.json"),
        (".terraform", ".terraform.lock.hcl", "terraform.tfstate", "terraform.tfstate.backup", *_PLANS),
    )


def _context(request: InfraRequest) -> str:
    return f"kind-{request.name}" if request.provider == "kind" else request.name


def render(manifest: InfraManifest, folder: Path, workspace: Path) -> dict[str, str]:
    """Return the content of every file by its name. The same request gives the same files."""
    make = {"aws": _aws, "kind": _kind, "slurm": _slurm}[manifest.request.provider]
    files = make(manifest, folder, workspace)
    if left := [name for name in steps(manifest.request, folder).makes if name != ".terraform.lock.hcl"]:
        files[".gitignore"] = "".join(f"{name}\n" for name in left)
    return files


def _aws(manifest: InfraManifest, folder: Path, workspace: Path) -> dict[str, str]:
    request, bucket = manifest.request, f"{manifest.request.name}-evidence-{manifest.suffix}"
    nodes = {"type": request.instance_type, **request.nodes.model_dump()}
    gpu_nodes = {"type": request.gpu_instance_type, **request.gpu_nodes.model_dump()}
    values = {"name": request.name, "region": request.region, "nodes": nodes, "gpu_nodes": gpu_nodes}
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted((TEMPLATES / "aws").glob("*.tf"))}
    files["terraform.tfvars.json"] = json.dumps(values | {"bucket": bucket, "disk_gb": DISK_GB}, indent=2) + "\n"
    files["kubernetes.yaml"] = _documents(_namespace(), _service_account())
    files["autoscaler.yaml"] = _filled("aws/autoscaler.yaml", {"name": request.name, "region": request.region})
    cluster: dict[str, Any] = {"bucket": f"s3://{bucket}/runs"}
    if request.gpu_nodes.max:
        files["nvidia.yaml"] = _filled("aws/nvidia.yaml", {})
        cluster["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    files["site.yaml"] = _kubernetes_site(request, f"EKS in {request.region}", cluster, _KEYS)
    return files


def _kind(manifest: InfraManifest, folder: Path, workspace: Path) -> dict[str, str]:
    request, path = manifest.request, str(workspace)
    mounts = {"extraMounts": [{"hostPath": path, "containerPath": path}]}
    nodes = [{"role": "control-plane"}, *({"role": "worker", **mounts} for _ in range(request.nodes.max))]
    config = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "name": request.name, "nodes": nodes}
    size = {"storage": "100Gi"}  # of a folder, where the size is not enforced
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{_NAMESPACE}-workspace"},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": _NAMESPACE, "name": "workspace"},
            "hostPath": {"path": path, "type": "Directory"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "workspace", "namespace": _NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": f"{_NAMESPACE}-workspace",
            "resources": {"requests": size},
        },
    }
    about = "# The workspace is a folder of every node, under the same path: pods and this machine share it.\n"
    return {
        "kind.yaml": about + dump_yaml(config),
        "kubernetes.yaml": _documents(_namespace(), _service_account(), volume, claim),
        "site.yaml": _kubernetes_site(
            request, "kind on this machine", {"volume": {"claim": "workspace", "path": path}}
        ),
    }


def _slurm(manifest: InfraManifest, folder: Path, workspace: Path) -> dict[str, str]:
    request, host, user = manifest.request, socket.gethostname(), pwd.getpwuid(os.geteuid()).pw_name
    if not _PLAIN_PATH.fullmatch(str(folder)):
        raise BenchError(
            f"slurm.conf can't hold the path {folder}", "give an --output of letters, digits and / . _ + - only"
        )
    if len(f"{folder}/cluster/run/munge.socket") > _LONGEST_SOCKET:
        raise BenchError(f"{folder} is too long a path: a socket in it can't be named", "give a shorter --output")
    if not (_PLAIN_WORD.fullmatch(host) and _PLAIN_WORD.fullmatch(user)):
        raise BenchError(f"slurm.conf can't hold the user {user!r} of the host {host!r}")
    count, port = request.nodes.max, 12000 + int(manifest.suffix, 16) % 400 * 20
    cpus = max((os.cpu_count() or 1) // count, 1)
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 * 9 // 10 // count
    cgroups = os.geteuid() == 0 and all(os.access(f"/sys/fs/cgroup/{name}", os.W_OK) for name in ("memory", "freezer"))
    values = {
        "count": count,
        "name": request.name,
        "host": host,
        "user": user,
        "folder": folder,
        "port": port,
        "tracking": "cgroup" if cgroups else "linuxproc",
        "task": "cgroup" if cgroups else "none",
        "memory_limit": "# memory is limited by cgroup.conf" if cgroups else "JobAcctGatherParams=OverMemoryKill",
    }
    names = [f"{request.name}-{number}" for number in range(1, count + 1)]
    lines = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port + number} CPUs={cpus} "
        f"RealMemory={memory_mb} State=UNKNOWN"
        for number, node in enumerate(names, 1)
    ]
    lines.append(f"PartitionName=main Nodes={','.join(names)} Default=YES MaxTime=2-0 DefaultTime=10 State=UP")
    partition = {"nodes": count, "cpus": cpus, "memory": f"{memory_mb}MiB", "max_time": "2d"}
    site = {
        "site": request.name,
        "description": f"Slurm on {host}; first  export SLURM_CONF={folder}/slurm.conf",
        "executor": "slurm",
        "slurm": {"partition": "main", "poll": "2s", "max_array": 1001, "partitions": {"main": partition}},
    }
    return {
        "slurm.conf": _filled("slurm/slurm.conf", values) + "\n".join(lines) + "\n",
        "cgroup.conf": _filled("slurm/cgroup.conf", {}),
        "cluster.sh": (TEMPLATES / "slurm/cluster.sh").read_text(encoding="utf-8"),
        "site.yaml": dump_yaml(site),
    }


def _namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}


def _service_account() -> dict[str, Any]:
    """Return the service account of the pods, without rights in the cluster and without a token."""
    metadata = {"name": _NAMESPACE, "namespace": _NAMESPACE}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": False}


def _documents(*objects: Mapping[str, Any]) -> str:
    return "---\n".join(map(dump_yaml, objects))


def _filled(template: str, values: Mapping[str, object]) -> str:
    return Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)


def _kubernetes_site(request: InfraRequest, place: str, cluster: Mapping[str, Any], *to_confirm: str) -> str:
    return dump_yaml(
        {
            "site": request.name,
            "description": f"{place}, written by `bench infra create`.",
            "executor": "kubernetes",
            "kubernetes": {
                "context": _context(request),
                "namespace": _NAMESPACE,
                "service_account": _NAMESPACE,
                **cluster,
            },
            "to_confirm": [
                "kubernetes.image: name the image of the pods, pinned: registry/name@sha256:...",
                *to_confirm,
            ],
        }
    )
