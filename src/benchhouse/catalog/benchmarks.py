"""Registered benchmarks: YAML files of `benchmarks/` in the workspace or next to a scenario, and of packages.

A benchmark names an experiment, or another benchmark (`uses:`) whose open inputs it fills; see `benchmark_lookup.py`.
"""

from dataclasses import dataclass
from pathlib import Path

from benchhouse.catalog.entries import EntryPointLine, entries, load_object
from benchhouse.documents.document import Document
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.errors import BenchError
from benchhouse.schema.nexus import is_logical
from benchhouse.schema.scenario import Benchmark


@dataclass(frozen=True)
class Registered:
    """A benchmark and the file that defines it."""

    benchmark: Benchmark
    document: Document
    origin: str  # "workspace", the distribution, or the package of the nexus
    base: "Registered | None" = None  # the benchmark of its `uses:`
    in_nexus: bool = False

    @property
    def chain(self) -> "list[Registered]":
        """The benchmark with all that it uses, starting with the one that names the experiment."""
        return [*(self.base.chain if self.base else ()), self]

    @property
    def experiment(self) -> str:
        return self.chain[0].benchmark.experiment or ""

    @property
    def version(self) -> str | None:
        return next((str(item.benchmark.version) for item in self.chain if item.benchmark.version), None)


@dataclass(frozen=True)
class Broken:
    """A file or package that should register benchmarks but does not."""

    place: str
    error: BenchError
    origin: str


def list_benchmarks(*folders: Path) -> tuple[list[Registered], list[Broken]]:
    """Return all benchmarks, those of `folders` first, and the unreadable ones separately."""
    good, broken, not_imported = list[Registered](), list[Broken](), list[Broken]()
    homes = [(folder, "workspace") for folder in dict.fromkeys(path.resolve() for path in folders)]
    for entry in entries("benchmarks"):
        try:
            homes.append((_folder_of(entry), entry.distribution))
        except BenchError as error:
            not_imported.append(Broken(entry.object, error, entry.distribution))
    for folder, origin in homes:
        for path in sorted(folder.glob("*.yaml")):
            try:
                document = load_yaml(path)
                if not is_logical(document.data):  # a nexus keeps logical benchmarks in the same folder
                    good.append(Registered(validated(document, Benchmark), document, origin))
            except BenchError as error:
                broken.append(Broken(str(path), error, origin))
    return good, broken + not_imported


def _folder_of(entry: EntryPointLine) -> Path:
    try:
        module = load_object(entry.object.partition(":")[0])
    except Exception as error:  # a foreign module may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise BenchError(f"the benchmarks of {entry.distribution} can't be imported: {reason}") from error
    return Path(module.__path__[0] if hasattr(module, "__path__") else Path(module.__file__).parent)
