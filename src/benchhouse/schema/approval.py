"""Approval of a plan that goes beyond what its submitter may start: what is asked, what is signed, what is recorded."""

import hashlib
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from benchhouse.schema.digests import canonical_json
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.names import Name
from benchhouse.schema.resources import Budget

NAMESPACE = "benchhouse-approval"
"""What signatures are made for: one of a commit or a login is none of an approval."""


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return text


Time = Annotated[str, AfterValidator(_moment)]
PlanDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Words = Annotated[str, Field(max_length=2000)]


class ApprovalRequest(Model):
    """approvals/NAME.request.json: what somebody asks for."""

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
        """sha256 of the whole request: somebody who approves it names what they saw."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()


class Approval(Model):
    """What is signed: the whole request, and who approves it until when."""

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
        """What the signature is made of."""
        return canonical_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        """sha256 of what is signed."""
        return hashlib.sha256(self.signed_bytes()).hexdigest()

    def named(self) -> "ApprovedBy":
        """What evidence says of it."""
        names = {"name": self.request.name, "approved_by": self.approved_by, "signed_by": self.signed_by}
        return ApprovedBy.model_validate(names | {"digest": self.digest()})


class SignedApproval(Model):
    """approvals/NAME.json."""

    approval: Approval = Field(description="What is signed.")
    signature: str = Field(description="By `ssh-keygen -Y sign -n benchhouse-approval`.")


class Revocation(Model):
    """approvals/NAME.revoked.json: an approval that no longer counts."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    approval: str = Field(description="sha256 of what was signed.")
    revoked_by: str = Field(description="Who revoked it.")
    reason: Words = Field("", description="Why.")
    time: str = Field(description="When, UTC.")


class ApprovalRecord(Model):
    """A line of `.bench/approvals.jsonl`."""

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
    """What a trial's evidence says of the approval of its run."""

    name: str = Field(description="Name of the approval.")
    digest: str = Field(description="sha256 of what was signed.")
    approved_by: str = Field(description="The person who approved.")
    signed_by: str = Field(description="Whose key signed.")
