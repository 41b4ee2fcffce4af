"""The experiment of a diagnosis as a change of the scenario, which `bench why --try` runs. Pure.

A remedy changes the cause and nothing that is measured, so that its numbers can be compared with the good ones. Halving
the load would be a different test: such experiments, and manual ones, are refused by name.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from benchhouse.analysis.playbooks.values import PointDiagnosis

Scenario = dict[str, Any]
_QUEUES = ("max_num_seqs", "max_queue_size", "queue_size", "parallel")
_PREFIX_CACHES = ("prefix_caching", "enable_prefix_caching", "prefix_cache")
_NO_NODE = re.compile(r"gpu\d{1,2}|.* .*")  # a device, or `rank 3`
_OFF: dict[Any, Any] = {"true": "false", "on": "off", "1": "0", 1: 0, "yes": "no"}


@dataclass(frozen=True)
class Remedy:
    """A scenario with a change that addresses the cause."""

    says: str
    scenario: Scenario


class NoRemedy(Exception):  # noqa: N818 - a reason, told to the user
    """The reason why the experiment of a diagnosis can't be run automatically."""


def remedy(diagnosis: PointDiagnosis, scenario: Mapping[str, Any], nodes: Sequence[str]) -> Remedy:
    """Return the scenario of a slow trial with the playbook's change; `nodes` are those where slow trials ran.

    Raise NoRemedy if the change is impossible.
    """
    kind = "straggler" if diagnosis.cause.startswith("straggler:") else diagnosis.cause
    change = _CHANGES.get(kind)
    if change is None:
        by_hand = diagnosis.next[0] if diagnosis.next else diagnosis.change
        raise NoRemedy(f"the experiment of '{diagnosis.title}' can't be run by itself. By hand: {by_hand}")
    changed = deepcopy(dict(scenario))
    suspect = diagnosis.node or diagnosis.suspect
    suspects = [suspect] if suspect else list(nodes)
    return Remedy(change(changed, suspects), changed)


def _without_cpu_limit(scenario: Scenario, suspects: Sequence[str]) -> str:
    limits = scenario.get("limits") or {}
    if "cpus" not in limits:
        raise NoRemedy("the CPU limit is not the scenario's (`limits.cpus`): raise it where the job or pod gets it")
    had = limits.pop("cpus")
    if not limits:
        scenario.pop("limits")
    return f"without `limits: {{cpus: {had:g}}}`"


def _without_nodes(scenario: Scenario, suspects: Sequence[str]) -> str:
    if scenario.get("executor") != "slurm":
        raise NoRemedy("a node can be left out on Slurm only; here the trial runs where it is started")
    names = list(dict.fromkeys(suspects))
    if not names or any(_NO_NODE.fullmatch(name) for name in names):
        raise NoRemedy(f"{', '.join(names) or 'nothing'} is no node that a scheduler could leave out")
    slurm = scenario.setdefault("slurm", {})
    slurm["flags"] = [*(slurm.get("flags") or ()), f"--exclude={','.join(names)}"]
    return f"without node {', '.join(names)} (`--exclude`)"


def _alone(scenario: Scenario, suspects: Sequence[str]) -> str:
    if scenario.get("executor") == "slurm" and not (scenario.get("slurm") or {}).get("exclusive"):
        scenario.setdefault("slurm", {})["exclusive"] = True
        return "alone on its nodes (`slurm: {exclusive: true}`)"
    raise NoRemedy("nothing in the scenario keeps others off this machine: stop them, or use a node of its own")


def _longer_queue(scenario: Scenario, suspects: Sequence[str]) -> str:
    return _scale(scenario, _QUEUES, 2.0, "the queue of a server")


def _fewer_at_once(scenario: Scenario, suspects: Sequence[str]) -> str:
    return _scale(scenario, _QUEUES[:1], 0.5, "how many sequences a server takes at once")


def _scale(scenario: Scenario, names: Sequence[str], factor: float, what: str) -> str:
    for service, use in (scenario.get("services") or {}).items():
        parameters = use.get("parameters") or {}
        for name in names:
            value = str(parameters.get(name, ""))
            if value.isdecimal() and int(int(value) * factor) >= 1:
                parameters[name] = type(parameters[name])(int(int(value) * factor))
                return f"with `services: {{{service}: {{parameters: {{{name}: {parameters[name]}}}}}}}` (was {value})"
    raise NoRemedy(f"no service of the scenario has a parameter ({', '.join(names)}) for {what}; give it one to try")


def _without_prefix_cache(scenario: Scenario, suspects: Sequence[str]) -> str:
    for service, use in (scenario.get("services") or {}).items():
        parameters = use.get("parameters") or {}
        for name in _PREFIX_CACHES:
            value = parameters.get(name)
            off = _OFF.get(value.lower() if isinstance(value, str) else value)
            if off is not None:
                parameters[name] = off
                return f"with prefix caching off (`{name}: {off}` of service {service})"
    names = ", ".join(_PREFIX_CACHES)
    raise NoRemedy(f"no service of the scenario has its prefix cache on by a parameter ({names})")


def _longer_warmup(scenario: Scenario, suspects: Sequence[str]) -> str:
    """Extend the load's warm-up if it is given in seconds, otherwise add warm-up trials."""
    workload = scenario.get("workload") or {}
    seconds = workload.get("warmup")
    if isinstance(seconds, int | float) and seconds > 0 and "executions" not in workload:
        workload["warmup"] = seconds * 4
        return f"with `workload: {{warmup: {seconds * 4:g}}}` (was {seconds:g} s)"
    scenario["warmup"] = 2 * int(scenario.get("warmup") or 0) + 1
    return f"with `warmup: {scenario['warmup']}` trials before"


_CHANGES: dict[str, Callable[[Scenario, Sequence[str]], str]] = {
    "cpu_throttling": _without_cpu_limit,
    "straggler": _without_nodes,
    "gpu_clocks_held_down": _without_nodes,
    "noisy_neighbour": _alone,
    "queueing": _longer_queue,
    "cache_full": _fewer_at_once,
    "slower_before_first_token": _without_prefix_cache,
    "restart": _longer_warmup,
}
