"""Check whether all packages of a nexus can be installed together, and find the smallest conflict if they can't."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchhouse.catalog.nexus import Nexus
from benchhouse.catalog.nexus_requirements import Requirement, requirements
from benchhouse.documents.problems import ProblemsError
from benchhouse.nexus.resolution import TIMEOUT_S, NoAnswerError, UnresolvedError, resolve_together
from benchhouse.schema.errors import Exit


@dataclass(frozen=True)
class Blamed:
    """A requirement without which the rest of the conflict can be installed together."""

    requirement: str
    place: str
    """`file:line` of the nexus.yaml that has it."""


@dataclass(frozen=True)
class Together:
    """The resolver's result for all requirements of a nexus."""

    packages: int
    requirements: int
    conflict: list[Blamed]
    """The smallest set that can't be installed together; empty if all can."""
    reason: str
    """The resolver's reason for that set alone."""
    distributions: int
    """Number of distributions that would be installed; 0 if they can't be."""

    @property
    def exit_code(self) -> Exit:
        return Exit.BAD_INPUT if self.conflict else Exit.GOOD


def prove_together(
    nexus: Nexus, timeout_s: float = TIMEOUT_S, note: Callable[[str], None] = lambda text: None
) -> Together:
    """Resolve the union of all packages. Raise BenchError if a file can't be read or there is no answer in time."""
    asked: dict[str, Requirement] = {}
    for package in nexus.packages:
        good, problems = requirements(package, nexus.root)
        if problems:
            raise ProblemsError(problems)
        asked |= {item.text: item for item in good if item.text not in asked}
    everything = list(asked.values())
    note(f"resolving {len(everything)} requirement(s) of {len(nexus.packages)} package(s) together")
    try:
        lock = resolve_together(everything, timeout_s)
        return Together(len(nexus.packages), len(everything), [], "", len(_pins(lock)))
    except UnresolvedError as error:
        _raise_if_unknown(error)
    note("they can't; leaving out one after the other to find which")
    fewest, reason = smallest_conflict(everything, timeout_s)
    blamed = [Blamed(item.text, item.place) for item in fewest]
    return Together(len(nexus.packages), len(everything), blamed, reason, 0)


def smallest_conflict(asked: Sequence[Requirement], timeout_s: float = TIMEOUT_S) -> tuple[list[Requirement], str]:
    """Return a minimal set of requirements that can't be resolved, and the resolver's reason."""
    kept = list(asked)
    reason = _refusal(kept, timeout_s)
    for item in asked:
        without = [other for other in kept if other is not item]
        if refusal := _refusal(without, timeout_s):
            kept, reason = without, refusal
    return kept, reason


def _refusal(asked: Sequence[Requirement], timeout_s: float) -> str:
    """Return why requirements can't be installed together; empty if they can."""
    try:
        resolve_together(asked, timeout_s)
    except UnresolvedError as error:
        _raise_if_unknown(error)
        return error.message
    return ""


def _raise_if_unknown(error: UnresolvedError) -> None:
    """Raise the error if there was no answer or a source could not be fetched: it does not prove a conflict."""
    if isinstance(error, NoAnswerError) or error.of or error.exit_code == Exit.TRIAL_FAILED:
        raise error


def _pins(lock: str) -> list[str]:
    return [line for line in lock.splitlines() if line.strip() and not line.startswith((" ", "#"))]
