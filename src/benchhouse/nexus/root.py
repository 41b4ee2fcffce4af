"""What the `nexus` command asks beyond `bench packages`: lines to install by, and the benchmarks that can be run."""

from collections.abc import Callable, Sequence

from benchhouse.catalog.nexus import BenchmarkInstance, Nexus, Package
from benchhouse.catalog.nexus_requirements import requirements
from benchhouse.documents.problems import ProblemsError, did_you_mean
from benchhouse.nexus.packages import pick
from benchhouse.schema.errors import BenchError


def requirement_lines(nexus: Nexus, packages: Sequence[Package]) -> tuple[list[str], list[BenchError]]:
    """What these packages install, each line once, as `pip install -r` takes it; and what is wrong with others."""
    lines: dict[str, None] = {}
    errors: list[BenchError] = []
    for package in packages:
        good, problems = requirements(package, nexus.root)
        lines |= dict.fromkeys(item.text for item in good)
        errors += [ProblemsError(problems)] if problems else []
    return list(lines), errors


def runnable(nexus: Nexus, package: str | None, model: str | None, benchmark: str | None) -> list[BenchmarkInstance]:
    """The spaces and scenarios that are meant; a benchmark that others use is no run by itself."""
    chosen = [pick(nexus, package)] if package else list(nexus.packages)
    found = [item for one in chosen for item in one.all_instances() if item.kind != "benchmark"]
    if model is not None:
        found = _named(found, "model", model, lambda item: {item.target, item.model} - {""})
    if benchmark is not None:
        found = _named(found, "benchmark", benchmark, lambda item: {item.name, item.id})
    if not found:
        raise BenchError("there is no benchmark to run", "see: nexus list benchmarks")
    return found


def _named(
    items: list[BenchmarkInstance], what: str, wanted: str, names: Callable[[BenchmarkInstance], set[str]]
) -> list[BenchmarkInstance]:
    found = [item for item in items if wanted in names(item)]
    if not found:
        guess = did_you_mean(wanted, sorted({name for item in items for name in names(item)}))
        hint = f"did you mean '{guess}'? " if guess else ""
        raise BenchError(f"no benchmark to run of the {what} '{wanted}'", f"{hint}see: nexus list benchmarks")
    return found
