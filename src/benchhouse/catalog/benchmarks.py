"""Registered benchmarks: YAML files of a workspace's `benchmarks/` folder and of installed packages."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from benchhouse.catalog.entries import entries, load_object
from benchhouse.schema.errors import BenchError
from benchhouse.schema.problems import ProblemsError, did_you_mean, from_pydantic
from benchhouse.schema.scenario import Benchmark
from benchhouse.schema.yamltext import Document, load_yaml


@dataclass(frozen=True)
class Registered:
    """A benchmark and the file that defines it."""

    benchmark: Benchmark
    document: Document
    origin: str  # "workspace" or the distribution


def load_benchmark(path: Path) -> tuple[Benchmark, Document]:
    document = load_yaml(path)
    try:
        return Benchmark.model_validate(document.data), document
    except ValidationError as error:
        raise ProblemsError(from_pydantic(error, document, Benchmark)) from error


def list_benchmarks(folder: Path) -> list[Registered]:
    """All registered benchmarks: those of `folder` first, then those of installed packages."""
    found = [_register(path, "workspace") for path in sorted(folder.glob("*.yaml"))]
    for entry in entries("benchmarks"):
        module = load_object(entry.object.partition(":")[0])
        home = Path(module.__path__[0] if hasattr(module, "__path__") else Path(module.__file__).parent)
        found += [_register(path, entry.distribution) for path in sorted(home.glob("*.yaml"))]
    return found


def find_benchmark(name: str, folder: Path) -> Registered:
    registered = list_benchmarks(folder)
    matches = [item for item in registered if item.benchmark.benchmark == name]
    if not matches:
        guess = did_you_mean(name, [item.benchmark.benchmark for item in registered])
        hint = f"did you mean '{guess}'? " if guess else ""
        raise BenchError(f"no benchmark named '{name}' is registered", f"{hint}see: bench list benchmarks")
    if len(matches) > 1:
        places = " and ".join(item.document.path for item in matches)
        raise BenchError(f"the benchmark '{name}' is registered twice: {places}", "rename one of them")
    return matches[0]


def _register(path: Path, origin: str) -> Registered:
    benchmark, document = load_benchmark(path)
    return Registered(benchmark, document, origin)
