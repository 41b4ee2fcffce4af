"""Tables made from evidence: runs, trials, every number, slices of telemetry, and the dimensions that runs share.

The id of a dimension's row is the digest of its content.
"""

from benchhouse.warehouse.table import Column, Table

RUN_ID = Column("run_id", "text", "The run that the row belongs to.")
SCENARIO = Column("scenario", "text", "Name of the scenario.")
CASE = Column("benchmark_case_id", "text", "Experiment, version and parameters, without the target.")
WORKLOAD = Column("workload_spec_digest", "text", "Digest of the trial's parameters: same digest, same workload.")
MANIFEST = Column("artifact_manifest_digest", "text", "sha256 of the trial's manifest.json: the bytes behind the row.")
MANIFESTS = Column("artifact_manifest_digest", "text", "Digest of the sorted list of the trials' manifest digests.")
RUN_CASE = Column(
    "benchmark_case_id", "text", "The run's benchmark case; of several, the digest of their sorted list, 16 digits."
)
RUN_WORKLOADS = Column("workload_spec_digest", "text", "Digest of the sorted set of the trials' workload digests.")
INSTANCE = Column("instance_digest", "text", "Identity of the bound point: experiment, version, target, parameters.")
POINT = Column("point", "text", "The axes in short, such as `index=hnsw ef=64`; empty when nothing varies.")
TARGET_NAME = Column("target_name", "text", "The target's name, or a short form of what it is made of.")
EXPERIMENT = Column("experiment", "text", "Name of the experiment.")
VERSION = Column("experiment_version", "text", "Version of the experiment.")
UNKNOWN = Column("unknown", "text", "Why columns of this row are null: a JSON object, column to reason.")
SOFTWARE_ID = Column("software_version_id", "text", "Row of software_version_dim.")
HARDWARE_ID = Column("hardware_topology_id", "text", "Row of hardware_topology_dim.")
CLUSTER_ID = Column("cluster_region_id", "text", "Row of cluster_region_dim.")
_EXECUTOR = Column(
    "executor", "text", "Where the jobs went: local, slurm, ...; of a run that was finished elsewhere, each place."
)
RUNTIME = Column(
    "runtime", "text", "What jobs ran inside: process, venv, ...; `process, shared` where trials shared it."
)
_LABELS = Column("labels", "text", "Labels of the scenario or descriptor, canonical JSON.")
_PLAN = Column("plan_digest", "text", "Digest of the plan that was run.")
_TRIAL_ID = Column("trial_id", "text", "The trial's uuid.")
_REPETITION = Column("repetition", "integer", "Which repetition of its instance, from 1 or 0 as planned.")
_WARMUP = Column("warmup", "truth", "A warm-up never enters a summary.")
_OUTCOME = Column("outcome", "text", "succeeded, invalid, failed, error, timeout, out_of_memory, cancelled or lost.")
_SCHEDULER_RUN = Column("scheduler_run_id", "text", "The batch system's id of the submission, such as an array job.")
_SCHEDULER_PATH = Column("scheduler_path", "text", "Executor, partition and quality of service: `slurm/gpu/default`.")

_DIMENSIONS = (SOFTWARE_ID, HARDWARE_ID, CLUSTER_ID)
_OF_TRIAL = (_TRIAL_ID, RUN_ID, CASE, WORKLOAD, MANIFEST, INSTANCE)
POINT_IDENTITY = (
    RUN_ID, CASE, WORKLOAD, MANIFESTS, INSTANCE, SCENARIO, EXPERIMENT, VERSION, TARGET_NAME, POINT,
)  # fmt: skip
_OF_REPETITION = (_REPETITION, _WARMUP, _OUTCOME)
_RUN_IDENTITY = (RUN_ID, RUN_CASE, SCENARIO, _PLAN, EXPERIMENT, VERSION, _EXECUTOR, RUNTIME, _SCHEDULER_PATH)
_TRIAL_IDENTITY = (_TRIAL_ID, RUN_ID, SCENARIO, CASE, WORKLOAD, MANIFEST, INSTANCE, _PLAN, EXPERIMENT, VERSION)

RUN_FACT = Table(
    "benchmark_run_fact",
    "One row per run, derived from the evidence of its trials alone.",
    (
        *_RUN_IDENTITY,
        _LABELS,
        _SCHEDULER_RUN,
        Column("intent", "text", "What the run was for, as its contract says: kind of workload, variable under test."),
        Column("mode", "text", "publication or realism: what is left of what its contract asks for; or rejected."),
        Column("cadence", "text", "How often it is run, as its contract says."),
        Column("contract", "text", "Name of the contract that governs it; null where none does."),
        Column("contract_digest", "text", "Digest of that contract."),
        Column("asked_mode", "text", "publication or realism, as the contract asks."),
        Column("guarantees", "text", "What the contract demands, each with whether and how it was observed, JSON."),
        Column("missing_guarantees", "texts", "Those that were not, each with the reason."),
        Column("sinks", "text", "Where its artifacts, hot metrics and rows go by the contract, JSON."),
        Column("started", "time", "Start of the first trial, UTC."),
        Column("ended", "time", "End of the last trial, UTC."),
        Column("queue_s", "number", "Longest time between submission and start of a trial; by two clocks."),
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
        *_DIMENSIONS,
        RUN_WORKLOADS,
        MANIFESTS,
        UNKNOWN,
    ),
    ("run_id",),
    grain="run",
)

TRIAL_FACT = Table(
    "trial_fact",
    "One row per sealed trial.",
    (
        *_TRIAL_IDENTITY,
        _LABELS,
        Column("distribution", "text", "Python distribution that provides the experiment."),
        Column("distribution_version", "text", "Its version."),
        Column("component", "text", "Component of the common metrics schema."),
        Column("service", "text", "Service of the common metrics schema."),
        _EXECUTOR,
        RUNTIME,
        TARGET_NAME,
        Column("target", "text", "The target, canonical JSON."),
        Column("parameters", "text", "The workload's parameters, canonical JSON."),
        Column("axes", "text", "What varies in this run and the value here, canonical JSON."),
        POINT,
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
        Column(
            "queue_s",
            "number",
            "From submission to start, by two clocks; null where they can't both be right. On "
            "Kubernetes from its pod's Job to the start of the container, the same for all trials of a pod.",
        ),
        Column("cpu_s", "number", "CPU seconds of the process tree; null when not measured."),
        Column("peak_memory_bytes", "integer", "Peak memory of the process tree; null when not measured."),
        Column("host", "text", "Host that ran it."),
        _SCHEDULER_PATH,
        _SCHEDULER_RUN,
        Column("job_uid", "text", "The batch system's id of the job, such as `4711_3`; null outside of one."),
        Column("pod_uid", "text", "The pod's id; null outside of Kubernetes."),
        Column("nodes", "integer", "Nodes that were asked for."),
        Column("gpus", "integer", "GPUs that were asked for, on each node."),
        Column("cpus", "integer", "Cores that were asked for, on each node or for each task."),
        Column("memory_bytes", "integer", "Memory that was asked for, on each node; null when none was."),
        *_DIMENSIONS,
        Column("git_commit", "text", "Commit of the workspace; null when unknown."),
        Column("git_dirty", "truth", "Whether there were uncommitted changes; null when unknown."),
        Column("package_lock_digest", "text", "Digest of the installed distributions and versions."),
        Column("code_digest", "text", "Digest of the source files of the experiment's package."),
        Column("environment_digest", "text", "Digest of the variables that the scenario sets."),
        Column("limits", "text", "Hard limits of the trial, canonical JSON."),
        Column("parallel", "integer", "How many trials could run beside each other on the same machine."),
        Column("contract", "text", "What the contract of its run holds it to, canonical JSON; null: no contract."),
        Column("guarantees", "text", "What was seen of that in this trial, canonical JSON."),
        Column("custom", "text", "What the experiment said by ctx.metadata, canonical JSON."),
        Column("folder", "text", "The evidence folder, relative to the workspace."),
        UNKNOWN,
    ),
    ("trial_id",),
    grain="sealed trial",
)

MEASUREMENT_FACT = Table(
    "measurement_fact",
    "One row per number that a trial produced: the raw replicates, each with its unit and direction.",
    (
        *_OF_TRIAL,
        Column("metric", "text", "Name of the metric."),
        Column("stat", "text", "value, mean, stdev, min, p50, p90, p95, p99, p99.9, max, n."),
        Column("value", "number", "The number, bit for bit as in metrics.csv."),
        Column("error_bound", "number", "How far the number can be off, in its unit; null where that is not known."),
        Column("unit", "text", "Unit of the value."),
        Column("direction", "text", "higher or lower is better; null where neither is."),
        Column("n", "integer", "Samples behind the number."),
        Column("scope", "text", "trial, or the part of it that the number is about."),
        Column("window", "text", "Part of the trial's time; empty for all of it."),
        _REPETITION,
        _WARMUP,
        Column("outcome", "text", "Of the trial; `invalid`, too, where the number can be off by more than is taken."),
    ),
    ("trial_id", "metric", "stat", "scope", "window"),
    grain="number of a trial",
)

TELEMETRY_SLICE_FACT = Table(
    "telemetry_slice_fact",
    "One row per trial, phase, scope and series that monitors sampled, reduced as in telemetry/summary.json. A trial "
    "shorter than one sampling interval has none.",
    (
        *_OF_TRIAL,
        Column("node_name", "text", "Node that was sampled."),
        Column("gpu_uuid", "text", "The GPU that a scope such as gpu0 is about; null for others."),
        Column("rank_id", "integer", "Rank of a distributed job; null where the slice is not of one."),
        Column("request_id", "text", "Request that the slice is about; null: of all requests."),
        Column("trace_id", "text", "Trace that the slice is about; null: of none."),
        Column("phase", "text", "trial (all of it), warmup, steady, teardown, or as the experiment says."),
        Column("scope", "text", "node, trial (its processes), service:NAME, gpu0, ...; of another node NODE/NAME."),
        Column("series", "text", "Name of what was sampled."),
        Column("family", "text", "service, gpu, nvlink, pcie, network, node, process, energy or scheduler."),
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
        Column("window_start", "time", "The same by the node's clock, UTC."),
        Column("window_end", "time", "Where it ends, by the node's clock, UTC."),
        Column("interval_s", "number", "Time between samples."),
        *_OF_REPETITION,
    ),
    ("trial_id", "scope", "series", "phase"),
    grain="run x time window x node, rank or request scope",
)

_FIRST_RUN = Column("run_id", "text", "The first of the runs that are read in which it was found.")


def _dimension(id_column: Column, name: str, description: str, grain: str, columns: tuple[Column, ...]) -> Table:
    found_in = (_FIRST_RUN, RUN_CASE, RUN_WORKLOADS, MANIFESTS)
    key = (id_column.name,)
    return Table(name, description, (id_column, *found_in, *columns, UNKNOWN), key, grain=grain, key=key)


SOFTWARE_VERSION_DIM = _dimension(
    SOFTWARE_ID,
    "software_version_dim",
    "One row per unique software bundle, as the worker found it on the node.",
    "unique software bundle",
    (
        Column("image_digest", "text", "sha256 of the container image; null outside of one."),
        Column("kernel", "text", "Release of the operating system's kernel."),
        Column("gpu_driver", "text", "Version of the GPU driver."),
        Column("cuda", "text", "Newest CUDA that the driver knows, else what the environment says."),
        Column("nccl", "text", "Version of NCCL, by its Python distribution."),
        Column("framework", "text", "What computes, with version: torch, jax, tensorflow, faiss-cpu, ..."),
        RUNTIME,
        Column("server", "text", "What serves, as the target or the service says: vllm, triton, ..."),
        Column("server_version", "text", "Its version, as it says itself, else its program, else the scenario."),
        Column(
            "server_image", "text", "sha256 of the image that it runs in; as the scenario says, where it was there."
        ),
        Column(
            "servers", "text", "Every server of the trial by name: recipe, version, image and its name, canonical JSON."
        ),
        Column("python", "text", "Version of Python."),
        Column("benchhouse", "text", "Version of Benchhouse."),
        Column("package_lock_digest", "text", "Digest of all installed distributions and versions."),
        Column("packages", "text", "Those that matter for speed and their versions, canonical JSON."),
    ),
)

HARDWARE_TOPOLOGY_DIM = _dimension(
    HARDWARE_ID,
    "hardware_topology_dim",
    "One row per unique hardware and topology, as the worker read it on the node. Not which node: nodes that are alike "
    "share a row.",
    "unique hardware and topology bundle",
    (
        Column("machine", "text", "Architecture: x86_64, aarch64."),
        Column("cpu_model", "text", "Model of the processors."),
        Column("cpu_sockets", "integer", "Processors."),
        Column("cpu_cores", "integer", "Cores of all processors."),
        Column("cpu_threads", "integer", "Hardware threads that are online."),
        Column("cpus_usable", "integer", "Hardware threads that the worker may use."),
        Column("cpu_quota", "number", "Processors that the cgroup allows; null: no limit."),
        Column("cpu_governor", "text", "Who sets the clocks: performance, powersave, ..."),
        Column("numa_nodes", "integer", "NUMA nodes."),
        Column("numa_layout", "text", "Processors of each NUMA node and distances, JSON."),
        Column("memory_bytes", "integer", "Memory of the machine."),
        Column("memory_limit_bytes", "integer", "Memory that the cgroup allows; null: no limit."),
        Column("gpu_model", "text", "Model of the GPUs; several kinds joined by `+`."),
        Column("gpu_count", "integer", "GPUs that the worker sees."),
        Column("gpu_memory_bytes", "integer", "Memory of the smallest of them."),
        Column("pcie_layout", "text", "Of each GPU: width and generation of its link and the most it can, JSON."),
        Column("nvlink_topology", "text", "Of each GPU: links that are up and to whom, JSON."),
        Column(
            "gpu_nic_affinity", "text", "Of each GPU: NUMA node, and places in `nics` of those on the same one, JSON."
        ),
        Column("nics", "text", "Network devices with driver, speed in Mbit/s and NUMA node, JSON."),
        Column("storage_fabric", "text", "File system of the evidence folder: ext4, lustre, nfs, ..."),
    ),
)

CLUSTER_REGION_DIM = _dimension(
    CLUSTER_ID,
    "cluster_region_dim",
    "One row per cluster, region, zone and way through the scheduler, as the site profile and the scheduler say.",
    "cluster x region x zone x scheduler slice",
    (
        Column("cluster", "text", "Name of the cluster."),
        Column("region", "text", "Region."),
        Column("zone", "text", "Availability zone."),
        Column("provider", "text", "Who runs it: a cloud, a centre."),
        Column("scheduler", "text", "Scheduler: slurm, kubernetes, ...; local where there is none."),
        Column("scheduler_path", "text", "Executor, partition and quality of service: `slurm/gpu/default`."),
        Column("node_pool", "text", "Partition or pool of nodes."),
        Column("queue", "text", "Quality of service or queue."),
        Column("resource_flavor", "text", "Kind of resources, as the site calls it."),
        Column("tenant_mode", "text", "shared or exclusive, as the site says."),
    ),
)

WORKLOAD_DIM = Table(
    "workload_dim",
    "One row per frozen workload of an experiment. The columns are filled where the parameters say so.",
    (
        WORKLOAD,
        _FIRST_RUN,
        CASE,
        Column("artifact_manifest_digest", "text", "Digest of the sorted manifest digests of the trials that ran it."),
        EXPERIMENT,
        VERSION,
        Column("model", "text", "Models of the targets that were asked, sorted, joined by `+`."),
        Column("precision", "text", "Number format: fp16, int8, ..."),
        Column("prompt_distribution", "text", "What is asked: kind and lengths, canonical JSON."),
        Column("output_distribution", "text", "Lengths of what is answered, canonical JSON."),
        Column("concurrency", "number", "Requests at a time, in a closed loop."),
        Column("request_rate", "number", "Requests a second, in an open loop."),
        Column("batching", "text", "How requests are put together."),
        Column("protocol", "text", "Protocols that were spoken, sorted, joined by `+`."),
        Column("deployment_model", "text", "How the targets are deployed, sorted, joined by `+`."),
        Column("parameters", "text", "All parameters, canonical JSON."),
        UNKNOWN,
    ),
    ("workload_spec_digest", "benchmark_case_id"),
    grain="frozen workload spec",
    key=("workload_spec_digest", "benchmark_case_id"),
)

LINEAGE_DIM = Table(
    "artifact_lineage_dim",
    "One row per run: where its raw evidence lies and how it is sealed.",
    (
        RUN_ID,
        RUN_CASE,
        Column("raw_uri", "text", "Folder of the evidence in the workspace that collected it: file:///..."),
        Column("store_uris", "texts", "Evidence stores that it was pushed to: s3://bucket/prefix/trials/RUN."),
        RUN_WORKLOADS,
        MANIFESTS,
        Column("trial_manifests", "texts", "sha256 of each trial's manifest.json, sorted."),
        Column("signing_state", "text", "signed: a claim about it has a signature; unsigned: sealed by digests alone."),
        Column("signed_claims", "texts", "Those claims, each with the keys; bench claim verify checks them."),
        Column("packets", "texts", "Packets of claims that hold it: file:///...#sha256=..."),
    ),
    ("run_id",),
    grain="run",
)
