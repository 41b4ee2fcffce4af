"""`ws.schedules`: runs that somebody else's clock starts."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from benchhouse.api.verb_group import VerbGroup
from benchhouse.automation.cron_jobs import CronRun, cron_job
from benchhouse.documents.manifest_yaml import as_yaml
from benchhouse.http.kubeconfig import find_access
from benchhouse.http.kubernetes import KubeClient
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.pod_template import chosen
from benchhouse.schema.resources import Resources

if TYPE_CHECKING:
    from benchhouse.api.execution import PlaceKeywords


class Schedules(VerbGroup):
    """Schedules that a cluster keeps."""

    def render(
        self,
        scenario: str | os.PathLike[str],
        cron: str,
        *,
        time_zone: str = "",
        kubernetes_version: str = "",
        **where: Unpack["PlaceKeywords"],
    ) -> str:
        """The CronJob that runs it; `kubernetes_version` (`1.32`) in place of asking the API server for its own."""
        from benchhouse.api.execution import prepare_source
        from benchhouse.runs import batch

        prepared, file = prepare_source(self._folder, scenario, where)
        if batch.carrier(prepared, self._folder.run("RUN")):
            raise BenchError(
                "a Ray cluster that takes whole runs can't be given them on schedule yet",
                "run it in the pod, --executor local, or in pods of its own, --executor kubernetes",
            )
        plan, site = prepared.plan, prepared.site
        settings = chosen(site.kubernetes, plan.scenario.kubernetes)
        each, count = plan.all_resources, min(plan.scenario.parallel, plan.trial_count)
        memory = [item.memory for item in each if item.memory]
        run = CronRun(
            scenario=plan.scenario.scenario,
            file=Path(file).absolute(),
            workspace=self._folder.root.absolute(),
            cron=cron,
            time_zone=time_zone,
            site=prepared.site_name or "",
            executor=plan.scenario.executor,
            resources=Resources(
                cpus=count * max(item.cpus for item in each),
                gpus=count * max(item.gpus for item in each),
                memory=count * max(memory) if memory else None,
            ),
            environment=site.environment,
            user=(os.getuid(), os.getgid()) if os.getuid() else None,
        )
        return as_yaml([cron_job(run, settings, _version(kubernetes_version, settings))])


def _version(given: str, settings: KubernetesSite) -> tuple[int, int]:
    if not given:
        answer = KubeClient(find_access(settings.context)).get("/version")
        given = f"{answer['major']}.{answer['minor']}"  # some say 20+
    if not (match := re.fullmatch(r"v?(\d+)\.(\d+).*", given)):
        raise BenchError(f"{given!r} is no version of Kubernetes", "such as --kubernetes 1.32")
    return int(match[1]), int(match[2])
