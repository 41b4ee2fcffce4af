"""Outcome tables: the numbers of a point side by side, one column each, with the unit in the column's name.

A value is the mean over the point's valid trials; `measurement_fact` has the values of each trial.
"""

from dataclasses import dataclass

from benchhouse.warehouse.run_tables import POINT_IDENTITY, UNKNOWN
from benchhouse.warehouse.table import Column, Table

_QUANTILES = ("p50", "p95", "p99")


@dataclass(frozen=True)
class Outcome:
    """A column and its metrics; the first of `metrics` that the point has fills it, in `unit`."""

    name: str
    metrics: tuple[str, ...]
    unit: str
    meaning: str
    stats: tuple[str, ...] = ("value", "mean")

    @property
    def column(self) -> Column:
        return Column(self.name, "number", self.meaning)


@dataclass(frozen=True)
class OutcomeTable:
    """A table with the components whose trials enter it and the metrics that fill it."""

    table: Table
    components: frozenset[str]
    outcomes: tuple[Outcome, ...]
    by_window: bool = False


def _spread(name: str, metrics: tuple[str, ...], what: str, stats: tuple[str, ...] = _QUANTILES) -> list[Outcome]:
    return [Outcome(f"{name}_{stat}_ms", metrics, "ms", f"{what}, {stat}, milliseconds.", (stat,)) for stat in stats]


def _errors() -> list[Outcome]:
    return [
        Outcome("error_rate", ("error_rate",), "1", "Requests that failed, as a share of all."),
        Outcome("errors", ("errors",), "1", "Requests that failed."),
        Outcome("timeouts", ("timeouts",), "1", "Of these, without an answer in the time limit."),
    ]


_SERVING = (
    *_spread("ttft", ("ttft",), "Time to first token"),
    *_spread("tpot", ("tpot",), "Time per output token"),
    *_spread("inter_token", ("itl",), "Time between tokens"),
    *_spread("latency", ("e2e", "latency"), "Time to the end of the answer"),
    *_spread("jitter", ("jitter",), "Difference between one gap and the next", ("mean", "p99")),
    Outcome("requests_per_s", ("requests_per_s",), "1/s", "Good answers a second."),
    Outcome("output_tokens_per_s", ("output_tokens_per_s",), "tokens/s", "Output tokens a second."),
    Outcome("items_per_s", ("items_per_s", "prompts_per_s"), "items/s", "Items a second, where requests hold several."),
    Outcome("goodput_per_s", ("goodput",), "1/s", "Good answers a second that met the service level."),
    Outcome("queue_delay_ms", ("queue_delay", "queue_ms"), "ms", "Mean time in the server's queue, milliseconds."),
    *_errors(),
    Outcome("cost_per_request_usd", ("cost_per_request",), "$", "Cost of a request, dollars."),
    Outcome(
        "cost_per_million_output_tokens_usd", ("cost_per_million_output_tokens",), "$",
        "Cost of a million output tokens, dollars; a millionth of it is the cost of a token.",
    ),
)  # fmt: skip

_TRAINING = (
    *_spread("step_time", ("step_time", "step"), "Time of a step", ("mean", "p50", "p95", "p99")),
    Outcome("tokens_per_s", ("tokens_per_s",), "tokens/s", "Tokens trained on a second."),
    Outcome("samples_per_s", ("samples_per_s",), "samples/s", "Samples trained on a second."),
    Outcome("time_to_train_s", ("time_to_target", "time_to_train"), "s", "Time until the goal was met, seconds."),
    Outcome("time_to_train_hours", ("time_to_target", "time_to_train"), "h", "The same in hours."),
    Outcome("mfu", ("mfu",), "1", "Model FLOPs utilisation, a share of the most the devices can."),
    Outcome("mfu_pct", ("mfu",), "%", "The same in percent."),
    Outcome("hfu_pct", ("hfu",), "%", "The same with what is computed a second time."),
    Outcome("energy_per_token_j", ("energy_per_token",), "J/token", "Energy of GPUs and processors a token, joules."),
    Outcome(
        "cost_per_million_tokens_usd",
        ("cost_per_million_tokens",),
        "$",
        "Cost of training on a million tokens, dollars.",
    ),
    Outcome("scaling_efficiency", ("scaling_efficiency",), "1", "Throughput of a rank against that of the fewest."),
    Outcome("scaling_efficiency_pct", ("scaling_efficiency",), "%", "The same in percent."),
    Outcome("goodput", ("goodput",), "1", "Time at steps that count, a share of the wall time."),
    Outcome("training_reliability_pct", ("reliability",), "%", "Wall time that no interrupt cost, percent."),
    Outcome("mtti_s", ("mtti",), "s", "Mean time to an interrupt, where there was one, seconds."),
    Outcome("restarts", ("restarts",), "1", "Times that the job had to begin again."),
    Outcome("lost_steps", ("lost_steps",), "1", "Steps that were done twice or thrown away."),
    Outcome("loss", ("loss", "final_loss"), "1", "Loss at the end."),
)

_STORAGE = (
    Outcome("bandwidth_mb_per_s", ("bandwidth",), "MB/s", "Bytes moved a second, in MB."),
    Outcome("iops", ("iops", "operations_per_s"), "1/s", "Operations a second."),
    Outcome("requests_per_s", ("requests_per_s",), "1/s", "Requests a second."),
    Outcome("transactions_per_s", ("tps", "transactions_per_s"), "1/s", "Transactions a second."),
    *_spread("latency", ("latency",), "Time of an operation"),
    *_spread("sync_latency", ("sync_latency",), "Time of an fdatasync"),
    *_spread("ttfb", ("ttfb",), "Time to the first byte"),
    Outcome("corrupt", ("corrupt",), "1", "Answers whose content is not as written."),
    *_errors(),
)

_VECTOR = (
    Outcome("qps", ("qps",), "1/s", "Queries a second."),
    *_spread("latency", ("latency",), "Time of a search"),
    Outcome("recall", ("recall",), "1", "Share of the true neighbours that was found."),
    Outcome("ingest_rate", ("ingest_rate",), "vectors/s", "Vectors a second until all are searchable."),
    Outcome("build_s", ("build_s",), "s", "Time after the last vector was handed over, seconds."),
    Outcome("index_mb", ("index_mb",), "MB", "Size of the index, MB."),
    Outcome("memory_mb", ("memory_mb",), "MB", "Growth of memory, MB."),
    Outcome("goodput_per_s", ("goodput",), "1/s", "Good answers a second that met the service level."),
    *_errors(),
)


def _table(name: str, grain: str, what: str, own: tuple[Column, ...], outcomes: tuple[Outcome, ...]) -> Table:
    return Table(
        name,
        f"One row per {grain}: {what}. Means over good trials; warm-ups and trials that did not succeed are left out.",
        (
            *POINT_IDENTITY,
            *own,
            Column("trials", "integer", "Trials of the point that were no warm-up."),
            Column("succeeded", "integer", "Of these, those that the values are means of."),
            *(outcome.column for outcome in outcomes),
            UNKNOWN,
        ),
        ("instance_digest", "phase") if any(column.name == "phase" for column in own) else ("instance_digest",),
        grain=grain,
    )


_LOAD = (
    Column("concurrency", "number", "Requests at a time, in a closed loop; null in an open one."),
    Column("request_rate", "number", "Requests a second, in an open loop; null in a closed one."),
)
_SCALE = (
    Column("phase", "text", "Part of the trial; empty for all of it."),
    Column("nodes", "integer", "Nodes that were asked for."),
    Column("gpus", "integer", "GPUs that were asked for, on each node."),
)

SERVING_OUTCOME_FACT = _table(
    "serving_outcome_fact",
    "run x workload point x concurrency point",
    "what users of an inference server saw",
    _LOAD,
    _SERVING,
)
TRAINING_OUTCOME_FACT = _table(
    "training_outcome_fact", "run x phase x scale point", "how fast and how reliably was trained", _SCALE, _TRAINING
)
STORAGE_OUTCOME_FACT = _table(
    "storage_outcome_fact", "run x workload point", "what files, objects and databases gave", _LOAD, _STORAGE
)
VECTOR_OUTCOME_FACT = _table(
    "vector_outcome_fact", "run x workload point x concurrency point", "what vector search gave", _LOAD, _VECTOR
)

OUTCOME_TABLES = (
    OutcomeTable(SERVING_OUTCOME_FACT, frozenset({"inference", "serving"}), _SERVING),
    OutcomeTable(TRAINING_OUTCOME_FACT, frozenset({"training"}), _TRAINING, by_window=True),
    OutcomeTable(STORAGE_OUTCOME_FACT, frozenset({"storage"}), _STORAGE),
    OutcomeTable(VECTOR_OUTCOME_FACT, frozenset({"vectordb", "vector"}), _VECTOR),
)
