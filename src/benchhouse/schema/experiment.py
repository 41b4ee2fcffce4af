"""Experiment: a versioned callable with declared inputs, metrics, data, and resources."""

import inspect
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from benchhouse.schema.errors import BenchError
from benchhouse.schema.histogram import Histogram
from benchhouse.schema.input_paths import resolve_paths
from benchhouse.schema.model import Model
from benchhouse.schema.resources import Resources

if TYPE_CHECKING:
    from benchhouse.schema.recipe import Recipe, Service

Direction = Literal["higher", "lower"]
Role = Literal["throughput", "latency", "error_rate", "timeouts", "cpu_util", "ram_mb", "gpu_util", "gpu_mem_mb"]


class Metric(Model):
    """A measured quantity, as declared by an experiment."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.@-]*$", max_length=100, description="Name of the metric.")
    unit: str = Field("1", description="Unit of every value: ms, MB/s, 1 (a ratio), ...")
    direction: Direction | None = Field(None, description="Which way is better; none where neither is.")
    formula: str = Field("", description="How it is computed, in words.")
    role: Role | None = Field(None, description="The field of metrics.json that it fills.")
    primary: bool = Field(False, description="Whether it decides where nobody names a metric, as at a gate.")


class Deprecated(Model):
    """Why an experiment should no longer be used, and what to use instead."""

    reason: str
    replaced_by: str | None = None


class Data(Model):
    """A file that an experiment needs, bundled (`package:path`) or downloaded; its digest is always checked."""

    name: str = Field(description="Name under which the experiment asks for it.")
    source: str = Field(description="`package:path/inside` for bundled data, or an http(s):// or file:// URL.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    licence: str = Field("", description="Licence of the data.")
    used_with: tuple[str, ...] = Field((), description="Values of target or workload that need it; empty: all.")


class Cache(Protocol):
    """Data that persists between runs; its digest is checked when it is stored."""

    def fetch(self, name: str) -> Path:
        """Return the path of the declared data `name`, which is downloaded or copied on first use, and verified."""

    def build(self, key: str, make: Callable[[Path], None]) -> Path:
        """Return the path of a derived file: `make(path)` writes it once, and later runs with the same key reuse it."""


class Context(Protocol):
    """The interface of the system for experiments, passed as `ctx`."""

    seed: int
    trial_id: str
    repetition: int
    workdir: Path  # empty, temporary, removed afterwards; also the current folder
    nodes: list[str]  # nodes of the trial; the first runs the experiment

    @property
    def artifacts(self) -> Path:
        """The folder for files that become part of the evidence."""

    @property
    def cache(self) -> Cache: ...

    def emit(
        self, name: str, value: float, unit: str | None = None, *, direction: Direction | None = None, window: str = ""
    ) -> None:
        """Record one value of a metric; several values of one name become a distribution.

        `unit` and `direction` are for metrics that could not be declared; a declaration takes precedence.
        """

    def emit_all(self, name: str, values: Iterable[float], *, window: str = "") -> None:
        """Record many values of a metric, like repeated calls of `emit`; fastest with an `array("d")`."""

    def declare(self, metric: Metric) -> None:
        """Declare a metric that becomes known only now, such as from a file; values emitted under its name use its unit
        and role.
        """

    def distribution(self, name: str, histogram: Histogram, window: str = "") -> None:
        """Record a metric whose values were counted in a histogram of nanoseconds; its unit is s, ms, us or ns.

        The histogram is copied. Several histograms of one name and window are merged; an empty one adds nothing.
        """

    def bound(self, name: str, errors: Mapping[str, float], beyond: Collection[str] = ()) -> None:
        """State the possible error of a metric's values, per statistic (`mean`, `p99`, ...) and in its unit.

        Statistics in `beyond`, whose error exceeds the limit, become INVALID: they are kept as evidence and excluded
        from every summary. The rest of the trial is not affected.
        """
        ...

    def metadata(self, **items: Any) -> None:
        """Store custom JSON-compatible facts with the results."""

    def phase(self, name: str, begin_ns: int, end_ns: int) -> None:
        """Name a part of the trial's time, in `time.monotonic_ns()`; telemetry is summarized by phase.

        `steady` is the measured phase: the time before the first is then `warmup`, and after the last `teardown`.
        """

    def energy_per(self, name: str, amount: float) -> None:
        """Compute metric `name` as the energy of the `steady` phase / `amount`, from the samples of the monitors.

        The energy covers all devices whose power is read (`energy_of` in the metadata). If none is read, the metric has
        no value, and `no_energy` gives the reason.
        """

    def overcame_oom_kills(self, count: int) -> None:
        """Report that the experiment recovered from `count` of its processes being killed by the kernel for lack of
        memory.

        Any other such kill ends the trial as `out_of_memory`, because the effect on the measurement is unknown.
        """

    def warn(self, code: str, message: str) -> None:
        """Attach a named warning to the trial; it is shown wherever the numbers are."""

    def invalid(self, code: str, message: str) -> None:
        """Mark the numbers of this trial as invalid, with the reason and a remedy; the experiment continues.

        May be called several times. The trial ends as `invalid`: its numbers are kept as evidence and excluded from
        every summary.
        """

    def fail(self, code: str, message: str, *, retryable: bool = False) -> NoReturn:
        """End the trial as a known, handled failure. `retryable` means that the infrastructure is the cause."""

    def driver(self, name: str) -> Any:
        """Return the installed driver class of that name."""

    def on_node(self, node: str) -> list[str]:
        """Return the command prefix that runs a command on another of `nodes`, with this process's environment.

        The command depends on the process that starts it: it is killed with that process, and stops when its standard
        input ends.
        """

    def service(self, recipe: "str | Recipe") -> "Service":
        """Start a server for this trial, from a recipe or the name of an installed one, and wait until it is up.

        It is stopped after the experiment, however that ends. If it exits on its own, the trial fails.
        """


class ExperimentFailed(Exception):  # noqa: N818 - an outcome, not a bug
    """A handled failure with a code, raised by `ctx.fail`."""

    def __init__(self, code: str, message: str, retryable: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.retryable = code, message, retryable


_RESERVED = ("target", "workload", "ctx")
_PLAIN = frozenset({bool, int, float, str})


@dataclass(frozen=True)
class Experiment:
    """A registered experiment; calling it calls the function as written."""

    name: str
    version: str
    function: Callable[..., Any]
    metrics: tuple[Metric, ...] = ()
    resources: Resources = field(default_factory=Resources)
    deprecated: Deprecated | None = None
    data: tuple[Data, ...] = ()
    component: str = "custom"
    services: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    dataset: str = ""  # the input that takes a scenario's dataset: `prompts.file`
    strict_metrics: bool = True
    description: str = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @cached_property
    def target_model(self) -> type[BaseModel] | None:
        """The model of `target`; None if the experiment takes no target or leaves it untyped."""
        return _as_model(_hints(self.function).get("target"))

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @cached_property
    def _inputs(self) -> dict[str, inspect.Parameter]:
        """The parameters of a plain function that form its workload."""
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        items = self._parameters.items()
        return {name: item for name, item in items if name not in _RESERVED and item.kind not in variadic}

    @property
    def takes_target(self) -> bool:
        return "target" in self._parameters

    @property
    def takes_context(self) -> bool:
        return "ctx" in self._parameters

    @cached_property
    def workload_model(self) -> type[BaseModel]:
        """The model of the workload: the annotation of `workload`, or a model made from the function's parameters."""
        hints = _hints(self.function)
        if "workload" in self._parameters:
            model = _as_model(hints.get("workload"))
            if model is None:
                raise BenchError(f"experiment {self.name}: 'workload' must be annotated with a pydantic model")
            return model
        fields: dict[str, Any] = {}
        for name, parameter in self._inputs.items():
            hint = hints.get(name, Any)
            if parameter.default is parameter.empty:
                fields[name] = (hint, ...)
            else:  # `size: int = None` is common in plain functions
                fields[name] = (hint | None if parameter.default is None else hint, parameter.default)
        title = "".join(part.title() for part in self.name.replace("-", ".").replace("_", ".").split("."))
        config = ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=())
        with warnings.catch_warnings():  # a parameter may be called `copy` or `json`, like a method of a model
            warnings.simplefilter("ignore")
            return create_model(f"{title}Workload", __config__=config, **fields)

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)

    def call(self, target: Mapping[str, Any], parameters: Mapping[str, Any], ctx: Context, folder: str = "") -> Any:
        """Validate the inputs, then run the function with them; relative paths among them start in `folder`."""
        arguments: dict[str, Any] = {}
        if folder:
            target = resolve_paths(self.target_model, dict(target), Path(folder))[0]
            parameters = resolve_paths(self.workload_model, dict(parameters), Path(folder))[0]
        if self.takes_target:  # an untyped target with only a name is passed as text: functions expect a model id
            bare = target["name"] if set(target) == {"name"} else dict(target)
            arguments["target"] = self.target_model.model_validate(target) if self.target_model else bare
        if (fitting := self._as_they_are(parameters)) is not None:
            arguments |= fitting
        else:
            workload = self.workload_model.model_validate(parameters)
            if "workload" in self._parameters:
                arguments["workload"] = workload
            else:
                arguments |= {name: getattr(workload, name) for name in type(workload).model_fields}
        if self.takes_context:
            arguments["ctx"] = ctx
        return self.function(**arguments)

    def _as_they_are(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the arguments of a plain function if they need no conversion and are valid; None if the model must
        check.

        Building the model takes longer than a short trial.
        """
        function = self.function
        if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__") or "workload" in self._parameters:
            return None
        arguments: dict[str, Any] = {}
        for name, parameter in self._inputs.items():
            if name in given:
                value, hint = given[name], function.__annotations__.get(name, Any)
                if hint is not Any and (type(value) is not hint or hint not in _PLAIN):
                    return None
                if isinstance(value, float) and not math.isfinite(value):
                    return None
            elif type(value := parameter.default) not in _PLAIN and value is not None:
                return None  # no default, or one that must be copied
            arguments[name] = value
        return arguments if given.keys() <= arguments.keys() else None


def experiment(
    name: str,
    *,
    version: str,
    metrics: Iterable[Metric] = (),
    resources: Resources | None = None,
    deprecated: Deprecated | None = None,
    data: Iterable[Data] = (),
    component: str = "custom",
    services: Iterable[str] = (),
    drivers: Iterable[str] = (),
    dataset: str = "",
) -> Callable[[Callable[..., Any]], Experiment]:
    """Declare a function as an experiment.

    `component` and `services` let a scenario name it by `workload: {component: ..., service: ...}`. `drivers` are the
    drivers in its own package that it can use; an error about a missing driver lists them. `dataset` is the dotted name
    of the input that takes the file of a scenario's `artifacts.dataset`.
    """

    def declare(function: Callable[..., Any]) -> Experiment:
        declared = tuple(metrics)
        names = [metric.name for metric in declared]
        if len(set(names)) != len(names):
            raise BenchError(f"experiment {name}: a metric is declared twice")
        return Experiment(
            name=name,
            version=str(version),
            function=function,
            metrics=declared,
            resources=resources or Resources(),
            deprecated=deprecated,
            data=tuple(data),
            component=component,
            services=tuple(services),
            drivers=tuple(drivers),
            dataset=dataset,
            description=(inspect.getdoc(function) or "").split("\n")[0],
        )

    return declare


def from_function(function: Callable[..., Any], name: str, version: str) -> Experiment:
    """Return a plain function that returns a dict of numbers as an experiment that accepts any metric."""
    description = (inspect.getdoc(function) or "").split("\n")[0]
    return Experiment(name=name, version=version, function=function, strict_metrics=False, description=description)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        where = f"{function.__module__}.{function.__qualname__}"
        raise BenchError(f"{where}: an annotation names something unknown: {error}") from error


def _as_model(hint: Any) -> type[BaseModel] | None:
    return hint if isinstance(hint, type) and issubclass(hint, BaseModel) else None
