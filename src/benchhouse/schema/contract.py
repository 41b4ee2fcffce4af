"""The BenchmarkRun contract: what a benchmark promises before it runs, so that a missing promise is never silent.

Keys are in camelCase, as in published contracts. `contract_rules` has the rules between keys.
"""

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from benchhouse.schema.model import Camel, number_as_text

BenchmarkClass = Literal["publication_grade", "realism_grade"]
WorkloadType = Literal["training", "inference", "mixed"]
Text = Annotated[str, Field(min_length=1, max_length=500)]
Variable = Literal[
    "hardware_generation", "runtime_version", "scheduler_path", "control_plane_path", "driver_stack",
    "network_topology", "storage_stack",
]  # fmt: skip

TRAINING_METRICS = ("time_to_train_hours", "mfu_pct", "scaling_efficiency_pct", "training_reliability_pct")
INFERENCE_METRICS = ("ttft_ms", "tokens_per_second", "p99_latency_ms", "jitter_ms")
COST_METRICS = ("cost_per_token", "cost_per_million_tokens", "cost_per_request")
Playbook = Literal["tail_latency_regression", "low_gpu_utilization", "distributed_straggler", "scheduler_backpressure"]
PLAYBOOKS: tuple[Playbook, ...] = get_args(Playbook)


Word = Annotated[Text, BeforeValidator(number_as_text)]


class _ContractPart(Camel, strict=True):
    pass


class Intent(_ContractPart):
    benchmark_class: BenchmarkClass = Field(description="publication_grade or realism_grade.")
    workload_type: WorkloadType = Field(description="training, inference or mixed.")
    scheduler_path: Word = Field(description="How jobs reach the machines: local, slurm, kubernetes, ray, ...")
    cadence: Word = Field(description="How often: once, per_commit, nightly, ...")


class ContractLayer(_ContractPart):
    enabled: bool = Field(description="Whether this layer is measured.")
    suites: list[Word] = Field([], description="What is run on it; an enabled layer has some.")


class Layers(_ContractPart):
    micro: ContractLayer = Field(description="Kernels, links, single operations.")
    component: ContractLayer = Field(description="One part by itself: an index, a disk, a collective.")
    end_to_end: ContractLayer = Field(alias="end_to_end", description="What a user waits for.")


class SequenceLength(_ContractPart):
    input_tokens: int = Field(ge=0, description="Tokens in.")
    output_tokens: int = Field(ge=0, description="Tokens out.")
    weight: float = Field(gt=0, description="Share of it; all weights add up to 1.")


class ContractWorkload(_ContractPart):
    model: Word = Field(description="What is served, trained or searched.")
    precision: Word = Field(description="fp32, bf16, int8, ...")
    batching_policy: Word = Field(description="none, static, continuous, ...")
    concurrency_model: Word = Field(description="closed_loop, open_loop, ...")
    sequence_length_mix: list[SequenceLength] = Field([], description="Lengths; for inference there are some.")
    dataset_ref: Word = Field(description="The data, by name and digest.")
    fixed_across_trials: Literal[True] = Field(description="The workload does not change between trials.")


class Artifact(_ContractPart):
    artifact_ref: Word = Field(description="What is measured, by digest where it has one.")


class ContractComparison(_ContractPart):
    variable_under_test: Variable = Field(description="The one thing that differs.")
    baseline: Artifact
    candidate: Artifact
    compare_one_variable_at_a_time: Literal[True] = Field(description="Everything else stays the same.")


class ContractMetrics(_ContractPart):
    training: list[Word] = Field([], description=f"At least {', '.join(TRAINING_METRICS)}.")
    inference: list[Word] = Field([], description=f"At least {', '.join(INFERENCE_METRICS)} and a cost.")


class OutlierPolicy(_ContractPart):
    method: Word = Field(description="How outliers are found: none, iqr, mad, ...")
    action: Literal["report", "flag", "exclude_and_report"] = Field(description="What is done; never in silence.")


class ContractTrials(_ContractPart):
    min_replicates: int = Field(ge=3, description="At least 3.")
    min_warmups: int = Field(0, ge=0, description="Trials of each point that come first and do not count.")
    confidence_level: float = Field(ge=0.8, lt=1.0, description="Of the intervals.")
    outlier_policy: OutlierPolicy
    report_distributions: Literal[True] = Field(description="Not means alone.")
    report_confidence_intervals: Literal[True] = Field(description="Every number with its interval.")


class ContractProbe(_ContractPart):
    probe: Word = Field(description="What tells whether this is what holds it up.")


class BottleneckAnalysis(_ContractPart):
    compute: ContractProbe
    comm: ContractProbe
    input: ContractProbe
    control_plane: ContractProbe = Field(alias="control_plane")


class ContractLineage(_ContractPart):
    raw_artifacts: bool = Field(description="Numbers walk back to raw bytes.")
    query_specs: bool = Field(description="Queries are pinned.")
    manifest_digests: bool = Field(description="Manifests are hashed.")


class Observability(_ContractPart):
    join_keys: list[Word] = Field(description="rank_id for training; request_id and trace_id for inference.")
    lineage: ContractLineage
    playbooks: list[Playbook] = Field(description="Diagnoses that are at hand: all four.")


class Signing(_ContractPart):
    enabled: bool = Field(description="Whether claims are signed; publication grade needs it.")
    method: Word = Field(description="dsse-ed25519, ...")


class Provenance(_ContractPart):
    git_commit: Word = Field(description="Commit of what is run.")
    image_digests: list[Word] = Field([], description="Containers, name@sha256:...")
    package_lock_digest: Word = Field(description="Digest of the installed packages.")
    signing: Signing | None = Field(None, description="Who vouches for it.")


class ExecutionPolicy(_ContractPart):
    dedicated_nodes: bool = Field(description="Nobody else on the nodes.")
    stable_background_load: bool = Field(description="Nothing else that comes and goes.")
    fixed_topology: bool = Field(description="The same nodes and links in all trials.")
    exclusive_scheduling: bool = Field(description="The scheduler gives them to one job.")
    isolation: bool = Field(False, description="Each trial in a process of its own, its limits enforced.")
    multi_tenant: bool = Field(False, description="Realism: others are there, as in production.")
    cluster_context_captured: bool = Field(False, description="Realism: what else went on is recorded.")
    on_missing_guarantee: Literal["downgrade", "reject"] = Field(description="If a guarantee is missing.")


class RawSink(_ContractPart):
    uri: Word = Field(description="Where raw artifacts go.")


class HotSink(_ContractPart):
    series_budget: int = Field(ge=1, description="Most series at a time.")
    dropped_labels: list[Word] = Field(description="At least request_id and trace_id.")


class WarehouseSink(_ContractPart):
    hot_days: int = Field(ge=0, description="At most warmDays.")
    warm_days: int = Field(ge=0, description="At most coldDays.")
    cold_days: int = Field(ge=0, description="How long rows are kept.")


class Sinks(_ContractPart):
    raw_artifacts: RawSink
    hot_metrics: HotSink
    curated_warehouse: WarehouseSink


class BenchmarkRun(_ContractPart):
    """A contract: the class, workload, comparison, and guarantees that a benchmark promises."""

    kind: Literal["BenchmarkRun"] = Field(description="BenchmarkRun.")
    schema_version: Literal[1] = Field(1, description="Version of this file format.")
    name: Word = Field(description="Name of the contract.")
    intent: Intent = Field(description="What for.")
    layers: Layers = Field(description="What is measured: all three are named, at least one is enabled.")
    workload: ContractWorkload = Field(description="The frozen problem.")
    comparison: ContractComparison = Field(description="What is compared with what.")
    metrics: ContractMetrics = Field(description="What is reported.")
    trials: ContractTrials = Field(description="How often, and how sure.")
    bottleneck_analysis: BottleneckAnalysis = Field(description="A probe for each place that may hold it up.")
    observability: Observability = Field(description="What joins numbers with their evidence.")
    provenance: Provenance = Field(description="What exactly was run.")
    execution_policy: ExecutionPolicy = Field(description="What the machines guarantee.")
    sinks: Sinks = Field(description="Where everything goes.")
