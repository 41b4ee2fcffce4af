"""Proof that the packages of a nexus are valid: files, experiments, parameters, and that all of it installs together.

Nothing is assumed: what could not be examined is `unchecked`, and only `static` lets that pass.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from benchhouse.catalog.benchmarks import Registered, list_benchmarks
from benchhouse.catalog.listing import Listed, listed_once, resolve
from benchhouse.catalog.nexus import BenchmarkInstance, Nexus, Package, RequestedExperiment
from benchhouse.catalog.nexus_requirements import Requirement, index_name, normal_name, requirements
from benchhouse.documents.problems import Problem, ProblemsError, did_you_mean
from benchhouse.nexus import logical
from benchhouse.nexus.packages import pick
from benchhouse.nexus.resolution import TIMEOUT_S, UnresolvedError, resolve_together, validate_static
from benchhouse.runs import preparation
from benchhouse.schema.ado import listed_name
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.sites import places

State = Literal["good", "broken", "unchecked"]
MOST_POINTS = 100_000
"""In a larger space every value is checked, but not every combination."""
_OURS = "benchhouse"


@dataclass(frozen=True)
class PackageFinding:
    """One check and its result; `why` gives the reason if it could not be made."""

    package: str
    what: str  # the id of a benchmark, `nexus.yaml`, `model.yaml` or `install`
    state: State
    problems: tuple[Problem, ...] = ()
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"problems": [item.as_dict() for item in self.problems]}


@dataclass(frozen=True)
class Proof:
    """All findings; `exit_code` is 0 only if everything requested was proven."""

    findings: tuple[PackageFinding, ...]
    packages: int
    benchmarks: int
    static: bool

    @property
    def problems(self) -> list[Problem]:
        """All problems, each once: benchmarks that use a broken one, or each other in a circle, share a problem."""
        return list(dict.fromkeys(problem for item in self.findings for problem in item.problems))

    def count(self, state: State) -> int:
        return sum(item.state == state for item in self.findings)

    @property
    def exit_code(self) -> Exit:
        if self.count("broken"):
            return Exit.BAD_INPUT
        return Exit.TRIAL_FAILED if self.count("unchecked") and not self.static else Exit.GOOD

    @property
    def unchecked(self) -> list[PackageFinding]:
        return [item for item in self.findings if item.state == "unchecked"]

    @property
    def failure(self) -> BenchError | None:
        """All problems in one error; None if there are none."""
        return ProblemsError(self.problems) if self.problems else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "packages": self.packages,
            "benchmarks": self.benchmarks,
            "findings": [item.as_dict() for item in self.findings],
            "exit_code": int(self.exit_code),
        }


@dataclass(frozen=True)
class _MachineFacts:
    """The facts about this machine while a nexus is examined."""

    workspace: WorkspaceFolder
    nexus: Nexus
    listed: Sequence[Listed]

    def used(self, item: BenchmarkInstance) -> Registered | None:
        """Return the benchmark that this one uses, with the whole chain behind it; None if it uses none."""
        return preparation.shelf(self.workspace, Path(item.document.path).parent).find(item.uses) if item.uses else None


@dataclass(frozen=True)
class Depth:
    """The depth of a check: `static` uses what is installed here; `install` makes an environment for the rest."""

    static: bool = False
    install: bool = False
    timeout_s: float = TIMEOUT_S


def prove(
    workspace: WorkspaceFolder,
    nexus: Nexus,
    name: str | None = None,
    depth: Depth | None = None,
    note: Callable[[str], None] = lambda message: None,
) -> Proof:
    """Check one package, or all."""
    depth = depth or Depth()
    chosen = [pick(nexus, name)] if name else list(nexus.packages)
    broken = [item for item in nexus.broken if name in (None, item.origin)]
    findings = [_broken(item.origin, item.place, item.error) for item in broken]
    findings += [item for item in _same_names(nexus.packages) if name in (None, item.package)]
    with listed_once(places.cache()) as listed:
        look = _MachineFacts(workspace, nexus, listed)
        findings += _top_level(look) if name is None else []
        findings += [item for package in chosen for item in _examine(look, package, depth, note)]
    benchmarks = sum(1 for package in chosen for _ in package.all_instances())
    return Proof(tuple(findings), len(chosen), benchmarks, depth.static)


def prove_benchmarks(workspace: WorkspaceFolder, nexus: Nexus) -> Proof:
    """Check the benchmarks of all packages: files, experiments, parameters. Unchecked benchmarks do not pass."""
    return replace(prove(workspace, nexus, None, Depth(static=True)), static=False)


def _top_level(look: _MachineFacts) -> Iterator[PackageFinding]:
    """Check `benchmarks/` of the nexus: logical benchmarks, and benchmarks of Benchhouse."""
    seen: set[str] = set()
    for item in logical.validate(look.workspace, str(look.nexus.root)):
        seen.add(Path(item.path).name)
        yield PackageFinding("", item.path, "good") if item.good else _broken("", item.path, item.failure)
    for unread in list_benchmarks(look.nexus.root / "benchmarks")[1]:
        if unread.origin == "workspace" and Path(unread.place).name not in seen:
            yield _broken("", unread.place, unread.error)


def _examine(look: _MachineFacts, package: Package, depth: Depth, note: Callable[[str], None]) -> list[PackageFinding]:
    needs, problems = requirements(package, look.nexus.root)
    findings = [_finding(package.name, "nexus.yaml", problems), *_registered(look, package)]
    findings += [_check(look, package, item) for item in package.all_instances()]
    if depth.static or problems:
        return findings
    needs += _needs_of_used(look, package, needs)
    if not needs:
        return findings
    note(f"{package.name}: resolving {len(needs)} requirement(s) together")
    try:
        lock = resolve_together(needs, depth.timeout_s)
    except UnresolvedError as error:
        return [*findings, _not_installable(package, error)]
    findings.append(PackageFinding(package.name, "install", "good"))
    if depth.install and lock and any(item.state == "unchecked" for item in findings):
        note(f"{package.name}: installing {len(lock.splitlines())} distributions in an environment of its own")
        return _inside(package, look.nexus, lock, findings)
    return findings


def _needs_of_used(look: _MachineFacts, package: Package, own: Sequence[Requirement]) -> list[Requirement]:
    """Return what used benchmarks of other packages need, because they run in the same environment."""
    needs = {item.text: item for item in own}
    for item in package.all_instances():
        with suppress(BenchError):  # reported by its own check
            used = look.used(item)
            other = look.nexus.package(used.chain[0].origin) if used and used.chain[0].in_nexus else None
            if used is None or other is None or other is package:
                continue
            for need in requirements(other, look.nexus.root)[0]:
                if used.experiment in other.entry.benchmark_packages[need.number].experiments:
                    needs.setdefault(need.text, need)
    return list(needs.values())[len(own) :]


def _finding(package: str, what: str, problems: Sequence[Problem]) -> PackageFinding:
    return PackageFinding(package, what, "broken" if problems else "good", tuple(problems))


def _broken(package: str, what: str, error: BenchError, place: str = "") -> PackageFinding:
    """Return the finding for an error. `place`, or otherwise `what`, is the file if the error does not name one."""
    place = place or what
    message = error.message.removeprefix(place).removeprefix(":").lstrip()
    problems = getattr(error, "problems", None) or [Problem(message, place, None, None, "", error.hint)]
    return PackageFinding(package, what, "broken", tuple(problems))


def _not_installable(package: Package, error: BenchError) -> PackageFinding:
    if error.exit_code == Exit.TRIAL_FAILED:  # the machine is at fault, not the package
        return PackageFinding(package.name, "install", "unchecked", (), f"{error.message}: {error.hint}")
    if isinstance(error, UnresolvedError) and error.of:
        message = error.message.removeprefix(f"{error.of.place}: ")
        problem = error.of.document.problem(error.of.loc, message, error.hint)
    else:
        problem = package.document.problem(("package", "benchmark_packages"), error.message, error.hint, key=True)
    return PackageFinding(package.name, "install", "broken", (problem,))


def _inside(package: Package, nexus: Nexus, lock: str, own: list[PackageFinding]) -> list[PackageFinding]:
    """Return the findings, with those that could not be checked here as found where the package is installed."""
    try:
        inner = validate_static(package.name, nexus.root, lock)
    except BenchError as error:
        return [*own, _not_installable(package, error)]
    known = {item["what"]: item for item in inner["findings"]}
    return [
        _seen(package, item, known[item.what]) if item.state == "unchecked" and item.what in known else item
        for item in own
    ]


def _seen(package: Package, item: PackageFinding, inner: dict[str, Any]) -> PackageFinding:
    """Return a finding from the installed package. An experiment that is missing even there is broken."""
    problems = tuple(Problem(**problem) for problem in inner["problems"])
    if inner["state"] == "unchecked":
        message = f"{item.what}: {inner['why']}, not even where all of the package's requirements are"
        expected = "a requirement whose package has that experiment"
        problems = (package.document.problem(("package", "benchmark_packages"), message, expected, key=True),)
    return replace(item, state="broken" if problems else "good", problems=problems, why="")


def _same_names(packages: Sequence[Package]) -> Iterator[PackageFinding]:
    """Yield a problem for each bare name that two packages register, because it would be ambiguous."""
    first: dict[str, BenchmarkInstance] = {}
    for package in packages:
        for item in package.instances:
            if item.kind != "benchmark":
                continue
            earlier = first.setdefault(item.name, item)
            if earlier is not item:
                line, _ = earlier.document.position(("benchmark",))
                place = f"{earlier.document.path}:{line}"
                message = f"the benchmark '{item.name}' is registered by package '{earlier.package}' too: {place}"
                problem = item.document.problem(("benchmark",), message, "a name of its own: rename one of the folders")
                yield PackageFinding(package.name, item.id, "broken", (problem,))


def _registered(look: _MachineFacts, package: Package) -> Iterator[PackageFinding]:
    """Check the experiments of nexus.yaml: they can be used, or nothing is known about them here."""
    for name, loc in package.registered():
        known = [item for item in look.listed if item.name == name or item.name.endswith(f".{name}")]
        requirement = package.entry.benchmark_packages[int(loc[2])].requirement_specifier
        owners = [item for item in look.listed if normal_name(item.distribution) == index_name(requirement)]
        if not known and owners:
            offered = sorted({item.name for item in owners})
            message = f"{owners[0].distribution} {owners[0].distribution_version} has no experiment '{name}'"
            meant = did_you_mean(name, offered) or ""
            problem = package.document.problem(loc, message, f"one of {', '.join(offered)}", meant)
            yield PackageFinding(package.name, f"experiment {name}", "broken", (problem,))
        elif not known:
            yield PackageFinding(package.name, f"experiment {name}", "unchecked", (), "not installed")
        elif all(item.broken for item in known):
            message = f"experiment '{name}' can't be used: {known[0].broken}"
            owner = f"{known[0].distribution} {known[0].distribution_version}"
            problem = package.document.problem(loc, message, f"a package that can be imported; this is {owner}")
            yield PackageFinding(package.name, f"experiment {name}", "broken", (problem,))
        else:
            yield PackageFinding(package.name, f"experiment {name}", "good")


def _check(look: _MachineFacts, package: Package, item: BenchmarkInstance) -> PackageFinding:
    """Check one benchmark: its experiments are registered and available in the right version; parameters fit."""
    problems = [problem for ref in item.experiments if (problem := _unregistered(look, package, item, ref))]
    if problems:
        return _finding(package.name, item.id, problems)
    try:
        used = look.used(item)
        names = [used.experiment] if used else [listed_name(ref.actuator, ref.name) for ref in item.experiments]
        installed = {listed.name for listed in look.listed}
        if missing := [name for name in names if name not in installed]:
            if item.kind != "benchmark":
                preparation.check_file(Path(item.document.path))
            return PackageFinding(package.name, item.id, "unchecked", (), f"experiment '{missing[0]}' is not installed")
        if item.kind == "benchmark":
            _plan_open(look, item)
        else:
            for prepared in preparation.prepare_all(look.workspace, Path(item.document.path)):
                if prepared.plan.space.raw_size <= MOST_POINTS:
                    _ = prepared.plan.points  # binds every point
    except BenchError as error:
        return _broken(package.name, item.id, error, item.document.path)
    return PackageFinding(package.name, item.id, "good")


def _unregistered(
    look: _MachineFacts, package: Package, item: BenchmarkInstance, ref: RequestedExperiment
) -> Problem | None:
    """Return a problem if the package does not register what it runs. Benchhouse's own experiments are exempt."""
    name = listed_name(ref.actuator, ref.name)
    ours = any(listed.name == name and listed.distribution == _OURS for listed in look.listed)
    if ours or package.registers(ref):
        return None
    known = [known for known, _ in package.registered()]
    message = f"the package '{package.name}' does not register the experiment '{ref.name}'"
    expected = f"one of benchmark_packages in {package.document.path} with experiments: [{ref.name}]"
    return item.document.problem(ref.loc, message, expected, did_you_mean(ref.name, known) or "")


def _plan_open(look: _MachineFacts, item: BenchmarkInstance) -> None:
    """Check what a benchmark fixes; it has no target and may leave inputs open."""
    home = Path(item.document.path).parent
    registered: Registered = preparation.shelf(look.workspace, home).find(item.id)
    try:
        experiment = resolve(registered.experiment, registered.version, look.listed)
    except BenchError as error:
        loc = item.experiments[0].loc if item.experiments else ("uses",)
        raise ProblemsError([item.document.problem(loc, error.message, error.hint)]) from error
    preparation.check_open(registered, experiment)
