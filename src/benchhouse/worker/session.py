"""What one trial has while it runs, from its specification to what must not stand in its evidence."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchhouse.processes.cgroups import Cage
from benchhouse.processes.owned import Scratch
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.trial import TrialSpec
from benchhouse.worker.output import Capture
from benchhouse.worker.shared_process import SharedProcess
from benchhouse.worker.stream import Redact


@dataclass(frozen=True)
class TrialSession:
    """One attempt at a trial, as its worker holds it."""

    spec: TrialSpec
    folder: TrialFolder
    """The evidence, still unsealed."""
    capture: Capture
    scratch: Scratch
    """Where the experiment works and hands over its result."""
    cage: Cage
    shared: SharedProcess | None
    """The process that trials share, where this one is among them."""
    redact: Redact
    secrets: Sequence[str]
