"""The input and output of playbooks: plain values, so that a diagnosis can be repeated from a file."""

from typing import Literal

from pydantic import Field

from benchhouse.schema.model import Model, empty_list

ALPHA = 0.05  # a symptom counts if its p-value, corrected for all compared numbers, is at most this

Certainty = Literal["strong", "moderate", "weak"]
Side = Literal["scenario", "machine", "service", "cluster", "unknown"]


class ComparedNumber(Model):
    """One number of a point in the run and in its base; the change is a fraction."""

    metric: str
    stat: str
    unit: str
    direction: Literal["higher", "lower"] | None = None
    base: float = Field(description="Mean over the base's trials.")
    now: float = Field(description="Mean over the run's trials.")
    change: float | None = None
    low: float | None = Field(None, description="Lower end of the interval of the change.")
    high: float | None = None
    verdict: str = Field(description="As in a comparison.")
    p_adjusted: float | None = Field(None, description="Corrected for all numbers of the comparison.")
    n_base: int | None = Field(None, description="Trials of the base behind it.")
    n_now: int | None = Field(None, description="Trials of the run behind it.")
    ref_base: str = Field("", description="What `bench trace` takes for the base's; empty where it is no metric.")
    ref_now: str = Field("", description="The same for the run's.")

    @property
    def name(self) -> str:
        return self.metric if self.stat == "value" else f"{self.metric} {self.stat}"

    @property
    def worse(self) -> bool:
        """Whether it is worse by both the interval and the corrected p-value."""
        return self.verdict == "worse" and self.p_adjusted is not None and self.p_adjusted <= ALPHA

    @property
    def is_time(self) -> bool:
        return self.unit in ("s", "ms", "us", "µs", "ns") and self.direction == "lower"

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s") and self.direction == "higher"


class SeriesReading(Model):
    """A series in one trial: its mean over the phase and its extremes."""

    trial_id: str
    node: str
    avg: float
    low: float | None = None
    peak: float | None = None
    growth: float | None = Field(None, description="Of a counter: by how much it grew.")


class Signal(Model):
    """One series of one scope, in the trials of a point and in those of its base, over the same phase of each."""

    scope: str
    series: str
    unit: str
    kind: str = Field("gauge", description="gauge, or counter, of which the figures are the growth a second.")
    phase: str
    rank: int | None = Field(None, description="Rank of a distributed job that it is about.")
    base: list[SeriesReading]
    now: list[SeriesReading]

    @property
    def part(self) -> str:
        """The scope without its node: `trial` for `node02/trial`, because the node may differ in each trial."""
        node = next((reading.node for reading in (*self.now, *self.base)), "")
        return self.scope.removeprefix(f"{node}/")


class MemberNumber(Model):
    """A number of one part of the job in each trial: a rank, a shard, or a node."""

    kind: str = Field(description="rank, shard, worker or node.")
    name: str = Field(description="`rank 3`, or the node's name.")
    metric: str
    unit: str
    direction: Literal["higher", "lower"]
    base: list[SeriesReading]
    now: list[SeriesReading]


class ComparedPoint(Model):
    """One point of a run and its base: the complete input of the playbooks."""

    point: str
    numbers: list[ComparedNumber]
    signals: list[Signal] = Field(default_factory=empty_list)
    members: list[MemberNumber] = Field(default_factory=empty_list)
    wait: ComparedNumber | None = Field(None, description="Seconds from submission to start.")
    slowness: dict[str, dict[str, float]] = Field(
        default_factory=dict, description="By name of a number: each trial of the run, larger is worse."
    )
    reasons: dict[str, int] = Field(default_factory=dict, description="Why jobs wait, as the batch system says.")

    def slow_trials(self, symptoms: "list[ComparedNumber]") -> list[dict[str, float]]:
        """Return the slowness of the run's trials by each of these numbers that has it."""
        return [self.slowness[number.name] for number in symptoms if number.name in self.slowness]


class SignalEvidence(Model):
    """A signal that moved, with the rows that show it."""

    scope: str
    series: str
    unit: str
    phase: str
    stat: str = Field(description="avg, peak or range of each trial.")
    base: list[float] = Field(description="One value a trial of the base, or of the peers of the odd one.")
    now: list[float] = Field(description="One value a trial of the run.")
    trials: list[str] = Field(description="The trials of `now`, in that order.")
    distance: float = Field(description="How many spreads of the repetitions the mean moved; at most 99.")
    p_value: float | None = None
    hits: int | None = Field(
        None, description="Of a signal that comes and goes: how many trials of the run it hit, first in `trials`."
    )
    against: str = Field("base", description="base, peers, or normal where the base has no such series.")
    says: str = Field(description="The same in words.")


class PointDiagnosis(Model):
    """The most likely reason why the point got worse, in terms that can all be verified."""

    playbook: str
    cause: str = Field(description="Stable word.")
    title: str
    says: str = Field(description="The mechanism in a sentence or two.")
    certainty: Certainty
    why_so_sure: str
    side: Side = Field(
        description="Where it is mended: the scenario, the machine, the service, the cluster, or not known yet."
    )
    point: str
    suspect: str = Field("", description="The node, rank or device that stands out; empty where none does.")
    node: str = Field("", description="Where the suspect runs, if that is told.")
    symptoms: list[str] = Field(description="Numbers that got worse, in words.")
    evidence: list[SignalEvidence]
    next: list[str] = Field(description="The experiment that would prove or refute it; commands where there are.")
    change: str = Field(description="The smallest change that would mend it.")
    also: list[str] = Field(
        default_factory=empty_list, description="Other causes that had evidence, weaker or downstream."
    )
