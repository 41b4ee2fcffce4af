"""The servers of one run, from files alone: those attached to it, and those that its running trials have started."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchhouse.runs.keepers import is_lost, running_states
from benchhouse.runs.ledger import Ledger
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.service import OVER, LiveServices


@dataclass(frozen=True)
class RunService:
    """A server of a run; `trial_id` is of the trial that started it, None where it is attached to the run."""

    name: str
    recipe: str
    phase: str
    message: str
    since: str
    trial_id: str | None
    endpoints: list[str]
    pids: list[int]


def folders(ledger: Ledger) -> list[Path]:
    """Of the servers that are, or were, attached to the run."""
    folder = ledger.folder.services
    return sorted(folder.iterdir()) if folder.is_dir() else []


def services_of(workspace: WorkspaceFolder, ledger: Ledger, running: Iterable[str]) -> list[RunService]:
    """All servers of a run; `running` are the trials that go on now."""
    scenario = ledger.record.scenario
    return [*_attached(ledger), *(item for name in running for item in _of_trial(workspace, scenario, name))]


def _attached(ledger: Ledger) -> list[RunService]:
    return [
        RunService(
            folder.path.name,
            state.recipe,
            "lost" if is_lost(state) else state.phase,
            state.message,
            state.since,
            None,
            [] if state.phase in OVER else [item.endpoint for item in state.replicas],
            [] if state.phase in OVER else [item.pid for item in state.replicas],
        )
        for folder, state in running_states(folders(ledger))
    ]


def _of_trial(workspace: WorkspaceFolder, scenario: str, trial_id: str) -> list[RunService]:
    services: list[RunService] = []
    for partial in (workspace.results / scenario / ".partial").glob(f"{trial_id}.*"):
        with contextlib.suppress(OSError, ValueError):
            live = LiveServices.model_validate_json(TrialFolder(partial).services.read_bytes())
            services += [
                RunService(name, "", "ready", "", "", trial_id, [item.endpoint], [item.pid])
                for name, item in live.services.items()
            ]
    return services
