"""Rules between the keys of a contract, and the class that it effectively has; a downgrade is never silent."""

import math
import re
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from benchhouse.schema.contract import (
    COST_METRICS,
    INFERENCE_METRICS,
    PLAYBOOKS,
    TRAINING_METRICS,
    BenchmarkClass,
    BenchmarkRun,
)
from benchhouse.schema.model import Model
from benchhouse.schema.secrets import without_secrets

UNKNOWN = "unknown"
PLACEHOLDERS = ("COMMIT", "SHA256")
SHA256 = re.compile(r"sha256:[0-9a-f]{64}\b")
_STORES = ("s3", "gs", "https", "http", "file")
_GUARANTEES = {
    "dedicatedNodes": "dedicated nodes", "stableBackgroundLoad": "a stable background load",
    "fixedTopology": "a fixed topology", "exclusiveScheduling": "exclusive scheduling",
}  # fmt: skip
Misfits = Iterator[tuple[tuple[str | int, ...], str, str]]  # place, problem, expected value


class Settled(Model):
    """The requested and the effective class of a contract."""

    asked: BenchmarkClass
    effective: BenchmarkClass | None = Field(description="None: rejected.")
    verdict: Literal["accepted", "downgraded", "rejected"]
    missing: list[str] = Field(description="Guarantees that it lacks for what it asks.")

    def sentence(self) -> str:
        if self.verdict == "accepted":
            return f"accepted as {self.asked}"
        downgraded = f"downgraded from {self.asked} to {self.effective}"
        return f"{downgraded if self.effective else f'rejected as {self.asked}'}: it lacks {', '.join(self.missing)}"


def settle(contract: BenchmarkRun) -> Settled:
    """Return the effective class of a contract, given its guarantees and its rule for missing ones."""
    asked, policy = contract.intent.benchmark_class, contract.execution_policy
    if asked == "realism_grade":
        missing = [] if policy.cluster_context_captured else ["clusterContextCaptured (what else goes on is recorded)"]
    else:
        given, signing = policy.model_dump(by_alias=True), contract.provenance.signing
        missing = [f"{key} ({meaning})" for key, meaning in _GUARANTEES.items() if not given[key]]
        if signing is None or not signing.enabled:
            missing.append("provenance.signing (claims are signed)")
        missing += _unpinned(contract)
    return settle_missing(asked, policy.on_missing_guarantee, missing, context=policy.cluster_context_captured)


def settle_missing(asked: BenchmarkClass, on_missing: str, missing: list[str], *, context: bool) -> Settled:
    """Return the effective class if these guarantees are missing; `context`: the cluster context is recorded."""
    missing = list(missing)
    effective: BenchmarkClass | None = None if missing else asked
    if missing and asked != "realism_grade" and on_missing == "downgrade":
        if context:
            effective = "realism_grade"
        else:
            missing.append("clusterContextCaptured, which realism_grade asks for")
    verdict = "accepted" if effective == asked else "downgraded" if effective else "rejected"
    return Settled(asked=asked, effective=effective, verdict=verdict, missing=missing)


def _unpinned(contract: BenchmarkRun) -> list[str]:
    """Return what publication grade requires by digest and this contract does not have."""
    workload, comparison, provenance = contract.workload, contract.comparison, contract.provenance
    by_digest = {
        "workload.datasetRef": workload.dataset_ref,
        "comparison.baseline": comparison.baseline.artifact_ref,
        "comparison.candidate": comparison.candidate.artifact_ref,
    } | {f"provenance.imageDigests[{at}]": digest for at, digest in enumerate(provenance.image_digests)}
    missing = [f"{key} (a sha256)" for key, ref in by_digest.items() if not SHA256.search(ref)]
    if not provenance.image_digests:
        missing.append("provenance.imageDigests (the image that is measured: name@sha256:...)")
    values = workload.model_dump(by_alias=True)
    missing += [f"workload.{key} (it is unknown)" for key, value in values.items() if value == UNKNOWN]
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", provenance.git_commit):
        missing.append("provenance.gitCommit (a whole commit, of a clean tree)")
    if not re.fullmatch(r"(?:sha256:)?[0-9a-f]{64}", provenance.package_lock_digest):
        missing.append("provenance.packageLockDigest (a sha256)")
    return missing


def misfits(contract: BenchmarkRun) -> Misfits:
    """Yield all contradictions between keys."""
    for part in (_placeholders, _layers, _workload, _metrics, _observability, _sinks, _policy):
        yield from part(contract)


def _placeholders(contract: BenchmarkRun) -> Misfits:
    waiting: list[tuple[tuple[str | int, ...], object]] = [((), contract.model_dump(mode="json", by_alias=True))]
    while waiting:
        loc, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [((*loc, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [((*loc, at), item) for at, item in enumerate(value)]
        elif isinstance(value, str) and (value.endswith("...") or value in PLACEHOLDERS):
            yield loc, f"'{value}' is still the placeholder", "the real one"


def _layers(contract: BenchmarkRun) -> Misfits:
    layers = {name: getattr(contract.layers, name) for name in ("micro", "component", "end_to_end")}
    if not any(layer.enabled for layer in layers.values()):
        yield ("layers",), "no layer is enabled", "enabled: true for at least one of them"
    for name, layer in layers.items():
        if layer.enabled and not layer.suites:
            yield ("layers", name), f"{name} is enabled and has no suites", "suites: [NAME]"


def _workload(contract: BenchmarkRun) -> Misfits:
    mix = contract.workload.sequence_length_mix
    if _serves(contract) and not mix:
        example = "[{inputTokens: 512, outputTokens: 128, weight: 1.0}]"
        yield ("workload",), "inference without a sequenceLengthMix", example
    total = math.fsum(part.weight for part in mix)
    if mix and not math.isclose(total, 1.0, abs_tol=1e-6):
        yield ("workload", "sequenceLengthMix"), f"the weights add up to {total:g}", "weights that add up to 1"
    comparison = contract.comparison
    if comparison.baseline == comparison.candidate:
        yield ("comparison", "candidate"), "baseline and candidate are the same artifact", "another artifactRef"


def _metrics(contract: BenchmarkRun) -> Misfits:
    asked = [("inference", INFERENCE_METRICS, contract.metrics.inference)] if _serves(contract) else []
    if _trains(contract):
        asked.append(("training", TRAINING_METRICS, contract.metrics.training))
    for kind, needed, given in asked:
        if lacking := [name for name in needed if name not in given]:
            yield ("metrics", kind), f"{kind} lacks {', '.join(lacking)}", f"at least {', '.join(needed)}"
    if _serves(contract) and not set(COST_METRICS) & set(contract.metrics.inference):
        costs = f"one of {', '.join(COST_METRICS)}"
        yield ("metrics", "inference"), "inference without a cost per token or request", costs


def _observability(contract: BenchmarkRun) -> Misfits:
    keys = ["request_id", "trace_id"] if _serves(contract) else []
    keys += ["rank_id"] if _trains(contract) else []
    if lacking := [key for key in keys if key not in contract.observability.join_keys]:
        yield ("observability", "joinKeys"), f"no {', '.join(lacking)} among the join keys", f"[{', '.join(keys)}]"
    lineage = contract.observability.lineage.model_dump(by_alias=True)
    for key, given in lineage.items():
        if not given:
            yield ("observability", "lineage", key), f"{key} is false: numbers would not walk back", "true"
    if missing := [name for name in PLAYBOOKS if name not in contract.observability.playbooks]:
        yield ("observability", "playbooks"), f"lacks the playbooks {', '.join(missing)}", ", ".join(PLAYBOOKS)


def _sinks(contract: BenchmarkRun) -> Misfits:
    uri = contract.sinks.raw_artifacts.uri
    if wrong := _wrong_with(uri):
        message = f"nothing can be kept at {without_secrets(uri)}: {wrong}"
        yield ("sinks", "rawArtifacts", "uri"), message, "s3://bucket/prefix, or a folder"
    days = contract.sinks.curated_warehouse
    if not days.hot_days <= days.warm_days <= days.cold_days:
        tiers = f"hot {days.hot_days}, warm {days.warm_days}, cold {days.cold_days} days"
        yield ("sinks", "curatedWarehouse"), f"the tiers are out of order: {tiers}", "hotDays <= warmDays <= coldDays"
    kept = [name for name in ("request_id", "trace_id") if name not in contract.sinks.hot_metrics.dropped_labels]
    if kept:
        message = f"{', '.join(kept)} would be labels of hot metrics: a series a request"
        yield ("sinks", "hotMetrics", "droppedLabels"), message, "[request_id, trace_id]"


def _wrong_with(address: str) -> str:
    """Return why an address cannot store artifacts; empty if it can. An address without a scheme is a folder."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", address):
        return ""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        return f"no address ({error})"
    if parts.scheme not in _STORES:
        return f"'{parts.scheme}' is none of {', '.join(_STORES)}"
    if parts.username or parts.password:
        return "credentials don't belong into an address"
    if parts.scheme == "file":
        return "" if parts.path.startswith("/") else "a file without its whole path"
    return "" if parts.hostname else "neither a host nor a bucket is named"


def _policy(contract: BenchmarkRun) -> Misfits:
    policy = contract.execution_policy
    if policy.multi_tenant and (policy.dedicated_nodes or policy.exclusive_scheduling):
        message = "multiTenant is true beside dedicated nodes or exclusive scheduling"
        yield ("executionPolicy", "multiTenant"), message, "one or the other"


def _serves(contract: BenchmarkRun) -> bool:
    return contract.intent.workload_type in ("inference", "mixed")


def _trains(contract: BenchmarkRun) -> bool:
    return contract.intent.workload_type in ("training", "mixed")


def concurrency_model(values: dict[str, Any]) -> str:
    """Return closed_loop, open_loop, or unknown, by the inputs of an experiment."""
    given = [name for name in ("rate", "rps", "concurrency") if values.get(name) is not None]
    return UNKNOWN if not given else "closed_loop" if given == ["concurrency"] else "open_loop"
