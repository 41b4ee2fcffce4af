"""The verdict on a run by its contract, computed from the rows of its trials alone, so that it is always the same."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchhouse.schema import guarantees as names
from benchhouse.schema.contract import BenchmarkRun
from benchhouse.schema.contract_rules import Settled, settle_missing
from benchhouse.schema.digests import canonical_json
from benchhouse.schema.guarantees import Terms, terms_of
from benchhouse.schema.trial import Guarantee, Meta, TrialSpec
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.table import Row

_SHOWN = 3


def trial_columns(spec: TrialSpec, meta: Meta) -> Row:
    """Return the columns of trial_fact for the contract of a trial and what was observed of its guarantees."""
    terms = terms_of(BenchmarkRun.model_validate(spec.contract))
    seen = [item.model_dump(exclude_none=True) for item in meta.guarantees]
    return {"contract": canonical_json(terms.model_dump()).decode(), "guarantees": canonical_json(seen).decode()}


@dataclass(frozen=True)
class RunContract:
    """The contract of a run, what was observed of each guarantee, and the resulting class."""

    terms: Terms
    guarantees: list[Guarantee]

    @cached_property
    def settled(self) -> Settled:
        missing = [f"{item.name} ({item.says})" for item in self.guarantees if not item.observed]
        unseen = {item.name for item in self.guarantees if not item.observed}
        context = self.terms.context and names.CONTEXT not in unseen
        return settle_missing(self.terms.asked, self.terms.on_missing, [*self.terms.lacks, *missing], context=context)

    @property
    def mode(self) -> str:
        """publication, realism, or rejected."""
        return (self.settled.effective or "rejected").removesuffix("_grade")


def run_contract(trials: Sequence[Mapping[str, Any]]) -> RunContract | None:
    """Return the contract for rows of trial_fact of one run; None if the run has no contract."""
    texts = {text for row in trials if (text := row.get("contract"))}
    if not texts:
        return None
    terms = Terms.model_validate_json(min(texts))
    if len(texts) > 1 or any(not row.get("contract") for row in trials):
        several = Guarantee(name="contract", observed=False, says="its trials were not all run under one contract")
        return RunContract(terms, [several])
    return RunContract(terms, [*_of_trials(terms, trials), *_of_run(terms, trials)])


def run_columns(contract: RunContract) -> Row:
    """Return the columns of benchmark_run_fact for a contract."""
    terms = contract.terms
    return {
        "intent": terms.intent,
        "mode": contract.mode,
        "cadence": terms.cadence,
        "contract": terms.name,
        "contract_digest": terms.digest,
        "asked_mode": terms.asked.removesuffix("_grade"),
        "guarantees": canonical_json([item.model_dump(exclude_none=True) for item in contract.guarantees]).decode(),
        "missing_guarantees": contract.settled.missing,
        "sinks": canonical_json(terms.sinks).decode(),
    }


def _of_trials(terms: Terms, trials: Sequence[Mapping[str, Any]]) -> Iterator[Guarantee]:
    """Yield the guarantees that each trial proves; one is observed only if it was observed in every trial."""
    seen = [Guarantee.model_validate(item) for row in trials for item in json.loads(row["guarantees"] or "[]")]
    by_name = grouped(seen, lambda item: item.name)
    for name in (name for name in terms.demands if name not in (names.TOPOLOGY, names.REPLICATES, names.WARMUPS)):
        items = by_name.get(name, [])
        without = [item for item in items if not item.observed]
        unsaid = len(trials) - len(items)
        values = [item.value for item in items if item.value is not None]
        if name == names.STABLE and values and not without and not unsaid:
            yield _stable(values)
        elif without or unsaid:
            reasons = list(dict.fromkeys(item.says for item in without)) or ["nothing was noted"]
            count = f"{len(without) + unsaid} of {len(trials)} trials"
            more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
            yield Guarantee(name=name, observed=False, says=f"{count}: {'; '.join(reasons[:_SHOWN])}{more}")
        else:
            largest = max(items, key=lambda item: item.value or 0.0)
            yield largest.model_copy(update={"says": f"in {len(trials)} trials; {largest.says}"})


def _stable(shares: Sequence[float]) -> Guarantee:
    low, high = min(shares), max(shares)
    says = f"others used {low:.1%} to {high:.1%} of a node's processors"
    return Guarantee(name=names.STABLE, observed=high - low <= names.QUIET_SHARE, says=says, value=high - low)


def _of_run(terms: Terms, trials: Sequence[Mapping[str, Any]]) -> Iterator[Guarantee]:
    """Yield the guarantees that only all trials together prove."""
    if names.TOPOLOGY in terms.demands:
        hosts = sorted({row["host"] for row in trials})
        kinds = {row["hardware_topology_id"] for row in trials}
        says = f"{', '.join(hosts[:_SHOWN])}{', ...' if len(hosts) > _SHOWN else ''}; {len(kinds)} kind of node"
        yield Guarantee(name=names.TOPOLOGY, observed=len(hosts) == len(kinds) == 1, says=says)
    points = grouped(trials, lambda row: row["instance_digest"]).values()
    for name, least, warmup in ((names.REPLICATES, terms.replicates, False), (names.WARMUPS, terms.warmups, True)):
        if name in terms.demands:
            good = [sum(row["outcome"] == "succeeded" and row["warmup"] == warmup for row in rows) for rows in points]
            what = "warm-ups" if warmup else "repetitions"
            says = f"{min(good)} good {what} of each point, {least} demanded"
            yield Guarantee(name=name, observed=min(good) >= least, says=says, value=float(min(good)))
