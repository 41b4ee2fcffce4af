"""The contents of the isolated environments that a scenario requests; each is made and inspected once."""

import os.path
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchhouse.catalog.entries import plug
from benchhouse.catalog.isolated_experiments import keep, kept, understand
from benchhouse.catalog.listing import Listed, resolve
from benchhouse.documents.problems import guess_hint
from benchhouse.schema.cancellation import stop_if_cancelled
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.progress import tell
from benchhouse.schema.protocols import Runtime, RuntimeContext
from benchhouse.schema.resources import RuntimeSettings as RuntimeSpec


def each_environment(spec: RuntimeSpec) -> list[RuntimeSpec]:
    """Return the runtime once for each environment that it requests."""
    if not spec.environments:
        return [spec]
    requirements = [[*spec.requirements, *own] for own in spec.environments]
    return [spec.model_copy(update={"requirements": item, "environments": []}) for item in requirements]


@dataclass(frozen=True)
class IsolatedSearch:
    """A search for an experiment in the isolated environments that a scenario requests."""

    admit: Callable[[Sequence[RuntimeSpec]], None] | None
    """Called before any environment is made; raises if its packages may not run. None: only existing environments are
    used, and none is made or entered, because the scenario comes from a client that may only read."""
    root: Path
    """The workspace; without `admit`, local packages outside it are not read."""

    def find(
        self, name: str, version: str | None, spec: RuntimeSpec, place: RuntimeContext
    ) -> tuple[Listed, RuntimeSpec] | None:
        """Return the experiment and the first environment that has it, or None if the runtime has no own packages."""
        environments = each_environment(spec)
        if self.admit is None:
            self._refuse_local_packages(environments)
        runtime: Runtime = plug("runtimes", spec.kind)()
        if runtime.identity(spec, place) is None:
            return None
        if self.admit is not None:
            self.admit(environments)
        find = experiments_in if self.admit is not None else experiments_of_existing
        offered = [(item, one) for one in environments for item in find(one, place)]
        names = sorted({item.name for item, _ in offered})
        if name not in names:
            where = "; ".join(", ".join(one.requirements) for one in environments)
            hint = f"{guess_hint(name, names)}there is: {', '.join(names) or 'none'}"
            message = f"no experiment named '{name}' is installed, neither here nor in the runtime ({where})"
            raise BenchError(message, hint)
        once = {(item.name, item.version, item.distribution): (item, one) for item, one in reversed(offered)}
        chosen = resolve(name, version, [item for item, _ in once.values()])
        return next(pair for pair in once.values() if pair[0] is chosen)

    def _refuse_local_packages(self, environments: Sequence[RuntimeSpec]) -> None:
        """Raise for requirements that are paths, except files of the workspace: finding an environment reads them."""
        root = self.root.resolve()
        for one in environments:
            for requirement in one.requirements:
                stop_if_cancelled()
                path = os.path.realpath(requirement.partition("[")[0].strip())
                # lexists takes names that are too long for Path.exists. The message is the one for an absent
                # environment, so that a reader cannot find out which paths exist.
                if os.path.lexists(path) and not (Path(path).is_file() and Path(path).is_relative_to(root)):
                    raise needs_role_run(one)


def needs_role_run(spec: RuntimeSpec) -> BenchError:
    """Return the error for a client with the role read that requests an environment that does not exist."""
    packages = ", ".join(spec.requirements) or "nothing"
    reason = f"its isolated environment ({packages}) does not exist yet, and making it runs code"
    hint = "plan it on that machine (bench plan FILE), or submit it with the role run"
    return BenchError(f"planning this scenario needs the role run: {reason}", hint, Exit.NEEDS_APPROVAL)


def experiments_of_existing(spec: RuntimeSpec, place: RuntimeContext) -> Sequence[Listed]:
    """Return the experiments of an environment that was made and inspected before; raise if it was not."""
    runtime: Runtime = plug("runtimes", spec.kind)()
    identity = runtime.identity(spec, place)
    listed = kept(place.cache, identity) if identity else None
    if listed is None:
        raise needs_role_run(spec)
    return listed


def experiments_in(spec: RuntimeSpec, place: RuntimeContext) -> Sequence[Listed]:
    """Return the experiments of one environment, which is made first if necessary."""
    runtime: Runtime = plug("runtimes", spec.kind)()
    identity = runtime.identity(spec, place)
    if not identity:
        tell(f"making the isolated environment of {', '.join(spec.requirements) or 'nothing'}, once ...")
        runtime.prepare(spec, place)
        identity = runtime.identity(spec, place) or ""
    listed = kept(place.cache, identity)
    if listed is None:
        python = runtime.python(spec, place)
        command = [*python, "-m", "benchhouse.catalog.isolated_experiments"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            message = f"the isolated environment can't say what is in it:\n{done.stderr.strip()[-2000:]}"
            raise BenchError(message, "check runtime.requirements", Exit.TRIAL_FAILED)
        listed = understand(done.stdout, spec.requirements)
        keep(place.cache, identity, python[0], listed)
    return listed
