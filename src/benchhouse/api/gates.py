"""The gate of a pipeline: compare a run with an earlier one of this workspace, or with the newest one of a store."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from benchhouse.results.comparisons import scenario_of
from benchhouse.results.gate import Gate, GateRules, NoBaselineError, gate
from benchhouse.runs import evidence_transfer
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace

__all__ = ["Gate", "GateKeywords", "GateRules", "NoBaselineError", "judge", "judge_against_store", "rules"]

_EARLIER = re.compile(r"@last[-~]\d+")


class GateKeywords(TypedDict, total=False):
    """Rules for what counts as worse: the fields of `GateRules`."""

    mde: float
    """The smallest worsening that matters, as a share; 0.03 by default."""
    metrics: Sequence[str]
    """The metrics that decide, each `metric` or `metric.stat`; by default the experiment's primary metrics."""
    confidence: float
    """Confidence of the intervals; 0.95 by default."""
    outliers: Literal["keep", "mad"]
    """mad: leave out values that are 5 robust deviations away from the others."""


def rules(keywords: GateKeywords) -> GateRules:
    """Return the rules of the gate, with defaults for missing keywords."""
    given: dict[str, Any] = {**keywords, "metrics": tuple(keywords.get("metrics", ()))}
    return GateRules(**given)


def judge(workspace: "Workspace", base: str, new: str, rules: GateRules, *, record: bool = True) -> Gate:
    """Judge NEW against BASE. Raises NoBaselineError if BASE precedes the first run (`@last-1` after a single run)."""
    try:
        (chosen,) = workspace.select(base)
    except BenchError as error:
        if _EARLIER.fullmatch(base.partition(":")[0]):
            raise NoBaselineError(
                f"there is no run {base} yet: nothing to compare with",
                "run the scenario again, or bring an earlier run: bench gate --baseline STORE",
            ) from error
        raise
    return gate(workspace.folder, chosen, workspace.select(new)[0], rules, record=record)


def judge_against_store(workspace: "Workspace", store: str, new: str, rules: GateRules, endpoint: str = "") -> Gate:
    """Judge NEW against the newest other run of its scenario in a store; that run is brought into the workspace.

    Raises NoBaselineError if the store has no such run or does not exist yet.
    """
    (chosen,) = workspace.select(new)
    run_id = chosen.partition(":")[0]
    scenario = scenario_of(workspace.folder, run_id)
    base = evidence_transfer.last_run(store, scenario, other_than=run_id, endpoint=endpoint)
    if base is None:
        raise NoBaselineError(
            f"{store} has no earlier run of '{scenario}' to compare with",
            f"put one there, on the main branch: bench evidence push {store} --run @last",
        )
    carried = evidence_transfer.pull(workspace.folder, store, [base], endpoint=endpoint)
    refused = [item for item in carried if item.reason]
    if refused:
        raise BenchError(
            f"run {base} of {store} can't be read: {refused[0].folder}: {refused[0].reason}",
            f"bench evidence verify {store}",
        )
    return gate(workspace.folder, base, chosen, rules)
