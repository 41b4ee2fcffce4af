"""Read documents of sealed trials that older versions wrote, converted to today's shape.

Sealed bytes are never rewritten. Reading a document of today costs nothing more: only documents that do not fit are
handled here. docs/design/evidence.md has the rules for changes of a shape.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from benchhouse.schema.measurement import MetricsFile, common_unit
from benchhouse.schema.model import SEALED, Model
from benchhouse.schema.trial import TrialSpec

Document = dict[str, Any]
Step = Callable[[Document], Document]
_M = TypeVar("_M", bound=Model)
_FILES = {
    "Manifest": "manifest.json",
    "TrialSpec": "trial.json",
    "Meta": "meta.json",
    "MetricsFile": "metrics.json",
    "TelemetrySummary": "telemetry/summary.json",
}


def read(model: type[_M], content: bytes) -> _M:
    """Return the document in today's shape, whichever version wrote it. Raise ValidationError if none did."""
    try:
        return model.model_validate_json(content, context=SEALED)
    except ValidationError:
        older = _brought_up(model, content)
        if older is None:
            raise
    return model.model_validate_json(json.dumps(older), context=SEALED)


def misread(error: ValidationError) -> str:
    """Return why a document could not be read, for people."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    text = f"{_FILES.get(error.title, error.title)} can't be read: {where + ': ' if where else ''}{first['msg']}"
    if first["type"] == "extra_forbidden" or first["loc"][-1:] == ("schema_version",):
        text += "; a newer benchhouse may have written it: use that one"
    return text


def _brought_up(model: type[Model], content: bytes) -> Document | None:
    """Return the document after all steps that apply; None if none does."""
    steps = STEPS.get(model, ())
    try:
        before: Any = json.loads(content) if steps else None
    except ValueError:
        return None
    if not isinstance(before, dict):
        return None
    after = before
    for step in steps:
        after = step(after)
    return after if after != before else None


def _name_runtime(document: Document) -> Document:
    """Until November 15, 2026 the runtime was a text, the name of its kind. The version stayed 1; the type shows it."""
    runtime = document.get("runtime")
    return document | {"runtime": {"kind": runtime}} if isinstance(runtime, str) else document


def _common_words(document: Document) -> Document:
    """Until November 18, 2026 metrics.json had the units of metrics, CPU in cores, and timeouts as a float."""
    throughput, resource, errors = (dict(document.get(key) or {}) for key in ("throughput", "resource", "errors"))
    if throughput.get("unit"):
        throughput["unit"] = common_unit(throughput["unit"])
    if (resource.get("cpu_util") or 0) > 1:
        resource["cpu_util"] = None  # the number of cores is not recorded
    return document | {"throughput": throughput, "resource": resource, "errors": errors}


STEPS: Mapping[type[Model], tuple[Step, ...]] = {TrialSpec: (_name_runtime,), MetricsFile: (_common_words,)}
"""The steps that bring a document to today's shape, oldest first. A step leaves other documents unchanged."""
