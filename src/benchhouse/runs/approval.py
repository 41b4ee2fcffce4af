"""Decides whether a run may start or continue: within its submitter's budget, or by an approval of exactly this plan.

Every entry point goes through `admit`, both when a run is created and when trials are submitted to an executor.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial

from benchhouse.evidence.writing import now
from benchhouse.runs.allowance import Excess, excess, held_to, smaller
from benchhouse.runs.approval_files import (
    ApprovalFiles,
    approved_line,
    copy_text,
    line_of,
    read_copy,
)
from benchhouse.runs.conditions import conditions, named_files
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.runs.signed_files import UnreadableError
from benchhouse.runs.signers import signature_doubt
from benchhouse.runs.trust_file import account, current_submitter, login, read_trusted
from benchhouse.schema.approval import NAMESPACE, Approval, ApprovalRequest, SignedApproval
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.resources import Budget
from benchhouse.schema.roles import may
from benchhouse.schema.trust import TrustedFile

_LEEWAY = 1.5  # time and money are estimates, so a request asks for half as much again
_PAID = {
    "price": {"price_per_hour"},
    "queue": {"partition", "account", "qos"},
    "settings of the executor": {"slurm", "dask", "ray", "spark", "kubernetes"},
}
"""Fields of a scenario that determine who pays for a run and its price per hour; a plan does not cover them."""


class NeedsApprovalError(BenchError):
    """A plan that may not start without approval; `request` names its request, empty if there is none."""

    def __init__(self, plan_digest: str, over: list[Excess], request: str = "", doubts: tuple[str, ...] = ()) -> None:
        less = "ask for less: fewer points or repetitions, or a smaller `budget` in the scenario"
        ask = (
            f"ask somebody with the role approve to give:  bench approve {request}   then give this command again"
            if request
            else "somebody with the role approve can start it"
        )
        words = [*map(str, over), *doubts]
        super().__init__(
            f"plan {plan_digest[:12]} needs approval: {'; '.join(words)}", f"{ask}; or {less}", Exit.NEEDS_APPROVAL
        )
        self.plan_digest, self.over, self.request = plan_digest, over, request


def admit(workspace: WorkspaceFolder, prepared: PreparedRun, ledger: Ledger | None = None) -> PreparedRun:
    """Return the run, held to the limits of its submitter or of its approval. Raise NeedsApprovalError.

    `ledger` is given for a run that exists: it continues by the approval that it began with, while that is valid. Time
    and money are then counted and not estimated.
    """
    trusted, record = read_trusted(workspace), ledger.record if ledger else None
    who = prepared.submitter or (record.submitter if record else "") or current_submitter()
    allowance = trusted.allowance(who) if trusted else None
    limit = smaller(prepared.budget, allowance) if prepared.budget else allowance
    if limit is None:
        return prepared
    needs_one = bool(trusted and record and record.approval)
    over = excess(workspace, prepared, limit, guess=ledger is None)
    if not over and not needs_one:
        return held_to(prepared, limit)
    if trusted is None:
        raise NeedsApprovalError(prepared.plan.digest, over)
    door = _Door(workspace, trusted, prepared, who, ledger)
    return door.by_approval() or door.refuse(over, limit)


def used_up(workspace: WorkspaceFolder, signed: SignedApproval, run_id: str) -> NeedsApprovalError | None:
    """Use an approval for this run. Return None if this run has it, or the error if another run used it."""
    approval, files = signed.approval, ApprovalFiles(workspace)
    if (used_by := files.use(approval, run_id)) == run_id:
        if not files.is_recorded_as_used(approval):  # a process killed in between has not recorded it
            files.record(approved_line(signed, "used", approval.request.asked_by, run_id=run_id))
        return None
    name = approval.request.name
    return NeedsApprovalError(approval.request.plan_digest, [], doubts=(f"{name} was used by run {used_by}",))


def doubt(files: ApprovalFiles, trusted: TrustedFile, signed: SignedApproval) -> str:
    """Return why an approval is not valid; empty if it is. Whether it was used is checked elsewhere."""
    approval = signed.approval
    approver, signer = (trusted.people.get(name) for name in (approval.approved_by, approval.signed_by))
    if datetime.fromisoformat(approval.expires) <= datetime.now(UTC):
        return f"it expired on {approval.expires[:16]} UTC"
    try:
        if revoked := files.revocation(approval):
            return f"it was revoked by {revoked}"
    except UnreadableError as error:
        return f"nobody can say whether it was revoked: {error.message}"
    if approver is None or not may(approver.role, "approve"):
        return f"{approval.approved_by} may not approve, by trusted.yaml"
    if approval.approved_by in (approval.request.asked_by, approval.request.login):
        return f"{approval.approved_by} asked for it, and nobody approves what they asked for"
    if approval.account and approval.account == approval.request.account:
        return f"the account {approval.account} requested it, under whichever name, and signed it"
    if signer is None or (approval.signed_by != approval.approved_by and not signer.vouches):
        return f"{approval.signed_by} may not sign for {approval.approved_by}, by trusted.yaml"
    return signature_doubt(trusted, approval.signed_by, approval.signed_bytes(), signed.signature, NAMESPACE)


@dataclass(frozen=True)
class _Door:
    """One attempt to start or resume a run that needs an approval."""

    workspace: WorkspaceFolder
    trusted: TrustedFile
    prepared: PreparedRun
    who: str
    ledger: Ledger | None

    @cached_property
    def _files(self) -> ApprovalFiles:
        return ApprovalFiles(self.workspace)

    @cached_property
    def _doubts(self) -> list[str]:
        return []

    @cached_property
    def _conditions(self) -> dict[str, str]:
        site, scenario = self.prepared.site, self.prepared.plan.scenario
        paid = {name: digest(scenario.model_dump(mode="json", include=fields)) for name, fields in _PAID.items()}
        profile = digest(site.model_dump(mode="json", exclude={"description"}))
        return conditions(self.prepared) | paid | {"site profile": profile} | named_files(self.workspace, self.prepared)

    @property
    def _account(self) -> str:
        """The account that the run is for; empty if a server or an agent names the submitter, or if this process
        resumes another person's run."""
        return account() if not self.prepared.submitter and self.who == current_submitter() else ""

    def by_approval(self) -> PreparedRun | None:
        """Return the run held to the first valid approval, which an existing run then uses; None if there is none."""
        for name, signed in self._approvals():
            approval = signed.approval
            why = self._misfit(approval.request) or doubt(self._files, self.trusted, signed)
            why = why or self._by_same_account(approval) or self._used(signed)
            if not why:
                prepared = held_to(self.prepared, approval.request.budget)
                return replace(prepared, approval=signed)
            self._doubts.append(f"{name}: {why}")
        return None

    def refuse(self, over: list[Excess], limit: Budget) -> PreparedRun:
        """Request approval, unless that is pending. Always raise NeedsApprovalError."""
        record = self.ledger.record if self.ledger else None
        approved_before = record.budget if record and record.approval else None
        request = self._pending_request() or self._ask(over, approved_before or _requested_budget(over, limit))
        error = NeedsApprovalError(self.prepared.plan.digest, over, request.name, tuple(self._doubts))
        self._files.record(line_of(request, "refused", self.who, why=error.message[:2000], run_id=self._run_id))
        raise error

    @property
    def _run_id(self) -> str:
        return self.ledger.folder.run_id if self.ledger else ""

    def _approvals(self) -> Iterator[tuple[str, SignedApproval]]:
        """Yield the approval that the run began with, then those for its plan, newest first."""
        kept: dict[str, Callable[[], SignedApproval | None]] = {}
        if self.ledger:
            kept["the approval that it began by"] = partial(read_copy, self.ledger.folder.approval)
        for name in reversed(self._files.names(self.prepared.plan.digest)):
            kept[name] = partial(self._files.approval, name)
        for name, read in kept.items():
            try:
                if signed := read():
                    yield name, signed
            except UnreadableError as error:
                self._doubts.append(error.message)

    def _misfit(self, request: ApprovalRequest) -> str:
        """Return why an approval of this request does not cover this run; empty if it does."""
        prepared = self.prepared
        if request.plan_digest != prepared.plan.digest:
            return f"it is for plan {request.plan_digest[:12]}"
        if request.asked_by != self.who:
            return f"it is for {request.asked_by}, and this is asked by {self.who}"
        here = prepared.plan.scenario.executor, prepared.site.site
        if (request.executor, request.site) != here:
            return f"it is for {request.executor} at {request.site}, and this is {here[0]} at {here[1]}"
        names = sorted(request.conditions.keys() | self._conditions.keys())
        if self.ledger:  # files that did not exist then are what the run has written since
            names = [name for name in names if name in request.conditions or not name.startswith("file ")]
        if changed := [name for name in names if request.conditions.get(name) != self._conditions.get(name)]:
            return f"another {' and '.join(changed)} than was approved"
        over = excess(self.workspace, prepared, request.budget, guess=self.ledger is None)
        return f"more than was approved: {'; '.join(map(str, over))}" if over else ""

    def _by_same_account(self, approval: Approval) -> str:
        """Return why a new run may not use the approval: its account has signed it. Empty if it may."""
        if self.ledger is None and approval.account and approval.account == self._account:
            return f"the account {approval.account} signed it, and starts this run"
        return ""

    def _used(self, signed: SignedApproval) -> str:
        """Return why the approval is used by another run, or an empty text. An existing run takes it now."""
        if self.ledger is None:
            used_by = self._files.used_by(signed.approval)
            return f"it was used by run {used_by}" if used_by else ""
        if error := used_up(self.workspace, signed, self._run_id):
            return error.message
        if self.ledger.record.approval != signed.approval.request.name or not self.ledger.folder.approval.exists():
            self.ledger.approved(signed.approval.request.name, copy_text(signed), signed.approval.request.budget)
        return ""

    def _pending_request(self) -> ApprovalRequest | None:
        """Return the same request by the same person that is not approved yet; None if there is none."""
        for name in self._files.names(self.prepared.plan.digest):
            try:
                request = self._files.request(name)
                if self._files.approval(name) is None and not self._misfit(request):
                    return request
            except UnreadableError:
                continue
        return None

    def _ask(self, over: list[Excess], budget: Budget) -> ApprovalRequest:
        plan = self.prepared.plan
        request = ApprovalRequest(
            name="new",
            plan_digest=plan.digest,
            scenario=plan.scenario.scenario,
            experiment=plan.experiment.name,
            executor=plan.scenario.executor,
            site=self.prepared.site.site,
            conditions=self._conditions,
            budget=budget,
            over=[str(item) for item in over],
            asked_by=self.who,
            login=login(),
            account=self._account,
            time=now(),
        )
        request = self._files.ask(request)
        self._files.record(line_of(request, "asked", self.who))
        return request


def _requested_budget(over: list[Excess], limit: Budget) -> Budget:
    """Return the allowed budget, raised to the requested amounts. Money without a price can't be limited."""
    asked = {item.what: _rounded(item) for item in over}
    return Budget.model_validate(limit.model_dump(exclude_none=True) | asked)


def _rounded(item: Excess) -> float | None:
    if item.asked is None or item.what == "trials":
        return item.asked
    value = item.asked * _LEEWAY
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit) * unit:.6g}")
