"""From a scenario file to a reviewed plan: validate, plan, and estimate."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.catalog.benchmarks import Registered
from benchhouse.catalog.entries import find_plug
from benchhouse.catalog.listing import Listed, list_experiments, resolve, serving
from benchhouse.catalog.nexus_root import find_nexus, holds_models_benchmark
from benchhouse.documents.problems import Problem, ProblemsError, all_or_problems
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.plan.axes import too_many_points
from benchhouse.plan.dataset import missing_dataset, with_dataset
from benchhouse.plan.expand import join_versions, make_plan
from benchhouse.plan.input_fields import fields_of
from benchhouse.plan.model_target import bind_model
from benchhouse.plan.scenario_file import (
    FaultyScenarioError,
    ScenarioFile,
    expand_benchmark,
    is_space,
    parse_scenario,
    read_scenario,
)
from benchhouse.plan.scenario_paths import missing_packages, package_problems, with_absolute_paths
from benchhouse.plan.services import bind_services, with_own_server
from benchhouse.plan.site_fit import site_problems
from benchhouse.plan.unused_fields import slurms_resources, unknown_models, unused_field_problems, unused_fields
from benchhouse.runs.executor_choice import Where as Where
from benchhouse.runs.executor_choice import place
from benchhouse.runs.isolated_environments import IsolatedSearch, each_environment
from benchhouse.runs.prepared_run import PreparedRun, source_builds, workspace_settings
from benchhouse.runs.server_images import refusal, with_pins
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.experiment import Experiment
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.protocols import RuntimeContext
from benchhouse.schema.resources import RuntimeSettings as RuntimeSpec
from benchhouse.schema.scenario import Scenario
from benchhouse.schema.service import TrialService
from benchhouse.schema.site import Site
from benchhouse.schema.trial import ExperimentRef
from benchhouse.schema.workspace_file import Planning
from benchhouse.sites import places
from benchhouse.sites.image_lock import read_lock

if TYPE_CHECKING:
    from benchhouse.catalog.benchmark_lookup import BenchmarkIndex
    from benchhouse.plan.descriptor import Converted


def prepare(workspace: WorkspaceFolder, path: Path, where: Where | None = None) -> PreparedRun:
    """Read, resolve, and plan a scenario file. Every mistake is raised with its place in the file."""
    plans = prepare_all(workspace, path, where)
    if len(plans) > 1:
        names = ", ".join(item.plan.experiment.name for item in plans)
        raise BenchError(f"{path} is a space of {len(plans)} experiments ({names}): one run each", f"bench run {path}")
    return plans[0]


def prepare_all(workspace: WorkspaceFolder, path: Path, where: Where | None = None) -> list[PreparedRun]:
    """Prepare a file that may be a space of ado: return a plan for each experiment in it."""
    if path.suffix == ".toml":
        return [_prepare_descriptor(workspace, path, where or Where())]
    document = load_yaml(path)
    if not is_space(document.data):
        return [_prepare(workspace, lambda: read_scenario(document, os.environ), path.parent, where or Where())]
    from benchhouse.plan.spaces import read_space, scenarios  # imports ado's models

    files = scenarios(read_space(document), os.environ, _inputs_of)
    return all_or_problems(partial(_place_and_plan, workspace, file, path.parent, where or Where()) for file in files)


def converted(workspace: WorkspaceFolder, path: Path, where: Where) -> "Converted":
    """Return a descriptor of Benchmark AI as a scenario. Every mistake is raised with its place in the descriptor."""
    from benchhouse.documents.toml_reader import load_toml  # imports models that only descriptors need
    from benchhouse.plan.descriptor import convert

    site = places.site(workspace, where.site)
    return convert(load_toml(path), site, where.executor or site.executor or "local", os.environ)


def _prepare_descriptor(workspace: WorkspaceFolder, path: Path, where: Where) -> PreparedRun:
    descriptor = converted(workspace, path, where)
    prepared = _place_and_plan(workspace, descriptor.file, path.parent, where)
    return replace(prepared, notes=[*descriptor.notes, *prepared.notes])


def _inputs_of(name: str, version: str | None) -> Collection[str] | None:
    """Return the inputs of an experiment by the names in a space; None if it is not installed (reported later)."""
    try:
        code = _load(resolve(name, version, list_experiments(places.cache())))
    except BenchError:
        return None
    return {*fields_of(code.workload_model), *(f"target.{key}" for key in fields_of(code.target_model))}


def prepare_text(workspace: WorkspaceFolder, text: str, path: str, home: Path, where: Where) -> PreparedRun:
    """Prepare a text that was read before; `home` is the folder of its file."""
    return _prepare(workspace, lambda: parse_scenario(text, path, os.environ), home, where)


def _prepare(workspace: WorkspaceFolder, read: Callable[[], ScenarioFile], home: Path, where: Where) -> PreparedRun:
    try:
        file = read()
    except FaultyScenarioError as error:
        site = places.site(workspace, where.site)
        rest = place(error.rest, where, site).file if error.rest else None
        raise error.joined_by(_further_problems(workspace, rest, home, site, where.read_only)) from error
    return _place_and_plan(workspace, file, home, where)


def _place_and_plan(workspace: WorkspaceFolder, file: ScenarioFile, home: Path, where: Where) -> PreparedRun:
    site = places.site(workspace, where.site)
    for option, group, name in (("--executor", "executors", where.executor), ("--runtime", "runtimes", where.runtime)):
        try:
            if name:  # comes from the command line, so no line of the file is to blame
                find_plug(group, name)
        except BenchError as error:
            raise BenchError(f"{option} {name}: {error.message}", error.hint) from error
    placed = place(file, where, site)
    prepared = _resolve_and_plan(workspace, placed.file, home, site, where.read_only)
    notes = [*placed.notes, *prepared.notes]
    return _governed(replace(prepared, site_name=where.site, notes=notes, only_slurm=placed.only_slurm), where)


def _governed(prepared: PreparedRun, where: Where) -> PreparedRun:
    """Add the contract that the command line names, or otherwise the scenario."""
    named = prepared.plan.scenario.contract
    path = Path(where.contract) if where.contract else prepared.home / named if named else None
    if path is None:
        return prepared
    from benchhouse.runs.contracts import govern  # imports the models of contracts

    if not where.contract and not path.is_file():
        message, expected = f"there is no contract {path}", "the path of a contract; see: bench contracts list"
        raise ProblemsError([prepared.file.document.problem(("contract",), message, expected)])
    contract = govern(prepared, path)
    if contract.settled.verdict == "downgraded":
        prepared.notes.append(f"the contract {contract.terms.name} is {contract.settled.sentence()}")
    return replace(prepared, contract=contract)


def _further_problems(
    workspace: WorkspaceFolder, rest: ScenarioFile | None, home: Path, site: Site, read_only: bool
) -> Sequence[Problem]:
    """Return the problems in the readable part of a faulty scenario, so that all are reported at once."""
    try:
        if rest is not None:
            _resolve_and_plan(workspace, rest, home, site, read_only)
    except BenchError as error:
        return error.problems if isinstance(error, ProblemsError) else []  # other errors are not about the file
    return []


def _resolve_and_plan(
    workspace: WorkspaceFolder, file: ScenarioFile, home: Path, site: Site, read_only: bool
) -> PreparedRun:
    if isinstance(file.scenario.version, list):
        return _plan_versions(workspace, file, home, site, read_only)
    notes: list[str] = []
    folder = home.absolute() / (file.scenario.folder or "")
    file = with_absolute_paths(file, folder)
    recipes = (workspace.recipes, home / workspace.recipes.name, home)
    services, problems = bind_services(file, *recipes, servers=workspace.services)
    problems += [*_missing_plugs(file), *unused_field_problems(file), *missing_packages(file)]
    try:
        make = None if read_only else partial(check_trusted_packages, workspace, file.document.path)
        registered, listed, code, runtime = _resolve_experiment(
            workspace, file, home, notes, IsolatedSearch(make, workspace.root) if not problems else None
        )
        file = replace(file, scenario=file.scenario.model_copy(update={"runtime": runtime}))
        file = _bound_to_model(file, home, code, problems)
        file = with_dataset(file, code, folder)
        notes += [f"{problem.message}: it can be planned for, and not run" for problem in missing_dataset(file, folder)]
        if served := with_own_server(file, code, *recipes):
            file = served
            services, misfits = bind_services(file, *recipes)
            problems += misfits
            notes.append(f"no target.url: each trial starts the recipe {', '.join(services)} as its server")
        services = with_pins(services, read_lock(workspace.image_lock).digests)
        problems += _refused_images(file, services, site)
        most = _most_points(workspace, read_only)
        plan = make_plan(file, code, listed.ref() if listed else _unknown(file), registered, services, home, most)
    except ProblemsError as error:
        raise ProblemsError([*problems, *error.problems]) from error
    problems += [] if listed and listed.environment else package_problems(file, plan.experiment)
    problems += [*slurms_resources(file, plan), *unknown_models(file, plan)]
    problems += site_problems(file, plan, site) if file.scenario.executor == "slurm" else []
    if problems:
        raise ProblemsError(problems)
    notes += [*unused_fields(file, site), *(listed.notes if listed else [])]
    if listed and listed.deprecated:
        instead = f"; use {listed.deprecated['replaced_by']}" if listed.deprecated.get("replaced_by") else ""
        notes.append(f"{listed.name} {listed.version} is deprecated: {listed.deprecated['reason']}{instead}")
    return PreparedRun(file, plan, registered, notes, home, site, listed=(listed,) if listed else ())


def _plan_versions(
    workspace: WorkspaceFolder, file: ScenarioFile, home: Path, site: Site, read_only: bool
) -> PreparedRun:
    """Make a plan for each version, whose inputs may differ, and join them into one with `version` as an axis."""
    versions = list(file.scenario.version or ())
    files = [replace(file, scenario=file.scenario.model_copy(update={"version": version})) for version in versions]
    prepared = all_or_problems(partial(_resolve_and_plan, workspace, single, home, site, read_only) for single in files)
    points, most = sum(item.plan.space.raw_size for item in prepared), _most_points(workspace, read_only)
    if points > most:
        raise ProblemsError([file.document.problem(("version",), *too_many_points(points, most), key=True)])
    first = prepared[0]
    plan = join_versions([item.plan for item in prepared], first.plan.scenario.model_copy(update={"version": versions}))
    notes = list(dict.fromkeys(note for item in prepared for note in item.notes))
    return replace(first, plan=plan, notes=notes, listed=tuple(one for item in prepared for one in item.listed))


def _most_points(workspace: WorkspaceFolder, read_only: bool) -> int:
    file = workspace_settings(workspace)
    planning = file.planning if file else Planning()
    return planning.reader_max_points if read_only else planning.max_points


def _refused_images(file: ScenarioFile, services: Mapping[str, TrialService], site: Site) -> Iterator[Problem]:
    """Yield a problem for each server that the site forbids. One embedded in a container is part of its image."""
    inside = file.scenario.runtime.kind not in ("process", "venv")
    for name, service in services.items():
        if service.recipe is None or service.use.server or (inside and service.use.mode == "embedded"):
            continue
        if refused := refusal(service.recipe, service.parameters, site):
            yield file.document.problem(("services", name), refused.message, refused.hint, key=True)


def _missing_plugs(file: ScenarioFile) -> list[Problem]:
    scenario, problems = file.scenario, list[Problem]()
    for group, name, loc in (
        ("executors", scenario.executor, ("executor",)),
        ("runtimes", scenario.runtime.kind, ("runtime", "kind")),
    ):
        try:
            find_plug(group, name)
        except BenchError as error:
            problems.append(file.document.problem(loc, error.message, error.hint))
    return problems


def _resolve_experiment(
    workspace: WorkspaceFolder, file: ScenarioFile, home: Path, notes: list[str], isolated: IsolatedSearch | None
) -> tuple[Registered | None, Listed | None, Experiment | None, RuntimeSpec]:
    """Return the benchmark, if the scenario uses one, the experiment, and the runtime of its trials.

    The experiment is None if it can only be planned. `isolated` searches isolated environments; None skips them.
    """
    scenario, document, runtime = file.scenario, file.document, file.scenario.runtime
    listed = list_experiments(places.cache())
    where = "uses" if scenario.uses else "experiment" if scenario.experiment else "workload"
    registered, chosen = None, None
    try:
        if scenario.uses:
            registered = _expanded(shelf(workspace, home).find(scenario.uses))
            wanted = registered.experiment, _version(file, registered)
        elif scenario.experiment:
            wanted = scenario.experiment, _only_version(scenario)
        else:
            chosen = _by_service(file, listed, notes)
            return None, chosen, _load(chosen) if chosen else None, runtime
        searched = isolated if _apart(wanted, runtime, listed) else None
        surroundings = RuntimeContext(places.cache(), builds=source_builds(workspace))
        own = searched.find(*wanted, runtime, surroundings) if searched else None
        chosen, runtime = own or (resolve(*wanted, listed), runtime)
        return registered, chosen, _load(chosen), runtime
    except ProblemsError:
        raise
    except BenchError as error:
        if error.exit_code == Exit.NEEDS_APPROVAL:
            raise
        hint = error.hint
        if runtime.kind not in ("process", "venv"):
            hint = f"{hint}; it is planned in this environment: install its package here too, not only in the runtime"
        raise ProblemsError([document.problem((where,), error.message, expected=hint)]) from error


def check_trusted_packages(workspace: WorkspaceFolder, path: str, environments: Sequence[RuntimeSpec]) -> None:
    """Raise BenchError if trusted.yaml forbids packages of isolated environments: inspecting one runs its code."""
    if workspace.trusted.is_file():
        from benchhouse.runs.package_gate import check_environments  # few workspaces have a policy

        check_environments(workspace, environments, RuntimeContext(places.cache()), path)


def environments_of(workspace: WorkspaceFolder, path: Path, where: Where) -> list[RuntimeSpec]:
    """Return the environments of a scenario file's trials if they are not this Python; none of them is created.

    The result is empty for spaces and descriptors, whose environments only their plans show.
    """
    if path.suffix == ".toml" or is_space((document := load_yaml(path)).data):
        return []
    file = place(read_scenario(document, os.environ), where, places.site(workspace, where.site)).file
    file = with_absolute_paths(file, path.parent.absolute() / (file.scenario.folder or ""))
    runtime = file.scenario.runtime
    return [] if runtime.kind == "process" else each_environment(runtime)


def _apart(wanted: tuple[str, str | None], runtime: RuntimeSpec, listed: Sequence[Listed]) -> bool:
    """Return whether the experiment is in an isolated environment: by setting, or because it is not installed."""
    name, version = wanted
    here = any(item.name == name and version in (None, item.version) for item in listed)
    return bool(runtime.environments) or (bool(runtime.requirements) and not here)


def check_open(registered: Registered, found: Listed) -> None:
    """Check the inputs that a benchmark fixes against those of its experiment. Open inputs are not a mistake."""
    registered = _expanded(registered)
    scenario = Scenario(scenario=registered.benchmark.benchmark, uses=registered.benchmark.benchmark)
    open_keys = frozenset({"target", "targets", "workload", "axes"})
    make_plan(ScenarioFile(scenario, registered.document, open_keys), _load(found), found.ref(), registered)


def _expanded(registered: Registered) -> Registered:
    base = _expanded(registered.base) if registered.base else None
    return replace(registered, benchmark=expand_benchmark(registered.document, os.environ), base=base)


def shelf(workspace: WorkspaceFolder, home: Path) -> "BenchmarkIndex":
    """Return the index in which `uses:` of a file in the folder `home` is looked up."""
    from benchhouse.catalog.benchmark_lookup import BenchmarkIndex
    from benchhouse.plan.spaces import benchmark_of_space

    folders = (workspace.benchmarks, home / workspace.benchmarks.name)
    nexus = find_nexus(None, {}, home) or places.nexus(None, workspace.root)  # the workspace's own nexus comes first
    return BenchmarkIndex(
        folders,
        places.near(nexus) if nexus else None,
        lambda document, name: benchmark_of_space(document, name, os.environ),
    )


def _bound_to_model(file: ScenarioFile, home: Path, code: Experiment | None, problems: list[Problem]) -> ScenarioFile:
    """Set the model as the target in a model's folder of a nexus. Contradictions are added to `problems`."""
    if not holds_models_benchmark(home):
        return file
    from benchhouse.catalog.nexus import model_of, target_inputs

    entry, document = model_of(home)
    name = code.name if code else file.scenario.experiment or ""
    try:
        return bind_model(file, entry.id, document, code, target_inputs(home.absolute().parents[5]).get(name, ""))
    except ProblemsError as error:
        problems += error.problems
        return file


def check_file(path: Path) -> None:
    """Check a scenario or space without its experiment: its form, and that it names no other model."""
    document, problems = load_yaml(path), list[Problem]()
    if is_space(document.data):
        from benchhouse.plan.spaces import read_space, scenarios

        files = scenarios(read_space(document), os.environ)
    else:
        files = [read_scenario(document, os.environ)]
    for file in files:
        _bound_to_model(file, path.parent, None, problems)
    if problems:
        raise ProblemsError(problems)


def _version(file: ScenarioFile, registered: Registered) -> str | None:
    """Return the benchmark's version of the experiment, or the scenario's if the benchmark leaves it open."""
    fixed, wanted = registered.version, _only_version(file.scenario)
    if fixed and wanted and fixed != wanted:
        message = f"the benchmark '{registered.benchmark.benchmark}' is frozen to version '{fixed}'"
        raise ProblemsError([file.document.problem(("version",), message, "leave `version` out")])
    return fixed or wanted


def _by_service(file: ScenarioFile, listed: Sequence[Listed], notes: list[str]) -> Listed | None:
    """Return the experiment for `workload: {component, service}`; None, with a note, if none is installed."""
    workload, document = file.scenario.workload, file.document
    component, service = workload.get("component"), workload.get("service")
    if not isinstance(component, str) or not isinstance(service, str):
        message = "this scenario does not say what to run"
        expected = "experiment: NAME, or uses: BENCHMARK, or workload: {component: ..., service: ...}"
        raise ProblemsError([document.problem((), message, expected=expected)])
    names = serving(component, service, listed)
    if len(names) > 1:
        raise BenchError(
            f"several experiments drive {component}/{service}: {', '.join(names)}", "name one: experiment: ..."
        )
    if names:
        return resolve(names[0], _only_version(file.scenario), listed)
    notes.append(f"no installed experiment drives {component}/{service}: this scenario can be planned, not run")
    return None


def _only_version(scenario: Scenario) -> str | None:
    assert not isinstance(scenario.version, list)
    return scenario.version


def _unknown(file: ScenarioFile) -> ExperimentRef:
    workload = file.scenario.workload
    name = f"{workload['component']}/{workload['service']}"
    return ExperimentRef(name=name, version="", object="", distribution="", distribution_version="")


def _load(found: Listed) -> Experiment:
    """Load the experiment. It could be imported when it was listed; raise BenchError in plain words if it now can't."""
    try:
        return found.code()
    except BenchError:
        raise
    except (Exception, SystemExit) as error:
        raise BenchError(f"experiment '{found.name}' can't be imported: {type(error).__name__}: {error}") from error
