"""What stands behind a claim: the rows of its numbers and all trials that were tried; made and checked by it alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchhouse.claims import safety
from benchhouse.evidence.folder import read_meta, read_spec
from benchhouse.results.circumstances import circumstances
from benchhouse.schema.claim import Changed, ClaimTrial, Policy, Reason
from benchhouse.schema.layout import TrialFolder

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Side:
    """One number: its row of the points query, and every trial of its point but warm-ups."""

    row: Row
    tried: list[Row]

    @property
    def name(self) -> str:
        return f"{self.row['run_id']} {self.row['point']}".strip()

    @property
    def used(self) -> list[Row]:
        """Those behind the number, in its order."""
        by_id = {one["trial_id"]: one for one in self.tried}
        return [by_id[trial] for trial in self.row["trials"] if trial in by_id]


@dataclass(frozen=True)
class Basis:
    sides: list[Side]

    @classmethod
    def of(cls, rows: Sequence[Row], every_trial: Sequence[Row]) -> "Basis":
        """`rows`: the number alone, or what it is compared with and the number."""
        sides = []
        for row in rows:
            point = (row["run_id"], row["instance_digest"])
            tried = [one for one in every_trial if (one["run_id"], one["instance_digest"]) == point]
            sides.append(Side(row, [one for one in tried if not one["warmup"]]))
        return cls(sides)

    def changed(self) -> list[Changed]:
        if len(self.sides) < 2:
            return []
        a, b = self.sides
        return safety.changes(a.row, b.row, circumstances(a.used), circumstances(b.used))

    def times(self) -> tuple[str, str]:
        used = [row for side in self.sides for row in side.used]
        return min(row["started"] for row in used), max(row["ended"] for row in used)

    def trials(self) -> list[ClaimTrial]:
        found = []
        for at, side in enumerate(self.sides):
            letter = "b" if at == len(self.sides) - 1 else "a"
            for row, value in zip(side.used, side.row["values"], strict=True):
                fields = {name: row[name] for name in ClaimTrial.model_fields if name in row}
                found.append(ClaimTrial.model_validate(fields | {"side": letter, "value": value}))
        return found

    def judge(self, policy: Policy, folder_of: Callable[[Row], TrialFolder]) -> list[Reason]:
        """Every reason but the lineage; `folder_of` says where the evidence of a trial is."""
        reasons: list[Reason] = []
        for side in self.sides:
            row, name = side.row, side.name
            reasons += safety.judge_values(name, row["values"], policy)
            reasons += safety.judge_percentile(name, row["stat"], int(row["samples"]), row["n"])
            reasons += safety.judge_trials(name, side.tried, row["trials"], policy)
            reasons += safety.judge_source(name, side.used)
            reasons += _judge_images(side, folder_of)
        reasons += safety.judge_changes(self.changed())
        if len(self.sides) == 2 and set(self.sides[0].row["trials"]) & set(self.sides[1].row["trials"]):
            told = "a number can't be compared with itself: both sides have trials in common"
            reasons.append(Reason(code="same_trials", message=told))
        return reasons


def _judge_images(side: Side, folder_of: Callable[[Row], TrialFolder]) -> list[Reason]:
    found = []
    for row in side.used:
        try:
            folder = folder_of(row)
            found.append((read_spec(folder), read_meta(folder).container_digest))
        except (OSError, ValueError):
            continue  # the walk back to the bytes says so, with the reason
    return safety.judge_images(side.name, found)
