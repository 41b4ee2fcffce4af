"""What `bench site check` found on a machine."""

from typing import Literal

from pydantic import Field

from benchhouse.schema.model import Model
from benchhouse.schema.site import Site

State = Literal["good", "missing", "unknown"]


class Finding(Model):
    """The answer to one question."""

    what: str = Field(description="What was looked for.")
    state: State = Field(description="good: there; missing: not there; unknown: nobody told in time.")
    value: str = Field("", description="What was found.")
    note: str = Field("", description="What it means, or what to do.")


class SiteCheck(Model):
    """All answers, and the profile that follows from them."""

    schema_version: Literal[1] = 1
    host: str
    time: str = Field(description="When, UTC.")
    findings: list[Finding]
    profile: Site
