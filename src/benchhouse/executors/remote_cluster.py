"""Run trials on cluster nodes that share a file system: the common part of the Ray, Dask, and Spark executors.

A run requests slots from its cluster, each the size of one trial. A slot is one long call on a node that keeps the
worker host of the local executor (`cluster_node`); the host receives jobs and answers through files in the run's
folder. Limits, outcomes, and evidence are therefore the same as for local trials, and the cluster only places the
slots. docs/design/executors.md gives the reasons.
"""

import contextlib
import itertools
import os
import random
import shlex
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from benchhouse.executors import cluster_gang
from benchhouse.executors.cluster_capacity import PATIENCE_S, CapacityWatch, refuse_unless_fits, this_machine
from benchhouse.executors.cluster_engine import ClusterNode, SlotRequest, WorkerSlot
from benchhouse.executors.cluster_heartbeat import Heartbeat
from benchhouse.executors.cluster_node import ALIVE, GIVEN_UP, LEFT, ORDERS, REPORTS, Tail, append
from benchhouse.executors.cluster_process import EngineProcess, OpenEngine
from benchhouse.executors.job_queue import QueueExecutor, more_trials
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.protocols import Assignment, Job, JobId, JobState
from benchhouse.schema.quantities import show_seconds
from benchhouse.schema.resources import Limits, Resources
from benchhouse.schema.trial import Outcome

if TYPE_CHECKING:
    from benchhouse.executors.cluster_bucket import BucketMirror

OWN = "local"  # the address that means: start a cluster for this run, on this machine
_LOOK_S, _CHECK_S = (
    0.025,
    0.1,
)  # pause between two reads of reports, and between two checks of the cluster
_SLOWER = 0.02  # pauses between reads grow by this share of the time since the last report
_OPEN_S = 180.0  # a running cluster may be slow; the engine itself reports an unreachable address much sooner
_NEVER_READY = 3  # if this many slots in a row end before they are ready, no slot ever will be
_STOP_S = 30.0
_LOST_STOP_S = 8.0  # for the remaining nodes of a cluster that is gone
_REST_S = 20.0  # longest random pause after a partly placed gang was given back: two may wait for each other


@dataclass
class SlotHandle:
    """A slot as the orchestrator sees it. With `others`, it is the first slot of a gang and represents all of it."""

    slot: WorkerSlot
    reports: Tail
    placed: Mapping[str, str] | None = None  # the facts of its place; None until it is placed
    ready: bool = False
    port: int = 0  # the port of its agent; 0 without one
    job: JobId | None = None
    others: "list[SlotHandle]" = field(default_factory=list)
    half_since: float | None = None  # since when only some members of the gang have been placed

    @property
    def members(self) -> "list[SlotHandle]":
        return [self, *self.others]

    @property
    def is_placed(self) -> bool:
        return all(member.placed for member in self.members)

    @property
    def is_ready(self) -> bool:
        return all(member.ready for member in self.members)

    def send(self, message: Mapping[str, Any]) -> None:
        append(Path(self.slot.folder) / ORDERS, message)


class ClusterExecutor(QueueExecutor):
    """The part that all cluster executors share; a subclass names its engine and returns the settings to open it."""

    title: ClassVar[str]  # for people: Ray, Dask, Spark
    engine: ClassVar[str]  # the module to run: benchhouse.executors.ray_engine
    library: ClassVar[str]  # the library that the module imports
    has_gangs: ClassVar[bool] = False  # whether slots can be placed on different nodes, so that a trial can use several

    def __init__(
        self, assignment: Assignment, address: str, patience_s: float | None, custom: Mapping[str, float] | None = None
    ) -> None:
        """Create the executor. `address` is OWN if the run starts its own cluster.

        `patience_s` is how long to wait when no node is left. `custom` is the amount of each of the cluster's own
        resource kinds that a slot requests.
        """
        super().__init__(assignment)
        self.custom = dict(custom or {})
        self.assignment, self.address, self.patience_s = assignment, address, patience_s or PATIENCE_S
        self.waits_for = f"waits for a slot on {self.title}"
        self.home = (assignment.run.path / "slots").absolute()
        self.mirror: BucketMirror | None = None  # for nodes that do not see our files
        self.slots: dict[str, SlotHandle] = {}
        self.never_ready: list[str] = []
        self._process: OpenEngine | None = None
        self._heart: Heartbeat | None = None
        self._numbers = itertools.count(1)
        self._vacancy: CapacityWatch | None = None
        self._rest_until = self._heard_at = 0.0

    # -- what an engine fills in ---------------------------------------------------------------------------------

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return the settings for `Engine.open`."""

    def ask(self, resources: Resources) -> SlotRequest:
        """Return the request for a slot that can run a trial with these resources."""
        asked = resources.model_dump(include={"cpus", "gpus", "memory", "nodes"})
        return SlotRequest(**asked, custom=self.custom)

    def nodes(self) -> Sequence[ClusterNode]:
        """Return the nodes with their resources, without starting the run's own cluster to find out."""
        return [this_machine()] if self.address == OWN else self._opened().nodes

    def expected(self) -> Sequence[ClusterNode]:
        """Return nodes that the cluster may add on request, in addition to the existing ones."""
        return ()

    def python(self, job: Job) -> tuple[str, ...]:
        """Return the command prefix of the slot's interpreter."""
        return job.python

    def _require(self) -> None:
        """Raise BenchError if no run can use this executor at all, regardless of what its trials request."""
        if find_spec(self.library) is None:
            raise BenchError(f"{self.title} is not installed here", f"pip install 'benchhouse[{self.title.lower()}]'")

    def _refuse_unless_fits(self, ask: SlotRequest) -> None:
        refuse_unless_fits(self.title, ask, [*self.nodes(), *self.expected()])

    def _open(self) -> OpenEngine:
        if (parked := EngineProcess.parked(self.engine, self.settings())) is None:
            self.assignment.say(f"{self.title}: opening {self._where()} ...")
        return parked or EngineProcess.open(self.title, self.engine, self.settings(), _OPEN_S)

    def _outcome(self, taken: "SlotHandle") -> Outcome | None:
        """Return the outcome of a trial with a lost slot if the cluster reports one that needs no retry, or None."""
        return None

    # -- the protocol --------------------------------------------------------------------------------------------

    def check(self, resources: Resources) -> None:
        if resources.nodes > 1 and (why := self._single_node_reason()):
            raise BenchError(
                f"a trial asks for {resources.nodes} nodes, but {why}",
                "ask for one under resources:, or run on slurm, ray, dask or kubernetes with nodes that share files",
            )
        self._require()  # before anything is written, so that no run remains that never began
        self._refuse_unless_fits(self.ask(resources))

    def _single_node_reason(self) -> str:
        """Return why a trial cannot use several nodes, or an empty string if it can."""
        if not self.has_gangs:
            return f"on {self.title} a trial runs on one"
        if self.mirror:
            return "without a shared volume a trial runs on one"
        return f"a {self.title} {self._where().removeprefix('a ')} is this machine" if self.address == OWN else ""

    def render(self, jobs: Sequence[Job], trials: int) -> str:
        asked = self.ask(jobs[0].resources)
        ask = asked.model_dump(exclude_none=True, exclude={"nodes"})
        wants = ", ".join(f"{key}={value}" for key, value in ask.items() if value)
        slots = min(self.parallel, trials)
        where = f" on each of {asked.nodes} nodes" if asked.nodes > 1 else ""
        lines = [
            f"# {self.title}, {self._where()}: {slots} slot{'s' * (slots > 1)} of {wants}{where}, each of which runs",
            shlex.join([*self.python(jobs[0]), "-m", "benchhouse.worker", "--host", "--own"]),
            f"# and is given its share of {trials} trials:",
            *(f"# {job.label}: {job.folder}" for job in jobs),
        ]
        return "\n".join([*lines, *more_trials(jobs, trials)])

    def adopt(self) -> Mapping[JobId, int]:
        """Return no jobs, because none outlives a session, but recover trials that were sealed and sent after it."""
        self.sweep()
        return {}

    def sweep(self) -> None:
        """End the slots of an earlier session, fetch the trials that it left in a bucket, and remove the rest."""
        if not (self.home / LEFT).is_file():
            for folder in self.home.glob("*/"):  # a slot that still runs would see that its run is alive again
                if folder.name not in self.slots:
                    with contextlib.suppress(OSError):
                        append(folder / ORDERS, {"end": "another session has the run now"})
            return
        if self.mirror is None:  # the address came from the scenario, which this session does not have
            from benchhouse.executors.cluster_bucket import BucketMirror

            address = (self.home / LEFT).read_text(encoding="utf-8").strip()
            self.mirror = BucketMirror(self.home, address, self.assignment.say, os.environ)
        self.mirror.recover()

    def cancel(self, ids: Sequence[JobId]) -> None:
        wanted = set(ids)
        self._cancel_queued(wanted)
        for taken in self.slots.values():
            if taken.job in wanted:
                taken.send({"stop": taken.job})
        deadline = time.monotonic() + _STOP_S
        while wanted & set(self.running):
            if time.monotonic() > deadline:  # a host that does not answer is ended with its trial
                self._end_slots([taken for taken in self.slots.values() if taken.job in wanted], 0.0)
                return
            try:
                self._listen(0.2)
            except BenchError:  # the cluster is gone; its nodes end their trials when they notice
                self._end_slots(list(self.slots.values()))
                return

    def close(self) -> None:
        self._end_slots(list(self.slots.values()))
        if self._heart:
            self._heart.stop()
            self._heart = None
        if self._process:
            if self.home.exists():
                self._process.close()
            else:
                self._process.give_back()  # it was opened only to read its nodes
            self._process = None
        if self.mirror:
            self.mirror.close()

    # -- slots ---------------------------------------------------------------------------------------------------

    def _where(self) -> str:
        return "a cluster of its own" if self.address == OWN else self.address

    def _opened(self) -> OpenEngine:
        if self._process is None:
            self._process = self._open()
        return self._process

    def _fill(self) -> None:
        """Request slots for queued jobs, at most `parallel` of them, and give a job to each free slot."""
        for taken in list(self.slots.values()):
            if taken.is_ready and taken.job is None and (job := self._next_for(taken)):
                taken.job = job.id
                self.running[job.id] = job
                self.states[job.id] = JobState("running", detail=self._detail(taken))
                taken.send({"id": job.id, "folder": str(job.folder), "log": str(job.log)})
        idle = [taken for taken in self.slots.values() if taken.job is None]
        for job in list(self.queue):
            if coming := next((taken for taken in idle if self._suits(taken, job)), None):
                idle.remove(coming)
                continue
            unfit = next((taken for taken in idle if taken.is_ready), None)
            if time.monotonic() < self._rest_until or (len(self.slots) >= self.parallel and unfit is None):
                return
            if len(self.slots) >= self.parallel and unfit:  # its size differs from the one needed now
                idle.remove(unfit)
                self._retire(unfit)
            self._take_slot(job)

    def _suits(self, taken: SlotHandle, job: Job) -> bool:
        return (self.python(job), self.ask(job.resources)) == (taken.slot.python, taken.slot.ask)

    def _retire(self, taken: SlotHandle) -> None:
        """End an idle slot to make room for one of another size."""
        del self.slots[taken.slot.name]
        for member in taken.members:
            with contextlib.suppress(OSError):
                member.send({"end": "no trial of its size is left"})
        cluster_gang.forget(Path(taken.slot.folder))

    def _next_for(self, taken: SlotHandle) -> Job | None:
        """Remove and return the first job of the queue if it fits the slot, otherwise return None."""
        return self.queue.popleft() if self.queue and self._suits(taken, self.queue[0]) else None

    def _take_slot(self, job: Job) -> None:
        if self.mirror:
            self.mirror.begin()
        begin = f"{self.assignment.run.run_id}-{time.time_ns():x}"
        numbers = itertools.islice(self._numbers, job.resources.nodes)
        slots = self._new_slots(job, [f"{begin}-{number}" for number in numbers])
        folders = [Path(slot.folder) for slot in slots]
        for folder in folders:
            folder.mkdir(parents=True)
        if len(slots) > 1:
            scenario = self.assignment.scenario
            cluster_gang.prepare(folders, scenario.limits if scenario else Limits())
        self.beat()
        process = self._opened()
        first, *others = (SlotHandle(slot, Tail(Path(slot.folder) / REPORTS)) for slot in slots)
        first.others = others
        self.slots[first.slot.name] = first
        for slot in slots:
            process.start(slot)

    def _new_slots(self, job: Job, names: Sequence[str]) -> list[WorkerSlot]:
        """Return one slot per name, which is one per node of the trial."""
        site, several = self.assignment.site, len(names) > 1
        common = {
            "ask": self.ask(job.resources),
            "python": self.python(job),
            "environment": site.environment | site.network.environment if several else site.environment,
            "gang": names[0] if several else "",
        }
        return [WorkerSlot(name=name, folder=str(self.home / name), **common) for name in names]

    def beat(self) -> None:
        """Start the heartbeat, so that slots on nodes know that this process is alive."""
        if self._heart is None:
            self._heart = Heartbeat(self.home / ALIVE)

    def _listen(self, wait_s: float) -> None:
        """Wait until something is reported, for at most `wait_s`."""
        now = next_check = time.monotonic()
        deadline = now + wait_s
        while True:
            if is_due := now >= next_check:
                next_check = now + _CHECK_S
            if self._hear_all() if is_due else self._read_reports():
                self._heard_at = now
                return
            left_s = deadline - now
            if left_s <= 0:
                return
            time.sleep(min(_LOOK_S + _SLOWER * (now - self._heard_at), _CHECK_S, left_s))
            now = time.monotonic()

    def _read_reports(self) -> bool:
        """Read the reports of the slots and return whether there were any. It runs often, so it does nothing else."""
        heard = False
        for taken in tuple(self.slots.values()):
            for member in (taken, *taken.others):
                for report in member.reports.read():
                    heard = True
                    self._hear(member, report)
        return heard

    def _hear_all(self) -> bool:
        """Read the reports of the slots and those of the cluster about them. Return whether there were any."""
        gone = self._gone()
        heard = self._read_reports()
        if self._process is None:
            return heard
        for name, reason in gone.items():
            if (ended := self._member(name)) is not None:
                heard = True
                self._lose(ended, reason)
        if self._process.lost and (self.slots or self.queue):
            raise self._cluster_gone(self._process.lost)
        waiting = [taken for taken in self.slots.values() if not taken.is_placed]
        self._check_node_capacity(self._process, waiting)
        self._release_partial_gangs(waiting)
        return heard

    def _member(self, name: str) -> SlotHandle | None:
        members = (member for taken in self.slots.values() for member in taken.members)
        return next((member for member in members if member.slot.name == name), None)

    def _release_partial_gangs(self, waiting: Sequence[SlotHandle]) -> None:
        """Give back gangs that are only partly placed for `patience_s`: another gang may wait for their nodes."""
        for taken in waiting:
            count = sum(member.placed is not None for member in taken.members)
            if not count:
                taken.half_since = None
            elif taken.half_since is None:
                taken.half_since = time.monotonic()
            elif time.monotonic() - taken.half_since > self.patience_s:
                waited = f"for {show_seconds(self.patience_s)}, and the others not"
                self.assignment.say(f"{count} of {len(taken.members)} nodes were there {waited}: all are given back")
                del self.slots[taken.slot.name]
                self._dismiss(taken)
                self._rest_until = time.monotonic() + min(_REST_S, self.patience_s) * random.SystemRandom().random()

    def _gone(self) -> Mapping[str, str]:
        """Return the slots that have ended, with reasons. Call it before reading reports, so that none is missed."""
        if self.mirror:
            self.mirror.check()
        gone = self._process.gone() if self._process else {}
        if gone and self.mirror:
            self.mirror.settle()
        return gone

    def _check_node_capacity(self, process: OpenEngine, waiting: Sequence[SlotHandle]) -> None:
        """If all slots wait, check whether a node of the last answer can hold one, and request the nodes again."""
        if not waiting or len(waiting) < len(self.slots):
            self._vacancy = None
            return
        if self._vacancy is None:
            self._vacancy = CapacityWatch(self.title, self.patience_s, self.assignment.say)
        if self._vacancy.is_due():
            if process.answered and (why := self._vacancy.look(waiting[0].slot.ask, process.nodes)):
                raise self._cluster_gone(why, f"the {self.title} cluster ({self._where()}) has no place for a trial")
            process.ask_nodes()

    def _hear(self, taken: SlotHandle, report: Mapping[str, Any]) -> None:
        if "placed" in report:
            taken.placed = report["placed"]
        elif "ready" in report:
            taken.ready, taken.port = True, report.get("port", 0)
            self.never_ready.clear()
            first = self.slots.get(taken.slot.gang)
            if first and first.is_ready:
                placed = [member.placed or {} for member in first.members]
                ports = [member.port for member in first.members]
                cluster_gang.introduce(Path(first.slot.folder), placed, ports, self.title)
        elif "ended" in report:
            self._lose(taken, report["ended"])
        elif "exit" in report and report["id"] in self.running:
            taken.job = None
            self._note_exit(report["id"], report["exit"], self._detail(taken))

    def _detail(self, taken: SlotHandle) -> str:
        placed = taken.placed or {}
        nodes = ",".join((member.placed or {}).get("node", "") for member in taken.members)
        return " ".join(filter(None, (nodes, placed.get("id", ""))))

    def _lose(self, taken: SlotHandle, reason: str) -> None:
        """Drop a slot that has ended, with its gang and its trial. Queued jobs get another slot."""
        where = f" on {taken.placed['node']}" if taken.placed else ""
        lost = self.slots.pop(taken.slot.gang or taken.slot.name, None)
        if lost is None:
            return
        self._dismiss(lost)
        if lost.job and self.running.pop(lost.job, None):
            words = f"its slot{where} ended: {reason}"
            self.states[lost.job] = JobState("done", words, self._detail(lost), self._outcome(taken))
        elif not lost.is_ready and self.queue:
            self.never_ready.append(reason)
            if len(self.never_ready) >= _NEVER_READY:
                raise BenchError(
                    f"no trial could begin on {self.title}: {reason}", "the run's folder has what was tried: slots/",
                    Exit.TRIAL_FAILED,
                )  # fmt: skip
            if nodes := self._look(self._opened()):  # no nodes at all: they may come back
                refuse_unless_fits(self.title, taken.slot.ask, [*nodes, *self.expected()])

    def _dismiss(self, taken: SlotHandle) -> None:
        """Tell a slot and its gang to end, and withdraw the members of a gang that are not placed yet."""
        for member in taken.members:
            with contextlib.suppress(OSError):  # if the slot is still alive after all, it must end
                member.send({"end": "it was given up", GIVEN_UP: True})
        cluster_gang.forget(Path(taken.slot.folder))
        unplaced = [member.slot.name for member in taken.members if not member.placed]
        if taken.others and unplaced and self._process:
            self._process.stop(unplaced)

    def _look(self, process: OpenEngine) -> Sequence[ClusterNode]:
        try:
            return process.look(_OPEN_S)
        except BenchError as error:  # the end of its slots may have been seen before the end of the cluster
            raise self._cluster_gone(process.lost) if process.lost else error from None

    def _cluster_gone(self, reason: str, what: str = "") -> BenchError:
        run_id = self.assignment.run.run_id
        return BenchError(
            f"{what or f'the {self.title} cluster ({self._where()}) is gone'}: {reason}",
            f"finished trials are kept; carry on here: bench run --resume {run_id} --executor local",
            Exit.TRIAL_FAILED,
        )

    def _end_slots(self, slots: Sequence[SlotHandle], wait_s: float = _STOP_S) -> None:
        """Tell slots to end and wait until they report that they have; the cluster ends those that do not."""
        members = [member for taken in slots for member in taken.members]
        for member in members:
            with contextlib.suppress(OSError):
                member.send({"end": "the run has no more use for it"})
        waiting = [member for member in members if member.placed]
        lost = self._process is not None and self._process.is_lost()
        deadline = time.monotonic() + (min(_LOST_STOP_S, wait_s) if lost else wait_s)
        while waiting and time.monotonic() < deadline:
            ended = set(self._process.gone()) if self._process else set()
            waiting = [
                member
                for member in waiting
                if member.slot.name not in ended and not any("ended" in report for report in member.reports.read())
            ]
            time.sleep(0.02)
        if self._process and (left := [item.slot.name for item in members if item in waiting or not item.placed]):
            self._process.stop(left)
        for taken in slots:
            self.slots.pop(taken.slot.name, None)
            cluster_gang.forget(Path(taken.slot.folder))
            if taken.job and self.running.pop(taken.job, None):
                self.states[taken.job] = JobState("done", "its slot was ended", self._detail(taken))
