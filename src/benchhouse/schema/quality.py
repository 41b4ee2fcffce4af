"""Records of accepted baselines, regressions, alarms, and selftests, one JSON object per line."""

from typing import Literal

from pydantic import Field

from benchhouse.schema.model import Model, empty_list


class BaselineRecord(Model):
    """A line of `.bench/baselines.jsonl`: a level that was accepted or cleared."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    time: str = Field(description="When, UTC.")
    action: Literal["accept", "clear"] = Field(description="accept: this level counts from now on; clear: none does.")
    benchmark_case_id: str = Field(description="The benchmark case.")
    target_name: str = Field(description="The target's name.")
    metric: str = Field(description="Name of the metric.")
    stat: str = Field(description="Which statistic of it.")
    unit: str = Field("", description="Unit of the level.")
    direction: Literal["higher", "lower"] | None = Field(None, description="Which way is better.")
    run_id: str = Field("", description="The last run that is part of the level.")
    runs: list[str] = Field(default_factory=empty_list, description="All runs that the level is made of, oldest first.")
    level: float = Field(0.0, description="The accepted level, in the unit.")
    log_level: bool = Field(False, description="Whether the spread is that of logarithms: a share of the level.")
    spread: float = Field(0.0, description="Standard deviation of a run around the level.")
    memory: float = Field(0.0, description="Correlation of a run's noise with that of the run before.")
    noise: list[float] = Field(
        default_factory=empty_list,
        description="How far each run was off, in deviations, sorted: new runs are ranked among them.",
    )
    n: int = Field(0, description="Runs behind the level.")
    by: Literal["person", "rule"] = Field("person", description="Who accepted it.")
    rule: str = Field("", description="The rule, where it was one.")
    why: str = Field("", description="What the person said.")
    request: str = Field("", description="The request that wrote it, where it came through a server.")


class RegressionRecord(Model):
    """A line of `.bench/regressions.jsonl`: a number that a gate judged."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    time: str = Field(description="When, UTC.")
    base_run_id: str = Field(description="The run, or points of one, that was held to be good.")
    run_id: str = Field(description="The run that was judged.")
    selection: str = Field(description="What was judged, as it was asked for.")
    scenario: str = Field(description="Name of the scenario.")
    point: str = Field(description="Label of the point.")
    metric: str = Field(description="Name of the metric.")
    stat: str = Field(description="Which statistic of it.")
    unit: str = Field(description="Unit of the numbers.")
    direction: Literal["higher", "lower"] = Field(description="Which way is better.")
    judgement: Literal["regression", "good", "can't tell"] = Field(description="What the gate said.")
    worse: float | None = Field(description="By how much it is worse, a fraction.")
    low: float | None = Field(description="Lower end of the interval of `worse`.")
    high: float | None = Field(description="Upper end.")
    mde: float = Field(description="The smallest worsening that matters.")
    confidence: float = Field(description="Of the interval, as asked for.")
    p_adjusted: float | None = Field(description="After correction for all that was judged together.")
    n_base: int = Field(description="Trials of the base.")
    n: int = Field(description="Trials of the run that was judged.")
    method: str = Field(description="How the interval was made.")
    selftest_run_id: str | None = Field(None, description="Run of the selftest that the verdict cites.")


class AlarmRecord(Model):
    """A line of `.bench/alarms.jsonl`: new runs that no longer fit an accepted baseline."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    time: str = Field(description="When it was noticed, UTC.")
    benchmark_case_id: str = Field(description="The benchmark case.")
    target_name: str = Field(description="The target's name.")
    metric: str = Field(description="Name of the metric.")
    stat: str = Field(description="Which statistic of it.")
    unit: str = Field(description="Unit of the level.")
    direction: Literal["higher", "lower"] | None = Field(description="Which way is better.")
    run_id: str = Field(description="The run at which it was noticed.")
    since_run_id: str = Field(description="The first run that does not fit.")
    baseline_run_id: str = Field(description="The last run of the baseline's level.")
    baseline_time: str = Field(description="When that baseline was accepted, UTC.")
    level: float = Field(description="The accepted level.")
    change: float | None = Field(description="From the level, a fraction.")
    difference: float = Field(description="From the level, in the unit.")
    z: float = Field(description="Standard errors from the baseline.")
    worse: bool | None = Field(description="Whether it is the wrong way.")
    selftest_run_id: str | None = Field(None, description="Run of the selftest that the verdict cites.")

    @property
    def what(self) -> tuple[str, ...]:
        """The key that identifies an alarm when it occurs again."""
        return (
            self.benchmark_case_id, self.target_name, self.metric, self.stat, self.baseline_time, self.since_run_id,
            self.run_id,
        )  # fmt: skip


class SelftestMetric(Model):
    """The rate at which A/A pairs looked different in one metric, and the smallest detectable change in it."""

    metric: str = Field(description="Name of the metric.")
    stat: str = Field(description="Which statistic of it.")
    pairs: int = Field(description="A/A pairs that were compared.")
    false_positives: int = Field(description="Pairs that looked different.")
    rate: float = Field(description="False positives a pair.")
    rate_low: float = Field(description="Lower end of the rate's exact 95% interval.")
    rate_high: float = Field(description="Upper end.")
    cv: float | None = Field(description="Standard deviation of a trial relative to the mean; null where that is zero.")
    smallest_effect: float | None = Field(description="Smallest planted change that 4 of 5 pairs show; null: above 2x.")


class SelftestRecord(Model):
    """A line of `.bench/selftests.jsonl`: a test of verdicts on a machine with A/A comparisons."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    time: str = Field(description="When, UTC.")
    host: str = Field(description="The machine.")
    scenario: str = Field(description="The workload: name of the scenario.")
    run_id: str = Field(description="The run whose trials were paired.")
    plan_digest: str = Field(description="Digest of its plan.")
    repetitions: int = Field(description="Trials on each side of a pair.")
    confidence: float = Field(description="Of the intervals that decided.")
    metrics: list[SelftestMetric] = Field(description="One entry a metric; pairs of all points together.")

    def sentence(self) -> str:
        """Return a footnote for verdicts: how reliable verdicts on this machine are."""
        pairs = sum(item.pairs for item in self.metrics)
        wrong = sum(item.false_positives for item in self.metrics)
        smallest = sorted({item.smallest_effect for item in self.metrics if item.smallest_effect is not None})
        limits = " to ".join(f"{effect:.1%}" for effect in dict.fromkeys(smallest[:1] + smallest[-1:]))
        effects = f"; smallest change found 4 times in 5: {limits}" if limits else ""
        worst = max(self.metrics, key=lambda item: item.rate_high)
        return (
            f"selftest {self.time[:10]} on {self.host}, {self.scenario}: {wrong} of {pairs} A/A comparisons looked "
            f"different (n={self.repetitions}; at most {worst.rate_high:.0%} in any metric){effects}"
        )
