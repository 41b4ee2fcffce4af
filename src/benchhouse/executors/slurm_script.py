"""Write the script of one array from checked settings: every word in it is plain or quoted."""

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import SubmissionFolder
from benchhouse.schema.resources import Resources, gres_counts, is_gpu
from benchhouse.schema.scenario import Scenario
from benchhouse.schema.site import Site

WARNING_S = 30  # this long before its time limit, a task gets a signal, so that its trial can be sealed as `timeout`
_SLACK_S = 90.0  # Slurm may send the signal up to a minute too early


@dataclass(frozen=True)
class Array:
    """The values of one script."""

    name: str
    tasks: int
    throttle: int | None
    python: tuple[str, ...]
    resources: Resources
    folder: Path
    logs: Path
    delay_s: float = 0.0
    after: Sequence[str] = ()  # jobs that must have started before
    labels: Sequence[str] = ()


def script(array: Array, scenario: Scenario, site: Site) -> str:
    # The worker replaces the shell, so that Slurm's signals reach it.
    command = f"exec {shlex.join([*array.python, '-m', 'benchhouse.worker', '--task', str(array.folder)])}"
    several = array.resources.nodes > 1
    # Slurm forgets its tasks; these files record which tasks began, and where their logs are.
    begun = shlex.quote(str(SubmissionFolder(array.folder).begun))
    first = f': > {begun}/"$SLURM_ARRAY_TASK_ID.$SLURM_JOB_ID" || true'
    return put_together(_flags(array, scenario, site), site, several, command, array.labels, first)


def put_together(
    flags: Iterable[str], site: Site, several: bool, body: str, labels: Iterable[str] = (), first: str = ""
) -> str:
    """Return a complete script. `several` means that its programs talk to other nodes; `first` precedes the modules."""
    shell = "#!/bin/bash -l" if site.modules else "#!/bin/bash"  # a login shell knows `module`
    lines = [shell, *(f"#SBATCH {flag}" for flag in flags), *(f"# {label}" for label in labels), "set -e"]
    lines += [first] if first else []
    if site.modules:
        lines.append(f"module load {shlex.join(site.modules)}")
    environment = site.environment | site.network.environment if several else site.environment
    lines += [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    return "\n".join([*lines, body]) + "\n"


def _flags(array: Array, scenario: Scenario, site: Site) -> Iterator[str]:
    settings = scenario.slurm
    yield f"--job-name={array.name}"
    yield f"--array=0-{array.tasks - 1}{f'%{array.throttle}' if array.throttle else ''}"
    yield from request(array.resources, scenario, site, settings.together)
    if array.resources.ntasks is None or "ntasks_per_node" in settings.model_fields_set:
        yield f"--ntasks-per-node={settings.ntasks_per_node}"
    yield f"--time={clock(time_s(scenario, site))}"
    if settings.exclusive:
        yield "--exclusive"
    if array.after:
        yield f"--dependency=after:{':'.join(array.after)}"
    if array.delay_s:
        yield f"--begin=now+{math.ceil(array.delay_s)}"
    yield f"--output={quoted(array.logs / '%x_%j.out')}"
    yield f"--error={quoted(array.logs / '%x_%j.err')}"
    yield f"--chdir={quoted(array.folder)}"
    yield "--open-mode=append"
    yield "--no-requeue"  # a lost trial is retried with a folder of its own
    yield f"--signal=B:USR2@{WARNING_S}"
    yield from (*site.slurm.flags, *settings.flags)


def partition_for(resources: Resources, scenario: Scenario, site: Site) -> str | None:
    return scenario.partition or (site.slurm.gpu_partition if resources.gpus else None) or site.slurm.partition


def request(resources: Resources, scenario: Scenario, site: Site, together: int = 1) -> Iterator[str]:
    """Yield the flags that select a place for a job and request its resources."""
    options = {
        "partition": partition_for(resources, scenario, site),
        "account": scenario.account or site.slurm.account,
        "qos": scenario.qos or site.slurm.qos,
        "constraint": scenario.slurm.constraint,
        "reservation": scenario.slurm.reservation,
    }
    yield from (f"--{name}={value}" for name, value in options.items() if value)
    yield f"--nodes={resources.nodes}"
    if resources.ntasks:
        yield f"--ntasks={resources.ntasks}"
    yield f"--cpus-per-task={resources.cpus * together}"
    if resources.memory:
        yield f"--mem={math.ceil(resources.memory * together / 2**20)}M"
    if gres := ",".join(f"{kind}:{count * together}" for kind, count in _gres(resources, site)):
        yield f"--gres={gres}"


def _gres(resources: Resources, site: Site) -> Iterator[tuple[str, int]]:
    """Yield the scenario's resources, with GPUs named as there or in the site; `gpus` may vary between trials."""
    asked = gres_counts(resources.gres or "")
    gpu = next((kind for kind, _ in asked if is_gpu(kind)), site.slurm.gres)
    if resources.gpus:
        yield gpu, resources.gpus
    yield from ((kind, count) for kind, count in asked if not is_gpu(kind))


def time_s(scenario: Scenario, site: Site) -> float:
    """Return the time of a task: as set, otherwise what its trials may take in sequence, otherwise the site's time."""
    settings = scenario.slurm
    if settings.time:
        return settings.time
    if scenario.limits.wall:
        return scenario.limits.wall * math.ceil(settings.pack / settings.together) + WARNING_S + _SLACK_S
    return site.slurm.time


def clock(seconds: float) -> str:
    minutes = max(1, math.ceil(seconds / 60))  # Slurm counts in whole minutes
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:00"


def quoted(path: Path) -> str:
    """Return a path as sbatch reads it in an #SBATCH line, with double quotes and with % as a placeholder."""
    text = str(path)
    if any(character in text for character in '"\\\n\r'):
        raise BenchError(
            f"{text!r} can't be passed to Slurm: it has a quote, a backslash or a line end in its name",
            "use a workspace with a plainer path: bench -C DIR ...",
        )
    folder, name = str(path.parent), path.name
    return f'"{folder.replace("%", "%%")}/{name}"'
