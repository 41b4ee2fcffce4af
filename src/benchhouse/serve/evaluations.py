"""Verbs of evaluations: many registered benchmarks as one plan, begun, looked at, carried on and ended."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, StringConstraints

from benchhouse.api.workspace import Workspace
from benchhouse.schema.resources import Budget
from benchhouse.serve.verbs import Name, NoParams, Token, VerbParams, WriteContext, verb

if TYPE_CHECKING:
    from benchhouse.api.evaluation import EvaluateKeywords
    from benchhouse.serve import answer_types

Reference = Annotated[str, StringConstraints(pattern=r"^[^-\s][^\s]*$", max_length=200)]


class ToPlan(VerbParams):
    all: bool = False
    """Every benchmark of the nexus that can be run; or give one of the three below."""
    package: Token | None = None
    """Those of a package."""
    model: Token | None = None
    """Those of a model, by its id."""
    changed_since: Reference | None = None
    """Those that differ from where the checkout left this commit, branch or tag, with all that use them."""
    executor: Name | None = None
    """Where jobs go, whatever the scenarios say."""
    runtime: Name | None = None
    """What jobs run inside, whatever the scenarios say."""
    site: Name | None = None
    """Name of a site profile."""
    again: bool = False
    """Measure also what an earlier run measured under the same conditions."""


class ToEvaluate(ToPlan):
    budget: Annotated[Budget, Field(strict=False)] | None = None
    """What all runs together may use."""


class OfEvaluation(VerbParams):
    evaluation: Token
    """Its id, the beginning of it, or `@last`."""


@verb("GET", "/evaluations", rows="")
def evaluations(workspace: Workspace, params: NoParams) -> "list[answer_types.Evaluation]":
    """Evaluations that were begun, the newest first."""
    return workspace.evaluations.list()


@verb("GET", "/evaluations/{evaluation}")
def evaluation(workspace: Workspace, params: OfEvaluation) -> "answer_types.Evaluation":
    """How an evaluation stands: its plan, and each of its runs."""
    return workspace.evaluations[params.evaluation]


@verb("GET", "/evaluation-plan", scope="admin")
def evaluation_plan(workspace: Workspace, params: ToPlan, by: str) -> "answer_types.EvaluationPlan":
    """What an evaluation would run and what it would reuse; nothing is begun."""
    return workspace.evaluations.plan(by=by, **_keywords(params))


@verb("POST", "/evaluations", scope="admin")
def evaluate(workspace: Workspace, params: ToEvaluate, order: WriteContext) -> "answer_types.Evaluation":
    """Run registered benchmarks: all, or those of a package, of a model, or that a change touches. In the background,
    one run after the other."""
    keywords = _keywords(params) | {"budget": params.budget}
    return workspace.evaluations.submit(order.request, by=order.by, **keywords)


@verb("POST", "/evaluations/{evaluation}/resume", scope="admin")
def resume_evaluation(workspace: Workspace, params: OfEvaluation, order: WriteContext) -> "answer_types.Evaluation":
    """Carry on what is missing of an evaluation, in the background."""
    return workspace.evaluations.resume(params.evaluation)


@verb("POST", "/evaluations/{evaluation}/stop", scope="admin")
def stop_evaluation(
    workspace: Workspace, params: OfEvaluation, order: WriteContext
) -> "answer_types.StoppedEvaluation":
    """End an evaluation and the run that is under way; what is sealed stays."""
    return workspace.evaluations.stop(params.evaluation)


def _keywords(params: ToPlan) -> "EvaluateKeywords":
    return {
        "all": params.all, "package": params.package, "model": params.model, "changed_since": params.changed_since,
        "executor": params.executor, "runtime": params.runtime, "site": params.site, "again": params.again,
    }  # fmt: skip
