"""Resolve `uses:`: a benchmark of the workspace, of an installed package, or of a package of the nexus.

`package/benchmark` names one of a nexus. A bare name must be unique. A benchmark may use another and fill its open
inputs, but not in a circle.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchhouse.catalog.benchmarks import Registered, list_benchmarks
from benchhouse.catalog.nexus import INSTANCES, refuse_leaving
from benchhouse.documents.document import Document
from benchhouse.documents.problems import ProblemsError, guess_hint
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.errors import BenchError
from benchhouse.schema.names import can_name_a_folder
from benchhouse.schema.scenario import Benchmark

ReadSpace = Callable[[Document, str], tuple[Benchmark, Document]]
"""A function that reads a space of ado as a benchmark of that name; the document is a view of the space's file."""


class UnknownBenchmarkError(BenchError):
    """No benchmark of that name is registered anywhere."""


@dataclass(frozen=True)
class BenchmarkIndex:
    """The places where benchmarks are searched."""

    folders: tuple[Path, ...]
    nexus: Path | None
    read_space: ReadSpace

    def find(self, name: str) -> Registered:
        """Return a benchmark with those that it uses. Raise BenchError, or ProblemsError for a circle."""
        return self._with_bases(self._find(name), ())

    def _with_bases(self, registered: Registered, above: tuple[Registered, ...]) -> Registered:
        uses = registered.benchmark.uses
        if uses is None:
            return registered
        trail = (*above, registered)
        try:
            base = self._find(uses)
        except ProblemsError:
            raise
        except BenchError as error:
            raise ProblemsError([registered.document.problem(("uses",), error.message, error.hint)]) from error
        for number, item in enumerate(trail):
            if item.document.path == base.document.path:
                raise _circle(trail[number:])
        return replace(registered, base=self._with_bases(base, trail))

    def _find(self, name: str) -> Registered:
        if "/" in name:
            return self._by_package(name)
        registered, broken = list_benchmarks(*self.folders)
        matches = [item for item in registered if item.benchmark.benchmark == name]
        matches += [self._read(path, path.parents[1].name, name) for path in self._definitions(name)]
        if len(matches) > 1:
            places = " and ".join(item.document.path for item in matches)
            owners = " or ".join(f"'{item.origin}/{name}'" for item in matches if item.in_nexus)
            hint = f"say which: {owners}" if owners else "rename one of them"
            raise BenchError(f"the benchmark '{name}' is registered twice: {places}", hint)
        if matches:
            return matches[0]
        if broken:
            raise broken[0].error  # it may be the requested one
        known = [item.benchmark.benchmark for item in registered] + [path.name for path in self._definitions("*")]
        hint = guess_hint(name, known)
        raise UnknownBenchmarkError(f"no benchmark named '{name}' is registered", f"{hint}see: bench list benchmarks")

    def _by_package(self, name: str) -> Registered:
        parts = name.split("/")
        try:
            for part in parts:
                can_name_a_folder(part)
        except ValueError as error:
            raise BenchError(f"'{name}' can't name a benchmark: {error}", "uses: PACKAGE/BENCHMARK") from error
        if self.nexus is None:
            raise BenchError(
                f"'{name}' is of a nexus, and there is none here",
                "a nexus has packages/*/nexus.yaml; it is looked for at and above the file, or: export BENCH_NEXUS=DIR",
            )
        package, *model, last = parts
        folder = self.nexus.joinpath("packages", package, *(("models", *model) if model else ()), INSTANCES, last)
        if len(parts) > 3 or not folder.is_dir():
            known = [f"{path.parents[1].name}/{path.name}" for path in self._definitions("*")]
            hint = guess_hint(name, known)
            raise BenchError(f"the nexus {self.nexus} has no benchmark '{name}'", f"{hint}see: bench list benchmarks")
        return self._read(folder, package, last)

    def _definitions(self, name: str) -> Iterator[Path]:
        """Yield the folders of packages (not of models) that define a benchmark of that name."""
        if self.nexus is not None:
            for path in sorted(self.nexus.glob(f"packages/*/{INSTANCES}/{name}")):
                if (path / "benchmark.yaml").is_file() or (path / "space.yaml").is_file():
                    yield path

    def _read(self, folder: Path, package: str, name: str) -> Registered:
        assert self.nexus is not None
        files = [path for path in (folder / "benchmark.yaml", folder / "space.yaml") if path.is_file()]
        if not files:
            raise BenchError(f"{folder} defines no benchmark", "it needs a benchmark.yaml or a space.yaml")
        path = files[0]
        home = self.nexus / "packages" / package
        refuse_leaving(home, home.parent)
        refuse_leaving(path, home)
        document = load_yaml(path)
        if path.stem == "benchmark":
            benchmark = validated(document, Benchmark)
        else:
            benchmark, document = self.read_space(document, name)
        return Registered(benchmark, document, package, in_nexus=True)


def _circle(members: tuple[Registered, ...]) -> ProblemsError:
    """Return the same error from every entry into the circle, so that it is reported once."""
    first = min(range(len(members)), key=lambda number: members[number].document.path)
    members = members[first:] + members[:first]
    names = [f"{item.origin}/" * item.in_nexus + item.benchmark.benchmark for item in (*members, members[0])]
    message = f"benchmarks in a circle: {' -> '.join(names)}"
    return ProblemsError([item.document.problem(("uses",), message) for item in members])
