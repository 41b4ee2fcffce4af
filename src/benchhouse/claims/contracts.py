"""BenchmarkRun contracts: those to begin with, one made from a plan and its evidence, a file checked.

What one key asks of another is checked too, and which class a contract really is: never a silent downgrade.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import Field

from benchhouse.documents.document import Document, Loc
from benchhouse.documents.misfits import validated
from benchhouse.documents.problems import Problem, ProblemsError, guess_hint
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.schema.contract import (
    COST_METRICS,
    INFERENCE_METRICS,
    PLAYBOOKS,
    TRAINING_METRICS,
    BenchmarkClass,
    BenchmarkRun,
    WorkloadType,
)
from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model

if TYPE_CHECKING:
    from benchhouse.plan.expand import Plan

UNKNOWN = "unknown"
PLACEHOLDERS = ("COMMIT", "SHA256")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}\b")
_GUARANTEES = {
    "dedicatedNodes": "dedicated nodes", "stableBackgroundLoad": "a stable background load",
    "fixedTopology": "a fixed topology", "exclusiveScheduling": "exclusive scheduling",
}  # fmt: skip
Misfits = Iterator[tuple[Loc, str, str]]  # place, what is wrong, what is expected


class Settled(Model):
    """What a contract is worth."""

    asked: BenchmarkClass
    effective: BenchmarkClass | None = Field(description="None: rejected.")
    verdict: Literal["accepted", "downgraded", "rejected"]
    missing: list[str] = Field(description="Guarantees that it lacks for what it asks.")

    def sentence(self) -> str:
        if self.verdict == "accepted":
            return f"accepted as {self.asked}"
        downgraded = f"downgraded from {self.asked} to {self.effective}"
        return f"{downgraded if self.effective else f'rejected as {self.asked}'}: it lacks {', '.join(self.missing)}"


def templates() -> dict[str, BenchmarkRun]:
    """A contract a class and kind of workload; the names of them are `publication-inference` and the like."""
    return {
        f"{grade.partition('_')[0]}-{kind}": BenchmarkRun.model_validate(_document(grade, kind))
        for grade in get_args(BenchmarkClass)
        for kind in get_args(WorkloadType)
    }


def template(name: str) -> BenchmarkRun:
    """A contract to begin with, by its name."""
    known = templates()
    if name not in known:
        hint = guess_hint(name, known)
        raise BenchError(f"there is no contract '{name}'", f"{hint}there is: {', '.join(known)}")
    return known[name]


def as_yaml(contract: BenchmarkRun) -> str:
    return dump_yaml(contract.model_dump(mode="json", by_alias=True, exclude_none=True))


def validate(path: Path) -> tuple[BenchmarkRun, Settled]:
    """Read a contract; every mistake is raised with its place. What it is worth comes with it."""
    document = load_yaml(path)
    contract = validated(document, BenchmarkRun)
    if problems := check_rules(contract, document):
        raise ProblemsError(problems)
    return contract, settle(contract)


@dataclass(frozen=True)
class RunEvidence:
    """What the sealed trials of a run say of themselves."""

    commit: str = UNKNOWN
    lock: str = UNKNOWN
    hosts: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()


def contract_of_plan(plan: "Plan", evidence: RunEvidence) -> tuple[BenchmarkRun, list[str]]:
    """The contract that a plan amounts to, and what is to be confirmed: nothing is invented."""
    scenario = plan.scenario
    first = next(iter(plan.instances()))
    kind = "training" if plan.experiment.name.startswith("training") else "inference"
    document = _document("realism_grade", kind)
    document["name"] = scenario.scenario
    document["intent"] |= {"schedulerPath": scenario.executor, "cadence": "once"}
    served = plan.experiment.name.startswith("serving")
    layer = "end_to_end" if served or kind == "training" else "component"
    for name, settings in document["layers"].items():
        settings |= {"enabled": name == layer, "suites": [plan.experiment.name] if name == layer else []}
    values = {**first.parameters, **first.target}
    document["workload"] |= {
        "model": str(values.get("model") or values.get("name") or values.get("index") or UNKNOWN),
        "precision": str(values.get("dtype") or values.get("precision") or UNKNOWN),
        "batchingPolicy": str(values.get("batching") or UNKNOWN),
        "concurrencyModel": "open_loop" if "rate" in values else "closed_loop" if "concurrency" in values else UNKNOWN,
        "datasetRef": f"workload sha256:{first.workload_digest()}",
    }
    targets = dict.fromkeys(instance.digest() for instance in islice(plan.instances(), 2))
    refs = [f"instance sha256:{digest}" for digest in targets]
    document["comparison"] |= {
        "baseline": {"artifactRef": refs[0]},
        "candidate": {"artifactRef": refs[1] if len(refs) > 1 else UNKNOWN},
    }
    document["trials"]["minReplicates"] = max(3, scenario.most_repetitions)
    images = [f"sha256:{digest}" for digest in sorted(evidence.images)]
    document["provenance"] = {"gitCommit": evidence.commit, "imageDigests": images, "packageLockDigest": evidence.lock}
    document["executionPolicy"] |= {
        "fixedTopology": len(evidence.hosts) == 1,
        "clusterContextCaptured": scenario.monitors is not False,
    }
    document["sinks"]["rawArtifacts"] = {"uri": f"results/{scenario.scenario}"}
    contract = BenchmarkRun.model_validate(document)
    return contract, _to_confirm(contract, scenario.most_repetitions, served=served)


def _to_confirm(contract: BenchmarkRun, repetitions: int, *, served: bool) -> list[str]:
    """What a scenario does not say; whoever publishes says it, or the contract stays as low as it is."""
    plain = contract.model_dump(by_alias=True)
    notes = [
        f"{part}.{key}: not known from the scenario"
        for part in ("workload", "provenance")
        for key, value in plain[part].items()
        if value == UNKNOWN
    ]
    if contract.comparison.candidate.artifact_ref == UNKNOWN:
        notes.append("comparison.candidate: the scenario has one point")
    if repetitions < 3:
        notes.append(f"trials.minReplicates: the scenario has repetitions: {repetitions}, a contract 3 or more")
    notes += [
        "comparison.variableUnderTest: hardware_generation is only where to begin",
        "executionPolicy.multiTenant: true, as nothing says that nobody else is there",
        "intent.benchmarkClass: realism_grade, as no scenario can promise dedicated, quiet machines",
    ]
    if not served:
        notes.append("workload.sequenceLengthMix and metrics: as of a language model; this experiment has its own")
    return notes


def _document(grade: str, kind: str) -> dict[str, Any]:
    """A whole contract with the values to begin with."""
    best = grade == "publication_grade"
    serves, trains = kind in ("inference", "mixed"), kind in ("training", "mixed")
    document: dict[str, Any] = {
        "kind": "BenchmarkRun",
        "schemaVersion": 1,
        "name": f"{grade.partition('_')[0]}-{kind}",
        "intent": {"benchmarkClass": grade, "workloadType": kind, "schedulerPath": "slurm", "cadence": "nightly"},
        "layers": {
            "micro": {"enabled": False, "suites": []},
            "component": {"enabled": False, "suites": []},
            "end_to_end": {"enabled": True, "suites": ["training.run" if kind == "training" else "serving.load"]},
        },
        "workload": {
            "model": "NAME@sha256:...", "precision": "bf16", "batchingPolicy": "continuous",
            "concurrencyModel": "open_loop", "datasetRef": "NAME@sha256:...", "fixedAcrossTrials": True,
        },
        "comparison": {
            "variableUnderTest": "hardware_generation", "baseline": {"artifactRef": "BASELINE@sha256:..."},
            "candidate": {"artifactRef": "CANDIDATE@sha256:..."}, "compareOneVariableAtATime": True,
        },
        "metrics": {
            "training": list(TRAINING_METRICS) if trains else [],
            "inference": [*INFERENCE_METRICS, COST_METRICS[1]] if serves else [],
        },
        "trials": {
            "minReplicates": 5 if best else 3, "confidenceLevel": 0.95,
            "outlierPolicy": {"method": "none", "action": "report"},
            "reportDistributions": True, "reportConfidenceIntervals": True,
        },
        "bottleneckAnalysis": {
            "compute": {"probe": "gpu_utilization"}, "comm": {"probe": "collective_bandwidth"},
            "input": {"probe": "loader_wait"}, "control_plane": {"probe": "queue_wait"},
        },
        "observability": {
            "joinKeys": [*(["request_id", "trace_id"] if serves else []), *(["rank_id"] if trains else [])],
            "lineage": {"rawArtifacts": True, "querySpecs": True, "manifestDigests": True},
            "playbooks": list(PLAYBOOKS),
        },
        "provenance": {
            "gitCommit": "COMMIT", "imageDigests": ["NAME@sha256:..."], "packageLockDigest": "SHA256",
            "signing": {"enabled": best, "method": "dsse-ed25519"},
        },
        "executionPolicy": {
            "dedicatedNodes": best, "stableBackgroundLoad": best, "fixedTopology": best, "exclusiveScheduling": best,
            "multiTenant": not best, "clusterContextCaptured": True, "onMissingGuarantee": "downgrade",
        },
        "sinks": {
            "rawArtifacts": {"uri": "results/"},
            "hotMetrics": {"seriesBudget": 10_000, "droppedLabels": ["request_id", "trace_id"]},
            "curatedWarehouse": {"hotDays": 30, "warmDays": 180, "coldDays": 1095},
        },
    }  # fmt: skip
    if serves:
        document["workload"]["sequenceLengthMix"] = [{"inputTokens": 512, "outputTokens": 128, "weight": 1.0}]
    return document


# -- what a contract is worth, and what is wrong between its keys


def settle(contract: BenchmarkRun) -> Settled:
    """The class that a contract really has, by its guarantees and by what it says of missing ones."""
    asked, policy = contract.intent.benchmark_class, contract.execution_policy
    if asked == "realism_grade":
        missing = [] if policy.cluster_context_captured else ["clusterContextCaptured (what else goes on is recorded)"]
    else:
        given, signing = policy.model_dump(by_alias=True), contract.provenance.signing
        missing = [f"{key} ({meaning})" for key, meaning in _GUARANTEES.items() if not given[key]]
        if signing is None or not signing.enabled:
            missing.append("provenance.signing (claims are signed)")
        missing += _unpinned(contract)
    effective: BenchmarkClass | None = None if missing else asked
    if missing and asked != "realism_grade" and policy.on_missing_guarantee == "downgrade":
        if policy.cluster_context_captured:
            effective = "realism_grade"
        else:
            missing.append("clusterContextCaptured, which realism_grade asks for")
    verdict = "accepted" if effective == asked else "downgraded" if effective else "rejected"
    return Settled(asked=asked, effective=effective, verdict=verdict, missing=missing)


def _unpinned(contract: BenchmarkRun) -> list[str]:
    """What publication grade names by digest, and this contract does not."""
    workload, comparison, provenance = contract.workload, contract.comparison, contract.provenance
    by_digest = {
        "workload.datasetRef": workload.dataset_ref,
        "comparison.baseline": comparison.baseline.artifact_ref,
        "comparison.candidate": comparison.candidate.artifact_ref,
    } | {f"provenance.imageDigests[{at}]": digest for at, digest in enumerate(provenance.image_digests)}
    missing = [f"{key} (a sha256)" for key, ref in by_digest.items() if not _SHA256.search(ref)]
    if not provenance.image_digests:
        missing.append("provenance.imageDigests (the image that is measured: name@sha256:...)")
    values = workload.model_dump(by_alias=True)
    missing += [f"workload.{key} (it is unknown)" for key, value in values.items() if value == UNKNOWN]
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", provenance.git_commit):
        missing.append("provenance.gitCommit (a whole commit, of a clean tree)")
    if not re.fullmatch(r"(?:sha256:)?[0-9a-f]{64}", provenance.package_lock_digest):
        missing.append("provenance.packageLockDigest (a sha256)")
    return missing


def check_rules(contract: BenchmarkRun, document: Document) -> list[Problem]:
    """All that is wrong between keys, each at its place in the file."""
    return [
        document.problem(loc, message, expected)
        for part in (_placeholders, _layers, _workload, _metrics, _observability, _sinks, _policy)
        for loc, message, expected in part(contract)
    ]


def _placeholders(contract: BenchmarkRun) -> Misfits:
    waiting: list[tuple[Loc, object]] = [((), contract.model_dump(mode="json", by_alias=True))]
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
    days = contract.sinks.curated_warehouse
    if not days.hot_days <= days.warm_days <= days.cold_days:
        tiers = f"hot {days.hot_days}, warm {days.warm_days}, cold {days.cold_days} days"
        yield ("sinks", "curatedWarehouse"), f"the tiers are out of order: {tiers}", "hotDays <= warmDays <= coldDays"
    kept = [name for name in ("request_id", "trace_id") if name not in contract.sinks.hot_metrics.dropped_labels]
    if kept:
        message = f"{', '.join(kept)} would be labels of hot metrics: a series a request"
        yield ("sinks", "hotMetrics", "droppedLabels"), message, "[request_id, trace_id]"


def _policy(contract: BenchmarkRun) -> Misfits:
    policy = contract.execution_policy
    if policy.multi_tenant and (policy.dedicated_nodes or policy.exclusive_scheduling):
        message = "multiTenant is true beside dedicated nodes or exclusive scheduling"
        yield ("executionPolicy", "multiTenant"), message, "one or the other"


def _serves(contract: BenchmarkRun) -> bool:
    return contract.intent.workload_type in ("inference", "mixed")


def _trains(contract: BenchmarkRun) -> bool:
    return contract.intent.workload_type in ("training", "mixed")
