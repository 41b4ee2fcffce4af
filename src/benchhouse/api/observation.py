"""`ws.monitors`, `ws.logs`, and dashboards: what was sampled and printed, and how to watch it elsewhere."""

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from benchhouse.api.long_lived_servers import start_long_lived, stop_long_lived
from benchhouse.api.placement import Placement, keepers_of
from benchhouse.api.servers import find_server
from benchhouse.api.verb_group import VerbGroup
from benchhouse.evidence.writing import now
from benchhouse.processes.process_identity import pid_of
from benchhouse.processes.services import job_of
from benchhouse.runs import log_files, logs
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.logs import LogLine, LogsManifest, PrunedLogs
from benchhouse.schema.protocols import Assignment
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.service import OVER, ServiceSpec, read_state
from benchhouse.sites import places
from benchhouse.worker.monitors import standing_monitor
from benchhouse.worker.monitors.standing_monitor import MonitorStatus

if TYPE_CHECKING:
    from benchhouse.api.execution import RunListener
    from benchhouse.worker.monitors.series_catalog import Monitored

RULES = "benchhouse_rules.yml"


class Monitors(VerbGroup):
    """Stand-alone monitors of a workspace: they sample the machine, or a process, without a benchmark."""

    def start(
        self,
        *,
        pid: int | None = None,
        interval_s: float = 1.0,
        for_s: float | None = None,
        placement: Placement = Placement(),  # noqa: B008 - frozen
        progress: "bool | RunListener" = False,
    ) -> MonitorStatus:
        """Start a monitor in the background. It is sampling when this returns.

        With `pid`, it also samples that process and all its descendants, and ends with it. `for_s` ends it after that
        many seconds. `interval_s` is at least 0.1. `placement=Placement("slurm", node="n1")` makes it a job on that
        node.
        """
        if placement.keepers(places.site(self._folder, placement.site)) is None:
            return standing_monitor.start(self._folder, pid=pid, interval_s=interval_s, for_s=for_s)
        if pid is not None:
            raise BenchError("a batch job samples its node, not a process of this machine", "leave out --pid")
        return self._keep(standing_monitor.RECIPE, placement, interval_s, for_s, progress)

    def _keep(
        self,
        recipe: Recipe,
        placement: Placement,
        interval_s: float,
        for_s: float | None,
        progress: "bool | RunListener",
    ) -> MonitorStatus:
        """Let a keeper process run the monitor."""
        from benchhouse.api.execution import listener_of

        service = f"{recipe.name}-{secrets.token_hex(2)}"
        folder = standing_monitor.prepare(self._folder, interval_s=interval_s, for_s=for_s, kept=service)
        files = {"files": str(folder.path.absolute())}
        spec = ServiceSpec(id=service, recipe=recipe, parameters=files, created=now())
        try:
            start_long_lived(self._folder, [spec], placement, listener_of(progress).note)
        except BaseException:
            shutil.rmtree(folder.path)  # it never sampled
            raise
        return standing_monitor.status(folder)

    def start_for_server(
        self,
        server: str,
        *,
        interval_s: float = 1.0,
        for_s: float | None = None,
        progress: "bool | RunListener" = False,
    ) -> MonitorStatus:
        """Start a monitor of the node of a running server, which is named by its id. It runs inside the server's batch
        job, so that it needs no resources of its own, and ends with that job. A server of this machine is sampled with
        all its processes."""
        keeper = find_server(self._folder, server)[0]
        state, job = read_state(keeper), job_of(keeper)
        if state is None or state.phase in OVER:
            raise BenchError(f"{keeper.path.name} is over: {state.message if state else ''}", "see: bench servers ps")
        if job is None:
            return standing_monitor.start(self._folder, pid=pid_of(state.keeper), interval_s=interval_s, for_s=for_s)
        keepers = keepers_of(job.executor, Assignment())
        prefix = keepers.beside(keeper) if keepers else []
        recipe = standing_monitor.RECIPE.model_copy(update={"command": (*prefix, *standing_monitor.RECIPE.command)})
        return self._keep(recipe, Placement(), interval_s, for_s, progress)

    def stop(self, monitor: str = "@last") -> MonitorStatus:
        """Stop a monitor and return what it measured. Its samples are kept as Parquet files.

        It is named by its id, the first characters of it, or `@last`: the most recent one that is running.
        """
        folder = standing_monitor.find(self._folder, monitor)
        try:
            return standing_monitor.stop(self._folder, folder.path.name)
        finally:
            if kept := folder.kept():
                stop_long_lived([kept])

    def all(self) -> list[MonitorStatus]:
        """Return every monitor of the workspace, newest first."""
        return standing_monitor.list_monitors(self._folder)

    def list(self) -> "list[Monitored]":
        """Return everything that can be monitored, and whether each was tested on real hardware or software."""
        from benchhouse.worker.monitors.series_catalog import monitored

        return monitored()


@dataclass(frozen=True)
class LogArchive:
    """A tarball of logs."""

    path: Path
    manifest: LogsManifest
    """The contents of the tarball, and what was left out."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as `--json` prints it."""
        return {"output": str(self.path), **self.manifest.model_dump(mode="json")}


class LogFilters(TypedDict, total=False):
    """Which lines to return. A time is `2026-11-15T10:00` (UTC, or with a zone), or `10m` for ten minutes ago."""

    components: Sequence[str]
    """experiment, worker, orchestrator, or names of servers."""
    trials: Sequence[str]
    """Trial ids, or the first characters of them."""
    since: str | None
    """Only lines from this time on."""
    until: str | None
    """Only lines before this time."""


class Logs(VerbGroup):
    """Output of the trials, servers, and workers of a workspace."""

    def get(
        self, run: str = "@last", output: str | os.PathLike[str] | None = None, **filters: Unpack[LogFilters]
    ) -> LogArchive:
        """Pack the logs of a run into a tarball, by default `RUN-logs.tar.gz` in the current folder."""
        selection, run_id = logs.select(**filters), self._workspace[run].id
        path = Path(output or f"{run_id}-logs.tar.gz")
        return LogArchive(path, log_files.pack(self._folder, run_id, selection, path))

    def tail(self, run: str = "@last", lines: int = 20, **filters: Unpack[LogFilters]) -> list[LogLine]:
        """Return the newest lines of all trials and components of a run, in the order of their times."""
        return logs.tail(self._folder, self._workspace[run].id, logs.select(**filters), lines)

    def follow(self, run: str = "@last", lines: int = 20, **filters: Unpack[LogFilters]) -> Iterator[list[LogLine]]:
        """Yield the newest lines, then new lines as they are written, until the run has ended. Each batch is in
        order."""
        return logs.follow(self._folder, self._workspace[run].id, logs.select(**filters), lines)

    def fluent_bit(self) -> str:
        """Return the configuration of Fluent Bit that sends the output of pods of runs to `search` of
        workspace.yaml."""
        from benchhouse.runs import fluent_bit, sharing

        file = sharing.workspace_file(self._folder)
        if file is None or file.search is None:
            raise BenchError("workspace.yaml names no search engine", "search: {url: https://user:$NAME@host:9200}")
        return fluent_bit.configuration(file.search)

    def prune(self, older_than_s: float | None = None, *, dry_run: bool = False) -> PrunedLogs:
        """Remove old logs that are not evidence: of workers, orchestrators, Slurm jobs, ended servers, and monitors.

        Age is counted from the last change. The default limit is the site's `keep_logs`.
        """
        age_s = log_files.log_retention_s(self._folder) if older_than_s is None else older_than_s
        return log_files.prune(self._folder, age_s, dry_run=dry_run)


@dataclass(frozen=True)
class Dashboards:
    """Files that were written for Grafana and Prometheus."""

    files: tuple[Path, ...]
    rules: Path
    """The file that Prometheus reads."""

    def to_dict(self) -> dict[str, list[str]]:
        """Return plain data, as `--json` prints it."""
        return {"files": [str(path) for path in self.files]}


def write_dashboards(folder: Path) -> Dashboards:
    """Write dashboards and rules for every metric and series that is declared here. They do not depend on any run."""
    from benchhouse.catalog.listing import list_experiments
    from benchhouse.evidence.writing import write_text
    from benchhouse.report import dashboards
    from benchhouse.report.served_dashboard import served_dashboard
    from benchhouse.schema.experiment import Metric
    from benchhouse.sites import places
    from benchhouse.worker.monitors.series_catalog import all_series

    declared = [
        dashboards.Declared(item.name, item.component, [Metric.model_validate(metric) for metric in item.metrics])
        for item in list_experiments(places.cache())
        if not item.broken and not item.deprecated
    ]
    series = all_series()
    contents = dashboards.dashboards(declared, series) | {"served": served_dashboard(declared)}
    texts = {f"{name}.json": json.dumps(content, indent=2) + "\n" for name, content in contents.items()}
    texts[RULES] = dashboards.rules_yaml(series)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
    except OSError as error:
        raise unwritable(folder, error) from error
    return Dashboards(tuple(folder / name for name in texts), folder / RULES)
