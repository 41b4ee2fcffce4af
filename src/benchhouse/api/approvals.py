"""`ws.approvals`: requests for more than a person may start, who approved them, and whether the approvals hold."""

import builtins
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from benchhouse.api.verb_group import VerbGroup
from benchhouse.evidence.writing import after, now
from benchhouse.runs.approval import doubt
from benchhouse.runs.approval_files import ApprovalFiles, approved_line
from benchhouse.runs.signed_files import UnreadableError
from benchhouse.runs.signers import owner_of, signing_key
from benchhouse.runs.ssh_signatures import sign
from benchhouse.runs.trust_file import account, current_submitter, read_trusted
from benchhouse.schema.approval import NAMESPACE, Approval, ApprovalRecord, ApprovalRequest, Revocation, SignedApproval
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.roles import may
from benchhouse.schema.trust import TrustedFile

LIFETIME_S = 7 * 86400.0
_LONGEST_S = 366 * 86400.0


@dataclass(frozen=True)
class ApprovalStanding:
    """A request for approval, and its state."""

    name: str
    """The first characters of the plan's digest, and a number."""
    state: Literal["asked", "approved", "used", "void"]
    says: str
    """Who approved the request and how that is known; if it is void, why it does not hold."""
    plan_digest: str
    scenario: str
    experiment: str
    executor: str
    site: str
    budget: dict[str, float]
    """Limits of the run if it is approved; wall time in seconds."""
    over: tuple[str, ...]
    """What exceeds the requester's budget."""
    asked_by: str
    asked: str
    """When it was requested, UTC."""
    approved_by: str = ""
    signed_by: str = ""
    """Whose key signed: the approver's own, or that of a server or agent that vouches for them."""
    door: str = ""
    reason: str = ""
    approved: str = ""
    """When it was approved, UTC."""
    expires: str = ""
    run_id: str = ""
    """The run that the approval was used for."""
    request_digest: str = ""
    """SHA-256 of the request, with which to approve exactly what was shown."""

    @property
    def holds(self) -> bool:
        """Whether the approval allows the requested run to start or continue."""
        return self.state in ("approved", "used")


class Approvals(VerbGroup):
    """Requests for plans beyond a budget, and their approvals. Each approval is for one run."""

    def approve(
        self,
        digest: str,
        *,
        by: str = "",
        key: str | os.PathLike[str] | None = None,
        for_s: float = LIFETIME_S,
        reason: str = "",
        door: str = "",
        shown: str = "",
    ) -> ApprovalStanding:
        """Approve a request, named by its name or by the first characters of its plan's digest.

        The approval is signed with a key of the person `by`: `key`, or the first of their keys that trusted.yaml lists.
        A server or agent that knows who decided gives `door` ("github, ada-l in #12") and signs with its own key,
        `.bench/approval_key`, which trusted.yaml must list with `vouches: true`. If it repeats the same request, for
        example after a kill, only one approval is made. `shown` is the `request_digest` that the person saw: nothing is
        approved if the request has changed since.
        """
        files, trusted = ApprovalFiles(self._folder), self._trusted()
        request = files.request(files.find(digest))
        if shown and shown != request.digest():
            raise BenchError(f"{request.name} has changed since it was shown", "read it again, and then approve it")
        if not 0 < for_s <= _LONGEST_S:
            raise BenchError("an approval counts for a year at most", "--expires 7d")
        private = self._vouching_key() if door else signing_key(trusted, key, by)
        signer = owner_of(trusted, private)
        person = by or signer
        _may_approve(trusted, person, signer, request)
        made = now()
        approval = Approval(
            request=request,
            approved_by=person,
            signed_by=signer,
            door=door,
            account="" if door else account(),
            reason=reason,
            time=made,
            expires=after(made, for_s),
        )
        if door and _approved_before(files, trusted, approval):
            return self.show(request.name)
        signed = SignedApproval(approval=approval, signature=sign(approval.signed_bytes(), private, NAMESPACE))
        if why := doubt(files, trusted, signed):
            raise BenchError(f"{request.name} was not approved: {why}", "see trusted.yaml")
        files.record(approved_line(signed, "approved", person, why=reason))
        files.keep(signed)
        return self.show(request.name)

    def list(self) -> builtins.list[ApprovalStanding]:
        """Return all requests, newest first."""
        files, trusted = ApprovalFiles(self._folder), read_trusted(self._folder)
        standings = [self._standing(files, trusted, name) for name in files.names()]
        return sorted(standings, key=lambda item: item.asked, reverse=True)

    def waiting(self) -> builtins.list[ApprovalStanding]:
        """Return the requests that have not been approved yet, newest first."""
        files = ApprovalFiles(self._folder)
        open_requests = list(self._open(files))
        standings = [_standing_of(request) for request in open_requests]
        return sorted(standings, key=lambda item: item.asked, reverse=True)

    def show(self, digest: str) -> ApprovalStanding:
        """Return one request, by its name or the first characters of its plan's digest."""
        files = ApprovalFiles(self._folder)
        return self._standing(files, read_trusted(self._folder), files.find(digest))

    def verify(self, digest: str) -> ApprovalStanding:
        """Return the same as `show`. Each call checks again whether the approval holds (`holds`): signature, expiry,
        revocation, and the current roles."""
        return self.show(digest)

    def revoke(self, digest: str, *, by: str = "", reason: str = "") -> ApprovalStanding:
        """Revoke an approval: no run starts or continues by it from now on. Use `bench stop` to end a run that is under
        way."""
        files = ApprovalFiles(self._folder)
        name = files.find(digest)
        signed = files.approval(name)
        if signed is None:
            raise NotFoundError(f"{name} is not approved", "there is nothing to revoke")
        who = by or current_submitter()
        revocation = Revocation(approval=signed.approval.digest(), revoked_by=who, reason=reason, time=now())
        files.record(approved_line(signed, "revoked", who, why=reason))
        files.revoke(name, revocation)
        return self.show(name)

    def log(self) -> builtins.list[ApprovalRecord]:
        """Return what was requested, approved, used, refused, and revoked in this workspace, oldest first."""
        return ApprovalFiles(self._folder).records()

    def _open(self, files: ApprovalFiles) -> Iterator[ApprovalRequest]:
        for name in files.names():
            try:
                if files.approval(name) is None:
                    yield files.request(name)
            except UnreadableError:
                continue

    def _standing(self, files: ApprovalFiles, trusted: TrustedFile | None, name: str) -> ApprovalStanding:
        try:
            request, signed = files.request(name), files.approval(name)
        except UnreadableError as error:
            return ApprovalStanding(name, "void", error.message, name.partition("-")[0], "", "", "", "", {}, (), "", "")
        if signed is None:
            return _standing_of(request)
        approval = signed.approval
        why = doubt(files, trusted, signed) if trusted else "there is no trusted.yaml"
        used_by = files.used_by(approval)
        how = "by their own key" if approval.signed_by == approval.approved_by else f"as {approval.signed_by} vouches"
        return _standing_of(
            approval.request,
            state="void" if why else "used" if used_by else "approved",
            says=why or f"approved by {approval.approved_by}, {how}",
            approved_by=approval.approved_by,
            signed_by=approval.signed_by,
            door=approval.door,
            reason=approval.reason,
            approved=approval.time,
            expires=approval.expires,
            run_id=used_by,
        )

    def _trusted(self) -> TrustedFile:
        trusted = read_trusted(self._folder)
        if trusted is None:
            raise BenchError("there is no trusted.yaml: nobody is limited, and nobody approves", "write one")
        return trusted

    def _vouching_key(self) -> Path:
        key = self._folder.approval_key
        if not key.is_file():
            raise BenchError(
                "this server or agent has no key to vouch with",
                f"ssh-keygen -q -t ed25519 -N '' -f {key}   then name {key}.pub in trusted.yaml, with vouches: true",
            )
        return key


def _may_approve(trusted: TrustedFile, person: str, signer: str, request: ApprovalRequest) -> None:
    """Raise BenchError with what to do if `person` may not approve; `doubt` does the same for an existing signature."""
    if person not in trusted.people or not may(trusted.people[person].role, "approve"):
        raise BenchError(f"{person} may not approve", "that is for people whose role in trusted.yaml is approve")
    if person in (request.asked_by, request.login):
        raise BenchError(f"{person} asked for {request.name}, and nobody approves what they asked for", "ask another")
    if signer != person and not trusted.people[signer].vouches:
        raise BenchError(f"the key is {signer}'s, who may not sign for {person}", "sign with a key of your own: --key")


def _approved_before(files: ApprovalFiles, trusted: TrustedFile, approval: Approval) -> bool:
    """Return whether an equal approval, apart from its time, exists and holds: a second one would allow a second
    run."""
    try:
        kept = files.approval(approval.request.name)
    except UnreadableError:
        return False
    if kept is None or doubt(files, trusted, kept):
        return False
    return _but_for_its_time(kept.approval) == _but_for_its_time(approval)


def _but_for_its_time(approval: Approval) -> dict[str, object]:
    lasts = datetime.fromisoformat(approval.expires) - datetime.fromisoformat(approval.time)
    return approval.model_dump(exclude={"time", "expires"}) | {"lasts": lasts}


def _standing_of(request: ApprovalRequest, **more: object) -> ApprovalStanding:
    fields: dict[str, object] = {
        "name": request.name,
        "state": "asked",
        "says": f"asked for by {request.asked_by}",
        "plan_digest": request.plan_digest,
        "scenario": request.scenario,
        "experiment": request.experiment,
        "executor": request.executor,
        "site": request.site,
        "budget": request.budget.model_dump(exclude_none=True),
        "over": tuple(request.over),
        "asked_by": request.asked_by,
        "asked": request.time,
        "request_digest": request.digest(),
    }
    return ApprovalStanding(**(fields | more))  # type: ignore[arg-type]  # by the names of its fields
