"""Files that users write, checked without running anything."""

from dataclasses import dataclass
from pathlib import Path

from benchhouse.nexus import logical
from benchhouse.runs.preparation import prepare_all
from benchhouse.schema.layout import WorkspaceFolder


@dataclass(frozen=True)
class Validation:
    """What a good file holds: points and trials of a scenario, or bindings of a logical benchmark."""

    file: str
    points: int | None = None
    trials: int | None = None
    bindings: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """What there is of each, by noun."""
        counts = {"points": self.points, "trials": self.trials, "bindings": self.bindings}
        return {noun: number for noun, number in counts.items() if number is not None}


def validate(workspace: WorkspaceFolder, path: Path) -> Validation:
    """What a good file holds; raises for any other, every mistake at once."""
    if (checked := logical.validate_file(path)) is not None:
        if not checked.good:
            raise checked.failure
        return Validation(str(path), bindings=checked.bindings)
    plans = [item.plan for item in prepare_all(workspace, path)]
    return Validation(str(path), sum(plan.points for plan in plans), sum(plan.trial_count for plan in plans))
