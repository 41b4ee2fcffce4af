"""Facts about the node: hardware, drivers, packages. Only facts that can really be read; the rest is null."""

import importlib.metadata
import json
import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from benchhouse.schema.container import ENTERED
from benchhouse.schema.digests import digest


@cache
def enter_s() -> float | None:
    """Return the time from the start of the script that entered the container to the first call; None outside of
    one."""
    began = os.environ.get(ENTERED, "")
    return time.time() - float(began) if began.replace(".", "", 1).isdigit() else None


@cache
def hardware() -> dict[str, Any]:
    from benchhouse.worker.topology import node_topology  # not before the first call of `enter_s`

    node = node_topology()
    return {
        "machine": node.machine,
        "kernel": node.kernel,
        "cpu_model": node.cpu.model,
        "cpus_online": node.cpu.threads,
        "cpus_usable": node.cpu.usable,
        "cpu_governor": node.cpu.governor,
        "memory_bytes": node.memory_bytes,
        "numa_nodes": len(node.numa) or None,
        "gpus": _gpus(),
        "nics": [nic.name for nic in node.nics],
    }


@cache
def drivers() -> dict[str, str | None]:
    return {"nvidia": _read("/sys/module/nvidia/version"), "cuda": os.environ.get("CUDA_VERSION")}


@cache
def packages() -> dict[str, str]:
    """Return the installed distributions and their versions, by name."""
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        about = distribution.metadata
        if name := about["Name"]:  # None if its files are damaged
            versions.setdefault(name, about["Version"] or "0")
    return dict(sorted(versions.items()))


@cache
def packages_text() -> str:
    """Return the content of packages.json."""
    return json.dumps(packages(), indent=2, ensure_ascii=False) + "\n"


@cache
def lock_digest() -> str:
    """Return the digest of the installed packages and the interpreter: equal digests mean equal software."""
    return digest({"python": sys.version, "packages": packages()})


def _gpus() -> list[str]:
    paths = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    lines = [line for path in paths for line in (_read(str(path)) or "").splitlines()]
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
