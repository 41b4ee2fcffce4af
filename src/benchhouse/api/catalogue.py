"""What there is: experiments, benchmarks, targets, schemas."""

from dataclasses import asdict
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from benchhouse.api import places
from benchhouse.catalog.listing import Listed, list_experiments, resolve
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import Workspace

if TYPE_CHECKING:
    from pydantic import BaseModel

    from benchhouse.catalog.benchmarks import Registered


def experiments() -> list[Listed]:
    return list_experiments(places.cache())


def benchmarks(workspace: Workspace) -> list[dict[str, Any]]:
    """Registered benchmarks, which scenario files of the workspace use each, and files that can't be read."""
    from benchhouse.catalog.benchmarks import list_benchmarks

    users = _users(workspace)
    good, broken = list_benchmarks(workspace.benchmarks)
    rows = [
        {
            "benchmark": item.benchmark.benchmark,
            "experiment": item.benchmark.experiment,
            "version": item.benchmark.version,
            "origin": item.origin,
            "file": item.document.path,
            "description": item.benchmark.description,
            "used_by": users.get(item.benchmark.benchmark, []),
            "broken": None,
        }
        for item in good
    ]
    unread: dict[str, Any] = {"benchmark": "", "experiment": "", "version": None, "description": "", "used_by": []}
    return rows + [
        unread | {"origin": item.origin, "file": item.place, "broken": item.error.message} for item in broken
    ]


def _users(workspace: Workspace) -> dict[str, list[str]]:
    """Benchmark -> names of the scenarios, in the workspace's own folders, that say `uses:` it."""
    from benchhouse.schema.yamltext import load_yaml

    found: dict[str, list[str]] = {}
    for folder in (workspace.root, workspace.root / "scenarios", workspace.root / "examples"):
        for path in sorted(folder.glob("*.yaml")):
            try:
                data = load_yaml(path).data
            except BenchError:
                continue  # not a scenario of ours, or a broken one: `bench validate` tells
            if isinstance(data, dict) and "uses" in data and "scenario" in data:
                found.setdefault(str(data["uses"]), []).append(str(data["scenario"]))
    return found


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
    from benchhouse.catalog.benchmarks import list_benchmarks

    good, _ = list_benchmarks(workspace.benchmarks)
    registered = next((item for item in good if item.benchmark.benchmark == name), None)
    listed = experiments()
    if registered and not any(item.name == name for item in listed):
        name, version = registered.benchmark.experiment, version or registered.benchmark.version
    else:
        registered = None  # an experiment of that name comes first
    found = resolve(name, version, listed)
    code = found.code()
    return {
        **asdict(found),
        "benchmark": _registered(registered) if registered else None,
        "target": _fields(code.target_model),
        "workload": _fields(code.workload_model),
    }


def _registered(item: "Registered") -> dict[str, Any]:
    """What the benchmark's file says, which no scenario may change, and where that file is."""
    whole = item.benchmark.model_dump(mode="json", exclude_defaults=True)
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
