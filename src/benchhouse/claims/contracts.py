"""BenchmarkRun contracts: templates, and contracts made from a plan and its evidence."""

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, get_args

from benchhouse.documents.problems import guess_hint
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
from benchhouse.schema.contract_rules import UNKNOWN, concurrency_model
from benchhouse.schema.errors import NotFoundError

if TYPE_CHECKING:
    from benchhouse.plan.expand import Plan


def templates() -> dict[str, BenchmarkRun]:
    """Return one contract per class and kind of workload, by names such as `publication-inference`."""
    return {
        f"{grade.partition('_')[0]}-{kind}": BenchmarkRun.model_validate(_document(grade, kind))
        for grade in get_args(BenchmarkClass)
        for kind in get_args(WorkloadType)
    }


def template(name: str) -> BenchmarkRun:
    """Return a template by its name. Raise NotFoundError for an unknown name."""
    known = templates()
    if name not in known:
        hint = guess_hint(name, known)
        raise NotFoundError(f"there is no contract '{name}'", f"{hint}there is: {', '.join(known)}")
    return known[name]


def as_yaml(contract: BenchmarkRun) -> str:
    return dump_yaml(contract.model_dump(mode="json", by_alias=True, exclude_none=True))


@dataclass(frozen=True)
class RunEvidence:
    """Facts that the sealed trials of a run record about themselves."""

    commit: str = UNKNOWN
    lock: str = UNKNOWN
    hosts: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()


def contract_of_plan(plan: "Plan", evidence: RunEvidence) -> tuple[BenchmarkRun, list[str]]:
    """Return the contract that a plan amounts to, and a list of items to confirm, because unknown values are not
    invented.
    """
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
        "concurrencyModel": concurrency_model(values),
        "datasetRef": f"workload sha256:{first.workload_digest()}" if _one_workload(plan) else UNKNOWN,
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


def _one_workload(plan: "Plan") -> bool:
    return all(axis.startswith("target") for axis in plan.axes)


def _to_confirm(contract: BenchmarkRun, repetitions: int, *, served: bool) -> list[str]:
    """Return what the scenario leaves open. A person must add it before publishing, otherwise the contract keeps its
    low grade.
    """
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
    """Return a complete contract with initial values."""
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
            "isolation": best,
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
