"""The format of workspace.yaml: settings that apply to a whole workspace."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from benchhouse.schema.github import GitHubSettings
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.scenario import MAX_POINTS
from benchhouse.schema.secrets import exposed

PackageName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=100)]


class SharingSettings(Model, strict=True):
    """Destinations of a workspace's results, in addition to the workspace, after each run."""

    share: str | None = Field(None, description="Engine that a team shares: postgresql://..., or '$VARIABLE' with it.")
    evidence: str | None = Field(None, description="Store of evidence: s3://bucket/prefix, or a folder.")
    endpoint: str = Field("", description="S3 server of the store; else AWS_ENDPOINT_URL, else Amazon's.")

    @model_validator(mode="after")
    def _somewhere(self) -> "SharingSettings":
        if not (self.share or self.evidence):
            raise ValueError("say where: share: postgresql://..., evidence: s3://..., or both")
        return self


class SearchIndex(Model, strict=True):
    """Elasticsearch or OpenSearch that gets the numbers and logs of every run."""

    url: str = Field(pattern=r"^https?://\S+$", description="Address; a login as https://user:$NAME@host:9200.")
    api_key: str = Field("", pattern=r"^(\$\{?\w+\}?)?$", description="$NAME of the variable with an API key.")
    prefix: str = Field(
        "benchhouse", pattern=r"^[a-z0-9][a-z0-9_-]{0,60}$", description="Indices are PREFIX-measurements, PREFIX-logs."
    )
    logs: bool = Field(True, description="Whether logs go there, too.")

    @field_validator("url")
    @classmethod
    def _shows_no_secret(cls, url: str) -> str:
        if exposed(url) is not None:
            raise ValueError("a password in plain text: write https://user:$NAME_PASSWORD@host")
        return url


class Planning(Model, strict=True):
    """Limits of planning a scenario."""

    max_points: int = Field(
        MAX_POINTS, ge=1, description="Points of a plan at most, counted before `exclude` leaves some of them out."
    )
    reader_max_points: int = Field(
        100_000, ge=1, description="The same for requests to plan or validate that come over HTTP or MCP."
    )


class WorkspaceFile(Model, strict=True):
    """workspace.yaml: settings of a workspace."""

    schema_version: Literal[1] = Field(1, description="Version of this file format.")
    warehouse: SharingSettings | None = Field(None, description="Where results are shared.")
    search: SearchIndex | None = Field(None, description="Search engine that numbers and logs are sent to.")
    schedules: str | None = Field(
        None, description="PostgreSQL that keeps the schedules of a team, postgresql://..., or '$VARIABLE' with it."
    )

    github: GitHubSettings | None = Field(None, description="Webhooks and commands in comments of GitHub.")
    build_from_source: list[PackageName] | Literal["all"] = Field(
        default_factory=empty_list,
        description="Packages that isolated environments may build from source, which runs their code; all: every one. "
        "Packages in the folder of the workspace always may be.",
    )
    planning: Planning = Field(default_factory=Planning, description="Limits of planning.")

    @model_validator(mode="after")
    def _something(self) -> "WorkspaceFile":
        if not self.model_fields_set - {"schema_version"}:
            raise ValueError(
                "say something: warehouse: {share: postgresql://...}, schedules: postgresql://..., "
                "search: {url: https://...}, github: {repositories: [owner/name]}, planning: {max_points: 2000000}"
            )
        return self
