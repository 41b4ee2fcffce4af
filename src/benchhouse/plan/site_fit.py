"""Check, without side effects, whether a site can provide the resources that a plan requests."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from benchhouse.documents.document import Loc
from benchhouse.documents.problems import Problem, did_you_mean
from benchhouse.plan.expand import Plan
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.schema.quantities import show_bytes, show_seconds
from benchhouse.schema.resources import Resources, spelt, value_of
from benchhouse.schema.site import Partition, Site


def site_problems(file: ScenarioFile, plan: Plan, site: Site) -> list[Problem]:
    """Return what Slurm on that site would refuse or leave pending forever, with its place in the scenario."""
    found = (problem for wanted in plan.all_resources for problem in _Fitting(file, plan, site, wanted).problems())
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class _Fitting:
    file: ScenarioFile
    plan: Plan
    site: Site
    wanted: Resources

    def problems(self) -> Iterator[Problem]:
        scenario, slurm = self.file.scenario, self.site.slurm
        default = (slurm.gpu_partition if self.wanted.gpus else None) or slurm.partition
        names = (scenario.partition or default or "").split(",")  # of several, Slurm takes the first that is free
        qos, account = scenario.qos or slurm.qos or "", scenario.account or slurm.account or ""
        for name in names:
            yield from self._unknown("partition", "partition", name, slurm.partitions)
        yield from self._unknown("qos", "quality of service", qos, slurm.qualities)
        yield from self._unknown("account", "account", account, slurm.accounts)
        known = [(name, slurm.partitions[name]) for name in names if name in slurm.partitions]
        refusals = [list(self._too_much(name, partition)) for name, partition in known]
        if refusals:
            yield from min(refusals, key=len)  # none if one of them fits
        yield from self._tasks()
        if quality := slurm.qualities.get(qos):
            yield from self._too_long(f"quality of service '{qos}'", quality.max_time)

    def _tasks(self) -> Iterator[Problem]:
        """Yield problems of numbers that do not fit: Slurm would give fewer nodes, or more tasks per node, than
        requested.
        """
        wanted, settings = self.wanted, self.file.scenario.slurm
        if wanted.ntasks is None:
            return
        if wanted.ntasks < wanted.nodes:
            message = f"{wanted.nodes} nodes for {wanted.ntasks} tasks: one would have nothing to do"
            yield self._problem(("ntasks",), message, f"at least {wanted.nodes}")
        if "ntasks_per_node" in settings.model_fields_set:
            room = wanted.nodes * settings.ntasks_per_node
            if wanted.ntasks > room:
                message = f"{wanted.ntasks} tasks, and slurm.ntasks_per_node has room for {room} on its nodes"
                yield self._problem(("ntasks",), message, f"at most {room}")

    def _unknown(self, key: str, noun: str, name: str, known: Collection[str]) -> Iterator[Problem]:
        """Yield a problem if the name is not known; an empty `known` means that the profile does not list any."""
        if not name or not known or name in known:
            return
        in_scenario = key in self.file.scenario.model_fields_set
        origin = "" if in_scenario else f" (slurm.{key} of the profile)"
        message, expected = f"site '{self.site.site}' has no {noun} '{name}'{origin}", ", ".join(sorted(known))
        loc = (key,) if in_scenario else ()
        yield self.file.document.problem(loc, message, f"one of {expected}", did_you_mean(name, known) or "")

    def _too_much(self, name: str, partition: Partition) -> Iterator[Problem]:
        wanted, n = self.wanted, self.file.scenario.slurm.together
        most = f"no node of partition '{name}' has"
        tasks = n * math.ceil((wanted.ntasks or 1) / wanted.nodes)
        if partition.cpus is not None and wanted.cpus * tasks > partition.cpus:
            message = f"{self._asks()} {wanted.cpus * tasks} cores; {most} more than {partition.cpus}"
            yield self._problem(("cpus", "cpus_per_task"), message, f"at most {partition.cpus // tasks}")
        if wanted.gpus * n > partition.gpus:
            has = f"more than {partition.gpus}" if partition.gpus else "any"
            expected = f"at most {partition.gpus // n}" if partition.gpus else "a partition with GPUs"
            yield self._problem(("gpus",), f"{self._asks()} {wanted.gpus * n} GPUs of a node; {most} {has}", expected)
        if wanted.memory is not None and partition.memory is not None and wanted.memory * n > partition.memory:
            has = show_bytes(partition.memory)
            message = f"{self._asks()} {show_bytes(wanted.memory * n)} of a node; {most} more than {has}"
            yield self._problem(("memory", "mem_gb"), message, f"at most {show_bytes(partition.memory // n)}")
        if partition.nodes is not None and wanted.nodes > partition.nodes:
            message = f"{self._asks()} {wanted.nodes} nodes; partition '{name}' has {partition.nodes}"
            yield self._problem(("nodes",), message, f"at most {partition.nodes}")
        yield from self._too_long(f"partition '{name}'", partition.max_time)

    def _asks(self) -> str:
        together = self.file.scenario.slurm.together
        return "a trial asks for" if together == 1 else f"{together} trials in one job ask for"

    def _too_long(self, what: str, most_s: float | None) -> Iterator[Problem]:
        """Yield a problem for a job that is longer than its limit; Slurm would accept it and leave it pending."""
        job_s = self.file.scenario.slurm.time
        loc: Loc = ("slurm", "time") if job_s else ("limits", "wall")
        asked_s = job_s or self.plan.limits.wall
        if asked_s is not None and most_s is not None and asked_s > most_s:
            message = f"a job may take {show_seconds(asked_s)}; {what} allows {show_seconds(most_s)}"
            yield self.file.document.problem(loc, message, f"at most {show_seconds(most_s)}")

    def _problem(self, spellings: tuple[str, ...], message: str, expected: str) -> Problem:
        """Return the problem at the key as the scenario spells it, or at the top if its experiment or benchmark sets
        it.
        """
        loc = next((place for name in spellings for place in self._places(name)), ())
        whose = "" if loc else " (as its experiment or benchmark says; the scenario's `resources` go before that)"
        return self.file.document.problem(loc, message + whose, expected)

    def _places(self, key: str) -> Iterator[Loc]:
        """Yield the places where the scenario requests this amount: in `resources`, or as a value of an axis."""
        document, axis = self.file.document, f"resources.{key}"
        places: list[Loc] = [("resources", key)]
        for at, block in enumerate(document.value(("axes",)) or ()):
            places += [("axes", at, form, axis) for form in ("grid", "zip")]
            places += [("axes", at, "points", index, axis) for index in range(len(block.get("points") or ()))]
        for place in places:
            value = document.value(place)
            if isinstance(value, list):
                yield from ((*place, index) for index, item in enumerate(value) if self._is_wanted(key, item))
            elif value is not None and (isinstance(value, dict) or self._is_wanted(key, value)):
                yield place

    def _is_wanted(self, key: str, value: object) -> bool:
        return bool(value_of(key, value) == getattr(self.wanted, spelt(key)))
