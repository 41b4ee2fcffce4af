"""raw_evidence.jsonl of a trial: scheduler events, validation probes, and profiler reports, one JSON object per line.

The scheduler's events and the probes are stored in this file; a profiler's reports are below `artifacts/profiles/`,
each listed here with its size.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.trial import Meta, TrialSpec

_POD_TIMES = {  # in `placed` of a trial on Kubernetes
    "job_created": ("submitted", "its Job, by the clock of the API server"),
    "quota_reserved": ("quota_reserved", "by Kueue, in {cluster_queue}"),
    "admitted": ("admitted", "by Kueue, from the queue {queue}"),
    "job_started": ("job_started", "it is no longer suspended"),
    "pod_created": ("pod_created", "by the clock of the API server"),
    "pod_scheduled": ("pod_scheduled", "on {node}"),
    "pod_started": ("pod_started", "its container, by the clock of {node}"),
}
_SCHEDULER, _PROBE, _PROFILE = "scheduler_event", "validation_probe", "profiler_report"
Line = dict[str, Any]


def raw_evidence(spec: TrialSpec, meta: Meta, folder: TrialFolder) -> str:
    """Return the text of the file; empty if the trial has none of these."""
    whose = {"run_id": spec.run_id, "trial_id": spec.trial_id, "benchmark_case_id": spec.benchmark_case_id}
    lines = [*_events(spec, meta), *_probes(meta), *_profiles(folder.profiles, meta)]
    return "".join(json.dumps(whose | line) + "\n" for line in lines)


def _events(spec: TrialSpec, meta: Meta) -> Iterator[Line]:
    """Yield the events of the trial's batch job or pod, each with the time of the clock that recorded it."""
    job, place = meta.slurm, meta.placed
    if not job and "job_created" not in place:
        return
    about = {"kind": _SCHEDULER, "job": meta.slurm_job_id or place.get("id")}
    for key, (name, says) in _POD_TIMES.items():
        if key in place:
            yield about | {"time": place[key], "name": name, "says": says.format_map(defaultdict(lambda: "?", place))}
    if spec.submitted:
        yield about | {"time": spec.submitted, "name": "submitted", "says": "by the clock of the submitter"}
    if begun := _stamp(job, "job_start"):
        waited = f"on {job.get('nodes', '?')}, partition {job.get('partition', '?')}"
        yield about | {"time": begun, "name": "job_started", "says": waited}
    if restarts := str(job.get("restarts") or "").strip("0"):
        yield about | {"time": meta.started, "name": "requeued", "says": f"{restarts} times before"}
    yield about | {"time": meta.started, "name": "trial_started", "says": f"attempt {spec.attempt}"}
    yield about | {"time": meta.ended, "name": "trial_ended", "says": meta.outcome}


def _stamp(job: Mapping[str, Any], key: str) -> str:
    """Convert Slurm's seconds since 1970 to the format of the other times."""
    seconds = str(job.get(key) or "")
    return datetime.fromtimestamp(int(seconds), UTC).isoformat(timespec="milliseconds") if seconds.isdigit() else ""


def _probes(meta: Meta) -> Iterator[Line]:
    for item in meta.guarantees:
        yield {
            "kind": _PROBE, "time": meta.ended, "name": item.name, "ok": item.observed, "says": item.says,
            "value": item.value,
        }  # fmt: skip


def _profiles(place: Path, meta: Meta) -> Iterator[Line]:
    for path in sorted(place.rglob("*")) if place.is_dir() else ():
        if path.is_file():
            name = path.relative_to(place).as_posix()
            file = f"artifacts/{place.name}/{name}"
            yield {"kind": _PROFILE, "time": meta.ended, "name": name, "file": file, "bytes": path.stat().st_size}
