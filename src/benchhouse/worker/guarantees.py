"""What a trial's contract requires of it and of its node, each observed or not."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchhouse.schema import guarantees as names
from benchhouse.schema.contract import BenchmarkRun
from benchhouse.schema.contract_rules import SHA256
from benchhouse.schema.guarantees import terms_of
from benchhouse.schema.telemetry import WHOLE, TelemetrySummary
from benchhouse.schema.trial import Failure, Guarantee, TrialSpec

_SHORT = 12  # digits of a digest in a sentence


@dataclass(frozen=True)
class TrialObservations:
    """The facts about a trial once it has ended."""

    spec: TrialSpec
    telemetry: TelemetrySummary | None
    threads: int
    """Hardware threads of the node."""
    lock_digest: str
    custom: Mapping[str, Any]
    slurm: Mapping[str, Any]
    shared: bool
    """Whether its process had run other trials before."""
    not_enforced: str
    """The limits that were not enforced; empty if all were."""


def observe(seen: TrialObservations) -> list[Guarantee]:
    """Return every requirement that a single trial can prove; those of the whole run are judged from all its trials."""
    contract = BenchmarkRun.model_validate(seen.spec.contract)
    return [item for item in _observe(contract, seen) if item.name in terms_of(contract).demands]


def refusal(spec: TrialSpec, observed: list[Guarantee]) -> Failure | None:
    """Return why a trial does not count; None if its contract does not reject it for missing guarantees."""
    missing = [item for item in observed if not item.observed]
    contract = BenchmarkRun.model_validate(spec.contract)
    if not missing or contract.execution_policy.on_missing_guarantee == "downgrade":
        return None
    reasons = "; ".join(f"{item.name}: {item.says}" for item in missing)
    return Failure(code="guarantee_missing", message=f"the contract '{contract.name}' demands what it lacks: {reasons}")


def _observe(contract: BenchmarkRun, seen: TrialObservations) -> Iterator[Guarantee]:
    yield from _quiet(seen)
    yield from _placed(seen)
    yield from _pinned(contract, seen)
    uri, final = contract.sinks.raw_artifacts.uri.rstrip("/"), seen.spec.final
    kept = f"/{uri.lstrip('./')}/" in final
    yield Guarantee(name=names.ARTIFACTS, observed=kept, says=f"sealed in {final}" + ("" if kept else f", not {uri}"))


def _quiet(seen: TrialObservations) -> Iterator[Guarantee]:
    """Check for other activity on its nodes, by the CPU time that neither the trial nor its servers used."""
    summary = seen.telemetry
    whole = summary.stats("node", "cpu_busy", WHOLE) if summary else None
    if summary is None or whole is None:
        says = "nothing was sampled: it was too short" if seen.spec.monitors else "monitors: false"
        for name in (names.CONTEXT, names.DEDICATED, names.STABLE):
            yield Guarantee(name=name, observed=False, says=says)
        return
    yield Guarantee(name=names.CONTEXT, observed=True, says=f"the node was sampled every {summary.interval_s:g} s")
    shares = {node: _share_of_others(seen, summary, node) for node in ("", *(node.name for node in summary.nodes))}
    unknown = sorted(node or "the trial's own node" for node, share in shares.items() if share is None)
    if unknown or len(shares) < seen.spec.resources.nodes:
        where = f" at {', '.join(unknown)}" if summary.nodes and unknown else " at all its nodes" if not unknown else ""
        says = f"the trial's own use of processors was not sampled{where}"
        yield Guarantee(name=names.DEDICATED, observed=False, says=says)
        yield Guarantee(name=names.STABLE, observed=False, says=says)
        return
    share, busiest = max((share, node) for node, share in shares.items() if share is not None)
    says = f"others used {share:.1%} of its processors" + (f" at {busiest}" if busiest else "")
    quiet = share <= names.QUIET_SHARE
    yield Guarantee(name=names.DEDICATED, observed=quiet, says=says, value=share)
    yield Guarantee(name=names.STABLE, observed=True, says=says, value=share)  # the run shows whether it varies


def _share_of_others(seen: TrialObservations, summary: TelemetrySummary, node: str) -> float | None:
    """Return the share of a node's processors that others used; an empty `node` is the trial's own. All nodes are
    assumed to have equally many."""
    place = f"{node}/" if node else ""
    whole = summary.stats(f"{place}node", "cpu_busy", WHOLE)
    scopes = [f"{place}trial"] if node else _scopes_of_trial(seen.spec, summary)
    used = {scope: summary.stats(scope, "cpu", WHOLE) for scope in scopes}
    if whole is None or not used.get(f"{place}trial"):
        return None
    sampling = summary.cost.cores if not node else next(item.cores for item in summary.nodes if item.name == node)
    return max(0.0, whole.avg - sum(stats.avg for stats in used.values() if stats) - (sampling or 0.0)) / seen.threads


def _scopes_of_trial(spec: TrialSpec, summary: TelemetrySummary) -> list[str]:
    """Return the scopes of the trial and its attached servers; servers below the worker are already in `trial`."""
    attached = [name for name, service in spec.services.items() if service.folder]
    servers = [re.compile(rf"service:{re.escape(name)}(-\d+)?") for name in attached]
    return [scope for scope in summary.scopes if scope == "trial" or any(name.fullmatch(scope) for name in servers)]


def _placed(seen: TrialObservations) -> Iterator[Guarantee]:
    spec, name = seen.spec, names.EXCLUSIVE
    if spec.executor == "local":
        alone = spec.parallel == 1
        yield Guarantee(name=name, observed=alone, says=f"trials at a time on this machine: {spec.parallel}")
    elif cpus := str(seen.slurm.get("cpus_on_node", "")):
        given = int(cpus) if cpus.isdigit() else 0
        says = f"Slurm gave the job {cpus} of the node's {seen.threads} processors"
        yield Guarantee(name=name, observed=given >= seen.threads, says=says)
    else:
        yield Guarantee(name=name, observed=False, says=f"the executor {spec.executor} does not say whose the node is")
    loose = seen.not_enforced or ("its process had run other trials before" if seen.shared else "")
    says = loose or "a process of its own, every limit enforced"
    yield Guarantee(name=names.ISOLATION, observed=not loose, says=says)


def _pinned(contract: BenchmarkRun, seen: TrialObservations) -> Iterator[Guarantee]:
    spec, provenance = seen.spec, contract.provenance
    commit = str(spec.source.get("commit") or "unknown") + (" (dirty)" if spec.source.get("dirty") else "")
    yield Guarantee(name=names.COMMIT, observed=commit == provenance.git_commit, says=f"ran at {commit}")
    lock = provenance.package_lock_digest.removeprefix("sha256:")
    says = f"the installed packages have the digest {seen.lock_digest[:_SHORT]}"
    yield Guarantee(name=names.LOCK, observed=lock == seen.lock_digest, says=says)
    images = _images(seen)
    declared = {digest.removeprefix("sha256:") for text in provenance.image_digests for digest in SHA256.findall(text)}
    strange = sorted(image for image, source in images.items() if not {image, source} & declared)
    says = f"ran in {', '.join(digest[:_SHORT] for digest in strange or sorted(images))}" if images else "ran in none"
    yield Guarantee(name=names.IMAGES, observed=bool(images) and not strange, says=says)
    wanted = {digest.removeprefix("sha256:") for digest in SHA256.findall(contract.workload.dataset_ref)}
    data = spec.dataset.sha256 if spec.dataset else spec.workload_spec_digest
    what = "dataset" if spec.dataset else "workload"
    yield Guarantee(name=names.DATASET, observed=data in wanted, says=f"the {what} has the digest {data[:_SHORT]}")


def _images(seen: TrialObservations) -> dict[str, str]:
    """Return the digests of the images of the trial and its servers, each with the digest by which it was pulled."""
    services = seen.custom.get("services")
    servers = services.values() if isinstance(services, dict) else ()
    images = {seen.spec.container_digest: ""} if seen.spec.container_digest else {}
    for facts in servers:
        if isinstance(facts, dict) and facts.get("image"):
            images[str(facts["image"])] = str(facts.get("reference") or "").rpartition("@sha256:")[2]
    return {digest.removeprefix("sha256:"): source for digest, source in images.items()}
