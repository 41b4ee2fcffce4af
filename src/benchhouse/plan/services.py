"""Bind the services of a scenario to their recipes, and report mistakes in place."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchhouse.catalog.recipes import find_recipe, parameter_faults
from benchhouse.documents.document import Loc
from benchhouse.documents.problems import Problem, ProblemList, ProblemsError, did_you_mean
from benchhouse.plan.input_fields import fields_of
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.schema.cancellation import stop_if_cancelled
from benchhouse.schema.components import check_component
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Experiment
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.service import ServiceFolder, ServiceSpec, ServiceUse, TrialService, mentioned

_NAMING = ("target", "targets", "workload", "axes")  # keys that may contain `service:NAME`


def bind_services(
    file: ScenarioFile, *folders: Path, servers: Path | None = None
) -> tuple[dict[str, TrialService], list[Problem]]:
    """Return the bound services by name, and the problems. Recipes are searched in `folders`, then in installed
    packages; servers that were started separately are searched below `servers`.
    """
    bound: dict[str, TrialService] = {}
    problems = ProblemList()
    problems += _strangers(file)
    for name, use in file.scenario.services.items():
        stop_if_cancelled()
        loc: Loc = ("services", name)
        try:
            check_component(name)
        except ValueError as error:
            problems.append(file.document.problem(loc, str(error), key=True))
        if use.server is not None:
            try:
                bound[name] = _of_server(use, servers)
            except BenchError as error:
                problems.append(file.document.problem((*loc, "server"), error.message, error.hint))
            continue
        if use.recipe is None:
            bound[name] = TrialService(use=use)
            continue
        at = (*loc, "recipe")
        if isinstance(use.recipe, Recipe):
            named = use.model_copy(update={"recipe": use.recipe.name})
            bound[name] = TrialService(use=named, recipe=use.recipe)
            problems += _misfits(file, loc, use, use.recipe)
            continue
        try:
            located = find_recipe(use.recipe, *folders)
        except ProblemsError as error:
            problems += [file.document.problem(at, f"{problem.place}: {problem.message}") for problem in error.problems]
            continue
        except BenchError as error:
            problems.append(file.document.problem(at, error.message, error.hint))
            continue
        if located.origin.startswith("/"):
            use = use.model_copy(update={"recipe": located.origin})
        bound[name] = TrialService(use=use, recipe=located.recipe)
        problems += _misfits(file, loc, use, located.recipe)
    return bound, problems


def _of_server(use: ServiceUse, servers: Path | None) -> TrialService:
    """Return a running server as a service, with the recipe, parameters, and replicas that it was started with."""
    names = [use.server] if isinstance(use.server, str) else use.server or []
    folders = [_folder_of(name, servers) for name in names]
    first, *more = [ServiceSpec.model_validate_json(folder.spec.read_bytes()) for folder in folders]
    for spec in more:
        if (spec.recipe, spec.parameters) != (first.recipe, first.parameters):
            message = f"{spec.id} was started otherwise than {first.id}"
            raise BenchError(message, "several servers have one recipe and the same parameters")
    ids = [first.id, *(spec.id for spec in more)]
    paths = [str(folder.path.absolute()) for folder in folders]
    return TrialService(
        use=use.model_copy(update={"server": ids if more else first.id}),
        recipe=first.recipe,
        folder=paths[0],
        others=paths[1:],
        given=first.parameters,
        count=sum(spec.replicas for spec in (first, *more)),
    )


def _folder_of(name: str, servers: Path | None) -> ServiceFolder:
    paths = sorted(path.parent for path in servers.glob("*/service.json")) if servers else []
    matches = [path for path in paths if path.name == name] or [path for path in paths if path.name.startswith(name)]
    if len(matches) == 1:
        return ServiceFolder(matches[0])
    several = f"'{name}' could be {', '.join(path.name for path in matches)}" if matches else ""
    raise BenchError(several or f"there is no server '{name}' in this workspace", "an id of: bench servers ps")


def with_own_server(file: ScenarioFile, code: Experiment | None, *folders: Path) -> ScenarioFile | None:
    """Return the scenario with the server that `workload: {service: NAME}` means, if it names no address and no server.

    None if it does, if there is no recipe of that name, or if the scenario does not set all that the recipe needs.
    """
    scenario = file.scenario
    named = scenario.workload.get("service")
    if not isinstance(named, str) or code is None or "url" not in fields_of(code.target_model):
        return None
    given, varied = scenario.target or {}, {key for block in scenario.axes for key in block.keys}
    if isinstance(given, str) or "url" in given or varied & {"url", "target.url"}:
        return None
    if scenario.services or scenario.targets:
        return None
    try:
        recipe = find_recipe(named.replace(".", "_").replace("-", "_"), *folders).recipe
    except BenchError:
        return None
    inputs = {**scenario.workload, **given}
    chosen = {name: inputs[name] for name in recipe.parameters if isinstance(inputs.get(name), str)}
    if any(default is None and name not in chosen for name, default in recipe.parameters.items()):
        return None
    if "name" in recipe.parameters and "model" in chosen:
        chosen["name"] = chosen["model"]  # requests use the name that the scenario uses
    services = {recipe.name: ServiceUse(recipe=recipe.name, parameters=chosen)}
    target = {**given, "url": f"service:{recipe.name}"}
    return replace(file, scenario=scenario.model_copy(update={"services": services, "target": target}))


def _misfits(file: ScenarioFile, loc: Loc, use: ServiceUse, recipe: Recipe) -> Iterator[Problem]:
    for name, message in parameter_faults(recipe, use.parameters):
        if name in use.parameters:
            known, guess = ", ".join(recipe.parameters) or "none", did_you_mean(name, recipe.parameters) or ""
            yield file.document.problem((*loc, "parameters", name), message, f"one of: {known}", guess, key=True)
        else:
            yield file.document.problem(loc, message, f"parameters: {{{name}: ...}}", key=True)
    if use.node and use.mode == "embedded":
        needed = 2 if use.node == "others" else use.node + 1
        wanted = file.scenario.resources
        if wanted is not None and wanted.nodes < needed:
            message = f"node: {use.node} needs a trial of at least {needed} nodes, and it has {wanted.nodes}"
            yield file.document.problem((*loc, "node"), message, f"resources: {{nodes: {needed}}}")
        if not recipe.reachable:
            message = f"the recipe {recipe.name} can't be reached from another node: it does not say {{host}}"
            yield file.document.problem((*loc, "node"), message, "write {host} into its command and its endpoint")
    if recipe.scale.nodes > 1 and file.scenario.executor == "local":
        yield file.document.problem(loc, f"the recipe {recipe.name} needs {recipe.scale.nodes} nodes: here is one")
    elif recipe.scale.nodes > 1 and use.mode == "embedded":
        message = f"the recipe {recipe.name} needs {recipe.scale.nodes} nodes, which only a job of its own has"
        yield file.document.problem(loc, message, "mode: attached")
    elif fault := recipe.nodes_fault(use.replicas or recipe.scale.replicas):
        yield file.document.problem(loc, fault, "replicas, or a recipe with members")


def _strangers(file: ScenarioFile) -> Iterator[Problem]:
    known = file.scenario.services
    for loc, text in _texts(file.document.data, ()):
        for name in mentioned(text) - known.keys():
            expected = f"one of: {', '.join(known)}" if known else "a service of that name under services:"
            guess = did_you_mean(name, known) or ""
            yield file.document.problem(loc, f"there is no service '{name}' in this scenario", expected, guess)


def _texts(value: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    if loc and loc[0] not in _NAMING:
        return
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(item, (*loc, key))
    elif isinstance(value, str):
        yield loc, value
