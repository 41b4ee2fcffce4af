"""The labels of points, targets, and times in the tables."""

import re
from datetime import UTC, datetime
from typing import Any, Protocol

from benchhouse.schema.digests import canonical_json
from benchhouse.schema.quoting import printable
from benchhouse.schema.resources import Resources
from benchhouse.schema.trial import VERSION_AXIS, ExperimentRef, TrialSpec

_LABEL_LENGTH = 80


class _Bound(Protocol):
    """An object with a value for each axis: a planned or finished trial."""

    @property
    def target(self) -> dict[str, Any]: ...
    @property
    def parameters(self) -> dict[str, Any]: ...
    @property
    def resources(self) -> Resources: ...
    @property
    def experiment(self) -> ExperimentRef: ...


def axes_of(spec: TrialSpec) -> dict[str, Any]:
    return {name: axis_value(spec, name) for name in spec.axes}


def axis_value(trial: _Bound, name: str) -> Any:
    """Return the value of one axis: `target.x`, `workload.x`, `resources.x`, or a bare name, which is searched in the
    workload and then the target."""
    target, parameters = trial.target, trial.parameters
    if name == VERSION_AXIS:
        return trial.experiment.version
    head, _, rest = name.partition(".")
    if head == "resources" and "resources" not in parameters:
        return getattr(trial.resources, rest, None)
    if head == "target" and rest:
        return _find_label(target, rest)
    if head == "workload" and rest:
        return _find_label(parameters, rest)
    value = _find_label(parameters, name)
    if value is None:
        value = _find_label(target, name)
    return target if value is None and name == "target" else value


def _find_label(values: Any, path: str) -> Any:
    if isinstance(values, dict) and path in values:
        return values[path]
    for key in path.split("."):
        if not isinstance(values, dict) or key not in values:
            return None
        values = values[key]
    return values


def point_label(spec: TrialSpec) -> str:
    """Return the values of a trial's axes on one line, as every table shows them."""
    axes = axes_of(spec)
    bare = [re.sub("^(target|workload|experiment|resources)[.]", "", name) for name in axes]
    names = bare if len(set(bare)) == len(bare) else list(axes)
    return " ".join(f"{name}={_short(value)}" for name, value in zip(names, axes.values(), strict=True))


def target_name(target: dict[str, Any]) -> str:
    if isinstance(target.get("name"), str):
        return str(target["name"])
    scalars = {key: value for key, value in sorted(target.items()) if not isinstance(value, dict | list | None)}
    text = " ".join(f"{key}={_short(value)}" for key, value in scalars.items())
    return text if len(text) <= _LABEL_LENGTH else text[: _LABEL_LENGTH - 1] + "…"


def _short(value: Any) -> str:
    """Return any value on one line: a line break in it reads `\\n`."""
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        value = value["name"]
    if isinstance(value, str):
        return printable(value)
    return canonical_json(value).decode()


def utc(text: str) -> datetime:
    """Return a time as the tables hold it: UTC, without a zone, cut to milliseconds."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is not None:
        time = time.astimezone(UTC).replace(tzinfo=None)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)
