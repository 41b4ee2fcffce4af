"""Records that a server keeps about its users: access tokens, and the log of writes."""

from typing import Any, Literal

from pydantic import Field

from benchhouse.schema.model import Model
from benchhouse.schema.roles import Role


class TokenRecord(Model):
    """A line of `.bench/tokens.jsonl`: a token that was made or revoked. The token itself is not stored."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    time: str = Field(description="When, UTC.")
    action: Literal["make", "revoke"] = Field(description="revoke: it no longer counts.")
    id: str = Field(description="By which it is listed and revoked.")
    name: str = Field(description="Whom it stands for.")
    scope: Role = Field(description="What it allows: read, run, approve or admin.")
    expires: str = Field(description="Until when it counts, UTC.")
    digest: str = Field(description="sha256 of the token.")


class AuditRecord(Model):
    """A line of `.bench/audit.jsonl`. A write has two lines: one before it is done, and one after."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    time: str = Field(description="When, UTC.")
    id: str = Field(description="The same on both lines of a write.")
    state: Literal["begun", "done", "refused", "failed"] = Field(description="begun alone: the server was killed.")
    who: str = Field(description="Who asked.")
    how: str = Field(description="How that is known: local, token, session, proxy or stdio.")
    verb: str = Field(description="What was asked for.")
    asked: dict[str, Any] = Field(description="With what.")
    key: str = Field("", description="The caller's Idempotency-Key.")
    run_id: str = Field("", description="The run that it is about.")
    plan_digest: str = Field("", description="Of that run's plan.")
    answer: str = Field("", description="What was answered, shortened; of a refusal the reason.")
