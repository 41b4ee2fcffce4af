"""Plan: a scenario expanded to bound instances and ordered trials, lazily, with a digest over all of it."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ValidationError

from benchhouse.plan.axes import TARGETS, Draft, Loc, draft, fields_of
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.plan.space import Shuffle, Space
from benchhouse.schema.digests import canonical_json
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Experiment
from benchhouse.schema.problems import Problem, ProblemsError, from_pydantic
from benchhouse.schema.resources import Limits, Resources
from benchhouse.schema.scenario import Benchmark, Scenario
from benchhouse.schema.trial import ExperimentRef, Instance


@dataclass(frozen=True)
class PlannedTrial:
    """One trial to run: which instance, which repetition, with which seed."""

    instance: Instance
    instance_digest: str
    repetition: int
    warmup: bool
    seed: int


@dataclass(frozen=True)
class Plan:
    """Pure data; nothing of it is held in memory but the scenario and its axes."""

    scenario: Scenario
    experiment: ExperimentRef
    code: Experiment | None  # None: no installed experiment serves this component and service
    component: str
    service: str
    resources: Resources
    limits: Limits
    space: Space
    target: Mapping[str, Any]
    parameters: Mapping[str, Any]

    def instances(self) -> Iterator[Instance]:
        for _, point in self.space.points():
            yield self.bind(point)

    def bind(self, point: Mapping[str, Any]) -> Instance:
        """The instance of one point: inputs validated, defaults filled in, so that equal processes are equal."""
        target, parameters = dict(self.target), dict(self.parameters)
        for key, value in point.items():
            if key == TARGETS:
                target |= value
            elif key.startswith("target."):
                target[key.removeprefix("target.")] = value
            else:
                parameters[key] = value
        if self.code:
            try:
                target = _normal(self.code.target_model, target)
                parameters = _normal(self.code.workload_model, parameters)
            except ValidationError as error:
                reasons = "; ".join(
                    f"{'.'.join(map(str, item['loc']))}: {item['msg']}".lstrip(": ") for item in error.errors()
                )
                values = ", ".join(f"{key}={value}" for key, value in point.items())
                raise BenchError(
                    f"{self.scenario.scenario}: the point {values} does not fit {self.experiment.name}: {reasons}",
                    "exclude this combination, or change its values",
                ) from error
        return Instance(
            experiment=self.experiment.name, version=self.experiment.version, target=target, parameters=parameters
        )

    def trials(self) -> Iterator[PlannedTrial]:
        """All trials in the order they are to run; warm-ups come before what they warm."""
        scenario = self.scenario
        if scenario.order == "sequential":
            for instance in self.instances():
                for number in range(scenario.warmup):
                    yield self._trial(instance, number, warmup=True)
                for number in range(scenario.repetitions):
                    yield self._trial(instance, number)
            return
        for number in range(scenario.warmup):
            for instance in self.instances():
                yield self._trial(instance, number, warmup=True)
        if scenario.order == "interleaved":
            for number in range(scenario.repetitions):
                for instance in self.instances():
                    yield self._trial(instance, number)
            return
        size = self.space.raw_size
        shuffle = Shuffle(size * scenario.repetitions, scenario.seed)
        for position in range(size * scenario.repetitions):
            number, index = divmod(shuffle[position], size)
            point = self.space.point(index)
            if point is not None:
                yield self._trial(self.bind(point), number)

    def _trial(self, instance: Instance, number: int, warmup: bool = False) -> PlannedTrial:
        return PlannedTrial(instance, instance.digest(), number, warmup, self.scenario.seed + number)

    @cached_property
    def _counted(self) -> tuple[int, str]:
        scenario = self.scenario
        frame = {
            "experiment": [self.experiment.name, self.experiment.version],
            "order": scenario.order,
            "repetitions": scenario.repetitions,
            "warmup": scenario.warmup,
            "seed": scenario.seed,
            "limits": self.limits.model_dump(),
        }
        running, count = hashlib.sha256(canonical_json(frame)), 0
        for instance in self.instances():
            running.update(instance.digest().encode())
            count += 1
        return count, running.hexdigest()

    @property
    def points(self) -> int:
        return self._counted[0]

    @property
    def digest(self) -> str:
        """Covers instances, order, repetitions, seeds and limits; not where it runs."""
        return self._counted[1]

    @property
    def trial_count(self) -> int:
        return self.points * (self.scenario.repetitions + self.scenario.warmup)

    @property
    def axes(self) -> list[str]:
        """Names of what varies, as the tables show it."""
        names: list[str] = []
        for block in self.space.blocks:
            if block.keys != (TARGETS,):
                names += block.keys
            elif all("name" in row[0] for row in block.rows):
                names.append("target.name")
            else:
                keys = sorted({key for row in block.rows for key in row[0]})
                names += [f"target.{key}" for key in keys if len({str(row[0].get(key)) for row in block.rows}) > 1]
        return names


def make_plan(
    file: ScenarioFile, code: Experiment | None, ref: ExperimentRef, benchmark: Benchmark | None = None
) -> Plan:
    """Expand a scenario; every value of every axis is checked against the experiment's inputs first."""
    scenario, document = file.scenario, file.document
    base = Draft(code, document)
    workload, component, service = _route_service(scenario.workload, code, base)
    if benchmark:
        workload = _add_benchmark(benchmark, workload, base)
    axes = [*(benchmark.axes if benchmark else []), *scenario.axes]
    draft(scenario, workload, axes, base)
    space = base.space([*(benchmark.exclude if benchmark else []), *scenario.exclude])
    if not base.problems:
        _check_values(base, space)
    if base.problems:
        raise ProblemsError(base.problems)
    plan = Plan(
        scenario=scenario,
        experiment=ref,
        code=code,
        component=component,
        service=service,
        resources=scenario.resources
        or (benchmark.resources if benchmark else None)
        or (code.resources if code else Resources()),
        limits=_merge_limits(benchmark, scenario),
        space=space,
        target=base.target,
        parameters=base.parameters,
    )
    if next(plan.space.points(), None) is None:
        raise ProblemsError(
            [document.problem(("exclude",), "every point is excluded: nothing is left to run", key=True)]
        )
    return plan


def _route_service(given: Mapping[str, Any], code: Experiment | None, base: Draft) -> tuple[dict[str, Any], str, str]:
    """Take `component` and `service` out of the workload; a service names the target's driver."""
    workload = dict(given)
    fields = fields_of(code.workload_model) if code else set()
    component = str(workload.get("component", code.component if code else "custom"))
    service = str(workload.get("service", ""))
    if code:
        for key in ("component", "service"):
            if key not in fields:
                workload.pop(key, None)
        if service and "driver" in fields_of(code.target_model):
            base.target.setdefault("driver", service)
    if not service and code:
        service = code.services[0] if len(code.services) == 1 else code.name
    return workload, component, service


def _add_benchmark(benchmark: Benchmark, workload: dict[str, Any], base: Draft) -> dict[str, Any]:
    """A benchmark's workload is frozen: a scenario may fill what it leaves open, not change what it fixes."""
    for key in workload:
        if key in benchmark.workload:
            message = f"'{key}' is fixed by the benchmark '{benchmark.benchmark}'"
            expected = "a scenario fills only what the benchmark leaves open; register another benchmark to change it"
            base.problems.append(base.document.problem(("workload", key), message, expected, key=True))
    return {**benchmark.workload, **workload}


def _merge_limits(benchmark: Benchmark | None, scenario: Scenario) -> Limits:
    if benchmark is None:
        return scenario.limits
    given = scenario.limits.model_dump(exclude_none=True)
    return Limits.model_validate(benchmark.limits.model_dump() | given)


def _check_values(base: Draft, space: Space) -> None:
    """Check the fixed values and, one at a time, every value of every axis, so that all mistakes show at once."""
    if base.experiment is None:
        return
    first: dict[str, Any] = {}
    for block in space.blocks:
        first.update(zip(block.keys, block.rows[0], strict=True))
    _check_point(base, first, dict.fromkeys(first, 0), None)
    for block in space.blocks:
        for number, row in enumerate(block.rows[1:], start=1):
            rows = dict.fromkeys(first, 0) | dict.fromkeys(block.keys, number)
            _check_point(base, first | dict(zip(block.keys, row, strict=True)), rows, set(block.keys))


def _check_point(base: Draft, point: Mapping[str, Any], rows: Mapping[str, int], only: set[str] | None) -> None:
    """Report what is wrong at one point; `only` keeps to mistakes of the keys that this point changed."""
    assert base.experiment is not None
    target, parameters = dict(base.target), dict(base.parameters)
    places: dict[str, Loc] = {key: base.places[key][rows[key]] for key in point}
    target_places: dict[str, Loc] = {key: ("target", key) for key in target}
    workload_places: dict[str, Loc] = {key: ("workload", key) for key in parameters}
    target_home: Loc = ("target",)
    for key, value in point.items():
        if key == TARGETS:
            target |= value
            target_home = places[key]
            target_places |= {inner: (*places[key], inner) for inner in value}
        elif key.startswith("target."):
            target[key.removeprefix("target.")] = value
            target_places[key.removeprefix("target.")] = places[key]
        else:
            parameters[key] = value
            workload_places[key] = places[key]
    wanted_target = only is None or any(key == TARGETS or key.startswith("target.") for key in only)
    if base.target_model and wanted_target:
        base.problems += _misfits(base, base.target_model, target, target_home, target_places, only)
    if base.workload_model and (only is None or any(not key.startswith("target") for key in only)):
        base.problems += _misfits(base, base.workload_model, parameters, ("workload",), workload_places, only)


def _misfits(
    base: Draft,
    model: type[BaseModel],
    data: dict[str, Any],
    home: Loc,
    places: Mapping[str, Loc],
    only: set[str] | None,
) -> list[Problem]:
    try:
        model.model_validate(data)
    except ValidationError as error:
        found = from_pydantic(error, base.document.assemble(home, data, places), model)
        if only is None:
            return found
        lines = {base.document.position(places[key.removeprefix("target.")]) for key in only - {TARGETS}}
        return [item for item in found if (item.line, item.column) in lines or TARGETS in only]
    return []


def _normal(model: type[BaseModel] | None, data: dict[str, Any]) -> dict[str, Any]:
    return model.model_validate(data).model_dump(mode="json") if model else data
