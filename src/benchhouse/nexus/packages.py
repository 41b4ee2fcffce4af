"""Packages of a nexus: what there is, what is in one, what it installs, and which of its benchmarks can be run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchhouse.catalog.nexus import BenchmarkInstance, Nexus, Package, load_nexus
from benchhouse.catalog.nexus_requirements import requirements
from benchhouse.documents.problems import ProblemsError, guess_hint
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.nexus import BenchmarkPackage
from benchhouse.sites import places


@dataclass(frozen=True)
class PackageSummary:
    """One package, and how much is in it."""

    package: str
    benchmark_packages: int
    """Python packages that it installs."""
    experiments: int
    models: int
    benchmarks: int
    broken: list[str]
    """What is wrong with files of it that can't be read."""
    scan: str = ""
    """How the last scan of what it installs stands: passed, refused, failed or not scanned; empty: nothing asks."""
    signature: str = ""
    """Whether all of it is signed by people who may register: signed or not signed; empty: nothing asks."""


@dataclass(frozen=True)
class ExperimentNeed:
    """An experiment that a benchmark runs."""

    actuator: str
    experiment: str
    version: str | None
    """None: any."""


@dataclass(frozen=True)
class PackageBenchmark:
    """A benchmark of a package: a space of ado's, or a benchmark or scenario of ours."""

    benchmark: str
    """`package/name`, or `package/model/name`."""
    kind: str
    experiments: list[ExperimentNeed]
    uses: str | None
    """The benchmark that it runs for the model, instead of an experiment."""
    model: str | None
    file: str


@dataclass(frozen=True)
class PackageModel:
    """A model of a package, and what is run for it."""

    model: str
    folder: str
    owner: str
    file: str
    benchmarks: list[PackageBenchmark]


@dataclass(frozen=True)
class PackageDetails:
    """All that the files of one package say."""

    package: str
    file: str
    benchmark_packages: list[BenchmarkPackage]
    """The Python packages that it installs."""
    models: list[PackageModel]
    benchmarks: list[PackageBenchmark]
    broken: list[str]


@dataclass(frozen=True)
class PackageRequirement:
    """A Python package that a package of the nexus installs, and the experiments that it is for."""

    package: str
    requirement_specifier: str
    experiments: list[str]


@dataclass(frozen=True)
class RequirementLines:
    """What packages install, as `pip install -r` takes it; and what of their files is wrong."""

    lines: list[str]
    errors: list[BenchError]


def load(workspace: WorkspaceFolder, given: str | Path | None = None) -> Nexus:
    """Raises BenchError where there is no nexus."""
    root = places.nexus(given, workspace.root)
    if root is None:
        raise BenchError(
            f"no nexus here: neither {workspace.root} nor a folder above it has packages/*/nexus.yaml",
            "name it: --nexus DIR or $BENCH_NEXUS; or start one: bench new package NAME",
        )
    return load_nexus(root)


def list_packages(nexus: Nexus) -> list[PackageSummary]:
    """Every package; one whose nexus.yaml can't be read has `broken`."""
    packages = [
        PackageSummary(
            package=item.name,
            benchmark_packages=len(item.entry.benchmark_packages),
            experiments=len({name for name, _ in item.registered()}),
            models=len(item.models),
            benchmarks=sum(1 for _ in item.all_instances()),
            broken=[error.error.message for error in nexus.broken if error.origin == item.name],
        )
        for item in nexus.packages
    ]
    readable = {item.name for item in nexus.packages}
    packages += [
        PackageSummary(item.origin or "?", 0, 0, 0, 0, [item.error.message])
        for item in nexus.broken
        if item.origin not in readable
    ]
    return sorted(packages, key=lambda item: item.package)


def pick(nexus: Nexus, name: str) -> Package:
    """The package of that name; where its own file is broken, that is raised."""
    if package := nexus.package(name):
        return package
    for item in nexus.broken:
        if item.origin == name:
            raise item.error
    hint = guess_hint(name, [item.name for item in nexus.packages])
    raise NotFoundError(f"the nexus {nexus.root} has no package '{name}'", f"{hint}see: bench packages list")


def show_package(nexus: Nexus, name: str) -> PackageDetails:
    """All that its files say, and what of it is broken."""
    package = pick(nexus, name)
    return PackageDetails(
        package=package.name,
        file=package.document.path,
        benchmark_packages=package.entry.benchmark_packages,
        models=[
            PackageModel(
                item.entry.id,
                item.name,
                item.entry.owner,
                item.document.path,
                [_benchmark(instance) for instance in item.instances],
            )
            for item in package.models
        ],
        benchmarks=[_benchmark(item) for item in package.instances],
        broken=[item.error.message for item in nexus.broken if item.origin == name],
    )


def list_requirements(nexus: Nexus) -> list[PackageRequirement]:
    """The Python packages that packages install, and for which experiments."""
    return [
        PackageRequirement(package.name, item.requirement_specifier, item.experiments)
        for package in nexus.packages
        for item in package.entry.benchmark_packages
    ]


def requirement_lines(nexus: Nexus, name: str | None = None) -> RequirementLines:
    """What a package or all of them install, each line once."""
    lines: dict[str, None] = {}
    errors: list[BenchError] = []
    for package in [pick(nexus, name)] if name else nexus.packages:
        good, problems = requirements(package, nexus.root)
        lines |= dict.fromkeys(item.text for item in good)
        errors += [ProblemsError(problems)] if problems else []
    return RequirementLines(list(lines), [*errors, *broken_files(nexus, name)])


def broken_files(nexus: Nexus, name: str | None = None) -> list[BenchError]:
    """What is wrong with files of a package, or of any, that can't be read."""
    return [item.error for item in nexus.broken if name in (None, item.origin)]


def runnable(
    nexus: Nexus, package: str | None = None, model: str | None = None, benchmark: str | None = None
) -> list[PackageBenchmark]:
    """The spaces and scenarios that can be run; a benchmark that others use is no run by itself."""
    packages = [pick(nexus, package)] if package else nexus.packages
    items = [item for member in packages for item in member.all_instances() if item.kind != "benchmark"]
    if model is not None:
        items = _named(items, "model", model, lambda item: {item.target, item.model} - {""})
    if benchmark is not None:
        items = _named(items, "benchmark", benchmark, lambda item: {item.name, item.id})
    if not items:
        raise BenchError("there is no benchmark to run", "see: nexus list benchmarks")
    return [_benchmark(item) for item in items]


def _named(
    items: list[BenchmarkInstance], what: str, wanted: str, names: Callable[[BenchmarkInstance], set[str]]
) -> list[BenchmarkInstance]:
    matches = [item for item in items if wanted in names(item)]
    if not matches:
        hint = guess_hint(wanted, sorted({name for item in items for name in names(item)}))
        raise BenchError(f"no benchmark to run of the {what} '{wanted}'", f"{hint}see: nexus list benchmarks")
    return matches


def _benchmark(item: BenchmarkInstance) -> PackageBenchmark:
    return PackageBenchmark(
        benchmark=item.id,
        kind=item.kind,
        experiments=[ExperimentNeed(ref.actuator, ref.name, ref.version or None) for ref in item.experiments],
        uses=item.uses or None,
        model=item.target or None,
        file=item.document.path,
    )
