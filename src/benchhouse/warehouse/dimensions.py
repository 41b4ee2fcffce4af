"""Rows of the dimensions, from the evidence of a trial. A missing fact is null, and `unknown` states the reason."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from benchhouse.schema.digests import canonical_json, digest
from benchhouse.schema.service import mentioned
from benchhouse.schema.topology import Cluster, Topology
from benchhouse.schema.trial import Meta, TrialSpec
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.run_tables import CLUSTER_REGION_DIM, HARDWARE_TOPOLOGY_DIM, SOFTWARE_VERSION_DIM
from benchhouse.warehouse.table import Row

# The packages that decide performance, by the names of distributions; the whole list is in meta.json.
_FRAMEWORKS = ("torch", "jax", "tensorflow", "onnxruntime", "faiss-cpu", "faiss-gpu")
_MATTERS = (
    *_FRAMEWORKS, "vllm", "sglang", "tritonclient", "transformers", "numpy", "scipy", "pyarrow", "duckdb", "ray",
    "dask", "distributed", "pyspark", "chromadb", "pymilvus", "weaviate-client", "qdrant-client", "lancedb",
    "psycopg", "psycopg-binary", "psycopg2-binary", "psycopg2", "boto3", "triton",
)  # fmt: skip
_NOT_READ = "the evidence is older than the reading of topology"
_SITE_SILENT = "the site profile's `cluster` section does not say"
OWN_IDS = {
    SOFTWARE_VERSION_DIM.name: "software_version_id",
    HARDWARE_TOPOLOGY_DIM.name: "hardware_topology_id",
    CLUSTER_REGION_DIM.name: "cluster_region_id",
}
"""The dimension tables to which a trial refers by id, and the column with the id."""


def dimension_rows(spec: TrialSpec, meta: Meta) -> dict[str, Row]:
    """Return the dimension rows of a trial by table, without the columns that identify the trial."""
    rows = {
        SOFTWARE_VERSION_DIM.name: _software(spec, meta),
        HARDWARE_TOPOLOGY_DIM.name: _hardware(meta.topology, meta.hardware),
        CLUSTER_REGION_DIM.name: _cluster(spec, meta),
    }
    return {table: {OWN_IDS[table]: digest(row)[:16]} | row for table, row in rows.items()}


def explained(reasons: Mapping[str, str]) -> str | None:
    """Return the column `unknown`; None without reasons."""
    return canonical_json(dict(reasons)).decode() if reasons else None


def scheduler_path(spec: TrialSpec, meta: Meta) -> str:
    parts = (spec.executor, meta.partition or spec.partition, meta.slurm.get("qos") or spec.qos)
    return "/".join(str(part) for part in parts if part)


def _software(spec: TrialSpec, meta: Meta) -> Row:
    packages, mattering, nccl, framework = _installed(tuple(meta.packages.items()))
    topology = meta.topology
    server = spec.target.get("framework") or spec.service or None
    servers = _servers(spec, meta)
    measured = _measured_server(spec, servers)
    said = [str(text) for key in ("server_version", "server", "engine") if (text := meta.custom.get(key))]
    server_version = next((text for text in [*said, measured.get("version")] if text), None)
    no_gpu = topology.unknown.get("gpu_driver", "") if topology else _NOT_READ
    row: Row = {
        "image_digest": meta.container_digest,
        "kernel": topology.kernel if topology else meta.hardware.get("kernel"),
        "gpu_driver": topology.gpu_driver if topology else meta.drivers.get("nvidia"),
        "cuda": topology.cuda if topology else meta.drivers.get("cuda"),
        "nccl": nccl,
        "framework": ", ".join(framework) or None,
        "runtime": meta.ran_in(spec.runtime),
        "server": str(server) if server else None,
        "server_version": server_version,
        "server_image": measured.get("image"),
        "servers": _json(servers),
        "python": meta.python,
        "benchhouse": packages.get("benchhouse"),
        "package_lock_digest": meta.package_lock_digest,
        "packages": mattering,
    }
    why = {
        "image_digest": f"the runtime {spec.runtime.kind} is no container",
        "kernel": "the evidence does not say",
        "gpu_driver": no_gpu,
        "cuda": topology.unknown.get("cuda", "") if topology else _NOT_READ,
        "nccl": "no distribution nvidia-nccl-* is installed",
        "framework": f"none of {', '.join(_FRAMEWORKS)} is installed",
        "server": "the trial names no service",
        "server_version": "neither the server, its program nor the scenario (`artifacts: {servers: ...}`) says",
        "server_image": "no server of the trial runs in an image that is known",
        "servers": "the trial names no server",
        "benchhouse": "not among the installed distributions",
    }
    return row | {"unknown": explained(_gaps(row, why))}


def _servers(spec: TrialSpec, meta: Meta) -> dict[str, dict[str, str]]:
    """Return the facts of each server: from the recipe that started it, or from the scenario if the server already
    existed."""
    noted = meta.custom.get("services")
    started = noted if isinstance(noted, dict) else {}
    facts = {name: about for name, about in started.items() if isinstance(about, dict)}
    servers = {
        name: {key: str(about[key]) for key in ("recipe", "version", "image", "reference") if about.get(key)}
        for name, about in facts.items()
    }
    for about in servers.values():
        if reference := about.get("reference"):  # NAME:TAG@sha256:..., from which the image was pulled
            about.setdefault("version", reference.partition("@")[0])
    for name, text in (spec.artifacts.get("servers") or {}).items():
        image, _, image_digest = str(text).partition("@sha256:")
        servers[name] = {"version": image} | ({"image": image_digest} if image_digest else {}) | servers.get(name, {})
    return {name: about for name, about in servers.items() if about}


def _measured_server(spec: TrialSpec, servers: Mapping[str, dict[str, str]]) -> dict[str, str]:
    """Return the facts of the server that the target names, or of the only server; empty if there are several
    candidates."""
    named = [servers[name] for name in sorted(mentioned(spec.target)) if name in servers]
    return (named or list(servers.values()) if len(named or servers) == 1 else [{}])[0]


@lru_cache(maxsize=4)
def _installed(distributions: tuple[tuple[str, str], ...]) -> tuple[dict[str, str], str, str | None, list[str]]:
    """Return all packages, those that matter, NCCL's version, and the frameworks. There are hundreds of packages,
    mostly the same in all trials of a run."""
    packages = {name.lower(): version for name, version in distributions}
    nccl = next((version for name, version in packages.items() if name.startswith("nvidia-nccl")), None)
    framework = [f"{name} {packages[name]}" for name in _FRAMEWORKS if name in packages]
    mattering = {name: packages[name] for name in sorted(_MATTERS) if name in packages}
    return packages, canonical_json(mattering).decode(), nccl, framework


def _hardware(topology: Topology | None, hardware: Mapping[str, Any]) -> Row:
    if topology is None:
        return _old_hardware(hardware)
    cpu, gpus = topology.cpu, topology.gpus or []
    nics = [nic for nic in topology.nics if nic.driver]  # virtual devices come and go with containers
    row: Row = {
        "machine": topology.machine,
        "cpu_model": cpu.model,
        "cpu_sockets": cpu.sockets,
        "cpu_cores": cpu.cores,
        "cpu_threads": cpu.threads,
        "cpus_usable": cpu.usable,
        "cpu_quota": cpu.quota,
        "cpu_governor": cpu.governor,
        "numa_nodes": len(topology.numa) or None,
        "numa_layout": _json([{"cpus": node.cpus, "distances": node.distances} for node in topology.numa]),
        "memory_bytes": topology.memory_bytes,
        "memory_limit_bytes": topology.memory_limit_bytes,
        "gpu_model": "+".join(sorted({gpu.name for gpu in gpus if gpu.name})) or None,
        "gpu_count": None if topology.gpus is None else len(gpus),
        "gpu_memory_bytes": min((gpu.memory_bytes for gpu in gpus if gpu.memory_bytes), default=None),
        "pcie_layout": _json([
            {"width": gpu.pcie_width, "width_most": gpu.pcie_width_most, "generation_most": gpu.pcie_generation_most}
            for gpu in gpus
        ]),
        "nvlink_topology": _json([{"up": gpu.nvlinks, "peers": gpu.nvlink_peers} for gpu in gpus]),
        "gpu_nic_affinity": _json([
            {"numa": gpu.numa, "nics": [at for at, nic in enumerate(nics) if nic.numa == gpu.numa is not None]}
            for gpu in gpus
        ]),
        "nics": _json([nic.model_dump(exclude={"name"}) for nic in nics]),
        "storage_fabric": topology.filesystem,
    }  # fmt: skip
    no_gpu = topology.unknown.get("gpus", "the node has no GPU")
    why = dict.fromkeys(
        ("gpu_model", "gpu_count", "gpu_memory_bytes", "pcie_layout", "nvlink_topology", "gpu_nic_affinity"), no_gpu
    )
    why |= {
        "cpu_quota": "no cgroup limits it",
        "memory_limit_bytes": "no cgroup limits it",
        "nics": "no network device has a driver",
    } | topology.unknown
    gaps = _gaps(row, why)
    if any(nic.speed_mbps is None for nic in nics):
        gaps["nics.speed_mbps"] = "a device does not say its speed (down, or virtual)"
    return row | {"unknown": explained(gaps)}


def _old_hardware(hardware: Mapping[str, Any]) -> Row:
    """Return the row for evidence from before topology was read, which has a few of the facts under other names."""
    same = ("machine", "cpu_model", "cpus_usable", "cpu_governor", "numa_nodes", "memory_bytes")
    models = "+".join(sorted(set(hardware.get("gpus") or []))) or None
    known = {name: hardware.get(name) for name in same}
    known |= {"cpu_threads": hardware.get("cpus_online"), "gpu_model": models}
    own_columns = HARDWARE_TOPOLOGY_DIM.columns[5:-1]  # between those that every dimension has
    row = {column.name: known.get(column.name) for column in own_columns}
    return row | {"unknown": explained(_gaps(row, dict.fromkeys(row, _NOT_READ)))}


def _cluster(spec: TrialSpec, meta: Meta) -> Row:
    place = spec.cluster or Cluster()
    row: Row = {
        "cluster": place.name or meta.slurm.get("cluster"),
        "region": place.region,
        "zone": place.zone,
        "provider": place.provider,
        "scheduler": place.scheduler or spec.executor,
        "scheduler_path": scheduler_path(spec, meta),
        "node_pool": meta.partition or spec.partition or place.node_pool,
        "queue": meta.slurm.get("qos") or spec.qos,
        "resource_flavor": place.resource_flavor,
        "tenant_mode": place.tenant_mode,
    }
    silent = _SITE_SILENT if spec.cluster is not None else "the evidence is older than the site profile's `cluster`"
    why = dict.fromkeys(row, silent) | {"queue": "neither the job nor the scenario names a quality of service"}
    return row | {"unknown": explained(_gaps(row, why))}


def workload_rows(trials: Sequence[Row]) -> list[Row]:
    """Return one row per workload and case of these rows of trial_fact."""
    groups = grouped(trials, itemgetter("workload_spec_digest", "benchmark_case_id"))
    return [_workload_row(rows) for rows in groups.values()]


def manifests_digest(trials: Sequence[Row]) -> str:
    return digest(sorted(row["artifact_manifest_digest"] for row in trials))


def _workload_row(rows: Sequence[Row]) -> Row:
    first = rows[0]
    parameters = json.loads(first["parameters"])
    targets = [json.loads(text) for text in sorted({row["target"] for row in rows})]
    prompts = parameters.get("prompts") if isinstance(parameters.get("prompts"), dict) else {}
    prompt = {key: value for key, value in prompts.items() if key != "output_tokens"}
    if parameters.get("prompt_len") is not None:
        prompt["prompt_tokens"] = parameters["prompt_len"]
    output_tokens = parameters.get("gen_tokens") or prompts.get("output_tokens")
    batch = parameters.get("batch")
    row: Row = {
        "model": _joined(targets, "model"),
        "precision": _joined(targets, "precision", "dtype", "quantization") or _text(parameters, "precision", "dtype"),
        "prompt_distribution": _json(prompt),
        "output_distribution": _json({"output_tokens": output_tokens} if output_tokens is not None else {}),
        "concurrency": number_of(parameters, "concurrency"),
        "request_rate": number_of(parameters, "rps", "request_rate"),
        "batching": _text(parameters, "batching") or (f"{batch} a request" if batch is not None else None),
        "protocol": _joined(targets, "protocol", "driver"),
        "deployment_model": _joined(targets, "deployment"),
    }
    same = ("workload_spec_digest", "run_id", "benchmark_case_id", "experiment", "experiment_version", "parameters")
    why = dict.fromkeys(row, "neither the parameters nor the targets say")
    return row | {name: first[name] for name in same} | {
        "artifact_manifest_digest": manifests_digest(rows),
        "unknown": explained(_gaps(row, why)),
    }  # fmt: skip


def number_of(parameters: Mapping[str, Any], *names: str) -> float | None:
    values = (parameters.get(name) for name in names)
    numbers = (float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool))
    return next(numbers, None)


def _joined(targets: Sequence[Any], *names: str) -> str | None:
    values = {text for target in targets if isinstance(target, dict) and (text := _text(target, *names))}
    return "+".join(sorted(values)) or None


def _text(values: Mapping[str, Any], *names: str) -> str | None:
    return next((values[name] for name in names if isinstance(values.get(name), str) and values[name]), None)


def _gaps(row: Row, why: Mapping[str, str]) -> dict[str, str]:
    return {name: why.get(name) or "not known" for name, value in row.items() if value is None}


def _json(value: Any) -> str | None:
    return canonical_json(value).decode() if value else None
