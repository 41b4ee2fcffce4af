"""Approval of a plan that exceeds its submitter's budget: the request, the signed approval, and the records."""

import hashlib
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from benchhouse.schema.digests import canonical_json
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.names import Name
from benchhouse.schema.resources import Budget

NAMESPACE = "benchhouse-approval"
"""Namespace of approval signatures, so that a signature of a commit or login is not valid as an approval."""


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return text


Time = Annotated[str, AfterValidator(_moment)]
PlanDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Words = Annotated[str, Field(max_length=2000)]


class ApprovalRequest(Model):
    """approvals/NAME.request.json: a request for approval of a plan."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    name: Name = Field(description="Beginning of the plan's digest, and a number.")
    plan_digest: PlanDigest = Field(description="Of the plan.")
    scenario: str = Field(description="Name of the scenario.")
    experiment: str = Field(description="Name of the experiment.")
    executor: str = Field(description="Where its jobs go.")
    site: str = Field(description="Name of the site profile.")
    conditions: dict[str, str] = Field(
        description="Digests of what the plan does not cover: code, environment, resources, site, price, queue."
    )
    budget: Budget = Field(description="What the run may then use; what is not named is not limited.")
    over: list[str] = Field(default_factory=empty_list, description="What goes beyond the submitter's budget.")
    asked_by: str = Field(description="Who asks.")
    login: str = Field("", description="Login on the machine where that was asked.")
    account: str = Field(
        "", description="LOGIN@HOST that made the request; empty if a server or an agent knows who made it."
    )
    time: str = Field(description="When, UTC.")

    def digest(self) -> str:
        """Return the sha256 of the whole request; an approver names it to state which request was reviewed."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()


class Approval(Model):
    """The content that is signed: the whole request, the approver, and the expiry."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    request: ApprovalRequest = Field(description="What was asked for.")
    approved_by: Name = Field(description="The person who approves.")
    signed_by: Name = Field(description="Whose key signs: theirs, or that of a server or agent that knows them.")
    door: Words = Field("", description="Where they said so, as the server or agent that signs tells it.")
    account: str = Field("", description="LOGIN@HOST that signed with a key of its own; empty for a server or agent.")
    reason: Words = Field("", description="Why.")
    time: Time = Field(description="When, UTC.")
    expires: Time = Field(description="Until when a run may begin or go on by it, UTC.")

    def signed_bytes(self) -> bytes:
        """Return the bytes that are signed."""
        return canonical_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        """Return the sha256 of the signed bytes."""
        return hashlib.sha256(self.signed_bytes()).hexdigest()

    def named(self) -> "ApprovedBy":
        """Return the approval as evidence records it."""
        names = {"name": self.request.name, "approved_by": self.approved_by, "signed_by": self.signed_by}
        return ApprovedBy.model_validate(names | {"digest": self.digest()})


class SignedApproval(Model):
    """approvals/NAME.json: an approval and its signature."""

    approval: Approval = Field(description="What is signed.")
    signature: str = Field(description="By `ssh-keygen -Y sign -n benchhouse-approval`.")


class Revocation(Model):
    """approvals/NAME.revoked.json: an approval that was revoked."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    approval: str = Field(description="sha256 of what was signed.")
    revoked_by: str = Field(description="Who revoked it.")
    reason: Words = Field("", description="Why.")
    time: str = Field(description="When, UTC.")


class ApprovalRecord(Model):
    """A line of `.bench/approvals.jsonl`: a step in the life of an approval."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    time: str = Field(description="When, UTC.")
    action: Literal["asked", "approved", "used", "refused", "revoked"] = Field(description="What was done.")
    name: str = Field("", description="Name of the request and its approval; empty where nobody can be asked.")
    approval: str = Field("", description="sha256 of what was signed.")
    plan_digest: str = Field(description="Of the plan.")
    scenario: str = Field(description="Name of the scenario.")
    executor: str = Field(description="Where its jobs go.")
    site: str = Field(description="Name of the site profile.")
    budget: Budget | None = Field(None, description="What the run may use by it.")
    who: str = Field(description="Who did it.")
    login: str = Field("", description="Login on the machine where it was done.")
    approved_by: str = Field("", description="The person who approved.")
    signed_by: str = Field("", description="Whose key signed.")
    door: str = Field("", description="Where they said so, as the server or agent that signs tells it.")
    run_id: str = Field("", description="The run that used it.")
    why: str = Field("", description="The reason that was given, or why it was refused.")


class ApprovedBy(Model):
    """The approval of a run, as recorded in the evidence of its trials."""

    name: str = Field(description="Name of the approval.")
    digest: str = Field(description="sha256 of what was signed.")
    approved_by: str = Field(description="The person who approved.")
    signed_by: str = Field(description="Whose key signed.")
