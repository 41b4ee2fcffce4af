"""Make the model of a benchmark's folder its target: find the input that takes the model's id, and contradictions.

The input is, in this order: the one that a binding of a logical benchmark names for the experiment (`targetMapping`);
the first of NAMES that the experiment has, among the inputs of its target and then of its workload; the target's name.
If the file itself gives the model's id to any other input, nothing is added.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import ProblemsError
from benchhouse.plan.axes import Draft, whole_target
from benchhouse.plan.input_fields import fields_of
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.schema.experiment import Experiment
from benchhouse.schema.quoting import describe
from benchhouse.schema.scenario import Defined, Scenario, axis_values

NAMES = ("model", "model_id", "model_name", "target")


def bind_model(
    file: ScenarioFile, model_id: str, said_in: Document, code: Experiment | None, mapped: str = ""
) -> ScenarioFile:
    """Return the scenario with the model as its target; `mapped` is the input that a binding names.

    Raises ProblemsError if the file names another target. Without `code`, values are only compared and nothing is
    added.
    """
    scenario, draft = file.scenario, Draft(code)
    name = _input(draft, mapped) if code else _target_name_in_scenario(scenario, draft, mapped)
    _refuse_others(file, draft, name, model_id, said_in)
    if code is None:
        return file
    given = list(_given(scenario, draft))
    has_model = any(value == model_id for _, _, value in given)
    if not name and not has_model:
        where = f"{said_in.path}:{said_in.position(('model', 'id'))[0]}"
        message = f"{code.name} has no input for the model of this folder ({where})"
        expected = f"an input called {', '.join(NAMES)}; or give '{model_id}' to the one that takes it"
        raise ProblemsError([file.document.problem(("experiment",), message, expected)])
    put = {} if has_model else {name: model_id}
    if "target.name" not in {key for key, _, _ in given} and _may_be_named(code):
        put["target.name"] = model_id  # results are filed under this name, whichever input takes the model
    return replace(file, scenario=_put(scenario, put)) if put else file


def _input(draft: Draft, mapped: str) -> str:
    """Return the full name (`target.x`, or `x` of the workload) of the input that takes the model; empty if there is
    none.
    """
    theirs, ours = fields_of(draft.target_model), fields_of(draft.workload_model)
    if mapped in ours or mapped in theirs:
        return draft.qualify(mapped)
    code = draft.experiment
    default = "target.name" if code and code.takes_target and _may_be_named(code) else ""
    names = [*(f"target.{name}" for name in NAMES if name in theirs), *(name for name in NAMES if name in ours)]
    return next(iter(names), default)


def _may_be_named(code: Experiment) -> bool:
    """Return whether the target may have a name: an untyped one takes any key, and no target ignores it."""
    return code.target_model is None or "name" in fields_of(code.target_model)


def _target_name_in_scenario(scenario: Scenario, draft: Draft, mapped: str) -> str:
    """Return the input that takes the model, as far as the file shows it, for an experiment that is not installed."""
    given = [key for key, _, _ in _given(scenario, draft)]
    wanted = [full for name in (mapped, *NAMES) if name for full in (f"target.{name}", name)]
    return next((name for name in wanted if name in given), "")


def _refuse_others(file: ScenarioFile, draft: Draft, name: str, model_id: str, said_in: Document) -> None:
    line, _ = said_in.position(("model", "id"))
    expected = f"leave '{name.removeprefix('target.')}' out: the folder says it"
    model = f"the model of this folder is '{model_id}' ({said_in.path}:{line})"
    problems = [
        file.document.problem(loc, f"'{name}' is {describe(value)}; {model}", expected)
        for key, loc, value in _given(file.scenario, draft)
        if key == name and value != model_id
    ]
    if problems:
        raise ProblemsError(problems)


def _given(scenario: Scenario, draft: Draft) -> Iterator[tuple[str, Loc, Any]]:
    """Yield every value that the scenario gives to an input: its full name, its place, and the value."""
    targets: list[tuple[Loc, Any]] = [(("target",), scenario.target)] if scenario.target is not None else []
    targets += [(("targets", index), target) for index, target in enumerate(scenario.targets)]
    for loc, target in targets:
        if isinstance(target, str):
            yield "target.name", loc, target
            continue
        for key, value in target.items():
            yield from _each(f"target.{key}", (*loc, key), value)
    for key, value in scenario.workload.items():
        yield from _each(draft.qualify(key), ("workload", key), value)
    yield from _of_axes(scenario, draft)


def _of_axes(scenario: Defined, draft: Draft) -> Iterator[tuple[str, Loc, Any]]:
    for index, block in enumerate(scenario.axes):
        for form, axes in (("grid", block.grid), ("zip", block.zip)):
            for key, values in (axes or {}).items():
                for number, value in enumerate(axis_values(values)):
                    yield draft.qualify(key), ("axes", index, form, key, number), value
        for number, point in enumerate(block.points or ()):
            for key, value in point.items():
                yield draft.qualify(key), ("axes", index, "points", number, key), value


def _each(name: str, loc: Loc, value: Any) -> Iterator[tuple[str, Loc, Any]]:
    """Yield a value; a list is an axis and yields each of its values."""
    if isinstance(value, list):
        yield from ((name, (*loc, index), item) for index, item in enumerate(value))
    else:
        yield name, loc, value


def _put(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    in_target = {key.removeprefix("target."): value for key, value in values.items() if key.startswith("target.")}
    ours = {key: value for key, value in values.items() if not key.startswith("target.")}
    changed: dict[str, Any] = {"workload": {**ours, **scenario.workload}} if ours else {}
    if in_target and scenario.targets:
        changed["targets"] = [in_target | whole_target(target) for target in scenario.targets]
    elif in_target:
        changed["target"] = in_target | whole_target(scenario.target or {})
    return scenario.model_copy(update=changed)
