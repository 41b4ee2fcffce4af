"""The tables, version 1: every column with its type and one line that says what it holds.

The Parquet files are written with the schemas made here; an empty table is shown to SQL with the same types.
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
Kind = Literal["text", "texts", "integer", "number", "truth", "time"]
Row = dict[str, Any]

_SQL_TYPES: dict[Kind, str] = {
    "text": "VARCHAR",
    "texts": "VARCHAR[]",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "truth": "BOOLEAN",
    "time": "TIMESTAMP",
}


@dataclass(frozen=True)
class Column:
    """One column; a `time` is UTC with milliseconds and carries no zone."""

    name: str
    kind: Kind
    description: str

    @property
    def sql_type(self) -> str:
        return _SQL_TYPES[self.kind]


@dataclass(frozen=True)
class Table:
    """One curated table; `order` sorts its rows, so that equal evidence gives equal bytes."""

    name: str
    description: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]

    def empty_sql(self) -> str:
        """A SELECT of no rows that has this table's columns and types."""
        nulls = ", ".join(f"NULL::{column.sql_type} AS {quoted(column.name)}" for column in self.columns)
        return f"SELECT {nulls} WHERE false"

    def schema(self) -> "pa.Schema":
        """The pyarrow schema, with table name and schema_version in its metadata."""
        return _arrow_schema(self)


def quoted(name: str) -> str:
    """A column name as SQL wants it when it is a word of the language, such as `window`."""
    return '"' + name.replace('"', '""') + '"'


@cache
def _arrow_schema(table: Table) -> "pa.Schema":
    import pyarrow as pa

    types = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "integer": pa.int64(),
        "number": pa.float64(),
        "truth": pa.bool_(),
        "time": pa.timestamp("ms"),
    }
    fields = [
        pa.field(column.name, types[column.kind], metadata={"description": column.description})
        for column in table.columns
    ]
    return pa.schema(
        fields, metadata={"benchhouse.table": table.name, "benchhouse.schema_version": str(SCHEMA_VERSION)}
    )


_RUN_ID = Column("run_id", "text", "The run that the row belongs to.")
_SCENARIO = Column("scenario", "text", "Name of the scenario.")
_CASE = Column("benchmark_case_id", "text", "Experiment, version and parameters, without the target.")
_WORKLOAD = Column("workload_spec_digest", "text", "Digest of the trial's parameters: same digest, same workload.")
_MANIFEST = Column("artifact_manifest_digest", "text", "sha256 of the trial's manifest.json: the bytes behind the row.")
_RUN_WORKLOADS = Column("workload_spec_digest", "text", "Digest of the sorted set of the trials' workload digests.")
_RUN_MANIFESTS = Column(
    "artifact_manifest_digest", "text", "Digest of the sorted list of the trials' manifest digests."
)
_EXPERIMENT = Column("experiment", "text", "Name of the experiment.")
_VERSION = Column("experiment_version", "text", "Version of the experiment.")
_EXECUTOR = Column(
    "executor", "text", "Where the jobs went: local, slurm, ...; of a run that was finished elsewhere, each place."
)
_RUNTIME = Column("runtime", "text", "What the jobs ran inside: process, venv, ...")
_PLAN = Column("plan_digest", "text", "Digest of the plan that was run.")
_TRIAL_ID = Column("trial_id", "text", "The trial's uuid.")
_REPETITION = Column("repetition", "integer", "Which repetition of its instance, from 1 or 0 as planned.")
_WARMUP = Column("warmup", "truth", "A warm-up never enters a summary.")
_OUTCOME = Column("outcome", "text", "succeeded, invalid, failed, error, timeout, out_of_memory, cancelled or lost.")

RUN_FACT = Table(
    "benchmark_run_fact",
    "One row per run, derived from the evidence of its trials alone.",
    (
        _RUN_ID,
        _SCENARIO,
        _PLAN,
        _EXPERIMENT,
        _VERSION,
        _EXECUTOR,
        _RUNTIME,
        Column("started", "time", "Start of the first trial, UTC."),
        Column("ended", "time", "End of the last trial, UTC."),
        Column("trials", "integer", "Sealed trials, warm-ups included."),
        Column("succeeded", "integer", "Trials that succeeded, warm-ups included."),
        Column("failed", "integer", "Trials that did not succeed, whatever the reason, invalid ones included."),
        Column("warmups", "integer", "Trials that were warm-ups."),
        Column("cases", "integer", "Different benchmark cases."),
        Column("instances", "integer", "Different bound points (case and target)."),
        Column("benchmark_case_ids", "texts", "The benchmark cases, sorted."),
        Column("git_commit", "text", "Commit of the workspace; null when unknown or when trials differ."),
        Column("git_dirty", "truth", "Whether any trial ran with uncommitted changes; null when unknown."),
        Column("hosts", "texts", "Hosts that ran trials, sorted."),
        _RUN_WORKLOADS,
        _RUN_MANIFESTS,
    ),
    ("run_id",),
)

TRIAL_FACT = Table(
    "trial_fact",
    "One row per sealed trial.",
    (
        _TRIAL_ID,
        _RUN_ID,
        _SCENARIO,
        _CASE,
        _WORKLOAD,
        _MANIFEST,
        Column("instance_digest", "text", "Identity of the bound point: experiment, version, target, parameters."),
        _PLAN,
        _EXPERIMENT,
        _VERSION,
        Column("distribution", "text", "Python distribution that provides the experiment."),
        Column("distribution_version", "text", "Its version."),
        Column("component", "text", "Component of the common metrics schema."),
        Column("service", "text", "Service of the common metrics schema."),
        _EXECUTOR,
        _RUNTIME,
        Column("target_name", "text", "The target's name, or a short form of what it is made of."),
        Column("target", "text", "The target, canonical JSON."),
        Column("parameters", "text", "The workload's parameters, canonical JSON."),
        Column("axes", "text", "What varies in this run and the value here, canonical JSON."),
        Column("point", "text", "The axes in short, such as `index=hnsw ef=64`; empty when nothing varies."),
        _REPETITION,
        _WARMUP,
        Column("seed", "integer", "Seed given to the experiment."),
        Column("attempt", "integer", "Which attempt this is, from 1."),
        _OUTCOME,
        Column(
            "failure_code",
            "text",
            "Stable word for what went wrong or makes the numbers invalid; null when nothing did.",
        ),
        Column("failure_message", "text", "What went wrong, or why the numbers don't hold; null when nothing did."),
        Column("warnings", "texts", "Named doubts about the numbers, `code: message`."),
        Column("started", "time", "When the trial started, UTC."),
        Column("ended", "time", "When the trial ended, UTC."),
        Column("duration_s", "number", "Seconds by the monotonic clock."),
        Column("cpu_s", "number", "CPU seconds of the process tree; null when not measured."),
        Column("peak_memory_bytes", "integer", "Peak memory of the process tree; null when not measured."),
        Column("host", "text", "Host that ran it."),
        Column("git_commit", "text", "Commit of the workspace; null when unknown."),
        Column("git_dirty", "truth", "Whether there were uncommitted changes; null when unknown."),
        Column("package_lock_digest", "text", "Digest of the installed distributions and versions."),
        Column("code_digest", "text", "Digest of the source files of the experiment's package."),
        Column("environment_digest", "text", "Digest of the variables that the scenario sets."),
        Column("limits", "text", "Hard limits of the trial, canonical JSON."),
        Column("parallel", "integer", "How many trials could run beside each other on the same machine."),
        Column("folder", "text", "The evidence folder, relative to the workspace."),
    ),
    ("trial_id",),
)

MEASUREMENT_FACT = Table(
    "measurement_fact",
    "One row per number that a trial produced.",
    (
        _TRIAL_ID,
        _RUN_ID,
        _CASE,
        _WORKLOAD,
        _MANIFEST,
        Column("metric", "text", "Name of the metric."),
        Column("stat", "text", "value, mean, stdev, min, p50, p90, p95, p99, p99.9, max, n."),
        Column("value", "number", "The number, bit for bit as in metrics.csv."),
        Column("unit", "text", "Unit of the value."),
        Column("direction", "text", "higher or lower is better; null where neither is."),
        Column("n", "integer", "Samples behind the number."),
        Column("scope", "text", "trial, or the part of it that the number is about."),
        Column("window", "text", "Part of the trial's time; empty for all of it."),
        _REPETITION,
        _WARMUP,
        _OUTCOME,
    ),
    ("trial_id", "metric", "stat", "scope", "window"),
)

TELEMETRY_SLICE_FACT = Table(
    "telemetry_slice_fact",
    "One row per trial, phase, scope and series that monitors sampled, reduced as in telemetry/summary.json. A trial "
    "shorter than one sampling interval has none.",
    (
        _TRIAL_ID,
        _RUN_ID,
        _CASE,
        _WORKLOAD,
        _MANIFEST,
        Column("phase", "text", "trial (all of it), warmup, steady, teardown, or as the experiment says."),
        Column("scope", "text", "node, trial (all below the worker), service:NAME, gpu0, ..."),
        Column("series", "text", "Name of what was sampled."),
        Column("family", "text", "service, gpu, nvlink, pcie, network, node, process or energy."),
        Column("kind", "text", "gauge; or counter, of which the figures are the growth a second."),
        Column("unit", "text", "Unit of the figures, `growth` aside."),
        Column("n", "integer", "Values behind the percentiles."),
        Column("avg", "number", "Mean over the phase."),
        Column("min", "number", "Least value; null where the phase holds no sample."),
        Column("max", "number", "Greatest value."),
        Column("p50", "number", "Median."),
        Column("p95", "number", "95th percentile."),
        Column("p99", "number", "99th percentile."),
        Column("too_few_for", "texts", "Percentiles that `n` values can't carry."),
        Column("growth", "number", "Of a counter: by how much it grew in the phase."),
        Column("begin_s", "number", "Where the phase begins, seconds since the trial's start."),
        Column("end_s", "number", "Where it ends."),
        Column("interval_s", "number", "Time between samples."),
        _REPETITION,
        _WARMUP,
        _OUTCOME,
    ),
    ("trial_id", "scope", "series", "phase"),
)

WORKLOAD_DIM = Table(
    "workload_dim",
    "One row per workload of a run.",
    (
        _WORKLOAD,
        _RUN_ID,
        _CASE,
        Column("artifact_manifest_digest", "text", "Digest of the sorted manifest digests of the trials that ran it."),
        _EXPERIMENT,
        _VERSION,
        Column("parameters", "text", "The parameters, canonical JSON."),
    ),
    ("workload_spec_digest", "benchmark_case_id"),
)

LINEAGE_DIM = Table(
    "artifact_lineage_dim",
    "One row per run: where its raw evidence lies and how it is sealed.",
    (
        _RUN_ID,
        Column("raw_uri", "text", "Folder of the run's evidence, relative to the workspace."),
        _RUN_WORKLOADS,
        _RUN_MANIFESTS,
        Column("trial_manifests", "texts", "sha256 of each trial's manifest.json, sorted."),
        Column("signing_state", "text", "unsigned, until signatures are made."),
    ),
    ("run_id",),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (RUN_FACT, TRIAL_FACT, MEASUREMENT_FACT, TELEMETRY_SLICE_FACT, WORKLOAD_DIM, LINEAGE_DIM)
}
