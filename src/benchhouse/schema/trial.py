"""Instances and trials: the bound inputs, the instructions for one execution, and how it ended."""

import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field

from benchhouse.schema.approval import ApprovedBy
from benchhouse.schema.artifacts import MeasuredModel, StagedDataset
from benchhouse.schema.digests import canonical_json, digest
from benchhouse.schema.logs import LogSettings
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.resources import Limits, Resources, RuntimeSettings
from benchhouse.schema.service import TrialService
from benchhouse.schema.telemetry import MonitorSettings
from benchhouse.schema.topology import Cluster, Topology

Outcome = Literal["succeeded", "invalid", "failed", "error", "timeout", "out_of_memory", "cancelled", "lost"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
MEASURED: tuple[Outcome, ...] = ("succeeded", "invalid")
"""Outcomes of trials that ran to the end and measured. Numbers of `invalid` ones are evidence, but excluded from
summaries.
"""
VERSION_AXIS = "experiment.version"
"""The axis of a run over several versions of its experiment."""
_TRIALS = uuid.UUID("6f1d4d0e-6f0b-5c1a-9d6e-0f4b1c3a7e52")


class ExperimentRef(Model):
    """The code of an experiment: its identity (name, version), and where it was found."""

    name: str
    version: str
    object: str = Field(description="`module:attribute` that holds it.")
    distribution: str = Field(description="The Python distribution that provides it.")
    distribution_version: str
    bridge: str = Field("", description="The system that it was written for, where that is not this one: `ado`.")


def instance_digest(
    experiment: bytes, version: bytes, target: bytes, parameters: bytes, services: bytes, resources: bytes = b""
) -> str:
    """Return the digest of an instance from the canonical JSON of its parts, so that a plan encodes fixed parts once.

    Services count if there are any (`services` is not empty), because a target is then not all that is measured.
    Resources count if they vary.
    """
    served = b'"services":%b,' % services if services else b""
    given = b'"resources":%b,' % resources if resources else b""
    text = b'{"experiment":%b,"parameters":%b,%b%b"target":%b,"version":%b}' % (
        experiment, parameters, given, served, target, version,
    )  # fmt: skip
    return hashlib.sha256(text).hexdigest()


class Instance(Model):
    """A bound point of a plan. Instances with the same digest are the same measurement."""

    experiment: str
    version: str
    target: dict[str, Any]
    parameters: dict[str, Any]
    services: dict[str, Any] = Field(default_factory=dict)
    resources: dict[str, Any] = Field(default_factory=dict, description="What of them varies in the run.")

    def digest(self) -> str:
        parts = (self.experiment, self.version, self.target, self.parameters)
        experiment, version, target, parameters = map(canonical_json, parts)
        services, resources = (canonical_json(part) if part else b"" for part in (self.services, self.resources))
        return instance_digest(experiment, version, target, parameters, services, resources)

    def case_id(self) -> str:
        """Return the id of the benchmark case: everything but the target, so that targets can be compared."""
        return digest({"experiment": self.experiment, "version": self.version, "parameters": self.parameters})[:16]

    def workload_digest(self) -> str:
        return digest(self.parameters)


class Attempt(Model):
    """One attempt at a trial, and how it ended."""

    attempt: int
    outcome: Outcome
    reason: str = ""
    started: str | None = None
    ended: str | None = None
    host: str | None = None
    job: str | None = None


class TrialSpec(Model):
    """trial.json: all instructions for a worker, which gets nothing else."""

    schema_version: Literal[1] = 1
    trial_id: str
    run_id: str
    scenario: str
    plan_digest: str
    instance_digest: str
    benchmark_case_id: str
    workload_spec_digest: str
    experiment: ExperimentRef
    component: str
    service: str
    target: dict[str, Any]
    parameters: dict[str, Any]
    axes: list[str] = Field(default_factory=empty_list, description="Names of the parameters that vary in this run.")
    folder: str = Field("", description="Folder that relative paths among the inputs start in; empty: there are none.")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels of the scenario.")
    repetition: int
    warmup: bool = False
    seed: int
    resources: Resources
    limits: Limits
    executor: str
    runtime: RuntimeSettings
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    artifacts: dict[str, Any] = Field(default_factory=dict)
    dataset: StagedDataset | None = Field(None, description="Data of the workload that the scenario brings.")
    binds: list[str] = Field(default_factory=empty_list)
    environment: dict[str, str] = Field(default_factory=dict)
    services: dict[str, TrialService] = Field(default_factory=dict)
    interface: str | None = Field(None, description="Device of the network between the nodes of the trial.")
    site: str | None = Field(None, description="Name of the site profile.")
    cluster: Cluster | None = Field(None, description="Where the site is, as its profile says.")
    logs: LogSettings = Field(default_factory=LogSettings, description="How much output is kept.")
    monitors: MonitorSettings | Literal[False] = Field(
        default_factory=MonitorSettings, description="What is sampled beside it."
    )
    scaling: Literal["strong", "weak"] | None = Field(None, description="What the scenario calls its curves.")
    parallel: int = Field(1, description="How many trials could run beside each other on the same machine.")
    code_digest: str = Field("", description="Digest of the source files of the experiment's package.")
    images: str = Field("", description="Folder of the pinned images that servers may be started from.")
    image_pins: dict[str, str] = Field(
        default_factory=dict, description="Digests of images that an experiment may start servers from, by NAME:TAG."
    )
    attempt: int = 1
    previous_attempts: list[Attempt] = Field(default_factory=empty_list)
    source: dict[str, Any] = Field(default_factory=dict, description="Git commit and dirty flag of the workspace.")
    submitted: str | None = Field(None, description="When it was handed to a batch system.")
    container_digest: str | None = Field(None, description="sha256 of the image that it runs in.")
    contract: dict[str, Any] = Field(default_factory=dict, description="The BenchmarkRun contract; empty: none.")
    approval: ApprovedBy | None = Field(None, description="By which its run went beyond what its submitter may.")
    cache: str = Field(description="Folder of the data cache.")
    final: str = Field(description="Folder that the sealed trial is renamed to.")


def joined(frame: Mapping[str, Any], differs: Mapping[str, Any], results: Path) -> dict[str, Any]:
    """Return the fields of trial.json, from those that all trials of a run share and those of one trial."""
    parameters = differs["parameters"]
    experiment = ExperimentRef.model_validate(differs.get("experiment") or frame["experiment"])
    instance = Instance(experiment=experiment.name, version=experiment.version, target={}, parameters=parameters)
    return {
        **frame,
        **differs,
        "benchmark_case_id": instance.case_id(),
        "workload_spec_digest": instance.workload_digest(),
        "final": str(results / differs["trial_id"]),
    }


def trial_id(run_id: str, instance_digest: str, repetition: int, warmup: bool) -> str:
    """Return the uuid of a trial, always the same for the same run, so that a resumed run finds finished trials."""
    kind = "warmup" if warmup else "trial"
    return str(uuid.uuid5(_TRIALS, f"{run_id}/{instance_digest}/{kind}/{repetition}"))


def outcome_words(outcome: str) -> str:
    """Return an outcome for people: `out of memory`; INVALID is in capitals because its numbers look valid."""
    return "INVALID" if outcome == "invalid" else outcome.replace("_", " ")


_REFUSALS = frozenset({
    "bad_load", "bad_parameters", "bad_recipe_name", "bad_sql", "index_does_not_fit", "no_bucket", "no_container",
    "no_such_driver", "no_target", "not_supported", "nothing_to_find", "one_process", "unused_value",
    "window_too_short",
})  # fmt: skip


def may_be_tried_again(outcome: str, code: str) -> bool:
    """Return whether another attempt may end differently; false if the trial requests something impossible."""
    return not (outcome == "failed" and code in _REFUSALS)


class Failure(Model):
    """Why a trial did not succeed; for an invalid trial, every reason why its numbers are not valid."""

    code: str = Field(description="Stable word: the exception's type, the limit, or the experiment's own code.")
    message: str
    traceback: str = ""
    retryable: bool = False
    log_tail: str = ""


class Guarantee(Model):
    """A guarantee that the contract of a run requires, and what was observed."""

    name: str = Field(description="As the contract spells it: dedicatedNodes, provenance.gitCommit, ...")
    observed: bool
    says: str = Field(description="What was seen.")
    value: float | None = Field(None, description="The figure behind it, where there is one.")


class TrialWarning(Model):
    """A named doubt about a trial's numbers."""

    code: str
    message: str


class Meta(Model):
    """meta.json: the circumstances in which a trial ran."""

    schema_version: Literal[1] = 1
    trial_id: str
    run_id: str
    scenario: str
    outcome: Outcome
    failure: Failure | None = None
    warnings: list[TrialWarning] = Field(default_factory=empty_list)
    attempts: list[Attempt]
    started: str
    ended: str
    duration_s: float = Field(description="By the monotonic clock, so a clock that is set back does no harm.")
    timestamp: str
    host: str
    placed: dict[str, str] = Field(default_factory=dict, description="Executor, its name of the node, its job ids.")
    partition: str | None = None
    slurm_job_id: str | None = None
    slurm_node_list: str | None = None
    slurm: dict[str, Any] = Field(default_factory=dict, description="The job by Slurm, with queue time.")
    container_digest: str | None = None
    container_enter_s: float | None = Field(None, description="Time to enter the container, once a worker.")
    code_digest: str = Field("", description="Digest of the source files of the experiment's package.")
    git_commit: str | None = None
    git_dirty: bool | None = None
    seed: int
    experiment: ExperimentRef
    package_lock_digest: str
    packages: dict[str, str] = Field(
        default_factory=dict,
        description="Installed distributions and versions, in evidence of early versions; since then in packages.json.",
    )
    python: str
    hardware: dict[str, Any]
    topology: Topology | None = Field(None, description="What the node is made of; null in evidence before 0.2.")
    dataset: StagedDataset | None = Field(None, description="Data of the workload that the scenario brings.")
    model: MeasuredModel | None = Field(None, description="What `model` of target or workload names, with its licence.")
    drivers: dict[str, str | None] = Field(description="GPU driver, CUDA, ...; null where there is none.")
    limits: dict[str, Any] = Field(description="What was asked and which mechanism enforced it.")
    usage: dict[str, Any] = Field(description="CPU seconds and peak memory of the trial's process tree.")
    guarantees: list[Guarantee] = Field(
        default_factory=empty_list, description="What the contract demands of a trial, each observed or not."
    )
    trials_before: int | None = Field(None, description="Earlier trials in a shared process; null: own process.")
    custom: dict[str, Any] = Field(default_factory=dict, description="What the experiment said by ctx.metadata.")

    def ran_in(self, runtime: RuntimeSettings) -> str:
        """Return the runtime for tables; numbers of a shared process differ from those of a fresh one."""
        return runtime.kind if self.trials_before is None else f"{runtime.kind}, shared"
