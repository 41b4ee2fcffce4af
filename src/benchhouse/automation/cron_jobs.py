"""A schedule that a Kubernetes cluster runs: a CronJob whose pods run `bench run SCENARIO` on the shared volume."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.pod_template import QUEUE_LABEL, SCENARIO_LABEL, label, pod_template, quantities
from benchhouse.schema.resources import Resources

_FIELD = r"[0-9A-Za-z*/,?-]+"
_CRON = re.compile(rf"@(hourly|daily|weekly|monthly|yearly)|{_FIELD}( {_FIELD}){{4}}")
_LONGEST = 52  # characters of a CronJob's name: its Jobs add eleven
_LATE_S = 3600  # a slot that is this late is left out
_KEPT = 3  # finished Jobs of each kind
_ORCHESTRATOR = Resources(cpus=1, memory=2**30)  # if trials run in their own pods
_ASK_THE_API = ("kubernetes", "ray")  # their runs create pods or RayJobs
STABLE, WITH_TIME_ZONE = (1, 21), (1, 27)  # versions with CronJob in batch/v1, and with timeZone


@dataclass(frozen=True)
class CronRun:
    """The run of a CronJob: its scenario, its files, and its times."""

    scenario: str
    file: Path
    workspace: Path
    cron: str
    time_zone: str = ""
    site: str = ""  # the profile's name
    executor: str = "local"
    resources: Resources = _ORCHESTRATOR  # of all concurrent trials, if they run in this pod
    environment: Mapping[str, str] | None = None
    user: tuple[int, int] | None = None  # user and group that own the files on the volume; None: the image's


def cron_job(run: CronRun, settings: KubernetesSite, version: tuple[int, int]) -> dict[str, Any]:
    """Return the manifest for a server of that version. Raise BenchError for fields that it would drop silently."""
    _refuse(run, settings, version)
    labels = {"app.kubernetes.io/managed-by": "benchhouse", SCENARIO_LABEL: label(run.scenario)}
    command = [settings.python, "-m", "benchhouse", "-C", str(run.workspace), "run", str(run.file)]
    command += ["--executor", run.executor] + (["--site", run.site] if run.site else [])
    here = run.executor == "local"
    asked = run.resources if here else _ORCHESTRATOR
    container = {
        "name": "bench",
        "command": command,
        "env": [{"name": key, "value": value} for key, value in _variables(run, settings).items()],
        "resources": quantities(asked.cpus, asked.memory or settings.memory, asked.gpus, settings),
    }
    template = pod_template(settings, container, labels, user=run.user, api=run.executor in _ASK_THE_API)
    queued = {QUEUE_LABEL: settings.queue} if settings.queue and here else {}
    spec: dict[str, Any] = {
        "schedule": run.cron,
        "concurrencyPolicy": "Forbid",  # two concurrent runs would disturb each other
        "startingDeadlineSeconds": _LATE_S,
        "successfulJobsHistoryLimit": _KEPT,
        "failedJobsHistoryLimit": _KEPT,
        "jobTemplate": {
            "metadata": {"labels": labels | queued},
            "spec": {"backoffLimit": 0, "activeDeadlineSeconds": int(settings.time), "template": template},
        },
    }
    if run.time_zone:
        spec["timeZone"] = run.time_zone
    metadata: dict[str, Any] = {"name": cron_name(run.scenario), "labels": labels}
    if settings.namespace:
        metadata["namespace"] = settings.namespace
    api = "batch/v1" if version >= STABLE else "batch/v1beta1"
    return {"apiVersion": api, "kind": "CronJob", "metadata": metadata, "spec": spec}


def cron_name(scenario: str) -> str:
    """Return the unique, constant name for a scenario: a CronJob that is rendered again replaces the old one."""
    plain = re.sub(r"[^a-z0-9]+", "-", scenario.lower()).strip("-")
    if plain == scenario and len(plain) <= _LONGEST - 6:
        return f"bench-{plain}"
    return f"bench-{plain[: _LONGEST - 15].strip('-')}-{hashlib.sha256(scenario.encode()).hexdigest()[:8]}"


def _variables(run: CronRun, settings: KubernetesSite) -> dict[str, str]:
    """Return the variables of the site, and a home and a cache that outlive the pod."""
    assert settings.volume
    return {"HOME": str(run.workspace), "BENCH_CACHE_DIR": f"{settings.volume.path}/cache"} | dict(
        run.environment or {}
    )


def _refuse(run: CronRun, settings: KubernetesSite, version: tuple[int, int]) -> None:
    if not _CRON.fullmatch(run.cron):
        raise BenchError(f"{run.cron!r} is no schedule", 'five fields: --cron "0 2 * * *" is each night at two')
    if run.time_zone and version < WITH_TIME_ZONE:
        known = ".".join(map(str, version))
        raise BenchError(
            f"Kubernetes {known} knows no time zones of schedules: it uses that of its controllers, mostly UTC",
            "write the schedule for UTC, without --timezone",
        )
    if not settings.image:
        raise BenchError("there is no image for the pods", "kubernetes: {image: registry/name@sha256:...} in site.yaml")
    if settings.volume is None:
        raise BenchError(
            "evidence of a scheduled run stays on a volume, and there is none",
            "kubernetes: {volume: {claim: CLAIM, path: /where/it/is/here}} in site.yaml",
        )
    for what, path in (("workspace", run.workspace), ("scenario", run.file)):
        if not path.is_relative_to(settings.volume.path):
            raise BenchError(
                f"the {what} {path} is not on the volume {settings.volume.claim}, which is at {settings.volume.path}",
                f"put it there: bench -C {settings.volume.path}/DIR ...",
            )
