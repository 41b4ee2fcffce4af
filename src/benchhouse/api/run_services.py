"""The servers of one run, from files alone: those attached to it, and those that its running trials have started."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchhouse.runs.keeping import is_lost, running_states
from benchhouse.runs.ledger import Ledger
from benchhouse.schema.layout import TrialFolder, Workspace
from benchhouse.schema.service import OVER, LiveServices


def folders(ledger: Ledger) -> list[Path]:
    """Of the servers that are, or were, attached to the run."""
    folder = ledger.folder.services
    return list(folder.iterdir()) if folder.is_dir() else []


def services(workspace: Workspace, ledger: Ledger, running: Iterable[str]) -> list[dict[str, Any]]:
    """All of them, as `bench status` shows them; `running` are the trials that go on now."""
    of_trials = (one for name in running for one in _of_trial(workspace, ledger.record.scenario, name))
    return [*_attached(ledger), *of_trials]


def _attached(ledger: Ledger) -> list[dict[str, Any]]:
    return [
        {
            "name": folder.path.name,
            "recipe": state.recipe,
            "phase": "lost" if is_lost(state) else state.phase,
            "message": state.message,
            "since": state.since,
            "trial_id": None,
            "endpoints": [] if state.phase in OVER else [item.endpoint for item in state.replicas],
            "pids": [] if state.phase in OVER else [item.pid for item in state.replicas],
        }
        for folder, state in running_states(folders(ledger))
    ]


def _of_trial(workspace: Workspace, scenario: str, trial_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for partial in (workspace.results / scenario / ".partial").glob(f"{trial_id}.*"):
        with contextlib.suppress(OSError, ValueError):
            live = LiveServices.model_validate_json(TrialFolder(partial).services.read_bytes())
            found += [
                {
                    "name": name,
                    "recipe": "",
                    "phase": "ready",
                    "message": "",
                    "since": "",
                    "trial_id": trial_id,
                    "endpoints": [item.endpoint],
                    "pids": [item.pid],
                }
                for name, item in live.services.items()
            ]
    return found
