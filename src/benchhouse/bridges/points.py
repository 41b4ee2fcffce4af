"""Run one point of another system as a trial: a folder, our worker in its own process, sealed evidence.

Evidence is kept in the workspace of $BENCH_ADO_WORKSPACE; without the variable, only the measurements remain.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchhouse.catalog.loading import code_digest, load
from benchhouse.evidence.folder import read_meta, read_metrics
from benchhouse.evidence.request import make_folder
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.resources import Limits, RuntimeSettings
from benchhouse.schema.trial import MEASURED, ExperimentRef, Instance, TrialSpec
from benchhouse.sites import places

KEEP = "BENCH_ADO_WORKSPACE"
_TAIL = 2000


@dataclass(frozen=True)
class PointResult:
    """How a point ended: its measurements, why it failed, and all other facts."""

    values: dict[str, float]
    failure: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def run_job(path: str) -> PointResult:
    """Run a trial that `bench run` has planned; the file at `path` names its existing folder."""
    job = json.loads(Path(path).read_bytes())
    folder = Path(job["folder"])
    final = Path(json.loads((folder / "trial.json").read_bytes())["final"])
    output = _work(job["python"], folder)
    ended = _read(TrialFolder(final), output)
    if not final.is_dir():
        Path(job["log"]).parent.mkdir(parents=True, exist_ok=True)
        Path(job["log"]).write_text(output)
        return ended
    meta = read_meta(TrialFolder(final))
    values = {"succeeded": float(meta.outcome == "succeeded"), "duration_s": meta.duration_s}
    # No failure for ado: it is in our evidence, and the trial is retried here.
    return PointResult(values, "", ended.facts | {"failure": ended.failure})


def run_point(described: Mapping[str, Any], values: Mapping[str, Any]) -> PointResult:
    """Run a point of one of our experiments, with the values that a sweep of ado chose."""
    kept = os.environ.get(KEEP)
    root = WorkspaceFolder(Path(kept or tempfile.mkdtemp(prefix="benchhouse-ado-")).absolute())
    try:
        spec = _spec(ExperimentRef.model_validate(described), values, root)
        folder = root.partial(spec.scenario, spec.trial_id, 1)
        make_folder(folder, spec)
        output = _work([sys.executable], folder.path)
        return _read(TrialFolder(Path(spec.final)), output)
    finally:
        if not kept:
            shutil.rmtree(root.root, ignore_errors=True)


def _spec(ref: ExperimentRef, values: Mapping[str, Any], root: WorkspaceFolder) -> TrialSpec:
    code = load(ref)
    prefix = "target."
    target = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    workload = {key: value for key, value in values.items() if not key.startswith(prefix)}
    parameters = code.workload_model.model_validate(workload).model_dump(mode="json", by_alias=True, round_trip=True)
    instance = Instance(experiment=ref.name, version=ref.version, target=target, parameters=parameters)
    name = str(uuid.uuid4())
    return TrialSpec(
        trial_id=name,
        run_id="ado",
        scenario="ado",
        plan_digest="",
        instance_digest=instance.digest(),
        benchmark_case_id=instance.case_id(),
        workload_spec_digest=instance.workload_digest(),
        experiment=ref,
        component=code.component,
        service=code.services[0] if len(code.services) == 1 else code.name,
        target=target,
        parameters=parameters,
        repetition=0,
        seed=0,
        resources=code.resources,
        limits=Limits(),
        executor="ado",
        runtime=RuntimeSettings(),
        code_digest=code_digest(ref),
        cache=str(places.cache()),
        final=str(root.trial("ado", name).path),
    )


def _work(python: Sequence[str], folder: Path) -> str:
    """Run our worker on that folder. Return the end of its output, which is empty if all went well."""
    command = [*python, "-m", "benchhouse.worker", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    output = (ended.stdout + ended.stderr)[-_TAIL:]
    return output or (f"the worker exited with {ended.returncode}" if ended.returncode else "")


def _read(folder: TrialFolder, output: str) -> PointResult:
    if not folder.meta.is_file():
        return PointResult({}, f"the trial left no evidence: {output}")
    meta, metrics = read_meta(folder), read_metrics(folder)
    rows = metrics.benchhouse.measurements
    values = {row.metric: row.value for row in rows if row.valid and row.stat in ("value", "mean")}
    failure = ""
    if meta.failure and meta.outcome not in MEASURED:
        failure = f"{meta.failure.code}: {meta.failure.message}\n{meta.failure.traceback}".strip()
    facts = {
        "outcome": meta.outcome,
        "experiment": meta.experiment.name,
        "version": meta.experiment.version,
        "distribution": f"{meta.experiment.distribution} {meta.experiment.distribution_version}",
        "code_digest": meta.code_digest,
        "trial_id": meta.trial_id,
        "duration_s": meta.duration_s,
        "warnings": [f"{item.code}: {item.message}" for item in meta.warnings],
        "metadata": meta.custom,
        "measurements": [row.model_dump(mode="json", exclude_defaults=True) for row in rows],
    }
    return PointResult(values, failure, facts | ({"type": meta.failure.code} if failure and meta.failure else {}))
