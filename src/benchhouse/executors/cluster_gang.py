"""Gangs: slots on different nodes that form one place for a trial. The first runs trials, the others keep an agent.

A file in each slot's folder (`GANG`) makes it a member, so engines need not know about gangs. When all members are up,
a list of them is written, with the secret that authenticates requests to their agents.
"""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchhouse.executors.cluster_node import GANG
from benchhouse.schema.errors import BenchError
from benchhouse.schema.resources import Limits

_LIST = "nodes.json"


def prepare(folders: Sequence[Path], limits: Limits) -> None:
    """Make these folders a gang, before its slots are requested. Agents enforce the limits that apply per node."""
    kept = limits.model_dump(include={"cpus", "memory", "processes"}, exclude_none=True)
    for member, folder in enumerate(folders):
        gang = {"member": member, "nodes": str(folders[0] / _LIST), "limits": kept}
        (folder / GANG).write_text(json.dumps(gang), encoding="utf-8")


def introduce(folder: Path, placed: Sequence[Mapping[str, str]], ports: Sequence[int], title: str) -> None:
    """Write the list of members once all are up, so that trials in `folder`, the first slot's, can call the others."""
    names = [place["node"] for place in placed]
    if len(set(names)) < len(names):
        raise BenchError(
            f"two nodes of the {title} cluster have the same name: {', '.join(names)}",
            "give each a name of its own, on Ray: ray start --node-name NAME",
        )
    nodes = [
        {"name": place["node"], "address": place["address"], "port": port}
        for place, port in zip(placed, ports, strict=True)
    ]
    handle = os.open(folder / _LIST, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({"secret": secrets.token_hex(32), "nodes": nodes}, file)


def forget(folder: Path) -> None:
    """Remove the list of members: agents are told to end, and they accept no more requests."""
    (folder / _LIST).unlink(missing_ok=True)
