"""Guarantees of a contract: what a run must fulfill, and what was observed."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from benchhouse.schema.contract import BenchmarkClass, BenchmarkRun
from benchhouse.schema.contract_rules import SHA256, UNKNOWN, settle
from benchhouse.schema.digests import digest
from benchhouse.schema.model import Model

DEDICATED, STABLE, TOPOLOGY = "dedicatedNodes", "stableBackgroundLoad", "fixedTopology"
EXCLUSIVE, ISOLATION, CONTEXT = "exclusiveScheduling", "isolation", "clusterContextCaptured"
COMMIT, LOCK, IMAGES = "provenance.gitCommit", "provenance.packageLockDigest", "provenance.imageDigests"
DATASET, ARTIFACTS = "workload.datasetRef", "sinks.rawArtifacts"
REPLICATES, WARMUPS = "trials.minReplicates", "trials.minWarmups"
QUIET_SHARE = 0.05
"""Share of a node's processors that others may use on a dedicated node, and by which a stable background may vary."""


class Terms(Model):
    """The terms of a contract for a run: its class, its guarantees, and what happens if some are missing."""

    name: str
    digest: str = Field(description="Digest of the whole contract.")
    asked: BenchmarkClass
    on_missing: Literal["downgrade", "reject"]
    intent: str = Field(description="What for: kind of workload and the variable under test.")
    cadence: str
    lacks: list[str] = Field(description="What the contract itself does not promise, and its class asks for.")
    demands: list[str] = Field(description="Guarantees, as the contract spells them.")
    context: bool = Field(description="Whether it promises that what else goes on is recorded.")
    replicates: int
    warmups: int
    sinks: dict[str, Any]


def contract_digest(contract: BenchmarkRun) -> str:
    return digest(contract.model_dump(mode="json", by_alias=True, exclude_none=True))


def terms_of(contract: BenchmarkRun) -> Terms:
    intent, trials, policy = contract.intent, contract.trials, contract.execution_policy
    return Terms(
        name=contract.name,
        digest=contract_digest(contract),
        asked=intent.benchmark_class,
        on_missing=policy.on_missing_guarantee,
        intent=f"{intent.workload_type}: {contract.comparison.variable_under_test}",
        cadence=intent.cadence,
        lacks=settle(contract).missing,
        demands=list(_demands(contract)),
        context=policy.cluster_context_captured,
        replicates=trials.min_replicates,
        warmups=trials.min_warmups,
        sinks=contract.sinks.model_dump(mode="json", by_alias=True),
    )


def _demands(contract: BenchmarkRun) -> Iterator[str]:
    policy = contract.execution_policy.model_dump(by_alias=True)
    yield from (name for name in (DEDICATED, STABLE, TOPOLOGY, EXCLUSIVE, ISOLATION, CONTEXT) if policy[name])
    provenance = contract.provenance
    if provenance.git_commit != UNKNOWN:
        yield COMMIT
    if provenance.package_lock_digest != UNKNOWN:
        yield LOCK
    if provenance.image_digests:
        yield IMAGES
    if SHA256.search(contract.workload.dataset_ref):
        yield DATASET
    if "://" not in contract.sinks.raw_artifacts.uri:  # artifacts in remote storage exist only after the run
        yield ARTIFACTS
    yield REPLICATES
    if contract.trials.min_warmups:
        yield WARMUPS
