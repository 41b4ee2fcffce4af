"""workspace.yaml: what a workspace does by itself."""

from typing import Literal

from pydantic import Field, model_validator

from benchhouse.schema.github import GitHubSettings
from benchhouse.schema.model import Model


class Sharing(Model, strict=True):
    """Where the results of a workspace also go, after each run."""

    share: str | None = Field(None, description="Engine that a team shares: postgresql://..., or '$VARIABLE' with it.")
    evidence: str | None = Field(None, description="Store of evidence: s3://bucket/prefix, or a folder.")
    endpoint: str = Field("", description="S3 server of the store; else AWS_ENDPOINT_URL, else Amazon's.")

    @model_validator(mode="after")
    def _somewhere(self) -> "Sharing":
        if not (self.share or self.evidence):
            raise ValueError("say where: share: postgresql://..., evidence: s3://..., or both")
        return self


class WorkspaceFile(Model, strict=True):
    """Settings of a workspace."""

    schema_version: Literal[1] = Field(1, description="Version of this file format.")
    warehouse: Sharing | None = Field(None, description="Where results are shared.")
    schedules: str | None = Field(
        None, description="PostgreSQL that keeps the schedules of a team, postgresql://..., or '$VARIABLE' with it."
    )

    github: GitHubSettings | None = Field(None, description="Webhooks and commands in comments of GitHub.")

    @model_validator(mode="after")
    def _something(self) -> "WorkspaceFile":
        if not (self.warehouse or self.schedules or self.github):
            raise ValueError(
                "say something: warehouse: {share: postgresql://...}, schedules: postgresql://..., "
                "github: {repositories: [owner/name]}"
            )
        return self
