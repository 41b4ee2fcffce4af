"""Scenario: benchmark x targets x axes x repetitions, where and how they run; and Benchmark, which `uses:` names."""

import json
import math
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from benchhouse.schema.artifacts import Artifacts
from benchhouse.schema.clusters import DaskSettings, RaySettings, SparkSettings
from benchhouse.schema.kubernetes import KubernetesSettings, LabelKey, LabelValue
from benchhouse.schema.logs import LogSettings
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.names import Name
from benchhouse.schema.quantities import Share
from benchhouse.schema.recipe import BindText
from benchhouse.schema.resources import AskedResources, Budget, Limits, Resources, Retries, RuntimeSettings
from benchhouse.schema.service import ServiceUse
from benchhouse.schema.site import Word
from benchhouse.schema.slurm import SlurmSettings
from benchhouse.schema.telemetry import MonitorSettings

Order = Literal["interleaved", "sequential", "random"]
ScalingKind = Literal["strong", "weak"]
"""strong: the same work on more resources; weak: work that grows with the resources."""
MAX_AXIS_VALUES = 1_000_000
MAX_POINTS = 1_000_000
"""The most points of a plan, before `exclude`, unless workspace.yaml sets another limit."""
_MOST_SHOWN = 4  # values of an axis in a message


class Range(Model, strict=True):
    """Evenly or geometrically spaced values of an axis, both ends included."""

    start: float = Field(alias="from", description="First value.")
    stop: float = Field(alias="to", description="Last value; reached exactly or not passed.")
    step: float | None = Field(None, gt=0, description="Distance between values.")
    factor: float | None = Field(None, gt=1, description="Ratio between values.")
    count: int | None = Field(None, ge=2, le=MAX_AXIS_VALUES, description="How many values, evenly spaced.")

    @model_validator(mode="after")
    def _one_way(self) -> "Range":
        if sum(item is not None for item in (self.step, self.factor, self.count)) != 1:
            raise ValueError("a range has exactly one of step, factor, count")
        if self.stop < self.start:
            raise ValueError(f"a range goes upward: from {self.start:g} to {self.stop:g} does not")
        if self.factor and self.start <= 0:
            raise ValueError("a range with a factor starts above zero")
        steps = (self.stop - self.start) / self.step if self.step else 0
        if self.factor:
            steps = math.log(self.stop / self.start) / math.log(self.factor)
        if steps >= MAX_AXIS_VALUES:
            raise ValueError(f"a range has at most {MAX_AXIS_VALUES:,} values")
        return self

    @property
    def size(self) -> int:
        """The number of values, computed without making them."""
        start, stop = Decimal(str(self.start)), Decimal(str(self.stop))
        if self.step:
            return int((stop - start) / Decimal(str(self.step))) + 1
        return self.count or len(self.values())

    def values(self) -> list[float | int]:
        """Return the values as people would write them: computed in decimals, so 0.1 + 0.2 is 0.3."""
        start, stop = Decimal(str(self.start)), Decimal(str(self.stop))
        if self.step:
            step = Decimal(str(self.step))
            exact = [start + index * step for index in range(self.size)]
        elif self.factor:
            factor, exact = Decimal(str(self.factor)), [start]
            while (following := exact[-1] * factor) <= stop:
                exact.append(following)
        else:
            assert self.count is not None
            exact = [start + index * (stop - start) / (self.count - 1) for index in range(self.count)]
        return [int(value) if value == value.to_integral_value() else float(value) for value in exact]


class Ranged(Model, strict=True):
    """A range in a workload: `{range: {from: 1, to: 8, factor: 2}}`."""

    range: Range


Values = Annotated[list[Any], Field(min_length=1, max_length=MAX_AXIS_VALUES)] | Range | Ranged


class AxisBlock(Model, strict=True):
    """A block of axes, in exactly one of three forms; the blocks of a scenario multiply."""

    grid: dict[str, Values] | None = Field(None, description="Every combination of the values.")
    zip: dict[str, Values] | None = Field(None, description="The values side by side; lists of equal length.")
    points: Annotated[list[dict[str, Any]], Field(min_length=1)] | None = Field(
        None, description="Explicit points, each with the same keys."
    )

    @model_validator(mode="after")
    def _one_form(self) -> "AxisBlock":
        forms = [form for form in (self.grid, self.zip, self.points) if form is not None]
        if len(forms) != 1 or not forms[0]:
            raise ValueError("a block of axes has exactly one of grid, zip, points, and it is not empty")
        if self.zip:
            lengths = {key: axis_size(values) for key, values in self.zip.items()}
            if len(set(lengths.values())) > 1:
                listed = ", ".join(f"{key} has {count}" for key, count in lengths.items())
                raise ValueError(f"zipped axes need equally many values: {listed}")
        if self.points and len({frozenset(point) for point in self.points}) > 1:
            raise ValueError("all points of a block have the same keys")
        return self

    @property
    def keys(self) -> list[str]:
        """The keys that vary in this block."""
        return list(self.points[0] if self.points else self.zip or self.grid or {})


def axis_values(values: list[Any] | Range | Ranged) -> list[Any]:
    if isinstance(values, Ranged):
        return values.range.values()
    return values.values() if isinstance(values, Range) else values


def axis_size(values: list[Any] | Range | Ranged) -> int:
    """Return the number of values of an axis, computed without making them."""
    if isinstance(values, Ranged):
        return values.range.size
    return values.size if isinstance(values, Range) else len(values)


def _flow(value: Any) -> str:
    """Return a value as YAML on one line, shortened if it is long."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        shown = [_flow(item) for item in value[:_MOST_SHOWN]]
        return "[" + ", ".join([*shown, "..."] if len(value) > _MOST_SHOWN else shown) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool) or value is None else str(value)


class Until(Model, strict=True):
    """A rule that repeats each point until its mean is known precisely enough."""

    ci: Share = Field(description="Half the 95% interval of the mean, as a share of it: 2%.")
    metric: str | None = Field(None, description="Which metric decides; by default the first with a direction.")
    stat: str | None = Field(None, description="Which statistic of it; by default value or mean.")
    min: int = Field(5, ge=3, le=10_000, description="Repetitions before the first look.")
    max: int = Field(30, ge=3, le=10_000, description="Repetitions at most.")

    @model_validator(mode="after")
    def _in_order(self) -> "Until":
        if self.max < self.min:
            raise ValueError(f"max is at least min: {self.max} is less than {self.min}")
        return self


class Repeated(Model, strict=True):
    """Repetitions that end by a rule: `{until: {ci: 2%, max: 30}}`."""

    until: Until = Field(description="When there are enough.")


class Defined(Model, strict=True):
    """The fields that benchmarks and scenarios share: the experiment and its frozen workload."""

    schema_version: Literal[1] = Field(1, description="Version of this file format.")
    description: str = Field("", description="For people.")
    experiment: str | None = Field(None, description="Name of an installed experiment.")
    version: str | Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="Its version, the newest installed one if not given; a list is an axis."
    )
    workload: dict[str, Any] = Field(default_factory=dict, description="Parameters; a list is an axis.")
    axes: list[AxisBlock] = Field(default_factory=empty_list, description="Further axes: grid, zip, points.")
    exclude: list[dict[str, Any]] = Field(
        default_factory=empty_list, description="Points to leave out; a list: any of."
    )
    resources: Resources | None = Field(None, description="What one trial needs.")
    limits: Limits = Field(default_factory=Limits, description="Hard limits of one trial.")

    @field_validator("axes", mode="before")
    @classmethod
    def _axes_are_blocks(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        forms = value.keys() & {"grid", "zip", "points"}
        block = value if forms else {"grid": value}
        raise ValueError(f"axes is a list of blocks, not a mapping: write axes: [{_flow(block)}]")

    @field_validator("version", mode="before")
    @classmethod
    def _version_is_text(cls, value: Any) -> Any:
        for version in value if isinstance(value, list) else [value]:
            if isinstance(version, int | float) and not isinstance(version, bool):
                raise ValueError(f"a version is text: put it in quotes, '{version}'")
        if isinstance(value, list) and (twice := {str(item) for item in value if value.count(item) > 1}):
            raise ValueError(f"version {', '.join(sorted(twice))} is given twice")
        return value


class Benchmark(Defined):
    """A registered benchmark, which a scenario names under `uses:`."""

    benchmark: Name = Field(description="Name of the benchmark.")
    uses: str | None = Field(None, description="Another benchmark, whose open inputs this one fills.")

    @model_validator(mode="after")
    def _one_subject(self) -> "Benchmark":
        if (self.experiment is None) == (self.uses is None):
            raise ValueError("a benchmark has either experiment or uses")
        if isinstance(self.version, list):
            raise ValueError("a benchmark is frozen to one version; a scenario that uses it may have several")
        return self


class Scenario(Defined):
    """A scenario file: what to compare, and where and how often to run it."""

    scenario: Name = Field(description="Name; results go to results/<scenario>/.")
    resources: AskedResources | None = Field(None, description="What one trial needs; a list is an axis.")
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, max_length=20, description="For finding its runs: they change nothing that is measured."
    )
    uses: str | None = Field(None, description="A registered benchmark that this scenario runs.")
    target: dict[str, Any] | str | None = Field(None, description="What is benchmarked; a list inside is an axis.")
    targets: list[dict[str, Any] | str] = Field(
        default_factory=empty_list, min_length=1, description="Targets to compare."
    )
    repetitions: Annotated[int, Field(ge=1, le=100_000)] | Repeated = Field(
        1, description="Trials per point; or `{until: {ci: 2%, max: 30}}`: as many as it takes."
    )
    warmup: int = Field(0, ge=0, le=1000, description="Trials per point that are run first and not counted.")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of order and of each trial (seed + repetition).")
    order: Order = Field("interleaved", description="interleaved: drift hits all points alike.")
    scaling: ScalingKind | None = Field(
        None, description="What more nodes, GPUs or cores are given: strong: the same work; weak: work that grows too."
    )
    retries: Retries = Field(default_factory=Retries.model_construct, description="For infrastructure failures only.")
    budget: Budget = Field(default_factory=Budget.model_construct, description="Limits of the whole run.")
    executor: str = Field("local", description="Where jobs go.")
    runtime: RuntimeSettings = Field(default_factory=RuntimeSettings, description="What a job runs inside.")
    parallel: int = Field(1, ge=1, le=4096, description="Trials at a time, as far as resources allow.")
    price_per_hour: float | None = Field(None, ge=0, description="Cost of one node for one hour.")
    partition: Word | None = Field(None, description="Slurm partition.")
    account: Word | None = Field(None, description="Slurm account.")
    qos: Word | None = Field(None, description="Slurm quality of service.")
    slurm: SlurmSettings = Field(
        default_factory=SlurmSettings.model_construct, description="How trials become Slurm jobs."
    )
    dask: DaskSettings = Field(default_factory=DaskSettings.model_construct, description="How trials run on Dask.")
    ray: RaySettings = Field(default_factory=RaySettings.model_construct, description="How trials run on Ray.")
    spark: SparkSettings = Field(default_factory=SparkSettings.model_construct, description="How trials run on Spark.")
    kubernetes: KubernetesSettings = Field(
        default_factory=KubernetesSettings.model_construct, description="How trials run on Kubernetes."
    )
    artifacts: Artifacts = Field(default_factory=Artifacts.model_construct, description="Container image and dataset.")
    binds: list[BindText] = Field(default_factory=empty_list, description="source:destination folders for containers.")
    environment: dict[str, str] = Field(default_factory=dict, description="Variables set for the experiment.")
    services: dict[Name, ServiceUse] = Field(
        default_factory=dict, description="Servers; `service:NAME` is an endpoint."
    )
    contract: str | None = Field(
        None, min_length=1, description="File of the contract that governs its runs; relative to this file."
    )
    folder: str | None = Field(None, description="Folder that relative paths start in; by default that of this file.")
    logs: LogSettings = Field(default_factory=LogSettings, description="How much of what is printed is kept.")
    monitors: MonitorSettings | Literal[False] = Field(
        default_factory=MonitorSettings, description="Telemetry; false: none."
    )

    @model_validator(mode="after")
    def _one_subject(self) -> "Scenario":
        if self.target is not None and self.targets:
            raise ValueError("give either target or targets, not both")
        if self.budget.cost is not None and self.price_per_hour is None:
            raise ValueError("a budget of cost needs price_per_hour")
        if self.until and self.order == "random":
            raise ValueError("repetitions: {until: ...} needs order: interleaved or sequential")
        if self.uses and self.experiment:
            raise ValueError("give either uses or experiment: a registered benchmark names its own experiment")
        return self

    @property
    def until(self) -> Until | None:
        """The rule that ends the repetitions; None if their number is fixed."""
        return self.repetitions.until if isinstance(self.repetitions, Repeated) else None

    @property
    def most_repetitions(self) -> int:
        """The largest number of trials per point."""
        return self.repetitions.until.max if isinstance(self.repetitions, Repeated) else self.repetitions
