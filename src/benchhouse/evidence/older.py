"""Documents of sealed trials in the shapes that older versions wrote, brought to today's shape as they are read.

Sealed bytes are never rewritten. A document of today costs nothing more: only what does not fit is looked at here.
How a shape may change is said in docs/design/evidence.md.
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
    """The document in today's shape, whichever version wrote it. ValidationError where no version of ours did."""
    try:
        return model.model_validate_json(content, context=SEALED)
    except ValidationError:
        older = _brought_up(model, content)
        if older is None:
            raise
    return model.model_validate_json(json.dumps(older), context=SEALED)


def misread(error: ValidationError) -> str:
    """Why a document was not read, for people."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    text = f"{_FILES.get(error.title, error.title)} can't be read: {where + ': ' if where else ''}{first['msg']}"
    if first["type"] == "extra_forbidden" or first["loc"][-1:] == ("schema_version",):
        text += "; a newer benchhouse may have written it: use that one"
    return text


def _brought_up(model: type[Model], content: bytes) -> Document | None:
    """The document after the steps that it needed; None where none of them was for it."""
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
    """Until 15 November 2026 the runtime was a text, the name of its kind. The version stayed 1: its type tells."""
    runtime = document.get("runtime")
    return document | {"runtime": {"kind": runtime}} if isinstance(runtime, str) else document


def _common_words(document: Document) -> Document:
    """Until 18 November 2026 metrics.json had units as metrics have them, CPU in cores, and timeouts as a float."""
    throughput, resource, errors = (dict(document.get(key) or {}) for key in ("throughput", "resource", "errors"))
    if throughput.get("unit"):
        throughput["unit"] = common_unit(throughput["unit"])
    if (resource.get("cpu_util") or 0) > 1:
        resource["cpu_util"] = None  # of how many cores, it does not say
    return document | {"throughput": throughput, "resource": resource, "errors": errors}


STEPS: Mapping[type[Model], tuple[Step, ...]] = {TrialSpec: (_name_runtime,), MetricsFile: (_common_words,)}
"""What brings a document to the next shape, oldest first. A step leaves alone what is not for it."""
