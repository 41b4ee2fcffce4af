"""Packages of a nexus: which exist, what is in one, what it installs, and which of its benchmarks can be run."""

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
    """One package, with counts of its contents."""

    package: str
    benchmark_packages: int
    """Number of Python packages that it installs."""
    experiments: int
    models: int
    benchmarks: int
    broken: list[str]
    """Messages about its files that can't be read."""
    scan: str = ""
    """Result of the last scan of its installs: passed, refused, failed, or not scanned; empty if not required."""
    signature: str = ""
    """signed or not signed by people who may register it, as a whole; empty if no signature is required."""


@dataclass(frozen=True)
class ExperimentNeed:
    """An experiment that a benchmark runs."""

    actuator: str
    experiment: str
    version: str | None
    """None means any version."""


@dataclass(frozen=True)
class PackageBenchmark:
    """A benchmark of a package: a space of ado, or a benchmark or scenario of Benchhouse."""

    benchmark: str
    """`package/name`, or `package/model/name`."""
    kind: str
    experiments: list[ExperimentNeed]
    uses: str | None
    """The benchmark that it runs for the model, instead of an experiment; None if it names an experiment."""
    model: str | None
    file: str


@dataclass(frozen=True)
class PackageModel:
    """A model of a package, and the benchmarks for it."""

    model: str
    folder: str
    owner: str
    file: str
    benchmarks: list[PackageBenchmark]


@dataclass(frozen=True)
class PackageDetails:
    """The contents of one package's files."""

    package: str
    file: str
    benchmark_packages: list[BenchmarkPackage]
    """The Python packages that it installs."""
    models: list[PackageModel]
    benchmarks: list[PackageBenchmark]
    broken: list[str]


@dataclass(frozen=True)
class PackageRequirement:
    """A Python package that a package of the nexus installs, and the experiments that it provides."""

    package: str
    requirement_specifier: str
    experiments: list[str]


@dataclass(frozen=True)
class RequirementLines:
    """Lines for `pip install -r` from the packages of a nexus, and the errors in their files."""

    lines: list[str]
    errors: list[BenchError]


def load(workspace: WorkspaceFolder, given: str | Path | None = None) -> Nexus:
    """Load the nexus. Raise BenchError if there is none."""
    root = places.nexus(given, workspace.root)
    if root is None:
        raise BenchError(
            f"no nexus here: neither {workspace.root} nor a folder above it has packages/*/nexus.yaml",
            "name it: --nexus DIR or $BENCH_NEXUS; or start one: bench new package NAME",
        )
    return load_nexus(root)


def list_packages(nexus: Nexus) -> list[PackageSummary]:
    """Return every package; one whose nexus.yaml can't be read has `broken`."""
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
    """Return the package of that name. Raise the error of its own file if that can't be read."""
    if package := nexus.package(name):
        return package
    for item in nexus.broken:
        if item.origin == name:
            raise item.error
    hint = guess_hint(name, [item.name for item in nexus.packages])
    raise NotFoundError(f"the nexus {nexus.root} has no package '{name}'", f"{hint}see: bench packages list")


def show_package(nexus: Nexus, name: str) -> PackageDetails:
    """Return the contents of a package's files, and the errors in them."""
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
    """Return the Python packages that packages install, and the experiments that they are for."""
    return [
        PackageRequirement(package.name, item.requirement_specifier, item.experiments)
        for package in nexus.packages
        for item in package.entry.benchmark_packages
    ]


def requirement_lines(nexus: Nexus, name: str | None = None) -> RequirementLines:
    """Return what one package or all of them install, each line once."""
    lines: dict[str, None] = {}
    errors: list[BenchError] = []
    for package in [pick(nexus, name)] if name else nexus.packages:
        good, problems = requirements(package, nexus.root)
        lines |= dict.fromkeys(item.text for item in good)
        errors += [ProblemsError(problems)] if problems else []
    return RequirementLines(list(lines), [*errors, *broken_files(nexus, name)])


def broken_files(nexus: Nexus, name: str | None = None) -> list[BenchError]:
    """Return the errors of files that can't be read, of one package or of all."""
    return [item.error for item in nexus.broken if name in (None, item.origin)]


def runnable(
    nexus: Nexus, package: str | None = None, model: str | None = None, benchmark: str | None = None
) -> list[PackageBenchmark]:
    """Return the spaces and scenarios that can be run. A benchmark that others use is not run on its own."""
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
