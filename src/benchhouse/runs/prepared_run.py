"""A run that was prepared: its scenario read and resolved, its plan made, and the rules that it is held to."""

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
from benchhouse.schema.protocols import Container, Place, Runtime
from benchhouse.schema.resources import Budget
from benchhouse.schema.secrets import mentioned
from benchhouse.schema.site import Site
from benchhouse.schema.workspace_file import WorkspaceFile
from benchhouse.sites import places

if TYPE_CHECKING:
    from benchhouse.plan.contract import Contract


@dataclass(frozen=True)
class PreparedRun:
    """A scenario that was read, resolved and planned."""

    file: ScenarioFile
    plan: Plan
    registered: Registered | None
    notes: list[str]
    home: Path  # the folder of the scenario file
    site: Site = field(default_factory=Site)
    site_name: str | None = None  # as it was asked for
    only_slurm: str = ""  # keys of the scenario that say where it runs, where nothing else does
    contract: "Contract | None" = None
    """What the run is held to."""
    listed: tuple[Listed, ...] = ()  # the experiment, in each of its versions
    budget: Budget | None = None
    """What the run is held to beside its scenario's own budget."""
    scheduled: ScheduledRun | None = None  # the slot of a schedule that asks for it
    submitter: str = ""
    """Who asks, where a server or an agent knows; else who this process runs as."""
    approval: SignedApproval | None = None
    """By which it goes beyond what its submitter may start."""

    def place(self, workspace: WorkspaceFolder) -> Place:
        """What a runtime is told of its surroundings."""
        scenario, inputs = self.plan.scenario, Path(self.plan.input_folder or workspace.root)
        outside = [] if inputs.is_relative_to(workspace.root.absolute()) else [inputs]
        return Place(
            cache=places.cache(),
            site=self.site,
            image=scenario.runtime.image or scenario.artifacts.container or "",
            folders=(workspace.root, places.cache(), *outside),
            binds=tuple(scenario.binds),
            gpus=max(resources.gpus for resources in self.plan.all_resources),
            variables=tuple(sorted({*scenario.environment, *mentioned(self.file.document.text)})),
            builds=source_builds(workspace),
        )

    def container(self, workspace: WorkspaceFolder) -> Container | None:
        """What a trial runs in. Raises where the image is not there or not pinned."""
        spec = self.plan.scenario.runtime
        runtime: Runtime = plug("runtimes", spec.kind)()
        return runtime.container(spec, self.place(workspace))

    @cached_property
    def code_digest(self) -> str:
        """Of the experiment's package, or those of all its versions: every file is read, once."""
        digests = [item.code_digest() for item in self.listed]
        return digests[0] if len(digests) == 1 else digest(digests)

    def image_digest(self) -> str | None:
        """sha256 of the image; None where there is none."""
        container = self.container(WorkspaceFolder(Path("/")))
        return container.digest if container else None


def source_builds(workspace: WorkspaceFolder) -> SourceBuilds:
    """The packages that isolated environments of a workspace may build from source."""
    file = workspace_settings(workspace)
    names = ("all",) if file and file.build_from_source == "all" else tuple(file.build_from_source if file else ())
    return SourceBuilds(names, workspace.root.absolute())


def workspace_settings(workspace: WorkspaceFolder) -> WorkspaceFile | None:
    """The content of workspace.yaml; None if the workspace has no such file."""
    if not workspace.settings.is_file():
        return None
    from benchhouse.runs.sharing import workspace_file  # few workspaces have this file

    return workspace_file(workspace)
