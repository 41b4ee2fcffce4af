"""A prepared run: its scenario read and resolved, its plan made, and the rules that it is held to."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.catalog.benchmarks import Registered
from benchhouse.catalog.entries import plug
from benchhouse.catalog.listing import Listed
from benchhouse.plan.expand import Plan
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.runs.ledger import ScheduledRun
from benchhouse.schema.approval import SignedApproval
from benchhouse.schema.digests import digest
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.local_packages import SourceBuilds
from benchhouse.schema.protocols import Runtime, RuntimeContainer, RuntimeContext
from benchhouse.schema.resources import Budget
from benchhouse.schema.secrets import mentioned
from benchhouse.schema.site import Site
from benchhouse.schema.workspace_file import WorkspaceFile
from benchhouse.sites import places

if TYPE_CHECKING:
    from benchhouse.plan.contract import Contract


@dataclass(frozen=True)
class PreparedRun:
    """A scenario that was read, resolved, and planned."""

    file: ScenarioFile
    plan: Plan
    registered: Registered | None
    notes: list[str]
    home: Path
    """The folder of the scenario file."""
    site: Site = field(default_factory=Site)
    site_name: str | None = None
    """The site that the user named."""
    only_slurm: str = ""
    """Keys of the scenario that imply Slurm, if nothing else names an executor."""
    contract: "Contract | None" = None
    """The contract that the run has to fulfill."""
    listed: tuple[Listed, ...] = ()
    """The experiment, once for each version."""
    budget: Budget | None = None
    """A limit of the run in addition to the budget of its scenario."""
    scheduled: ScheduledRun | None = None
    """The slot of the schedule that started the run."""
    submitter: str = ""
    """The person who submits the run, if a server or an agent knows; otherwise the account of this process."""
    approval: SignedApproval | None = None
    """The approval by which the run may exceed the limits of its submitter."""

    def place(self, workspace: WorkspaceFolder) -> RuntimeContext:
        """Return the folders, images, and variables that the runtime of the trials needs."""
        scenario, inputs = self.plan.scenario, Path(self.plan.input_folder or workspace.root)
        outside = [] if inputs.is_relative_to(workspace.root.absolute()) else [inputs]
        return RuntimeContext(
            cache=places.cache(),
            site=self.site,
            image=scenario.runtime.image or scenario.artifacts.container or "",
            folders=(workspace.root, places.cache(), *outside),
            binds=tuple(scenario.binds),
            gpus=max(resources.gpus for resources in self.plan.all_resources),
            variables=tuple(sorted({*scenario.environment, *mentioned(self.file.document.text)})),
            builds=source_builds(workspace),
        )

    def container(self, workspace: WorkspaceFolder) -> RuntimeContainer | None:
        """Return the container of the trials; None for other runtimes. Raise if its image is missing or not pinned."""
        spec = self.plan.scenario.runtime
        runtime: Runtime = plug("runtimes", spec.kind)()
        return runtime.container(spec, self.place(workspace))

    @cached_property
    def code_digest(self) -> str:
        """The digest of the experiment's package, or of those of all its versions; each file is read once."""
        digests = [item.code_digest() for item in self.listed]
        return digests[0] if len(digests) == 1 else digest(digests)

    def image_digest(self) -> str | None:
        """Return the SHA-256 of the image; None without a container."""
        container = self.container(WorkspaceFolder(Path("/")))
        return container.digest if container else None


def source_builds(workspace: WorkspaceFolder) -> SourceBuilds:
    """Return the packages that isolated environments of a workspace may build from source."""
    file = workspace_settings(workspace)
    names = ("all",) if file and file.build_from_source == "all" else tuple(file.build_from_source if file else ())
    return SourceBuilds(names, workspace.root.absolute())


def workspace_settings(workspace: WorkspaceFolder) -> WorkspaceFile | None:
    """Return the content of workspace.yaml; None if the workspace has no such file."""
    if not workspace.settings.is_file():
        return None
    from benchhouse.runs.sharing import workspace_file  # few workspaces have this file

    return workspace_file(workspace)
