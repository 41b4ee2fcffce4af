"""Logs: a line of `trial.jsonl`, size limits, and the content of a tarball."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from benchhouse.schema.components import CAP_BYTES
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Bytes


class LogSettings(Model, strict=True):
    """How much output is stored."""

    cap: Bytes = Field(CAP_BYTES, ge=1, description="Most bytes of each log of a trial; of what is more, the end.")


class LogLine(Model):
    """A line of trial.jsonl: output of a component, or a message of the worker with fields of its own."""

    model_config = ConfigDict(extra="allow")
    time: str = Field(description="When it came in, UTC.")
    trial_id: str = Field(description="Trial that it belongs to.")
    component: str = Field(description="experiment, worker, or the name of a service.")
    stream: str = Field("", description="stdout or stderr of the experiment; output: both of a service.")
    line: str = Field("", description="What was printed, without its line end.")
    cut: bool = Field(False, description="Whether the line was longer than 8 KiB; the raw log has all of it.")
    level: str = Field("", description="Of a message of the worker's: info, warning, error.")
    message: str = Field("", description="What the worker says.")

    @property
    def more(self) -> dict[str, Any]:
        """Further fields of a message."""
        return self.__pydantic_extra__ or {}


class PackedFile(Model):
    """A file in a tarball."""

    path: str = Field(description="Within the tarball's folder.")
    size: Bytes = Field(description="Bytes.")
    lines: int = Field(description="Number of line ends.")
    sha256: str = Field(description="Digest of its bytes.")
    trial_id: str | None = Field(None, description="Trial that it belongs to.")
    attempt: int | None = Field(None, description="Which attempt at the trial.")
    sealed: bool | None = Field(None, description="Whether the trial had ended and is evidence.")


class LogsManifest(Model):
    """manifest.json of a tarball: the run, the selected lines, and the packed files."""

    schema_version: Literal[1] = 1
    run_id: str
    scenario: str
    components: list[str] = Field(description="Asked for; empty: all.")
    trials: list[str] = Field(description="Asked for; empty: all.")
    since: str | None = Field(None, description="Lines from then on, UTC.")
    until: str | None = Field(None, description="Lines before then, UTC.")
    files: list[PackedFile]
    left_out: list[str] = Field(description="Files that were not packed, and why.")


class PrunedLogs(Model):
    """The files that `bench logs prune` removed, or would remove."""

    removed: list[str] = Field(description="Paths below the workspace.")
    size: Bytes = Field(description="Bytes in them.")
    dry_run: bool = Field(description="Whether they are still there.")
