"""The benchmarks of a nexus that a change touches: changed files by git, followed to all benchmarks that use them."""

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from benchhouse.catalog.logical import Logical, read_logical
from benchhouse.catalog.nexus import INSTANCES, BenchmarkInstance, Nexus
from benchhouse.catalog.nexus_requirements import requirements
from benchhouse.schema.ado import listed_name
from benchhouse.schema.errors import BenchError, Exit

_TIMEOUT_S = 60.0
_INSTEAD = "try it by hand, or: --all"


def changed_files(root: Path, ref: str, *names: str) -> list[str]:
    """Return files below `root` that differ from the merge base with `ref`: committed, edited, or new.

    `names` are the paths to check, by default the whole nexus.
    """
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip()
    if not commit:
        raise BenchError(
            f"git knows no commit {ref[:100]!r} in {root}", "name a branch, a tag or a commit: origin/main"
        )
    base = _git(root, "merge-base", commit, "HEAD").strip()
    if not base:
        raise BenchError(f"{ref} and HEAD of {root} have no common ancestor", "fetch more of the history: git fetch")
    places = ("--", *(names or ("packages", "benchmarks")))
    committed = _git(root, "diff", "--no-ext-diff", "--no-renames", "--relative", "--name-only", "-z", base, *places)
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "-z", *places)
    return sorted({name for name in (*committed.split("\0"), *untracked.split("\0")) if name})


def refuse_own_rules(root: Path, ref: str, trusted: Path) -> None:
    """Raise BenchError if a change to a nexus edits the file that says who may evaluate it: others must review that."""
    top = Path(_git(root, "rev-parse", "--show-toplevel").strip()).resolve()
    if trusted.resolve().is_relative_to(top) and changed_files(trusted.parent, ref, trusted.name):
        raise BenchError(
            f"the change since {ref} edits {trusted}, which says who may evaluate it",
            "have that file reviewed and merged by itself, or evaluate in a workspace outside of the checkout: --nexus",
            Exit.NEEDS_APPROVAL,
        )


def _git(root: Path, *arguments: str) -> str:
    """Return git's output; empty if git fails. Hooks and programs in the repository's settings are not run."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(root), *arguments]
    environ = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, env=environ)
    except FileNotFoundError as error:
        raise BenchError("there is no git on PATH, which knows what changed", "install git, or: --all") from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"git {arguments[0]} took longer than {_TIMEOUT_S:g} s", _INSTEAD) from error
    if done.returncode not in (0, 1):
        reason = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        if "not a git repository" in reason:
            raise BenchError(f"{root} is no git checkout: nothing says what changed", "bench evaluate --all")
        if arguments[0] != "rev-parse":
            raise BenchError(f"git {arguments[0]}: {reason}", _INSTEAD)
        return ""
    return os.fsdecode(done.stdout)


def touched(nexus: Nexus, changed: Sequence[str]) -> dict[str, list[str]]:
    """Return the ids of touched benchmarks, each with the changed files that touch it."""
    reach = _Reach(nexus)
    reasons: dict[str, list[str]] = defaultdict(list)
    for name in changed:
        for benchmark in dict.fromkeys(reach.of_file(PurePosixPath(name))):
            reasons[benchmark].append(name)
    return dict(reasons)


class _Reach:
    """The dependencies between files, experiments, and benchmarks of a nexus. Benchmarks are named by their ids."""

    def __init__(self, nexus: Nexus) -> None:
        self.nexus = nexus
        self.users: dict[str, list[BenchmarkInstance]] = defaultdict(list)  # by the name that they write after `uses:`
        self.runners: dict[str, list[str]] = defaultdict(list)  # experiment -> benchmarks that run it, also indirectly
        self.sources: dict[PurePosixPath, set[str]] = defaultdict(set)  # folder of a Python package -> its experiments
        for item in nexus.instances():
            if item.uses:
                self.users[item.uses].append(item)
        for item in nexus.instances():
            for reference in item.experiments:
                for name in {reference.name, listed_name(reference.actuator, reference.name)}:
                    self.runners[name] += self.with_users(item)
        home = nexus.root.resolve()
        for package in nexus.packages:
            for requirement in requirements(package, nexus.root)[0]:
                if requirement.kind == "path":
                    folder = PurePosixPath(Path(requirement.text).relative_to(home).as_posix())
                    self.sources[folder] |= set(package.entry.benchmark_packages[requirement.number].experiments)

    def of_file(self, path: PurePosixPath) -> Iterator[str]:
        match path.parts:
            case ("benchmarks", _):
                yield from self.of_shared(path)
            case ("packages", package, "models", model, folder, name, _, *_) if folder == INSTANCES:
                yield f"{package}/{model}/{name}"
            case ("packages", package, folder, name, _, *_) if folder == INSTANCES:
                yield f"{package}/{name}"
                yield from self.with_users_of(f"{package}/{name}", name)
            case ("packages", package, "models", model, *rest) if rest and not _is_prose(path):
                yield from self.of_package(package, model)
            case ("packages", package, *rest) if rest:
                projects = [folder for folder in path.parents if folder in self.sources]
                for experiment in sorted({name for folder in projects for name in self.sources[folder]}):
                    yield from self.runners.get(experiment, ())
                if not projects and not _is_prose(path):
                    yield from self.of_package(package)

    def of_package(self, name: str, model: str = "") -> Iterator[str]:
        package = self.nexus.package(name)
        for item in package.all_instances() if package else ():
            if model in ("", item.model):
                yield from self.with_users(item)

    def of_shared(self, path: PurePosixPath) -> Iterator[str]:
        """Yield users of a benchmark of `benchmarks/`; for a logical one, users of the experiments bound to it."""
        yield from self.with_users_of(path.stem)
        logical = read_logical(self.nexus.root / path) if (self.nexus.root / path).is_file() else None
        for binding in logical.file.bindings if isinstance(logical, Logical) else ():
            yield from self.runners.get(binding.experiment.listed_name, ())

    def with_users(self, item: BenchmarkInstance) -> list[str]:
        """Return a benchmark and its users."""
        return [item.id, *(self.with_users_of(item.id, item.name) if not item.model else ())]

    def with_users_of(self, *names: str) -> list[str]:
        """Return the direct and indirect users of these names. Circles are reported elsewhere."""
        found: dict[str, None] = {}
        waiting = [item for name in names for item in self.users.get(name, ())]
        while waiting:
            item = waiting.pop()
            if item.id not in found:
                found[item.id] = None
                waiting += [*self.users.get(item.id, ()), *self.users.get(item.name, ())] if not item.model else []
        return list(found)


def _is_prose(path: PurePosixPath) -> bool:
    """Return whether a file is text for people, on which no number depends. Below a benchmark it may be data."""
    return path.suffix.lower() in (".md", ".rst") or path.parts[2] == "skills"
