"""Convert files of other tools to scenarios."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.runs.preparation import Where, converted
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder

if TYPE_CHECKING:
    from benchhouse.api.execution import PlaceKeywords


@dataclass(frozen=True)
class Conversion:
    """A descriptor that was converted to a scenario."""

    scenario: str
    """The text of the scenario file. Its relative paths start at the descriptor's folder."""
    notes: list[str]
    """Parts of the descriptor that have no effect, and why."""
    scheduling: str
    """When the descriptor is to be run: a cron line or a word for one; empty for a single run."""


def convert(folder: WorkspaceFolder, descriptor: str | os.PathLike[str], where: "PlaceKeywords") -> Conversion:
    if Path(descriptor).suffix != ".toml":
        raise BenchError(f"{descriptor} is no descriptor", "a TOML file of Benchmark AI: bench convert FILE.toml")
    made = converted(folder, Path(descriptor), Where(**where))
    return Conversion(made.file.text, made.notes, made.scheduling)
