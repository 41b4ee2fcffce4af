"""What is installed in the isolated environments that a scenario asks for; each is made and looked at once."""

import subprocess
from collections.abc import Callable, Sequence

from benchhouse.catalog.entries import plug
from benchhouse.catalog.isolated import keep, kept, understand
from benchhouse.catalog.listing import Listed, resolve
from benchhouse.documents.problems import guess_hint
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.progress import tell
from benchhouse.schema.protocols import Place, Runtime
from benchhouse.schema.resources import Runtime as RuntimeSpec


def each_environment(spec: RuntimeSpec) -> list[RuntimeSpec]:
    """The runtime, once for each environment that it asks for."""
    if not spec.environments:
        return [spec]
    requirements = [[*spec.requirements, *own] for own in spec.environments]
    return [spec.model_copy(update={"requirements": item, "environments": []}) for item in requirements]


def find_isolated(
    name: str,
    version: str | None,
    spec: RuntimeSpec,
    place: Place,
    admit: Callable[[Sequence[RuntimeSpec]], None],
) -> tuple[Listed, RuntimeSpec] | None:
    """The experiment, and the first environment that has it; None where the runtime has no packages of its own.

    `admit` raises where they may not run: it is asked before any of them is made.
    """
    runtime: Runtime = plug("runtimes", spec.kind)()
    if runtime.identity(spec, place) is None:
        return None
    admit(each_environment(spec))
    offered = [(item, one) for one in each_environment(spec) for item in experiments_in(one, place)]
    names = sorted({item.name for item, _ in offered})
    if name not in names:
        where = "; ".join(", ".join(one.requirements) for one in each_environment(spec))
        hint = f"{guess_hint(name, names)}there is: {', '.join(names) or 'none'}"
        raise BenchError(f"no experiment named '{name}' is installed, neither here nor in the runtime ({where})", hint)
    once = {(item.name, item.version, item.distribution): (item, one) for item, one in reversed(offered)}
    chosen = resolve(name, version, [item for item, _ in once.values()])
    return next(pair for pair in once.values() if pair[0] is chosen)


def experiments_in(spec: RuntimeSpec, place: Place) -> Sequence[Listed]:
    """The experiments of one environment, which is made first where need be."""
    runtime: Runtime = plug("runtimes", spec.kind)()
    identity = runtime.identity(spec, place)
    if not identity:
        tell(f"making the isolated environment of {', '.join(spec.requirements) or 'nothing'}, once ...")
        runtime.prepare(spec, place)
        identity = runtime.identity(spec, place) or ""
    listed = kept(place.cache, identity)
    if listed is None:
        python = runtime.python(spec, place)
        command = [*python, "-m", "benchhouse.catalog.isolated"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            message = f"the isolated environment can't say what is in it:\n{done.stderr.strip()[-2000:]}"
            raise BenchError(message, "check runtime.requirements", Exit.TRIAL_FAILED)
        listed = understand(done.stdout, spec.requirements)
        keep(place.cache, identity, python[0], listed)
    return listed
