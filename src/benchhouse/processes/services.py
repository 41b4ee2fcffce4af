"""Kept services: whether one still runs, by its state and by its keeper."""

import os

from benchhouse.processes.owner import is_gone
from benchhouse.schema.service import OVER, ServiceFolder, read_state


def end_of(name: str, folder: ServiceFolder) -> str:
    """Why a kept service is over, as a message; empty while it runs, or where its state can't be read."""
    state = read_state(folder)
    if state is None:
        return ""
    if state.phase in OVER:
        message = state.message or state.phase
        return message if message.startswith(f"{name} ") else f"{name} is over: {message}"
    if state.host == os.uname().nodename and is_gone(state.keeper):
        return f"{name} is over: its keeper was killed"
    return ""
