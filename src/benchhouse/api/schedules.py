"""`ws.schedules`: runs that a clock starts, by the agent or by a cluster that keeps the schedule."""

import builtins
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from benchhouse.api.verb_group import VerbGroup
from benchhouse.automation.cron_jobs import CronRun, cron_job
from benchhouse.automation.schedules import units
from benchhouse.automation.schedules.agent import Agent, own_name, place_of, process_is_gone
from benchhouse.automation.schedules.cron import next_start
from benchhouse.automation.schedules.due import NEVER
from benchhouse.automation.schedules.store import ScheduleSlot, ScheduleStore, StoredSchedule, opened
from benchhouse.automation.schedules.units import Keeper
from benchhouse.documents.manifest_yaml import as_yaml
from benchhouse.http.kubeconfig import find_access
from benchhouse.http.kubernetes import KubeClient
from benchhouse.runs.trust_file import current_submitter
from benchhouse.schema.errors import BenchError
from benchhouse.schema.kubernetes import KubernetesSite
from benchhouse.schema.pod_template import chosen
from benchhouse.schema.resources import Resources
from benchhouse.schema.schedules import CRON_WORDS, Schedule, SlotState

if TYPE_CHECKING:
    from benchhouse.api.execution import PlaceKeywords


@dataclass(frozen=True)
class SlotRecord:
    """One slot: when it was due, and what became of it. Times are ISO 8601, UTC; empty if there is none."""

    due: str
    state: SlotState
    run_id: str
    begun: str
    ended: str
    why: str
    place: str
    """Machine and workspace of the run."""


@dataclass(frozen=True)
class ScheduleStanding:
    """A schedule and its state."""

    name: str
    scenario: str
    cron: str
    timezone: str
    cadence: str
    state: str
    """active, paused, or failing."""
    next_due: str
    """UTC; empty if the schedule is paused."""
    failures: int
    """Number of failures in a row."""
    told: tuple[str, ...]
    """Channels that were notified that the schedule keeps failing."""
    last: SlotRecord | None
    """The newest slot that was run."""
    slots: tuple[SlotRecord, ...]
    """Newest first."""
    settings: Schedule


class Schedules(VerbGroup):
    """Schedules that are kept here, or by a cluster."""

    def add(
        self,
        scenario: str | os.PathLike[str],
        cron: str = "",
        *,
        name: str = "",
        replace: bool = False,
        **settings: Any,
    ) -> ScheduleStanding:
        """Add a schedule, which `bench agent` executes: the file of a scenario, and a cron line.

        A descriptor of Benchmark AI may contain the line itself. `name` is by default that of the file; `settings` are
        the other fields of `Schedule`, such as `timezone`.
        """
        from benchhouse.api.execution import prepare_source
        from benchhouse.automation.alarms import read_alarms

        file = Path(scenario).absolute()
        root = self._folder.root.absolute()
        kept = str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
        cron = self._cron(file, cron)
        who = {"added_by": current_submitter()} | settings
        schedule = _validated(name=name or file.stem, scenario=kept, cron=cron, **who)
        where = {key: getattr(schedule, key) for key in ("executor", "runtime", "site")}
        prepare_source(self._folder, file, where)  # type: ignore[arg-type]  # raises if it can't run
        told = read_alarms(self._folder) if schedule.tell else None
        known = [*told.channels, *told.people] if told else []
        for name in schedule.tell:
            if name not in known:
                raise BenchError(f"no channel {name} in alarms.yaml", f"there are {', '.join(known)}")
        with opened(self._folder) as store:
            store.add(schedule, time.time(), replace=replace)
        return self.get(schedule.name)

    def _cron(self, file: Path, given: str) -> str:
        """Return the cron line as given, otherwise the descriptor's, with words such as `@daily` spelled out."""
        line = given or (self._workspace.convert(file).scheduling if file.suffix == ".toml" else "")
        if not line:
            raise BenchError(f"nothing says when {file.name} is to run", 'such as --cron "0 2 * * *"')
        return CRON_WORDS.get(line.strip(), line)

    def list(self) -> "builtins.list[ScheduleStanding]":
        """Return all schedules, by name, each with its newest slots."""
        with opened(self._folder) as store:
            return [_standing(store, kept, 10) for kept in store.all()]

    def get(self, name: str, *, slots: int = 20) -> ScheduleStanding:
        """Return one schedule with its newest slots."""
        with opened(self._folder) as store:
            return _standing(store, store.get(name), slots)

    def pause(self, name: str) -> ScheduleStanding:
        """Start no more runs. Runs that are under way are left alone."""
        return self._pause(name, paused=True)

    def resume(self, name: str) -> ScheduleStanding:
        """Resume a paused schedule. Slots that were due in the meantime are not made up for."""
        return self._pause(name, paused=False)

    def _pause(self, name: str, *, paused: bool) -> ScheduleStanding:
        with opened(self._folder) as store:
            store.pause(name, time.time(), paused=paused)
        return self.get(name)

    def remove(self, name: str) -> None:
        """Remove a schedule. Its runs and the record of its slots are kept."""
        with opened(self._folder) as store:
            store.remove(name)

    def run_now(self, name: str, *, note: Callable[[str], None] = lambda text: None) -> SlotRecord:
        """Start a run of a schedule in the background now, regardless of the time and of other runs."""
        with opened(self._folder) as store:
            agent = self._agent(store, note)
            slot = store.claim_now(name, time.time(), agent.place, agent.me)
            agent.begin(slot, time.time())
            kept = next(item for item in store.slots(name, 50) if item.run_id == slot.run_id)
        if kept.state == "failed":
            raise BenchError(f"{name} could not be begun: {kept.why}", f"bench schedule show {name}")
        return _slot_record(kept)

    def install(self, keeper: Keeper, *, write: bool = True) -> "builtins.list[units.Unit]":
        """Install what lets this machine execute schedules: a systemd service, its timer, or a crontab line.

        `write=False` only returns the texts. Units are not enabled here; each text contains the command that enables
        it.
        """
        texts = units.units(keeper, self._folder.root.absolute())
        if write:
            units.install(texts)
        return texts

    def uninstall(self, keeper: Keeper) -> "builtins.list[units.Unit]":
        """Remove what `install` wrote."""
        texts = units.units(keeper, self._folder.root.absolute())
        units.uninstall(texts)
        return texts

    def run_agent(
        self, *, once: bool = False, poll: bool = False, note: Callable[[str], None] = lambda text: None
    ) -> None:
        """Execute schedules until SIGTERM or Ctrl-C; runs that were started continue. `once`: only what is due now.

        If workspace.yaml names GitHub repositories, their orders are processed too; with `poll`, GitHub is polled for
        new comments.
        """
        from benchhouse.api.agent import carry_out

        with opened(self._folder) as store, self._workspace.github.at_work(once=once, poll=poll, note=note):
            carry_out(self._agent(store, note), once=once)

    def _agent(self, store: ScheduleStore, note: Callable[[str], None]) -> Agent:
        from benchhouse.api.agent import RunActions

        place = place_of(self._folder.root.absolute())
        return Agent(store, RunActions(self._workspace, note), time.time, place, own_name(), process_is_gone)

    def scrontab(
        self, scenario: str | os.PathLike[str], cron: str, *, time_zone: str = "", **where: Unpack["PlaceKeywords"]
    ) -> str:
        """Return the lines for `scrontab`, by which Slurm runs a scenario on schedule: its own options, and the
        command."""
        from benchhouse.api.execution import prepare_source

        if time_zone:
            raise BenchError("scrontab knows no time zones", "write the schedule for the zone of Slurm's controller")
        prepared, file = prepare_source(self._folder, scenario, where)
        cron = self._cron(Path(file), cron)
        return units.scrontab(prepared.plan.scenario, self._folder.root.absolute(), Path(file).absolute(), cron)

    def render(
        self,
        scenario: str | os.PathLike[str],
        cron: str,
        *,
        time_zone: str = "",
        kubernetes_version: str = "",
        **where: Unpack["PlaceKeywords"],
    ) -> str:
        """Return the Kubernetes CronJob that runs a scenario on schedule.

        `kubernetes_version` (`1.32`) replaces a query to the API server for its version.
        """
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
            cron=self._cron(Path(file), cron),
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


def _validated(**fields: Any) -> Schedule:
    from pydantic import ValidationError

    try:
        return Schedule.model_validate({key: value for key, value in fields.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        raise BenchError(f"{where}: {reason}" if where else reason, "bench schedule add --help") from error


def _standing(store: ScheduleStore, kept: StoredSchedule, limit: int) -> ScheduleStanding:
    schedule, records = kept.schedule, tuple(map(_slot_record, store.slots(kept.schedule.name, limit)))
    state = "paused" if kept.paused else "failing" if kept.failures >= schedule.tell_after else "active"
    return ScheduleStanding(
        name=schedule.name,
        scenario=schedule.scenario,
        cron=schedule.cron,
        timezone=schedule.timezone,
        cadence=schedule.cadence,
        state=state,
        next_due="" if kept.paused else _stamp(next_start(schedule, max(kept.looked_to, time.time()))),
        failures=kept.failures,
        told=kept.told,
        last=next((record for record in records if record.run_id), None),
        slots=records,
        settings=schedule,
    )


def _slot_record(slot: ScheduleSlot) -> SlotRecord:
    return SlotRecord(
        due=_stamp(slot.due),
        state=slot.state,
        run_id=slot.run_id,
        begun=_stamp(slot.begun),
        ended=_stamp(slot.ended),
        why=slot.why,
        place=slot.place,
    )


def _stamp(moment: float) -> str:
    if not 0 < moment < NEVER:
        return ""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def _version(given: str, settings: KubernetesSite) -> tuple[int, int]:
    if not given:
        answer = KubeClient(find_access(settings.context)).get("/version")
        given = f"{answer['major']}.{answer['minor']}"  # some report 20+
    if not (match := re.fullmatch(r"v?(\d+)\.(\d+).*", given)):
        raise BenchError(f"{given!r} is no version of Kubernetes", "such as --kubernetes 1.32")
    return int(match[1]), int(match[2])
