"""Find contradictions between a scenario and its contract before anything runs."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import Problem
from benchhouse.plan.expand import Plan
from benchhouse.plan.scenario_file import ScenarioFile
from benchhouse.schema.contract import BenchmarkRun
from benchhouse.schema.contract_rules import UNKNOWN, Settled, concurrency_model
from benchhouse.schema.guarantees import contract_digest, terms_of
from benchhouse.schema.trial import Instance

Clashes = Iterator[tuple[Loc, Loc, str, str]]  # places in contract and scenario, the scenario's value, an accepted one


@dataclass(frozen=True)
class Contract:
    """A contract as read from its file, and its state before any run."""

    terms: BenchmarkRun
    document: Document
    settled: Settled

    @property
    def digest(self) -> str:
        return contract_digest(self.terms)

    @property
    def demands(self) -> list[str]:
        """The guarantees, as spelled in the contract."""
        return terms_of(self.terms).demands


def contradictions(contract: Contract, file: ScenarioFile, plan: Plan) -> list[Problem]:
    """Return the contradictions, each at its place in the scenario and with the place in the contract."""
    document, problems = contract.document, list[Problem]()
    for loc, place, says, expected in _clashes(contract.terms, plan):
        line, column = document.position(loc)
        demand = f"{'.'.join(map(str, loc))}: {document.written(loc)}"
        message = f"{says}, but the contract demands {demand} ({document.path}:{line}:{column})"
        problems.append(file.document.problem(place, message, expected))
    return problems


def _clashes(terms: BenchmarkRun, plan: Plan) -> Clashes:
    yield from _counts(terms, plan)
    yield from _places(terms, plan)
    yield from _workload(terms, plan)
    yield from _records(terms, plan)


def _counts(terms: BenchmarkRun, plan: Plan) -> Clashes:
    scenario, trials = plan.scenario, terms.trials
    least = scenario.until.min if scenario.until else scenario.most_repetitions
    if least < trials.min_replicates:
        place: Loc = ("repetitions", "until", "min") if scenario.until else ("repetitions",)
        wanted = f"{place[-1]}: {trials.min_replicates} or more"
        yield ("trials", "minReplicates"), place, f"{place[-1]}: {least} a point", wanted
    if scenario.warmup < trials.min_warmups:
        wanted = f"warmup: {trials.min_warmups} or more"
        yield ("trials", "minWarmups"), ("warmup",), f"warmup: {scenario.warmup} a point", wanted


def _places(terms: BenchmarkRun, plan: Plan) -> Clashes:
    scenario, policy = plan.scenario, terms.execution_policy
    executor, _, partition = terms.intent.scheduler_path.partition("/")
    path: Loc = ("intent", "schedulerPath")
    if executor != scenario.executor:
        yield path, ("executor",), f"executor: {scenario.executor}", f"--executor {executor}, or another contract"
    elif partition and partition != (scenario.partition or ""):
        yield path, ("partition",), f"partition: {scenario.partition or 'none'}", f"partition: {partition}"
    sampled = scenario.monitors and "node" in scenario.monitors.sources
    if policy.cluster_context_captured and not sampled:
        says = "monitors leave the node out" if scenario.monitors else "monitors: false"
        yield ("executionPolicy", "clusterContextCaptured"), ("monitors",), says, "monitors with the source node"
    if not policy.exclusive_scheduling:
        return
    exclusive: Loc = ("executionPolicy", "exclusiveScheduling")
    if scenario.executor == "slurm" and not scenario.slurm.exclusive:
        yield exclusive, ("slurm", "exclusive"), "slurm.exclusive is not set", "slurm: {exclusive: true}"
    if scenario.executor == "slurm" and scenario.slurm.together > 1:
        yield exclusive, ("slurm", "together"), f"slurm.together: {scenario.slurm.together}", "together: 1"
    if scenario.executor == "local" and scenario.parallel > 1:
        yield exclusive, ("parallel",), f"parallel: {scenario.parallel}", "parallel: 1"


def _workload(terms: BenchmarkRun, plan: Plan) -> Clashes:
    layers = {name: getattr(terms.layers, name) for name in ("micro", "component", "end_to_end")}
    suites = {suite for layer in layers.values() if layer.enabled for suite in layer.suites}
    names = {plan.experiment.name, plan.scenario.uses or plan.experiment.name}
    if not names & suites:
        place: Loc = ("uses",) if plan.scenario.uses else ("experiment",)
        enabled = next(name for name, layer in layers.items() if layer.enabled)
        wanted = f"one of {', '.join(sorted(suites))}"
        yield ("layers", enabled, "suites"), place, f"{place[0]}: {sorted(names)[0]}", wanted
    for key, planned, place in _planned(plan, next(iter(plan.instances()))):
        demanded = str(terms.workload.model_dump(by_alias=True)[key])
        if UNKNOWN not in (demanded, planned) and demanded.partition("@")[0] != planned.partition("@")[0]:
            yield ("workload", key), place, f"{key} is {planned}", demanded


def _records(terms: BenchmarkRun, plan: Plan) -> Clashes:
    """Yield a clash if the contract joins by request ids but the experiment records no rows per request."""
    if not {"request_id", "trace_id"} & set(terms.observability.join_keys):
        return
    if next(iter(plan.instances())).parameters.get("records") is False or "records" in plan.axes:
        says = "records is not true: requests have no ids"
        yield ("observability", "joinKeys"), ("workload", "records"), says, "records: true"


def _planned(plan: Plan, first: Instance) -> Iterator[tuple[str, str, Loc]]:
    """Yield what the plan states about the contract's workload, with the place in the scenario; varying keys are left
    out.
    """
    for key, inputs in (("model", ("model",)), ("precision", ("precision", "dtype"))):
        for part, values in (("target", first.target), ("workload", first.parameters)):
            named = [name for name in inputs if isinstance(values.get(name), str)]
            if named and not {f"target.{named[0]}", named[0]} & set(plan.axes) and "target.name" not in plan.axes:
                yield key, str(values[named[0]]), (part, named[0])
    loop = concurrency_model({**first.parameters, **first.target})
    yield "concurrencyModel", loop, ("workload", "rate" if loop == "open_loop" else "concurrency")
