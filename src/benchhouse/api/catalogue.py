"""What there is: experiments, benchmarks, targets, schemas."""

from dataclasses import asdict
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from benchhouse.catalog.entries import entries
from benchhouse.catalog.listing import Listed, list_experiments, resolve
from benchhouse.schema.layout import Workspace
from benchhouse.sites import places

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel

    from benchhouse.catalog.benchmarks import Registered


def experiments() -> list[Listed]:
    return list_experiments(places.cache())


def registered_experiments(workspace: Workspace, nexus: "str | Path | None" = None) -> dict[str, list[str]]:
    """Experiment, as a nexus.yaml names it -> the packages that do; without a nexus nothing slow is imported."""
    root = places.nexus(nexus, workspace.root)
    if root is None:
        return {}
    from benchhouse.catalog.nexus import load_registrations

    found: dict[str, list[str]] = {}
    for package, name in load_registrations(root):
        found.setdefault(name, []).append(package)
    return found


def across(workspace: Workspace, nexus: "str | Path | None" = None) -> list[dict[str, Any]]:
    """Installed experiments, and those that a nexus registers and that are not installed here."""
    claims = registered_experiments(workspace, nexus)
    rows: list[dict[str, Any]] = []
    met: set[str] = set()
    for item in experiments():
        names = {item.name, item.name.partition(".")[2]} & claims.keys()
        met |= names
        owners = sorted({package for name in names for package in claims[name]})
        rows.append({**vars(item), "installed": True, "registered_by": owners})
    empty = vars(Listed("", "", "", "", ""))
    rows += [
        empty | {"name": name, "installed": False, "registered_by": sorted(set(claims[name]))}
        for name in sorted(claims.keys() - met)
    ]
    return sorted(rows, key=lambda row: str(row["name"])) if claims else rows


def targets(workspace: Workspace) -> list[dict[str, Any]]:
    """Targets that have trials in the warehouse."""
    from benchhouse.warehouse.query import Warehouse

    sql = (
        "SELECT target_name AS target, experiment, count(*) AS trials, max(run_id) AS last_run "
        "FROM trial_fact GROUP BY 1, 2 ORDER BY 1, 2"
    )
    with Warehouse.open(workspace) as warehouse:
        return warehouse.query(sql).dicts()


def show(workspace: Workspace, name: str, version: str | None) -> dict[str, Any]:
    """Everything about one experiment, or about a registered benchmark: what it fixes, and the experiment behind it."""
    listed, registered = experiments(), None
    if not any(item.name == name for item in listed):  # an experiment of that name comes first
        registered = _benchmark(workspace, name)
        if registered:
            name, version = registered.experiment, version or registered.version
    found = resolve(name, version, listed)
    code = found.code()
    return {
        **asdict(found),
        "benchmark": _registered(registered) if registered else None,
        "target": _fields(code.target_model),
        "workload": _fields(code.workload_model),
    }


def is_listed(workspace: Workspace, name: str) -> bool:
    """Whether an experiment or a registered benchmark has exactly this name."""
    return any(item.name == name for item in experiments()) or _benchmark(workspace, name) is not None


def _benchmark(workspace: Workspace, name: str) -> "Registered | None":
    from benchhouse.catalog.uses import UnknownBenchmarkError
    from benchhouse.runs.preparation import shelf

    try:
        return shelf(workspace, workspace.root).find(name)
    except UnknownBenchmarkError:
        return None


def _registered(item: "Registered") -> dict[str, Any]:
    """What the benchmark's file says, which no scenario may change, and where that file is."""
    whole: dict[str, Any] = {}
    for part in item.chain:  # its own words last
        said = part.benchmark.model_dump(mode="json", exclude_defaults=True)
        workload = {**whole.get("workload", {}), **said.get("workload", {})}
        whole |= said | ({"workload": workload} if workload else {})
    return whole | {"file": item.document.path, "origin": item.origin}


def _fields(model: "type[BaseModel] | None", within: "tuple[type[BaseModel], ...]" = ()) -> list[dict[str, Any]]:
    """The keys of a model; one that holds itself, however deep (`within`), is not opened again."""
    if model is None:
        return []
    return [
        {
            "name": name,
            "type": _type_text(field.annotation),
            "required": field.is_required(),
            "default": None if field.is_required() else _plain(field.get_default(call_default_factory=True)),
            "description": field.description or "",
            "variants": [_variant(inner, above, (*within, model)) for above, inner in _models(field.annotation)],
        }
        for name, field in model.model_fields.items()
    ]


def _variant(model: "type[BaseModel]", above: str, within: "tuple[type[BaseModel], ...]") -> dict[str, Any]:
    """A model inside of a field: its kind, how its keys are reached (`.`, `[].`, `.*.`), and the keys themselves."""
    fields = [] if model in within else [item for item in _fields(model, within) if item["name"] != "kind"]
    return {"kind": _kind(model), "above": above, "fields": fields}


def _models(annotation: Any, above: str = ".") -> "list[tuple[str, type[BaseModel]]]":
    """The models that a value of this type may be or hold, and what stands between its name and their keys."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return [(above, annotation)]
    if origin is Annotated:
        return _models(parts[0], above)
    if origin is dict:
        return _models(parts[1], ".*.")
    if origin in (list, tuple):
        return [found for part in parts for found in _models(part, "[].")]
    return [found for part in parts for found in _models(part, above)] if origin in (Union, UnionType) else []


def _kind(model: "type[BaseModel]") -> str:
    kind = model.model_fields.get("kind")
    return str(kind.default) if kind else ""


def _plain(default: Any) -> Any:
    """A default as it would be written."""
    return default.model_dump(mode="json") if hasattr(default, "model_dump") else default


def _type_text(annotation: Any) -> str:
    """A type as people write it; validators and constraints left out."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(parts[0])
    if origin is Literal:
        return " | ".join(str(part) for part in parts)
    if origin in (Union, UnionType):
        return " | ".join(_type_text(part) for part in parts)
    if annotation in (None, NoneType):
        return "none"
    if origin is tuple and parts[-1] is Ellipsis:
        return f"list[{_type_text(parts[0])}]"
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return _kind(annotation) or "mapping"
    name = getattr(origin or annotation, "__name__", str(annotation))
    return f"{name}[{', '.join(_type_text(part) for part in parts)}]" if parts else name


def json_schema(noun: str) -> dict[str, Any]:
    """JSON Schema of one of our file formats."""
    from benchhouse.evidence.manifest import Manifest
    from benchhouse.schema.measurement import MetricsFile
    from benchhouse.schema.recipe import Recipe
    from benchhouse.schema.scenario import Benchmark, Scenario
    from benchhouse.schema.site import Site
    from benchhouse.schema.telemetry import TelemetrySummary
    from benchhouse.schema.trial import Meta, TrialSpec

    models: dict[str, type[BaseModel]] = {
        "scenario": Scenario,
        "benchmark": Benchmark,
        "recipe": Recipe,
        "site": Site,
        "trial": TrialSpec,
        "metrics": MetricsFile,
        "meta": Meta,
        "manifest": Manifest,
        "telemetry": TelemetrySummary,
    }
    schema = models[noun].model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def plugs(group: str) -> list[str]:
    """Names of the executors or runtimes that are installed."""
    return sorted({entry.name for entry in entries(group)})
