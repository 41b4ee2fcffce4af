"""Tables of verdicts: judgments of gates, causes of alarms, accepted levels, and published values; and of raw evidence
that is neither a number nor a series.

They have a `source`: files that `bench gate`, `history`, `baseline`, `claim make`, and trials write, read directly.
"""

from benchhouse.warehouse.table import Column, Table

_TIME = Column("time", "time", "When, UTC.")
_CASE = Column("benchmark_case_id", "text", "The benchmark case; that of `benchmark_run_fact`.")
_TARGET = Column("target_name", "text", "The target's name.")
_METRIC = Column("metric", "text", "Name of the metric.")
_STAT = Column("stat", "text", "Which statistic of it.")
_UNIT = Column("unit", "text", "Unit of the numbers.")
_DIRECTION = Column("direction", "text", "Which way is better: higher or lower; null: neither.")
_NUMBER = (_METRIC, _STAT, _UNIT, _DIRECTION)
_SERIES = (_CASE, _TARGET, _METRIC, _STAT, _UNIT)
_REQUEST = Column("request", "text", "The request that wrote it, where it came through a server.")
_SELFTEST = Column("selftest_run_id", "text", "Run of the selftest that the verdict cites; null: there was none.")

REGRESSION_FACT = Table(
    "regression_fact",
    "What `bench gate` judged, good news too: the last row of a number says where it stands.",
    (
        _TIME,
        Column("base_run_id", "text", "The run, or `RUN:key=value`, that was held to be good."),
        Column("run_id", "text", "The run that was judged."),
        Column("selection", "text", "What was judged, as it was asked for: a run or `RUN:key=value`."),
        Column("scenario", "text", "Name of the scenario."),
        Column("point", "text", "Label of the point."),
        *_NUMBER,
        Column("judgement", "text", "regression, good, or can't tell."),
        Column("worse", "number", "By how much it is worse, a fraction; below zero it is better."),
        Column("low", "number", "Lower end of the interval of `worse`."),
        Column("high", "number", "Upper end."),
        Column("mde", "number", "The smallest worsening that matters, a fraction."),
        Column("confidence", "number", "Of the interval, as asked for."),
        Column("p_adjusted", "number", "After correction for all numbers that were judged together."),
        Column("n_base", "integer", "Trials of the base."),
        Column("n", "integer", "Trials of the run that was judged."),
        Column("method", "text", "How the interval was made."),
        _SELFTEST,
    ),
    ("time", "point", "metric", "stat"),
    grain="one number that a gate judged, each time",
    source=".bench/regressions.jsonl",
)

ALARM_FACT = Table(
    "alarm_fact",
    "New runs that no longer fit an accepted baseline, as `bench history` noticed them.",
    (
        _TIME,
        *_SERIES,
        _DIRECTION,
        Column("run_id", "text", "The run at which it was noticed."),
        Column("since_run_id", "text", "The first run that does not fit."),
        Column("baseline_run_id", "text", "The last run of the baseline's level."),
        Column("baseline_time", "time", "When that baseline was accepted."),
        Column("level", "number", "The accepted level, in the unit."),
        Column("change", "number", "From the level, a fraction; null where that is zero."),
        Column("difference", "number", "From the level, in the unit."),
        Column("z", "number", "Standard errors from the baseline."),
        Column("worse", "truth", "Whether it is the wrong way; null where the metric has no direction."),
        _SELFTEST,
    ),
    ("time", "benchmark_case_id", "metric", "stat"),
    grain="one alarm: a baseline and the run that first does not fit it",
    source=".bench/alarms.jsonl",
)

NOTICE_FACT = Table(
    "notice_fact",
    "What `bench alarms` noticed by the limits of alarms.yaml, and whom it told.",
    (
        _TIME,
        Column("action", "text", "fired, cleared, muted, unmuted, or told: `channel` was told of the row before."),
        Column("alarm", "text", "Name of the alarm."),
        *_SERIES,
        Column("run_id", "text", "The run that made it fire, or that ended it."),
        Column("value", "number", "Mean over the run's trials; null where none succeeded."),
        Column("low", "number", "Lower end of its 95% interval; null for one trial."),
        Column("high", "number", "Upper end."),
        Column("limit", "number", "The limit, in the unit."),
        Column("sentence", "text", "What people were told."),
        Column("channel", "text", "Who was told."),
        Column("error", "text", "Why that failed; empty: it was delivered."),
        Column("until", "text", "When a muted alarm is heard again, UTC; empty: when somebody unmutes it."),
        Column("why", "text", "What the person said who muted it."),
        _REQUEST,
    ),
    ("time", "alarm", "action", "channel"),
    grain="one change of an alarm, or one message about it",
    source=".bench/notices.jsonl",
)

BASELINE_FACT = Table(
    "baseline_fact",
    "Levels that people, or a rule of theirs, accepted or took back; the last row of a case and metric counts.",
    (
        _TIME,
        Column("action", "text", "accept: this level counts from now on; clear: none does."),
        *_SERIES,
        _DIRECTION,
        Column("run_id", "text", "The last run that is part of the level."),
        Column("runs", "texts", "All runs that the level is made of, oldest first."),
        Column("level", "number", "The accepted level, in the unit."),
        Column("log_level", "truth", "Whether the spread is that of logarithms: a share of the level."),
        Column("spread", "number", "Standard deviation of a run around the level."),
        Column("memory", "number", "Correlation of a run's noise with that of the run before."),
        Column("noise", "numbers", "How far each run was off, in deviations, sorted: new runs are ranked among them."),
        Column("n", "integer", "Runs behind the level."),
        Column("by", "text", "Who accepted it: person or rule."),
        Column("rule", "text", "The rule, where it was one."),
        Column("why", "text", "What the person said."),
        _REQUEST,
    ),
    ("time", "benchmark_case_id", "metric", "stat"),
    grain="one decision on a case, target, metric and statistic",
    source=".bench/baselines.jsonl",
)

APPROVAL_FACT = Table(
    "approval_fact",
    "Plans beyond their submitters' budgets: what was asked for, approved, used, refused and revoked here.",
    (
        _TIME,
        Column("action", "text", "asked, approved, used, refused or revoked."),
        Column("name", "text", "Name of the request, and of its approval."),
        Column("approval", "text", "sha256 of what was signed; empty where nothing was."),
        Column("plan_digest", "text", "Digest of the plan."),
        Column("scenario", "text", "Name of the scenario."),
        Column("executor", "text", "Where its jobs go."),
        Column("site", "text", "Name of the site profile."),
        Column("trials", "integer", "Trials that the run may have by it; null: not limited.", path="budget.trials"),
        Column("node_hours", "number", "Node-hours that it may have.", path="budget.node_hours"),
        Column("gpu_hours", "number", "GPU-hours that it may have.", path="budget.gpu_hours"),
        Column("who", "text", "Who did it."),
        Column("login", "text", "Login on the machine where it was done."),
        Column("approved_by", "text", "The person who approved."),
        Column("signed_by", "text", "Whose key signed: theirs, or that of a server or agent that vouches."),
        Column("door", "text", "Where they said so, as that server or agent tells it."),
        Column("run_id", "text", "The run that used it, or that was refused."),
        Column("why", "text", "The reason that was given, or why it was refused."),
    ),
    ("time", "name", "action"),
    grain="one step of a request for approval",
    source=".bench/approvals.jsonl",
)

CLAIM_FACT = Table(
    "claim_fact",
    "Published numbers: one row a claim. `bench trace CLAIM` walks from it to the bytes.",
    (
        Column("claim_id", "text", "The claim: beginning of the sha256 of its file.", path="<file>"),
        Column("kind", "text", "value or comparison."),
        Column("label", "text", "PUBLICATION-GRADE or REALISM-GRADE."),
        Column("statement", "text", "The claim in one sentence."),
        Column("scenario", "text", "Name of the scenario."),
        Column("point", "text", "Label of the point."),
        _METRIC,
        _STAT,
        _DIRECTION,
        Column("value", "number", "Mean over the trials; of a comparison the change, in percent or the unit."),
        _UNIT,
        Column("low", "number", "Lower end of the value's interval.", path="interval[0]"),
        Column("high", "number", "Upper end.", path="interval[1]"),
        Column("n", "integer", "Trials; of a comparison on the side with fewer."),
        Column("method", "text", "How the interval was made."),
        Column("verdict", "text", "Of a comparison, in words."),
        Column("runs", "texts", "Run of each trial behind it.", path="trials[*].run_id"),
        Column("trials", "texts", "The trials behind it.", path="trials[*].trial_id"),
        Column("lacks", "texts", "What a REALISM-GRADE claim lacks: codes.", path="reasons[*].code"),
        Column("measured_from", "time", "Start of the first trial."),
        Column("measured_to", "time", "End of the last trial."),
        Column("benchhouse", "text", "Version that made it."),
    ),
    ("claim_id",),
    grain="one claim",
    source="claims/*.json",
)

RAW_EVIDENCE_FACT = Table(
    "raw_evidence_fact",
    "Scheduler events, validation probes and profiler reports of sealed trials, from raw_evidence.jsonl of each.",
    (
        _TIME,
        Column("run_id", "text", "The run that the row belongs to."),
        Column("trial_id", "text", "The trial's uuid."),
        _CASE,
        Column("kind", "text", "scheduler_event, validation_probe or profiler_report."),
        Column("name", "text", "The event, the guarantee that was probed, or the report."),
        Column("ok", "truth", "Of a probe: whether what is demanded was observed."),
        Column("value", "number", "Of a probe: the figure behind it, where there is one."),
        Column("says", "text", "What was seen."),
        Column("job", "text", "Of an event: the batch system's id of the job."),
        Column("file", "text", "Of a report: its file in the trial's folder."),
        Column("bytes", "integer", "Of a report: its size."),
    ),
    ("time", "trial_id", "kind", "name"),
    grain="one event, probe or report of a trial",
    source="results/*/*/raw_evidence.jsonl",
)
