"""The plugs: what an executor and a runtime must offer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from benchhouse.schema.layout import RunFolder
from benchhouse.schema.local_packages import SourceBuilds
from benchhouse.schema.resources import Resources
from benchhouse.schema.resources import RuntimeSettings as RuntimeSpec
from benchhouse.schema.scenario import Scenario
from benchhouse.schema.service import ServiceFolder, ServiceSpec
from benchhouse.schema.site import Site
from benchhouse.schema.trial import Outcome

JobId = str


@dataclass(frozen=True)
class Job:
    """One worker call: run the trial whose folder is given.

    Where jobs outlive us, `folder` is that of all results, `log` that of all logs, and the task makes what is below.
    """

    id: JobId
    folder: Path
    python: tuple[str, ...]  # command prefix that ends in an interpreter which has benchhouse
    resources: Resources
    log: Path  # where the worker's own words go when it dies before it has a folder to seal
    label: str = ""  # what it is, for people
    frame: Mapping[str, Any] = field(default_factory=dict)  # trial.json as far as all trials of a run share it
    differs: Mapping[str, Any] = field(default_factory=dict)  # and what is this one's own
    delay_s: float = 0.0  # not to be started before: a retry that gives the infrastructure time


@dataclass(frozen=True)
class JobState:
    """What an executor knows of a job; whether the trial succeeded is written in its folder."""

    phase: Literal["pending", "running", "done"]
    reason: str = ""
    detail: str = ""  # process id, Slurm job id, ...
    outcome: Outcome | None = None  # of one that is done but not sealed, where it is known and not worth a retry


@dataclass(frozen=True)
class Assignment:
    """What an executor is told when it is made."""

    parallel: int = 1  # trials at a time
    scenario: Scenario | None = None
    site: Site = field(default_factory=Site)
    run: RunFolder = field(default_factory=lambda: RunFolder(Path("RUN")))
    say: Callable[[str], None] = lambda text: None  # to whoever waits: what takes long, and why


class ServiceLauncher(Protocol):
    """Of an executor for which services that outlive a trial are jobs as well."""

    @property
    def alive(self) -> str:
        """File that is changed for as long as we live, by which its jobs end with us; empty where they outlive us."""

    def render(self, folder: ServiceFolder, spec: ServiceSpec, python: Sequence[str]) -> str:
        """The exact script that `start` would submit."""

    def start(self, items: Sequence[tuple[ServiceFolder, ServiceSpec]], python: Sequence[str]) -> None:
        """Submit the jobs that keep what each folder's `service.json` says, in one call; returns at once. Several are
        alike but for the number that the name of their folder ends with: 0, 1, ..."""

    def beside(self, folder: ServiceFolder) -> list[str]:
        """What a command must begin with to run on the service's node, inside its job."""

    def gone(self, folder: ServiceFolder) -> str:
        """What is to be said where its job is over, whatever its state says; else nothing."""

    def follow(self, folder: ServiceFolder) -> None:
        """See to it that the state of one that was started by itself stays true while we use it."""

    def stop(self, folders: Sequence[ServiceFolder]) -> None:
        """End these jobs; returns when nothing of them runs."""


class Carrier(Protocol):
    """Takes whole runs, orchestrator included; the attribute `carrier` of an executor that has one."""

    def render(self, name: str, command: Sequence[str]) -> str:
        """What `carry` would hand over, exactly."""

    def carry(self, name: str, command: Sequence[str]) -> str:
        """Have the command run there, once for each name; returns the id of its job."""

    def goes_on(self, job: str) -> bool: ...

    def stop(self, job: str) -> None:
        """End it; returns when it has ended."""


class Executor(Protocol):
    """Where jobs go."""

    window: int  # jobs worth handing over at a time; a sweep of a million never needs more in memory
    outlives: bool  # whether its jobs go on without us: then their tasks make the trial folders, and `adopt` finds them

    @property
    def keepers(self) -> ServiceLauncher | None:
        """None where services that outlive a trial are processes of whoever runs it."""

    def end_services(self) -> None:
        """End the jobs of the services that are attached to the run."""

    def sweep(self) -> None:
        """End what a session of the run that was killed has left there; jobs that outlive us are found by `adopt`."""

    def adopt(self) -> Mapping[JobId, int]:
        """Jobs that earlier sessions handed over, with their attempts, whether or not they have ended since."""

    def check(self, resources: Resources) -> None:
        """Raise BenchError, saying what is missing, when such a job could never start here."""

    def render(self, jobs: Sequence[Job], trials: int) -> str:
        """The exact script or commands that `submit` would run; `jobs` are the first of `trials`."""

    def submit(self, jobs: Sequence[Job]) -> list[JobId]: ...

    def poll(self, ids: Sequence[JobId], wait_s: float) -> Mapping[JobId, JobState]:
        """States of all `ids` in one cheap call; waits up to `wait_s` for a change."""

    def cancel(self, ids: Sequence[JobId]) -> None:
        """End these jobs with everything they started; returns when nothing of them runs."""

    def close(self) -> None:
        """Give back what the executor itself holds; running jobs are cancelled, unless they outlive it."""


@dataclass(frozen=True)
class RuntimeContext:
    """Where a runtime is to work, and what a container must be shown of it."""

    cache: Path
    site: Site = field(default_factory=Site)
    image: str = ""  # of the scenario: runtime.image, or artifacts.container
    folders: tuple[Path, ...] = ()  # seen inside under their own names, writable: workspace, cache
    binds: tuple[str, ...] = ()  # further ones, source:destination
    gpus: int = 0
    variables: tuple[str, ...] = ()  # that the experiment may read, by name: nothing else of the environment goes in
    builds: SourceBuilds = field(default_factory=SourceBuilds)  # packages that may be built from source


@dataclass(frozen=True)
class RuntimeContainer:
    """What a runtime enters, for evidence and for `--dry-run`."""

    digest: str  # sha256 of the image
    script: str  # the whole text of what `python` begins with


class Runtime(Protocol):
    """What a job runs inside."""

    def prepare(self, spec: RuntimeSpec, place: RuntimeContext) -> None:
        """Make it, once; what was made before is found again in the cache."""

    def python(self, spec: RuntimeSpec, place: RuntimeContext) -> tuple[str, ...]:
        """The command prefix that ends in a Python with benchhouse, once `prepare` has been called."""

    def identity(self, spec: RuntimeSpec, place: RuntimeContext) -> str | None:
        """Digest of the packages in it, empty before they are there; None where it has none of its own."""

    def packages(self, spec: RuntimeSpec, place: RuntimeContext) -> str:
        """One line that says what is in it, for plans and `--dry-run`."""

    def container(self, spec: RuntimeSpec, place: RuntimeContext) -> RuntimeContainer | None:
        """None where there is no image; raises BenchError where it is not there or not pinned."""


@runtime_checkable
class Unpacks(Protocol):
    """A runtime whose packages can be looked at before anything of them is run."""

    def unpack(self, spec: RuntimeSpec, place: RuntimeContext, folder: Path) -> Path:
        """`site-packages` as `prepare` makes it: what was made before, else unpacked into `folder`, where nothing is
        built or run. Raises BenchError where something would have to be built."""
