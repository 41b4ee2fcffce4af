"""Packages of a nexus: what there is, and what is in one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.catalog.nexus import BenchmarkInstance, Nexus, Package, load_nexus
from benchhouse.documents.problems import did_you_mean
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import Workspace
from benchhouse.sites import places

if TYPE_CHECKING:
    from benchhouse.catalog.nexus import NexusModel


def find(workspace: Workspace, given: str | Path | None = None) -> Path:
    """The root of the nexus; raises BenchError where there is none."""
    root = places.nexus(given, workspace.root)
    if root is None:
        raise BenchError(
            f"no nexus here: neither {workspace.root} nor a folder above it has packages/*/nexus.yaml",
            "name it: --nexus DIR or $BENCH_NEXUS; or start one: bench new package NAME",
        )
    return root


def load(workspace: Workspace, given: str | Path | None = None) -> Nexus:
    return load_nexus(find(workspace, given))


def list_packages(nexus: Nexus) -> list[dict[str, Any]]:
    """A row for each package; one whose nexus.yaml can't be read has `broken`."""
    rows = [
        {
            "package": item.name,
            "benchmark_packages": len(item.entry.benchmark_packages),
            "experiments": len({name for name, _ in item.registered()}),
            "models": len(item.models),
            "benchmarks": sum(1 for _ in item.all_instances()),
            "broken": [error.error.message for error in nexus.broken if error.origin == item.name],
        }
        for item in nexus.packages
    ]
    readable = {item.name for item in nexus.packages}
    unread = [item for item in nexus.broken if item.origin not in readable]
    empty = {"benchmark_packages": 0, "experiments": 0, "models": 0, "benchmarks": 0}
    rows += [{"package": item.origin or "?", **empty, "broken": [item.error.message]} for item in unread]
    return sorted(rows, key=lambda row: str(row["package"]))


def pick(nexus: Nexus, name: str) -> Package:
    """The package of that name; where its own file is broken, that is raised."""
    if found := nexus.package(name):
        return found
    for item in nexus.broken:
        if item.origin == name:
            raise item.error
    guess = did_you_mean(name, [item.name for item in nexus.packages])
    hint = f"did you mean '{guess}'? " if guess else ""
    raise BenchError(f"the nexus {nexus.root} has no package '{name}'", f"{hint}see: bench packages list")


def show_package(nexus: Nexus, name: str) -> dict[str, Any]:
    """All that its files say, and what of it is broken."""
    package = pick(nexus, name)
    return {
        "package": package.name,
        "file": package.document.path,
        "benchmark_packages": [item.model_dump() for item in package.entry.benchmark_packages],
        "models": [_model(item) for item in package.models],
        "benchmarks": [describe_instance(item) for item in package.instances],
        "broken": [item.error.message for item in nexus.broken if item.origin == name],
    }


def _model(model: "NexusModel") -> dict[str, Any]:
    return {
        "model": model.entry.id,
        "folder": model.name,
        "owner": model.entry.owner,
        "file": model.document.path,
        "benchmarks": [describe_instance(item) for item in model.instances],
    }


def describe_instance(item: BenchmarkInstance) -> dict[str, Any]:
    return {
        "benchmark": item.id,
        "kind": item.kind,
        "experiments": [
            {"actuator": ref.actuator, "experiment": ref.name, "version": ref.version or None}
            for ref in item.experiments
        ],
        "uses": item.uses or None,
        "model": item.target or None,
        "file": item.document.path,
    }
