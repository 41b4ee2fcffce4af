"""Packages of a nexus, leaderboards over logical benchmarks, and template files for what can be benchmarked."""

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.api.verb_group import VerbGroup
from benchhouse.nexus import logical, package_scaffold, packages, scaffold
from benchhouse.nexus.logical import LogicalFileCheck, LogicalSummary
from benchhouse.nexus.packages import (
    PackageBenchmark,
    PackageDetails,
    PackageRequirement,
    PackageSummary,
    RequirementLines,
)
from benchhouse.plan.logical import LogicalSelection
from benchhouse.runs.trust_file import read_trusted
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from benchhouse.nexus.joint_install import Together as Together
    from benchhouse.nexus.leaderboard import Board as Board
    from benchhouse.nexus.leaderboard import Leaderboard as Leaderboard
    from benchhouse.nexus.package_checks import Proof as Proof
    from benchhouse.nexus.package_scans import ScannedPackages as ScannedPackages
    from benchhouse.nexus.package_signatures import VerifiedPackages as VerifiedPackages

__all__ = ["LogicalSummary", "PackageBenchmark"]


class Packages(VerbGroup):
    """The packages of a nexus: which benchmarks belong to which models, and whether everything in them is valid.

    In every method, `nexus` is a folder with packages/; by default $BENCH_NEXUS, otherwise the nearest one at or above
    the workspace.
    """

    def list(self, *, nexus: str | Path | None = None) -> builtins.list[PackageSummary]:
        """Return all packages of the nexus. For a package that can't be read, `broken` is set."""
        loaded = packages.load(self._folder, nexus)
        listed = packages.list_packages(loaded)
        trusted = read_trusted(self._folder)
        if trusted is None or (policy := trusted.packages) is None:
            return listed
        from benchhouse.nexus.package_scans import scan_state
        from benchhouse.nexus.package_signatures import signature_state

        known = {item.name: item for item in loaded.packages}
        for at, summary in enumerate(listed):
            if package := known.get(summary.package):
                scan = scan_state(self._folder, policy, loaded, package) if policy.advisories else ""
                signed = signature_state(self._folder, trusted, loaded, package) if policy.signatures else ""
                listed[at] = replace(summary, scan=scan, signature=signed)
        return listed

    def scan(
        self,
        package: str | None = None,
        *,
        scenario: str | Path | None = None,
        nexus: str | Path | None = None,
    ) -> "ScannedPackages":
        """Scan what a package, or every package, installs for known vulnerabilities and licences, and store the result.

        With `scenario`, scan what its runs would install instead. Exceptions are listed in `packages:` of trusted.yaml.
        """
        from benchhouse.nexus.package_scans import scan_packages, scan_scenario
        from benchhouse.runs.preparation import Where

        if scenario is not None:
            if package:
                raise BenchError("give a package or a scenario, not both", "bench packages scan -c SCENARIO")
            return scan_scenario(self._folder, Path(scenario), Where())
        return scan_packages(self._folder, packages.load(self._folder, nexus), package)

    def sign(self, what: str | Path, *, key: str | Path | None = None) -> Path:
        """Sign a wheel or, by its name, a distribution as it is installed here. Return the signature file.

        `key` is an SSH key, or the .pub of a key that an agent holds; by default the first key of ~/.ssh that
        trusted.yaml lists. trusted.yaml must allow its owner to register packages.
        """
        from benchhouse.nexus.package_signatures import sign_package

        return sign_package(self._folder, str(what), key)

    def verify(self, package: str | Path | None = None, *, nexus: str | Path | None = None) -> "VerifiedPackages":
        """Check whether a package of the nexus, or every package, is signed by people who may register packages: the
        commit of its folder, and the Python packages that it installs, as they are here. `package` may be a wheel
        instead."""
        from benchhouse.nexus.package_signatures import is_wheel, verify_packages, verify_wheel

        if package is not None and is_wheel(str(package)):
            return verify_wheel(self._folder, str(package))
        loaded = packages.load(self._folder, nexus)
        chosen = [packages.pick(loaded, str(package))] if package else list(loaded.packages)
        return verify_packages(self._folder, chosen, loaded)

    def show(self, package: str, *, nexus: str | Path | None = None) -> PackageDetails:
        """Return one package: what it installs, its models, and its benchmarks."""
        return packages.show_package(packages.load(self._folder, nexus), package)

    def validate(
        self,
        package: str | None = None,
        *,
        static: bool = False,
        install: bool = False,
        timeout_s: float = 120,
        nexus: str | Path | None = None,
        note: Callable[[str], None] = lambda message: None,
    ) -> "Proof":
        """Prove that a package, or every package, is valid: files, experiments, parameters, and a joint installation.

        `static` checks only the files and what is installed here; `install` checks the rest in a separate environment.
        `timeout_s` is the limit of each dependency resolution. `note` is called with each step.
        """
        from benchhouse.nexus.package_checks import Depth, prove

        if static and install:
            raise BenchError("give --static or --install, not both", "--static installs nothing")
        return prove(self._folder, packages.load(self._folder, nexus), package, Depth(static, install, timeout_s), note)

    def together(
        self,
        *,
        timeout_s: float = 120,
        nexus: str | Path | None = None,
        note: Callable[[str], None] = lambda message: None,
    ) -> "Together":
        """Check whether all packages can be installed in one environment; if not, return the smallest set that
        can't."""
        from benchhouse.nexus.joint_install import prove_together

        return prove_together(packages.load(self._folder, nexus), timeout_s, note)

    def validate_benchmarks(self, *, nexus: str | Path | None = None) -> "Proof":
        """Check the benchmarks of all packages: files, experiments, and parameters. Anything unchecked is not ok."""
        from benchhouse.nexus.package_checks import prove_benchmarks

        return prove_benchmarks(self._folder, packages.load(self._folder, nexus))

    def requirements(self, *, nexus: str | Path | None = None) -> builtins.list[PackageRequirement]:
        """Return the Python packages that packages install, and the experiments that need them."""
        return packages.list_requirements(packages.load(self._folder, nexus))

    def requirement_lines(self, package: str | None = None, *, nexus: str | Path | None = None) -> RequirementLines:
        """Return what a package, or every package, installs, as lines for `pip install -r`."""
        return packages.requirement_lines(packages.load(self._folder, nexus), package)

    def broken(self, package: str | None = None, *, nexus: str | Path | None = None) -> builtins.list[BenchError]:
        """Return the problems of files that can't be read, in one package or in all."""
        return packages.broken_files(packages.load(self._folder, nexus), package)

    def runnable(
        self,
        package: str | None = None,
        *,
        model: str | None = None,
        benchmark: str | None = None,
        nexus: str | Path | None = None,
    ) -> builtins.list[PackageBenchmark]:
        """Return the benchmarks that have a target and can be run by `ws.run(item.file)`: all, or the named ones."""
        return packages.runnable(packages.load(self._folder, nexus), package, model, benchmark)


class Leaderboards(VerbGroup):
    """Targets ranked on logical benchmarks, over all results of the workspace, whichever experiment measured them."""

    def list(self, *, nexus: str | Path | None = None) -> builtins.list[LogicalSummary]:
        """Return the logical benchmarks, and the experiments that answer each."""
        return logical.benchmarks(self._folder, nexus)

    def rank(
        self,
        benchmark: str,
        *,
        where: Mapping[str, str] | None = None,
        experiment: str | None = None,
        confidence: float = 0.95,
        nexus: str | Path | None = None,
    ) -> "Leaderboard":
        """Rank the targets of a logical benchmark.

        `where` selects results with these values of its properties; `experiment` selects results of that experiment.
        """
        from benchhouse.nexus.leaderboard import leaderboard

        return leaderboard(self._folder, benchmark, where or {}, nexus, confidence, experiment)

    def validate(self, *, nexus: str | Path | None = None) -> builtins.list[LogicalFileCheck]:
        """Check every logical benchmark on its own, and against the experiments that its bindings name."""
        return logical.validate(self._folder, nexus)

    def scenario(
        self,
        benchmark: str,
        *,
        targets: Sequence[str],
        where: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        repetitions: int = 1,
        experiment: str | None = None,
    ) -> Path:
        """Write the scenario that measures `targets` for a logical benchmark. Return its file, for `ws.run`.

        `where` gives values of the benchmark's properties, `settings` values of inputs that its binding leaves open.
        `experiment` selects the binding if several experiments answer the benchmark.
        """
        request = LogicalSelection(tuple(targets), where or {}, settings or {}, repetitions)
        return logical.scenario_file(self._folder, benchmark, request, experiment)


class Scaffolds(VerbGroup):
    """Template files to fill in. Existing files are never overwritten. Every method returns what it wrote."""

    def experiment(self, name: str, *, into: str | Path = "") -> Path:
        """Write an installable experiment package whose own test passes, in a new folder below `into`."""
        return scaffold.experiment(name, self._folder.root / into)

    def scenario(self, name: str, *, experiment: str = "command") -> Path:
        """Write a commented scenario file to start from."""
        return scaffold.scenario(name, experiment, self._folder.root)

    def package(self, name: str, *, nexus: str | Path | None = None) -> Path:
        """Write a package of a nexus. If there is no nexus, the workspace becomes one."""
        return package_scaffold.package(self._folder, name, nexus)

    def model(self, package: str, model: str, *, owner: str = "", nexus: str | Path | None = None) -> Path:
        """Write a model of a package. The benchmarks below its folder are run for it."""
        return package_scaffold.model(self._folder, package, model, owner, nexus)

    def benchmark(
        self,
        name: str,
        *,
        package: str,
        model: str | None = None,
        experiment: str = "command",
        uses: str | None = None,
        nexus: str | Path | None = None,
    ) -> Path:
        """Write a benchmark of a package; with `model`, one that is run for that model. It uses `experiment`, or the
        benchmark `uses`."""
        return package_scaffold.benchmark(self._folder, name, package, model, experiment, uses, nexus)
