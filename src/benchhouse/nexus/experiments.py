"""Experiments that are installed here or registered in a nexus, and the details of one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.catalog.isolated_experiments import all_descriptions
from benchhouse.catalog.listing import Listed, list_experiments, resolve
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.sites import places

if TYPE_CHECKING:
    from benchhouse.catalog.benchmarks import Registered
    from benchhouse.catalog.inputs import InputKey
    from benchhouse.schema.experiment import Data, Deprecated, Metric
    from benchhouse.schema.resources import Resources


@dataclass(frozen=True)
class ListedExperiment(Listed):
    """An experiment that is installed here or in an isolated environment, or that a package of a nexus registers."""

    installed: bool = True
    registered_by: list[str] = field(default_factory=list)
    """The packages of the nexus that name it."""


@dataclass(frozen=True)
class BenchmarkDetails:
    """A registered benchmark: the file that defines it, and the values that the file fixes for every scenario."""

    content: dict[str, Any]
    """The contents of the file, including those that it inherits from the benchmark that it uses."""
    file: str
    origin: str
    """`workspace`, the distribution, or the package of the nexus."""

    @property
    def name(self) -> str:
        return str(self.content["benchmark"])

    @property
    def description(self) -> str:
        return str(self.content.get("description", ""))

    @property
    def workload(self) -> dict[str, Any]:
        """The inputs that it fixes."""
        return dict(self.content.get("workload", {}))

    def to_dict(self) -> dict[str, Any]:
        return self.content | {"file": self.file, "origin": self.origin}


@dataclass(frozen=True)
class ExperimentDetails:
    """The details of one known experiment, and of the benchmark if it was looked up by one."""

    name: str
    version: str
    object: str
    """`module:function` of its code."""
    distribution: str
    distribution_version: str
    description: str
    component: str
    services: list[str]
    metrics: "list[Metric]"
    resources: "Resources"
    data: "list[Data]"
    deprecated: "Deprecated | None"
    bridge: str
    """`ado` if it is an experiment of ado, otherwise empty."""
    properties: list[dict[str, Any]]
    """Inputs of an experiment of ado, as ado describes them."""
    notes: list[str]
    """Parts of its declaration that have no effect here."""
    environment: list[str]
    """Requirements of the only isolated environment that has it; empty if it is installed here."""
    benchmark: BenchmarkDetails | None
    target: "list[InputKey]"
    workload: "list[InputKey]"

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `bench show NAME --json` prints."""
        from pydantic_core import to_jsonable_python

        document: dict[str, Any] = to_jsonable_python(self)
        benchmark = self.benchmark.to_dict() if self.benchmark else None
        return document | {"inputs": document.pop("properties"), "benchmark": benchmark, "broken": None}


def installed() -> list[Listed]:
    """Return all installed experiments, including deprecated and broken ones."""
    return list_experiments(places.cache())


def known() -> list[Listed]:
    """Return installed experiments, and those of inspected isolated environments that are not installed here."""
    here = installed()
    names = {(item.name, item.version) for item in here}
    apart = [item for item in all_descriptions(places.cache()) if (item.name, item.version) not in names]
    return sorted([*here, *apart], key=lambda item: item.name) if apart else here


def look_into(workspace: WorkspaceFolder, requirements: Sequence[str]) -> None:
    """Make an isolated environment for each requirement; `known` returns its experiments from then on.

    Raise BenchError if trusted.yaml forbids one, because inspecting it runs its code, or if it has no experiment.
    """
    from benchhouse.runs.isolated_environments import experiments_in
    from benchhouse.runs.package_gate import check_environments
    from benchhouse.runs.prepared_run import source_builds
    from benchhouse.schema.protocols import RuntimeContext
    from benchhouse.schema.resources import RuntimeSettings

    builds = source_builds(workspace)
    for requirement in requirements:
        local = Path(requirement.partition("[")[0]).exists()
        wanted = str(Path(requirement).absolute()) if local else requirement
        spec, place = RuntimeSettings(kind="venv", requirements=[wanted]), RuntimeContext(places.cache(), builds=builds)
        check_environments(workspace, [spec], place, "SCENARIO")
        if not experiments_in(spec, place):
            hint = "its package needs an entry point in the group benchhouse.experiments"
            raise BenchError(f"{requirement} brings no experiment", hint)


def list_with_registered(workspace: WorkspaceFolder, nexus: str | Path | None = None) -> list[ListedExperiment]:
    """Return known experiments, and those that a nexus registers and that are not installed here."""
    packages = _registrations(workspace, nexus)
    rows: list[ListedExperiment] = []
    matched: set[str] = set()
    for item in known():
        names = {item.name, item.name.partition(".")[2]} & packages.keys()
        matched |= names
        owners = sorted({package for name in names for package in packages[name]})
        shown = vars(item) | {"declaration": {}, "installed": not item.environment}
        rows.append(ListedExperiment(**shown, registered_by=owners))
    rows += [
        ListedExperiment(name, "", "", "", "", installed=False, registered_by=sorted(set(packages[name])))
        for name in sorted(packages.keys() - matched)
    ]
    return sorted(rows, key=lambda row: row.name) if packages else rows


def _registrations(workspace: WorkspaceFolder, nexus: str | Path | None) -> dict[str, list[str]]:
    """Return the packages that register each experiment, by its name. Without a nexus, import nothing slow."""
    root = places.nexus(nexus, workspace.root)
    if root is None:
        return {}
    from benchhouse.catalog.nexus import load_registrations

    packages: dict[str, list[str]] = {}
    for package, name in load_registrations(root):
        packages.setdefault(name, []).append(package)
    return packages


def describe(workspace: WorkspaceFolder, name: str, version: str | None = None) -> ExperimentDetails:
    """Return the details of an experiment, or of a registered benchmark and the experiment behind it."""
    from benchhouse.catalog.inputs import inputs_of

    listed, benchmark = known(), None
    if not any(item.name == name for item in listed):  # an experiment of that name has priority
        benchmark = _benchmark(workspace, name)
        if benchmark:
            name, version = benchmark.experiment, version or benchmark.version
    experiment = resolve(name, version, listed)
    code = experiment.code()
    return ExperimentDetails(
        name=experiment.name,
        version=experiment.version,
        object=experiment.object,
        distribution=experiment.distribution,
        distribution_version=experiment.distribution_version,
        description=experiment.description,
        component=experiment.component,
        services=experiment.services,
        bridge=experiment.bridge,
        notes=experiment.notes,
        metrics=list(code.metrics),
        resources=code.resources,
        data=list(code.data),
        deprecated=code.deprecated,
        environment=experiment.environment,
        properties=experiment.inputs,
        benchmark=_details(benchmark) if benchmark else None,
        target=inputs_of(code.target_model),
        workload=inputs_of(code.workload_model),
    )


def is_listed(workspace: WorkspaceFolder, name: str) -> bool:
    """Return whether an experiment or a registered benchmark has exactly this name."""
    return any(item.name == name for item in known()) or _benchmark(workspace, name) is not None


def _benchmark(workspace: WorkspaceFolder, name: str) -> "Registered | None":
    from benchhouse.catalog.benchmark_lookup import UnknownBenchmarkError
    from benchhouse.runs.preparation import shelf

    try:
        return shelf(workspace, workspace.root).find(name)
    except UnknownBenchmarkError:
        return None


def _details(registered: "Registered") -> BenchmarkDetails:
    content: dict[str, Any] = {}
    for part in registered.chain:  # the benchmark's own file comes last
        own = part.benchmark.model_dump(mode="json", exclude_defaults=True)
        workload = {**content.get("workload", {}), **own.get("workload", {})}
        content |= own | ({"workload": workload} if workload else {})
    return BenchmarkDetails(content, registered.document.path, registered.origin)
