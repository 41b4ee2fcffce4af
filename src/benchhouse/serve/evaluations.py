"""Verbs of evaluations, which run many registered benchmarks as one plan: start, show, resume, and stop."""

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
    """Select every benchmark of the nexus that can be run; or give one of the three selections below."""
    package: Token | None = None
    """Only benchmarks of this package."""
    model: Token | None = None
    """Only benchmarks of the model with this id."""
    changed_since: Reference | None = None
    """Only benchmarks that changed since the checkout left this commit, branch, or tag, with all that use them."""
    executor: Name | None = None
    """The executor, whatever the scenarios state."""
    runtime: Name | None = None
    """The runtime, whatever the scenarios state."""
    site: Name | None = None
    """The name of a site profile."""
    again: bool = False
    """Also measure what an earlier run measured under the same conditions."""


class ToEvaluate(ToPlan):
    budget: Annotated[Budget, Field(strict=False)] | None = None
    """What all runs together may use."""


class OfEvaluation(VerbParams):
    evaluation: Token
    """The id of the evaluation, the beginning of it, or `@last`."""


@verb("GET", "/evaluations", rows="")
def evaluations(workspace: Workspace, params: NoParams) -> "list[answer_types.Evaluation]":
    """List the evaluations that were started, newest first."""
    return workspace.evaluations.list()


@verb("GET", "/evaluations/{evaluation}")
def evaluation(workspace: Workspace, params: OfEvaluation) -> "answer_types.Evaluation":
    """Show the state of an evaluation: its plan and each of its runs."""
    return workspace.evaluations[params.evaluation]


@verb("GET", "/evaluation-plan", scope="admin")
def evaluation_plan(workspace: Workspace, params: ToPlan, by: str) -> "answer_types.EvaluationPlan":
    """Show what an evaluation would run and what it would reuse; nothing is started."""
    return workspace.evaluations.plan(by=by, **_keywords(params))


@verb("POST", "/evaluations", scope="admin")
def evaluate(workspace: Workspace, params: ToEvaluate, order: WriteContext) -> "answer_types.Evaluation":
    """Run registered benchmarks in the background, one run after the other.
    They are all benchmarks, or those of a package, of a model, or affected by a change."""
    keywords = _keywords(params) | {"budget": params.budget}
    return workspace.evaluations.submit(order.request, by=order.by, **keywords)


@verb("POST", "/evaluations/{evaluation}/resume", scope="admin")
def resume_evaluation(workspace: Workspace, params: OfEvaluation, order: WriteContext) -> "answer_types.Evaluation":
    """Run the missing parts of an evaluation in the background."""
    return workspace.evaluations.resume(params.evaluation)


@verb("POST", "/evaluations/{evaluation}/stop", scope="admin")
def stop_evaluation(
    workspace: Workspace, params: OfEvaluation, order: WriteContext
) -> "answer_types.StoppedEvaluation":
    """Stop an evaluation and its current run; what is sealed stays."""
    return workspace.evaluations.stop(params.evaluation)


def _keywords(params: ToPlan) -> "EvaluateKeywords":
    return {
        "all": params.all, "package": params.package, "model": params.model, "changed_since": params.changed_since,
        "executor": params.executor, "runtime": params.runtime, "site": params.site, "again": params.again,
    }  # fmt: skip
