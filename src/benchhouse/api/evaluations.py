"""`ws.evaluations`: evaluations that were started, also by a server or a comment; list, continue, and stop them."""

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from benchhouse.api import evaluation
from benchhouse.api.evaluation import EvaluateKeywords, Evaluation
from benchhouse.api.verb_group import VerbGroup
from benchhouse.nexus.evaluation import EvaluationPlan
from benchhouse.nexus.evaluation_ledger import EvaluationLedger, find_evaluation, list_evaluations
from benchhouse.processes.owner_lock import interrupt

if TYPE_CHECKING:
    from benchhouse.api.execution import RunListener
    from benchhouse.api.run import Run

_PATIENCE_S = 90.0


@dataclass(frozen=True)
class StoppedEvaluation:
    """The parts of an evaluation that were stopped."""

    evaluation_id: str
    stopped_pid: int | None
    """The process that was running the evaluation; None if there was none."""
    run_id: str
    """The run that was under way; empty if there was none."""


class Evaluations(VerbGroup):
    """Evaluations: runs that were planned together."""

    def list(self) -> "builtins.list[Evaluation]":
        """Return the state of each evaluation, newest first."""
        folder = self._folder
        return [
            evaluation.standing(EvaluationLedger(folder.evaluation(name)))
            for name in reversed(list_evaluations(folder))
        ]

    def __getitem__(self, token: str) -> Evaluation:
        """Return the state of one evaluation, by its id, the first characters of it, or `@last`."""
        return evaluation.standing(find_evaluation(self._folder, token))

    def __contains__(self, evaluation_id: str) -> bool:
        return evaluation_id in list_evaluations(self._folder)

    def plan(self, *, by: str = "", **wanted: Unpack[EvaluateKeywords]) -> EvaluationPlan:
        """Return what an evaluation would run and reuse, without starting anything. `by` as in `submit`."""
        return evaluation.plan(self._workspace, wanted, by)[0]

    def submit(self, evaluation_id: str = "", *, by: str = "", **wanted: Unpack[EvaluateKeywords]) -> Evaluation:
        """Plan an evaluation and let another process run it. Repeating the call with the same id does not start a
        second one.

        `by` is who requests it, if a server or agent knows that person, who must have the role `admin`.
        """
        ledger = evaluation.create(self._workspace, wanted, evaluation_id=evaluation_id, by=by)
        if not ledger.begun and ledger.record.runs:
            evaluation.in_background(self._folder, ledger)
        return evaluation.standing(ledger)

    def carry_on(
        self,
        token: str,
        *,
        progress: "bool | RunListener" = False,
        each: "Callable[[Run], None]" = lambda run: None,
    ) -> Evaluation:
        """Do the missing runs of an evaluation; return when it has ended."""
        from benchhouse.api.execution import listener_of

        ledger = find_evaluation(self._folder, token)
        return evaluation.carry_out(self._workspace, ledger, listener_of(progress), each)

    def resume(self, token: str) -> Evaluation:
        """Do the missing runs of an evaluation in the background."""
        ledger = find_evaluation(self._folder, token)
        if ledger.owner() is None and evaluation.standing(ledger).unfinished:
            evaluation.in_background(self._folder, ledger)
        return evaluation.standing(ledger)

    def stop(self, token: str) -> StoppedEvaluation:
        """Stop an evaluation and its current run. Sealed trials are kept."""
        ledger = find_evaluation(self._folder, token)
        stopped = interrupt(ledger.owner, f"evaluation {ledger.folder.evaluation_id}", _PATIENCE_S)
        begun = next((line.run_id for line in ledger.lines().values() if line.state == "begun"), "")
        if begun and self._folder.run(begun).record.is_file():
            self._workspace[begun].stop()
        return StoppedEvaluation(ledger.folder.evaluation_id, stopped, begun)
