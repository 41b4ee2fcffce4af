"""Whether a remedy restored a number: good runs, the slow scenario unchanged, and the changed one, side by side."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from benchhouse.analysis.compare import StatisticComparison, compare
from benchhouse.analysis.paired import compare_paired
from benchhouse.analysis.playbooks.values import ComparedNumber
from benchhouse.results.numbers import SEED
from benchhouse.schema.model import Model, empty_list

Outcome = Literal["restored", "partly", "not restored", "not reproduced", "unsure", "impossible"]
_WORDS: dict[str, str] = {
    "restored": "restored: {remedy} it is surely better than as it was, and not surely worse than the good run",
    "partly": "partly restored: {remedy} it is better, but not as good as before; this is not all of the cause",
    "not restored": "not restored: {remedy} it is still worse than the good run, and no better than as it was",
    "not reproduced": "not reproduced: run again as it was, it is not worse than the good run; nothing was to restore",
    "unsure": "unsure: {rounds} rounds do not tell whether it helps {remedy}; more may: --rounds {more}",
}


class TriedNumber(Model):
    """One number that got worse: in the good run, in a new run without changes, and with the remedy."""

    name: str
    unit: str
    direction: Literal["higher", "lower"] | None
    good: float = Field(description="Mean over the good run's trials.")
    as_it_was: float = Field(description="Mean over the rounds of the slow scenario.")
    changed: float = Field(description="Mean over the rounds with the remedy.")
    against_as_it_was: str = Field(description="The changed beside the slow one, round by round, in words.")
    against_good: str = Field(description="The changed beside the good one, in words.")
    outcome: Outcome


class Tried(Model):
    """The additional answer of `bench why --try`, next to the diagnosis."""

    schema_version: Literal[1] = 1
    point: str = ""
    cause: str = Field("", description="Stable word of the diagnosis that was tried.")
    title: str = ""
    remedy: str = Field("", description="What was changed, in words.")
    outcome: Outcome
    reason: str = Field("", description="Why nothing could be tried.")
    rounds: int = 0
    runs: list[str] = Field(default_factory=empty_list, description="As it was and changed, in turns.")
    numbers: list[TriedNumber] = Field(default_factory=empty_list)

    @property
    def headline(self) -> str:
        if self.outcome == "impossible":
            return f"nothing was tried: {self.reason}"
        return _WORDS[self.outcome].format(remedy=self.remedy, rounds=self.rounds, more=2 * self.rounds)


def judge(
    number: ComparedNumber, good: Sequence[float], as_it_was: Sequence[float], changed: Sequence[float]
) -> TriedNumber:
    """Judge a number. Restored: significantly better than unchanged in the same rounds, and not significantly worse
    than the good run.
    """
    slow = compare(good, as_it_was, direction=number.direction, seed=SEED)
    helped = compare_paired(as_it_was, changed, direction=number.direction)
    left = compare(good, changed, direction=number.direction, seed=SEED)
    return TriedNumber(
        name=number.name,
        unit=number.unit,
        direction=number.direction,
        good=left.mean_a,
        as_it_was=slow.mean_b,
        changed=left.mean_b,
        against_as_it_was=helped.sentence("as it was", "changed"),
        against_good=left.sentence("good", "changed"),
        outcome=_outcome(slow, helped, left),
    )


def _outcome(slow: StatisticComparison, helped: StatisticComparison, left: StatisticComparison) -> Outcome:
    better, worse = helped.verdict == "better", left.verdict == "worse"
    if slow.verdict != "worse" and not worse:
        return "not reproduced"
    if better:
        return "partly" if worse else "restored"
    return "not restored" if worse else "unsure"


def overall(numbers: Sequence[TriedNumber]) -> Outcome:
    """Return the outcome for all numbers that got worse. A number that was not reproduced this time is ignored, unless
    all are.
    """
    outcomes = {number.outcome for number in numbers} - {"not reproduced"}
    if not outcomes:
        return "not reproduced"
    if len(outcomes) == 1:
        return outcomes.pop()
    if outcomes <= {"restored", "unsure"}:
        return "restored" if numbers[0].outcome == "restored" else "unsure"
    return "partly" if outcomes & {"restored", "partly"} else "not restored"
