"""Kept services: whether one still runs, by its state and its supervisor, and the batch job that runs it."""

import os

from benchhouse.processes.process_identity import is_gone
from benchhouse.schema.service import OVER, KeeperJob, ServiceFolder, ServiceState, read_state


def end_of(name: str, folder: ServiceFolder) -> str:
    """Return why a kept service is over, as a message; empty while it runs, or if its state can't be read."""
    state = read_state(folder)
    if state is None:
        return ""
    if state.phase in OVER:
        message = state.message or state.phase
        return message if message.startswith(f"{name} ") else f"{name} is over: {message}"
    return f"{name} is over: its keeper was killed" if is_lost(state) else ""


def is_lost(state: ServiceState) -> bool:
    """Whether its supervisor was killed before it could record the end."""
    return state.phase not in OVER and state.host == os.uname().nodename and is_gone(state.keeper)


def job_of(folder: ServiceFolder) -> KeeperJob | None:
    """Return the batch job that runs it; None if it is a process of this machine."""
    try:
        return KeeperJob.model_validate_json(folder.job.read_bytes())
    except (OSError, ValueError):
        return None
