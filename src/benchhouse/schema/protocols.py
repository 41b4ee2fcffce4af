"""Protocols that executors and runtimes implement."""

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
    """One worker call, which runs the trial whose folder is given.

    If jobs outlive the orchestrator, `folder` holds all results and `log` all logs; the task makes their subfolders.
    """

    id: JobId
    folder: Path
    python: tuple[str, ...]  # command prefix that ends in an interpreter with benchhouse
    resources: Resources
    log: Path  # output of a worker that dies before it has a folder to seal
    label: str = ""  # description for people
    frame: Mapping[str, Any] = field(default_factory=dict)  # fields of trial.json that all trials of a run share
    differs: Mapping[str, Any] = field(default_factory=dict)  # fields of this trial
    delay_s: float = 0.0  # wait before the start: a retry that gives the infrastructure time


@dataclass(frozen=True)
class JobState:
    """What an executor knows about a job; whether the trial succeeded is recorded in its folder."""

    phase: Literal["pending", "running", "done"]
    reason: str = ""
    detail: str = ""  # process id, Slurm job id, ...
    outcome: Outcome | None = None  # of a job that is done but not sealed, if known and not worth a retry


@dataclass(frozen=True)
class Assignment:
    """The settings with which an executor is made."""

    parallel: int = 1  # trials at a time
    scenario: Scenario | None = None
    site: Site = field(default_factory=Site)
    run: RunFolder = field(default_factory=lambda: RunFolder(Path("RUN")))
    say: Callable[[str], None] = lambda text: None  # reports slow steps, and their reasons, to the user


class ServiceLauncher(Protocol):
    """Starts services that outlive a trial as jobs of an executor."""

    @property
    def alive(self) -> str:
        """A file that is changed while the orchestrator lives, so that jobs end with it; empty if they outlive it."""

    def render(self, folder: ServiceFolder, spec: ServiceSpec, python: Sequence[str]) -> str:
        """Return the exact script that `start` would submit."""

    def start(self, items: Sequence[tuple[ServiceFolder, ServiceSpec]], python: Sequence[str]) -> None:
        """Submit the jobs that run the service in each folder's `service.json`, in one call, without waiting.

        Several services differ only in the number at the end of their folder's name: 0, 1, ...
        """

    def beside(self, folder: ServiceFolder) -> list[str]:
        """Return the command prefix that runs a command on the service's node, inside its job."""

    def gone(self, folder: ServiceFolder) -> str:
        """Return a message if the service's job has ended, whatever its state file contains; otherwise empty."""

    def follow(self, folder: ServiceFolder) -> None:
        """Keep the state of a separately started service up to date while it is in use."""

    def stop(self, folders: Sequence[ServiceFolder]) -> None:
        """End these jobs; return when none of their processes runs."""


class Carrier(Protocol):
    """Runs whole runs, orchestrator included; the attribute `carrier` of an executor that supports this."""

    def render(self, name: str, command: Sequence[str]) -> str:
        """Return exactly what `carry` would submit."""

    def carry(self, name: str, command: Sequence[str]) -> str:
        """Run the command there, at most once per name; return the id of its job."""

    def goes_on(self, job: str) -> bool: ...

    def stop(self, job: str) -> None:
        """End the job; return when it has ended."""


class Executor(Protocol):
    """A place where jobs run."""

    window: int  # jobs to submit at a time; a sweep of a million never needs more in memory
    outlives: bool  # whether its jobs outlive the orchestrator: then their tasks make the trial folders, see `adopt`

    @property
    def keepers(self) -> ServiceLauncher | None:
        """The launcher of services that outlive a trial; None if they are processes of the orchestrator."""

    def end_services(self) -> None:
        """End the jobs of the services that are attached to the run."""

    def sweep(self) -> None:
        """End what a killed session of the run left behind, except jobs that outlive the orchestrator; see `adopt`."""

    def adopt(self) -> Mapping[JobId, int]:
        """Return jobs that earlier sessions submitted, with their attempts, whether or not they have ended since."""

    def check(self, resources: Resources) -> None:
        """Raise BenchError, naming the lacking part, if a job with these resources could never start here."""

    def render(self, jobs: Sequence[Job], trials: int) -> str:
        """Return the exact script or commands that `submit` would run; `jobs` are the first of `trials`."""

    def submit(self, jobs: Sequence[Job]) -> list[JobId]: ...

    def poll(self, ids: Sequence[JobId], wait_s: float) -> Mapping[JobId, JobState]:
        """Return the states of all `ids` in one cheap call; wait up to `wait_s` seconds for a change."""

    def cancel(self, ids: Sequence[JobId]) -> None:
        """End these jobs with all processes that they started; return when none of them runs."""

    def close(self) -> None:
        """Release what the executor holds; running jobs are cancelled, unless they outlive it."""


@dataclass(frozen=True)
class RuntimeContext:
    """The site, folders, and variables with which a runtime works."""

    cache: Path
    site: Site = field(default_factory=Site)
    image: str = ""  # image of the scenario: runtime.image, or artifacts.container
    folders: tuple[Path, ...] = ()  # visible inside under the same paths, writable: workspace, cache
    binds: tuple[str, ...] = ()  # further ones, source:destination
    gpus: int = 0
    variables: tuple[str, ...] = ()  # names of the only variables that the experiment gets
    builds: SourceBuilds = field(default_factory=SourceBuilds)  # packages that may be built from source


@dataclass(frozen=True)
class RuntimeContainer:
    """The container that a runtime enters, for evidence and for `--dry-run`."""

    digest: str  # sha256 of the image
    script: str  # text of the script that `python` starts with


class Runtime(Protocol):
    """The environment in which a job runs."""

    def prepare(self, spec: RuntimeSpec, place: RuntimeContext) -> None:
        """Make the environment; what already exists is found in the cache."""

    def python(self, spec: RuntimeSpec, place: RuntimeContext) -> tuple[str, ...]:
        """Return the command prefix that ends in a Python with benchhouse, once `prepare` has been called."""

    def identity(self, spec: RuntimeSpec, place: RuntimeContext) -> str | None:
        """Return the digest of its packages; empty before they exist, None if the runtime has none of its own."""

    def packages(self, spec: RuntimeSpec, place: RuntimeContext) -> str:
        """Return one line that describes its packages, for plans and `--dry-run`."""

    def container(self, spec: RuntimeSpec, place: RuntimeContext) -> RuntimeContainer | None:
        """Return the container, None without an image; raise BenchError if the image is missing or not pinned."""


@runtime_checkable
class Unpacks(Protocol):
    """A runtime whose packages can be inspected before any of their code runs."""

    def unpack(self, spec: RuntimeSpec, place: RuntimeContext, folder: Path) -> Path:
        """Return the `site-packages` that `prepare` makes: an existing one, or one unpacked into `folder`.

        Nothing is built or run. Raises BenchError if something would have to be built.
        """
