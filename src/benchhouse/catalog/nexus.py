"""A nexus: packages that state which benchmarks are for which models, read from files in the published layout.

    packages/<package>/nexus.yaml                                        the package, and the Python packages it needs
    packages/<package>/benchmark_instances/<name>/{space,benchmark,scenario}.yaml
    packages/<package>/models/<model>/model.yaml                         the target of everything below
    packages/<package>/models/<model>/benchmark_instances/<name>/{space,scenario}.yaml

Broken files do not affect the others, and nothing outside the nexus is read.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from benchhouse.catalog.benchmarks import Broken
from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import Problem, ProblemsError
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.ado import OURS, AdoSpace, listed_name
from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model
from benchhouse.schema.names import can_name_a_folder
from benchhouse.schema.nexus import LogicalFile, ModelEntry, ModelFile, NexusFile, PackageEntry
from benchhouse.schema.quoting import quote
from benchhouse.schema.scenario import Benchmark

Kind = Literal["space", "benchmark", "scenario"]
KINDS: tuple[Kind, ...] = ("space", "benchmark", "scenario")
INSTANCES = "benchmark_instances"

_Read = TypeVar("_Read", bound=Model)


@dataclass(frozen=True)
class RequestedExperiment:
    """An experiment that a benchmark requests, and the position of the request in its file."""

    actuator: str
    name: str
    version: str  # empty: any
    loc: Loc


@dataclass(frozen=True)
class BenchmarkInstance:
    """A folder of `benchmark_instances`: a space of ado, or a benchmark or scenario of ours."""

    name: str
    kind: Kind
    package: str
    model: str  # the model's folder; empty if it belongs to the package
    target: str  # the model's id; empty if it belongs to the package
    document: Document
    experiments: tuple[RequestedExperiment, ...]
    uses: str = ""
    space: AdoSpace | None = None

    @property
    def id(self) -> str:
        """`package/name`, or `package/model/name`."""
        return "/".join(part for part in (self.package, self.model, self.name) if part)


@dataclass(frozen=True)
class NexusModel:
    """A folder of `models`."""

    name: str
    package: str
    entry: ModelEntry
    document: Document
    instances: tuple[BenchmarkInstance, ...]


@dataclass(frozen=True)
class Package:
    """A folder of `packages`; `instances` excludes those of its models."""

    name: str
    path: Path
    entry: PackageEntry
    document: Document
    models: tuple[NexusModel, ...]
    instances: tuple[BenchmarkInstance, ...]

    def all_instances(self) -> Iterator[BenchmarkInstance]:
        yield from self.instances
        for model in self.models:
            yield from model.instances

    def registered(self) -> Iterator[tuple[str, Loc]]:
        """Yield the experiments that the package registers, and their positions."""
        for index, item in enumerate(self.entry.benchmark_packages):
            for number, name in enumerate(item.experiments):
                yield name, ("package", "benchmark_packages", index, "experiments", number)

    def names(self, listed: str) -> bool:
        """Return whether the package registers the experiment of that name, with or without its actuator in front."""
        return any(listed == name or listed.partition(".")[2] == name for name, _ in self.registered())

    def registers(self, reference: RequestedExperiment) -> bool:
        """Return whether the experiment is registered, by its published name or with its actuator in front."""
        names = {reference.name, listed_name(reference.actuator, reference.name)}
        return any(name in names for name, _ in self.registered())


@dataclass(frozen=True)
class Nexus:
    """Everything that could be read, sorted by name, and what could not."""

    root: Path
    packages: tuple[Package, ...]
    broken: tuple[Broken, ...] = field(default=())

    def instances(self) -> Iterator[BenchmarkInstance]:
        for package in self.packages:
            yield from package.all_instances()

    def package(self, name: str) -> Package | None:
        return next((item for item in self.packages if item.name == name), None)


def load_nexus(root: Path) -> Nexus:
    """Return every package of the nexus. An unreadable one is in `broken`, with file and line."""
    reader = _NexusReader(root)
    return Nexus(root, tuple(reader.packages()), tuple(reader.broken))


def load_registrations(root: Path) -> list[tuple[str, str]]:
    """Return (package, experiment) of every readable nexus.yaml, which is quicker than reading the whole nexus."""
    registrations = []
    for path in sorted(root.glob("packages/*/nexus.yaml")):
        try:
            read, _ = _load(path, NexusFile, root / "packages")
        except BenchError:
            continue  # `bench packages validate` reports it
        packages = read.package.benchmark_packages
        registrations += [(read.package.name, name) for item in packages for name in item.experiments]
    return registrations


def target_inputs(root: Path) -> dict[str, str]:
    """Return the target input of each experiment in bindings of logical benchmarks; broken files are skipped."""
    inputs: dict[str, str] = {}
    for path in sorted((root / "benchmarks").glob("*.yaml")):
        try:
            document = load_yaml(path)
            if "logicalBenchmark" in document.data:
                for item in validated(document, LogicalFile).bindings:
                    inputs.setdefault(item.experiment.listed_name, item.target_mapping)
        except BenchError:
            continue
    return inputs


def model_of(folder: Path) -> tuple[ModelEntry, Document]:
    """Return the model of the benchmark in `folder`, `.../models/<model>/benchmark_instances/<name>`."""
    home = folder if len(folder.parts) > 2 else folder.absolute()  # the path as given, for messages
    document = load_yaml(home.parents[1] / "model.yaml")
    return validated(document, ModelFile).model, document


def _load(path: Path, model: type[_Read], boundary: Path) -> tuple[_Read, Document]:
    refuse_leaving(path, boundary)
    document = load_yaml(path)
    return validated(document, model), document


@dataclass
class _NexusReader:
    root: Path
    broken: list[Broken] = field(default_factory=list)

    def packages(self) -> Iterator[Package]:
        folder = self.root / "packages"
        for path in self._folders(folder, folder, ""):
            if read := self._package(path):
                yield read

    def _package(self, path: Path) -> Package | None:
        file = path / "nexus.yaml"
        try:
            read, document = _load(file, NexusFile, path)
            if read.package.name != path.name:
                message = f"the package in the folder '{path.name}' calls itself '{read.package.name}'"
                raise ProblemsError([document.problem(("package", "name"), message, f"name: {path.name}")])
        except BenchError as error:
            self._note(file, error, path.name)
            return None
        models = tuple(self._models(path))
        instances = tuple(self._instances(path, path, "", ""))
        return Package(path.name, path, read.package, document, models, instances)

    def _models(self, package: Path) -> Iterator[NexusModel]:
        for path in self._folders(package / "models", package, package.name):
            file = path / "model.yaml"
            try:
                read, document = _load(file, ModelFile, package)
            except BenchError as error:
                self._note(file, error, package.name)
                continue
            instances = tuple(self._instances(path, package, path.name, read.model.id))
            yield NexusModel(path.name, package.name, read.model, document, instances)

    def _instances(self, home: Path, package: Path, model: str, target: str) -> Iterator[BenchmarkInstance]:
        for path in self._folders(home / INSTANCES, package, package.name):
            try:
                yield self._instance(path, package, model, target)
            except BenchError as error:
                self._note(path, error, package.name)

    def _instance(self, path: Path, package: Path, model: str, target: str) -> BenchmarkInstance:
        kinds = [kind for kind in KINDS if (path / f"{kind}.yaml").exists()]
        if len(kinds) != 1:
            there = f"both {' and '.join(f'{kind}.yaml' for kind in kinds)}" if kinds else "none of them"
            expected = "space.yaml or scenario.yaml" if model else "space.yaml, benchmark.yaml or scenario.yaml"
            raise BenchError(f"{path}: a benchmark is one file, {expected}; there is {there}", f"see: {path}")
        kind = kinds[0]
        file = path / f"{kind}.yaml"
        refuse_leaving(file, package)
        document, space, uses = load_yaml(file), None, ""
        if kind == "space":
            space = validated(document, AdoSpace)
            experiments = _of_space(space)
        else:
            if kind == "benchmark":
                _check_benchmark(document, path.name, package.name if model else "")
            elif "scenario" not in document.data:
                raise ProblemsError([document.problem((), "this is no scenario", "scenario: NAME")])
            experiments, uses = _of_ours(document)
        return BenchmarkInstance(path.name, kind, package.name, model, target, document, experiments, uses, space)

    def _folders(self, folder: Path, boundary: Path, package: str) -> Iterator[Path]:
        """Yield the folders in `folder` by name. One that leads out of `boundary` or has an invalid name is broken."""
        try:
            refuse_leaving(folder, boundary)
            names = sorted(item.name for item in os.scandir(folder) if item.is_dir())
        except FileNotFoundError:
            return
        except BenchError as error:
            self._note(folder, error, package)
            return
        except OSError as error:
            self._note(folder, BenchError(f"{folder} can't be read: {error.strerror}"), package)
            return
        for path in (folder / name for name in names if not name.startswith((".", "__"))):
            try:
                can_name_a_folder(path.name)
                refuse_leaving(path, boundary)
            except ValueError as error:
                self._note(path, BenchError(f"{path}: {error}", "rename the folder"), package or path.name)
            except BenchError as error:
                self._note(path, error, package or path.name)
            else:
                yield path

    def _note(self, place: Path, error: BenchError, package: str) -> None:
        self.broken.append(Broken(str(place), error, package))


def refuse_leaving(path: Path, boundary: Path) -> None:
    """Raise BenchError for a link that leads out of `boundary`: a package must not expose someone else's files."""
    if not path.resolve().is_relative_to(boundary.resolve()):
        message = f"{path} is a link that leads out of {boundary}: to {quote(str(path.resolve()))}"
        raise BenchError(message, "put a copy there instead of the link")


def _of_space(space: AdoSpace) -> tuple[RequestedExperiment, ...]:
    references = []
    for index, item in enumerate(space.experiments):
        loc: Loc = ("experiments", index, "experimentIdentifier")
        version = item.experiment_version
        references.append(RequestedExperiment(item.actuator_identifier, item.experiment_identifier, version, loc))
    return tuple(references)


def _of_ours(document: Document) -> tuple[tuple[RequestedExperiment, ...], str]:
    """Return what a benchmark or scenario of ours runs: an experiment, or the name of a benchmark."""
    name, version, uses = (document.data.get(key) for key in ("experiment", "version", "uses"))
    experiments = (
        (RequestedExperiment(OURS, name, str(version or ""), ("experiment",)),) if isinstance(name, str) else ()
    )
    return experiments, uses if isinstance(uses, str) else ""


def _check_benchmark(document: Document, folder: str, models_package: str) -> None:
    """Check a benchmark. `models_package` is set if the folder belongs to one of that package's models."""
    benchmark = validated(document, Benchmark)
    problems: list[Problem] = []
    if models_package:
        message = "a benchmark leaves its target open, and this folder is of one model"
        expected = f"a benchmark in packages/{models_package}/{INSTANCES}, and here a scenario.yaml with `uses:`"
        problems.append(document.problem(("benchmark",), message, expected, key=True))
    if benchmark.benchmark != folder:
        message = f"the benchmark in the folder '{folder}' calls itself '{benchmark.benchmark}'"
        problems.append(document.problem(("benchmark",), message, f"benchmark: {folder}"))
    if problems:
        raise ProblemsError(problems)
