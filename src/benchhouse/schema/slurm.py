"""Settings for Slurm in scenarios, and the records of submissions."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, model_validator

from benchhouse.schema.layout import SubmissionFolder
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.site import Flag, Word


class SlurmSettings(Model, strict=True):
    """How trials become Slurm jobs. It does not change what they measure, so it is not part of any digest."""

    pack: int = Field(1, ge=1, le=100_000, description="Trials in one array task, one after the other.")
    together: int = Field(1, ge=1, le=1024, description="Of these, at a time; the task asks for resources for all.")
    throttle: int | None = Field(None, ge=1, description="Array tasks at a time.")
    time: Seconds | None = Field(None, gt=0, description="Time limit of a task; else by limits.wall, else the site's.")
    ntasks_per_node: int = Field(1, ge=1, description="Slots of srun on each node of a multi-node trial.")
    constraint: Word | None = Field(None, description="Features that nodes must have.")
    reservation: Word | None = Field(None, description="A reservation to use.")
    exclusive: bool = Field(False, description="No other job on its nodes.")
    flags: tuple[Flag, ...] = Field((), strict=False, description="Further flags of sbatch.")

    @model_validator(mode="after")
    def _together_needs_a_pack(self) -> "SlurmSettings":
        if self.together > self.pack:
            raise ValueError(f"together: {self.together} at a time, but pack: {self.pack} has fewer")
        return self


class SlurmSubmission(Model):
    """job.json: the result of a submission. Without this file, the result is not known yet."""

    job_id: str = Field(description="Of the array; empty where Slurm never had it.")
    name: str
    submitted: str
    tasks: int
    trials: int
    reason: str = Field("", description="Why Slurm never had it.")


def submissions(folder: Path) -> Iterator[SubmissionFolder]:
    """Yield the submissions of a run, oldest first; an incomplete one has no script yet and is skipped."""
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.name.isdigit() and (path / "job.sh").is_file():
                yield SubmissionFolder(path)
