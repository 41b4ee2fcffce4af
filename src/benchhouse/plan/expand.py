"""The plan of a scenario: bound instances and ordered trials, generated lazily, with a digest over all of them."""

import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchhouse.catalog.benchmarks import Registered
from benchhouse.catalog.entries import entries
from benchhouse.documents.document import Loc
from benchhouse.documents.problems import ProblemsError
from benchhouse.plan.axes import RESOURCES, TARGETS, Draft, ValuePosition, put_together, resources_at
from benchhouse.plan.input_checks import MOST_KEPT, Meaning, check_values, normal, reasons
from benchhouse.plan.input_fields import fields_of
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.plan.space import PointSpace, Shuffle
from benchhouse.schema.digests import canonical_json
from benchhouse.schema.experiment import Experiment
from benchhouse.schema.input_paths import has_paths
from benchhouse.schema.quoting import shorten
from benchhouse.schema.resources import Limits, Resources, RuntimeSettings
from benchhouse.schema.scenario import MAX_POINTS, Benchmark, Defined, Scenario
from benchhouse.schema.service import TrialService
from benchhouse.schema.trial import VERSION_AXIS, ExperimentRef, Instance, instance_digest

Bound = tuple[dict[str, Any], dict[str, Any], str, dict[str, Any]]
"""Target and parameters of an instance, its digest, and the resources that vary."""


@dataclass(frozen=True)
class PlannedTrial:
    """One trial to run: the varying part of its instance, the repetition, and the seed."""

    target: dict[str, Any]
    parameters: dict[str, Any]
    instance_digest: str
    repetition: int
    warmup: bool
    seed: int
    experiment: ExperimentRef  # if several versions are planned, the version of this trial
    resources: Resources
    runtime: RuntimeSettings  # if there are several environments, the one with its version


@dataclass(frozen=True)
class Plan:
    """A scenario with its axes; instances and trials are computed from them and not held in memory."""

    scenario: Scenario
    experiment: ExperimentRef
    code: Experiment | None  # None: no installed experiment provides this component and service
    component: str
    service: str
    service_is_explicit: bool  # set by the scenario; otherwise the driver of a trial's target names it
    resources: Resources
    limits: Limits
    space: PointSpace
    target: Mapping[str, Any]
    parameters: Mapping[str, Any]
    home: ValuePosition  # the top of the scenario file
    folder: Path  # base of relative paths in inputs
    nested: Mapping[str, Loc] = field(default_factory=dict)  # axes that lead into mappings, with their paths
    services: Mapping[str, TrialService] = field(default_factory=dict)
    variants: tuple["Plan", ...] = ()  # one plan per version of the experiment if the version is an axis
    _kept: list[Bound] = field(default_factory=list, compare=False, repr=False)

    def instances(self) -> Iterator[Instance]:
        return (plan._instance(target, parameters, given) for plan, (target, parameters, _, given) in self._points())

    @property
    def plans(self) -> tuple["Plan", ...]:
        """The plan of each version of the experiment; only this plan if there is one version."""
        return self.variants or (self,)

    @property
    def runtimes(self) -> list[RuntimeSettings]:
        """The distinct runtimes of the trials."""
        distinct = {canonical_json(plan.scenario.runtime.model_dump()): plan.scenario.runtime for plan in self.plans}
        return list(distinct.values())

    def _instance(self, target: dict[str, Any], parameters: dict[str, Any], given: dict[str, Any]) -> Instance:
        code = {"experiment": self.experiment.name, "version": self.experiment.version}
        return Instance(**code, target=target, parameters=parameters, services=self._served, resources=given)

    def _bound(self) -> Iterator[Bound]:
        """Yield inputs and digest of each instance; those of a small plan are kept because every plan is traversed
        twice.
        """
        if self.variants:
            return chain.from_iterable(plan._bound() for plan in self.variants)
        if self.space.raw_size > MOST_KEPT:
            return map(self._bind, self.space.points())
        if not self._kept:
            self._kept.extend(map(self._bind, self.space.points()))
        return iter(self._kept)

    def remember(self, meanings: Sequence[Meaning]) -> None:
        """Keep the inputs that were computed when the values were checked, so that they need not be computed again."""
        if self.code is None or len(meanings) != self.space.raw_size or self._fixed_target is None:
            return
        name, version, fixed, services = self._encoded
        target = self._fixed_target
        encoded_target = fixed or canonical_json(target)
        self._kept.extend(
            (target, parameters, instance_digest(name, version, encoded_target, encoded, services), {})
            for parameters, encoded in meanings
        )

    def _bind(self, point: Mapping[str, Any]) -> Bound:
        target, parameters = self._inputs(point)
        name, version, fixed, services = self._encoded  # the fixed part is encoded once
        encoded = fixed or canonical_json(target), canonical_json(parameters)
        given = resources_at(point)
        resources = canonical_json(given) if given else b""
        return target, parameters, instance_digest(name, version, *encoded, services, resources), given

    @cached_property
    def _encoded(self) -> tuple[bytes, bytes, bytes, bytes]:
        name, version = canonical_json(self.experiment.name), canonical_json(self.experiment.version)
        fixed = canonical_json(self._fixed_target) if self._fixed_target else b""
        return name, version, fixed, canonical_json(self._served) if self._served else b""

    def _inputs(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        target, parameters = put_together(self.target, self.parameters, point, self.nested)
        if self.code is None:
            return target, parameters
        try:
            target = self._fixed_target or normal(self.code.target_model, target, self.folder)
            return target, normal(self.code.workload_model, parameters, self.folder)
        except ValidationError as error:
            message = f"the point {_shown(point)} does not fit {self.experiment.name}: {reasons(error)}"
            expected = "values that fit each other: exclude this combination, or change it"
            raise ProblemsError([self.home.at("workload").problem(message, expected, key=True)]) from error

    @cached_property
    def _served(self) -> dict[str, Any]:
        return {name: service.identity() for name, service in self.services.items()}

    @cached_property
    def _fixed_target(self) -> dict[str, Any] | None:
        """The target if it is the same at every point, so that it is validated once, not a million times; otherwise
        None.
        """
        if self.code is None or any(key.startswith("target") for key in self.space.keys):
            return None
        return normal(self.code.target_model, dict(self.target), self.folder)

    def trials(self) -> Iterator[PlannedTrial]:
        """Yield all trials in the order in which they run; warm-ups come before the trials that they warm up."""
        order, warmups, repetitions = self.scenario.order, self.scenario.warmup, self.scenario.most_repetitions
        if order == "sequential":
            for plan, bound in self._points():
                yield from (plan._trial(bound, number, warmup=True) for number in range(warmups))
                yield from (plan._trial(bound, number) for number in range(repetitions))
            return
        for number in range(warmups):
            yield from (plan._trial(bound, number, warmup=True) for plan, bound in self._points())
        if order == "interleaved":
            for number in range(repetitions):
                yield from (plan._trial(bound, number) for plan, bound in self._points())
        else:
            yield from self._shuffled_trials()

    def _points(self) -> Iterator[tuple["Plan", Bound]]:
        return ((plan, bound) for plan in self.plans for bound in plan._bound())

    def _shuffled_trials(self) -> Iterator[PlannedTrial]:
        scenario, size = self.scenario, sum(plan.space.raw_size for plan in self.plans)
        shuffle = Shuffle(size * scenario.most_repetitions, scenario.seed)
        for position in range(size * scenario.most_repetitions):
            number, index = divmod(shuffle[position], size)
            plan, index = self._plan_at(index)
            point = plan.space.point(index)
            if point is not None:
                yield plan._trial(plan._bind(point), number)

    def _plan_at(self, index: int) -> tuple["Plan", int]:
        """Return the plan of the version that an index of the whole space belongs to, and the index in its space."""
        for plan in self.plans:
            if index < plan.space.raw_size:
                return plan, index
            index -= plan.space.raw_size
        raise IndexError(index)

    def _trial(self, bound: Bound, number: int, warmup: bool = False) -> PlannedTrial:
        target, parameters, digest, given = bound
        seed, resources = self.scenario.seed + number, self._given(given)
        named = self.experiment, resources, self.scenario.runtime
        return PlannedTrial(target, parameters, digest, number, warmup, seed, *named)

    def _given(self, varied: Mapping[str, Any]) -> Resources:
        return self.resources.model_copy(update=varied) if varied else self.resources

    @cached_property
    def all_resources(self) -> list[Resources]:
        """The distinct resources that trials of the plan get."""
        if not any(key.startswith(RESOURCES) for plan in self.plans for key in plan.space.keys):
            return [self.resources]
        points = (tuple(sorted(resources_at(point).items())) for plan in self.plans for point in plan.space.points())
        return [self._given(dict(point)) for point in dict.fromkeys(points)]

    @cached_property
    def _counted(self) -> tuple[int, str]:
        scenario = self.scenario
        versions = [plan.experiment.version for plan in self.variants]
        frame = {
            "experiment": [self.experiment.name, versions or self.experiment.version],
            "order": scenario.order,
            "repetitions": scenario.until.model_dump() if scenario.until else scenario.most_repetitions,
            "warmup": scenario.warmup,
            "seed": scenario.seed,
            "limits": self.limits.model_dump(exclude_none=True),  # fields that a release adds do not change the digest
        }
        running, heads = hashlib.sha256(canonical_json(frame)), array("Q")
        for _, _, digest, _ in self._bound():
            running.update(digest.encode())
            heads.append(int(digest[:16], 16))
        if _repeats(heads):
            self._refuse_repeated()
        return len(heads), running.hexdigest()

    def _refuse_repeated(self) -> None:
        """Raise ProblemsError if two points are one instance; they would be counted as two independent ones."""
        seen: dict[str, Mapping[str, Any]] = {}
        for plan in self.plans:
            for point in plan.space.points():
                earlier = seen.setdefault(plan._bind(point)[2], point)
                if earlier is not point:
                    message = f"the points {_shown(earlier)} and {_shown(point)} are the same to {self.experiment.name}"
                    expected = "different points: exclude one of them"
                    raise ProblemsError([self.home.at("workload").problem(message, expected, key=True)])

    @property
    def points(self) -> int:
        return self._counted[0]

    @property
    def digest(self) -> str:
        """The digest over instances, order, repetitions, seeds, and limits; it excludes where the plan runs."""
        return self._counted[1]

    @property
    def trial_count(self) -> int:
        """The number of trials; the maximum if a rule ends the repetitions."""
        return self.points * (self.scenario.most_repetitions + self.scenario.warmup)

    def shown_points(self) -> Iterator[dict[str, Any]]:
        """Yield the varying values of each point, including the version of the experiment."""
        for plan in self.plans:
            version = {VERSION_AXIS: plan.experiment.version} if self.variants else {}
            yield from (version | point for point in plan.space.points())

    @property
    def input_folder(self) -> str:
        """The folder that relative paths of inputs start in; empty if no input is a path."""
        if self.variants:
            return next((plan.input_folder for plan in self.variants if plan.input_folder), "")
        models = (self.code.target_model, self.code.workload_model) if self.code else ()
        return str(self.folder) if any(model and has_paths(model) for model in models) else ""

    @property
    def axes(self) -> list[str]:
        """The names of the varying keys, as in the tables."""
        if self.variants:
            return [VERSION_AXIS, *dict.fromkeys(name for plan in self.variants for name in plan.axes)]
        names: list[str] = []
        for block in self.space.blocks:
            for name in block.keys:
                names += _differing(block.column(name)) if name == TARGETS else [name]
        return names


def _differing(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys in which whole targets differ; only `target.name` if all have a name."""
    if all("name" in target for target in targets):
        return ["target.name"]
    keys = sorted({key for target in targets for key in target})
    return [f"target.{key}" for key in keys if len({str(target.get(key)) for target in targets}) > 1]


def join_versions(plans: Sequence[Plan], scenario: Scenario) -> Plan:
    """Return one plan that combines the plans of several versions of an experiment."""
    return replace(plans[0], scenario=scenario, variants=tuple(plans), _kept=[])


def make_plan(
    file: ScenarioFile,
    code: Experiment | None,
    ref: ExperimentRef,
    registered: Registered | None = None,
    services: Mapping[str, TrialService] | None = None,
    folder: Path | None = None,
    max_points: int = MAX_POINTS,
) -> Plan:
    """Expand a scenario after checking every value of every axis against the experiment's inputs.

    Raises ProblemsError before anything is expanded if the scenario has more points than `max_points`; excluded points
    count, because each has to be compared with the rules. `folder` is the folder of the scenario file if its text is
    elsewhere; relative paths start there.
    """
    scenario, home = file.scenario, ValuePosition(file.document, ())
    folder = (folder or home.folder).absolute() / (scenario.folder or "")
    draft = Draft(code, folder, file.document)
    chain = registered.chain if registered else []
    given = {
        key: value for part in (*(item.benchmark for item in chain), scenario) for key, value in part.workload.items()
    }
    component, service = _component_and_service(given, code)
    parts: list[tuple[Defined, ValuePosition]] = [(item.benchmark, ValuePosition(item.document, ())) for item in chain]
    parts.append((scenario, home))
    counted = Draft(code, folder, file.document, only_counts=True)
    counted.add_targets(scenario, home)
    counted.add_resources(scenario.resources, home)
    _add_parts(counted, parts)
    counted.refuse_too_many_points(max_points)
    draft.add_targets(scenario, home)
    draft.add_resources(scenario.resources, home)
    for number, item in enumerate(chain, 1):
        for later, where in parts[number:]:
            _refuse_frozen(item.benchmark, later, draft, where)
    if chain and draft.problems:
        raise ProblemsError(draft.problems)
    _add_parts(draft, parts)
    draft.forgive(file.dropped)
    for part, where in parts[:-1]:
        draft.add_rules(part.exclude, where)
    if not draft.spoilt:  # otherwise a rule may refer to an axis that could not be read
        draft.add_rules(scenario.exclude, home)
    draft.check_clashes()
    if scenario.scaling and not draft.has_number_axis():
        message = f"scaling: {scenario.scaling} is about a curve, and no number varies"
        draft.problems.append(home.at("scaling").problem(message, "an axis: resources: {nodes: [1, 2, 4]}"))
    says_driver = "service" in given and "driver" in fields_of(draft.target_model) and "target.driver" not in draft.axes
    if says_driver and any(entry.name == service for entry in entries("drivers")):  # otherwise the experiment's default
        draft.target.setdefault("driver", service)
    meanings = check_values(draft, home)
    if draft.problems:
        raise ProblemsError(draft.problems)
    if next(draft.space.points(), None) is None:
        message = "every point is excluded: nothing is left to run"
        raise ProblemsError([home.at("exclude").problem(message, key=True)])
    wanted = [part.resources for part, _ in reversed(parts) if part.resources]
    plan = Plan(
        scenario=scenario,
        experiment=ref,
        code=code,
        component=component,
        service=service,
        service_is_explicit="service" in given,
        resources=wanted[0].as_given() if wanted else code.resources if code else Resources(),
        limits=_merge_limits([part for part, _ in parts]),
        space=draft.space,
        target=draft.target,
        parameters=draft.parameters,
        home=home,
        folder=folder,
        nested=draft.nested,
        services=services or {},
    )
    plan.remember(meanings)
    return plan


def _add_parts(draft: Draft, parts: Sequence[tuple[Defined, ValuePosition]]) -> None:
    for part, where in parts:
        draft.add(part, _own(part.workload, draft.experiment), where)


def _component_and_service(workload: Mapping[str, Any], code: Experiment | None) -> tuple[str, str]:
    """Return component and service for metrics.json: those of the workload, otherwise those that the experiment
    declares.
    """
    component = str(workload.get("component", code.component if code else "custom"))
    default = (code.services[0] if len(code.services) == 1 else code.name) if code else ""
    return component, str(workload.get("service", default))


def _own(workload: Mapping[str, Any], code: Experiment | None) -> dict[str, Any]:
    """Return the workload without `component` and `service`, unless the experiment takes them as parameters."""
    kept = fields_of(code.workload_model) if code else workload
    return {key: value for key, value in workload.items() if key not in ("component", "service") or key in kept}


def _refuse_frozen(benchmark: Benchmark, scenario: Defined, draft: Draft, home: ValuePosition) -> None:
    """Report keys of a scenario that the benchmark fixes; it may set only those that the benchmark leaves open."""
    frozen = {draft.qualify(key) for key in benchmark.workload}
    for block in benchmark.axes:
        frozen |= {draft.qualify(key) for key in block.keys}
    expected = "a scenario fills only what the benchmark leaves open; register another benchmark to change it"
    for place, key in _keys_of_user(scenario, home):
        name = draft.qualify(key)
        if name in frozen or any(name.startswith(f"{fixed}.") for fixed in frozen):
            message = f"'{key}' is fixed by the benchmark '{benchmark.benchmark}'"
            draft.problems.append(place.problem(message, expected, key=True))


def _keys_of_user(scenario: Defined, home: ValuePosition) -> Iterator[tuple[ValuePosition, str]]:
    for key in scenario.workload:
        yield home.at("workload", key), key
    for index, block in enumerate(scenario.axes):
        for key in block.keys:
            parts = ("points", 0) if block.points else ("zip",) if block.zip else ("grid",)
            yield home.at("axes", index, *parts, key), key


def _merge_limits(parts: "list[Defined]") -> Limits:
    """Return the limits; if several parts set one, the last counts."""
    first, *others = (part.limits for part in parts)
    for limits in others:
        first = first.model_copy(update=limits.model_dump(exclude_none=True))
    return first


def _repeats(heads: "array[int]") -> bool:
    """Return whether a number occurs twice; needs eight bytes per point, whereas a set of a million takes 70 MB."""
    if len(heads) <= 10_000:
        return len(set(heads)) < len(heads)
    import numpy as np

    numbers = np.frombuffer(heads, dtype=np.uint64)
    numbers.sort()
    return bool((numbers[1:] == numbers[:-1]).any())


def _shown(point: Mapping[str, Any]) -> str:
    return shorten(", ".join(f"{key}={value}" for key, value in point.items()))
