"""Rules for experiment packages, under `packages:` of trusted.yaml, and the results of scans."""

from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from benchhouse.schema.digests import canonical_json
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.names import Name
from benchhouse.schema.quantities import Seconds

SIGNATURES = "benchhouse-package"
"""Namespace of signatures of distributions, so that signatures of commits or approvals are not valid for them."""

Severity = Literal["none", "low", "medium", "high", "critical", "unknown"]
SEVERITIES: tuple[Severity, ...] = ("unknown", "none", "low", "medium", "high", "critical")
"""Ascending order for choosing among advisories about one flaw that disagree."""


def _a_day(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no day: write 2027-01-31") from error
    return text


Day = Annotated[str, AfterValidator(_a_day)]


class PackageException(Model, strict=True):
    """A vulnerability or license that is allowed until a given day."""

    package: str = Field(min_length=1, description="The distribution.")
    advisory: str | None = Field(None, description="Id of the vulnerability, or one of its other names: CVE-2026-1.")
    licence: str | None = Field(None, description="Licence that the distribution may have; empty: it tells none.")
    until: Day = Field(description="Last day on which it counts.")
    why: str = Field(min_length=1, description="The reason, for people who read it later.")

    @model_validator(mode="after")
    def _one_of_them(self) -> "PackageException":
        if (self.advisory is None) == (self.licence is None):
            raise ValueError("give one of advisory and licence")
        return self


class PackagePolicy(Model, strict=True):
    """`packages:` of trusted.yaml: requirements for experiment packages before they may run."""

    scans: Literal["required", "advised"] = Field(
        "required", description="required: a run needs a scan that lets its packages through; advised: it only says so."
    )
    advisories: str | None = Field(
        None, min_length=1, description="Export of OSV for PyPI: a folder of JSON files, or a zip; none: no scans."
    )
    signatures: Literal["required", "advised"] | None = Field(
        None, description="Whether packages and what a nexus registers must be signed by people who may register."
    )
    max_age: Seconds = Field(7 * 86400.0, gt=0, description="How old the newest advisory, and a scan, may be.")
    severities: list[Severity] = Field(
        default_factory=empty_list, description="Of vulnerabilities that are let through; none by default."
    )
    licences: list[str] = Field(default_factory=empty_list, description="Licences that are allowed; empty: any.")
    exceptions: list[PackageException] = Field(
        default_factory=empty_list, description="What is let through for a while."
    )

    @model_validator(mode="after")
    def _check_not_empty(self) -> "PackagePolicy":
        if self.advisories is None and (self.signatures is None or "scans" in self.model_fields_set):
            raise ValueError("a scan needs advisories: name the export of OSV")
        return self


class PackageComponent(Model):
    """A distribution in a scanned package."""

    name: str = Field(description="As indexes write it.")
    version: str = Field(description="Its version.")
    licence: str = Field("", description="As its metadata say it; empty: they don't.")


class Vulnerability(Model):
    """A known flaw of a distribution."""

    package: str = Field(description="The distribution.")
    version: str = Field(description="Which version of it is there.")
    advisory: str = Field(description="Id of the advisory.")
    aliases: list[str] = Field([], description="Its other names.")
    severity: Severity = Field(description="The highest that an advisory about it tells.")
    fixed: list[str] = Field([], description="Versions that no longer have it.")
    summary: str = Field("", description="In a line.")


class PackageScan(Model):
    """`.bench/scans/LOCK.json`: the components of a package, and their known vulnerabilities. It does not state what is
    allowed.
    """

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    time: str = Field(description="When, UTC.")
    subject: str = Field(description="The distribution, or what else was scanned.")
    lock_digest: str = Field(description="Over names and versions of all components.")
    components: list[PackageComponent] = Field(description="All distributions that it brings.")
    advisories: int = Field(0, description="How many were looked through.")
    newest_advisory: str = Field("", description="When the newest of them was written, UTC.")
    vulnerabilities: list[Vulnerability] = Field([], description="What they say of the components.")
    failure: str = Field("", description="Why it could not look: such a scan lets nothing through.")


class SignedFiles(Model):
    """The signed content of a distribution: every file in its wheel."""

    schema_version: Literal[1] = Field(1, description="Version of this format.")
    package: str = Field(description="The distribution, as indexes write it.")
    version: str = Field(description="Its version.")
    files: dict[str, str] = Field(description="sha256 of each file, by its path in site-packages.")
    signed_by: Name = Field(description="Who signs, by the name in trusted.yaml.")
    time: str = Field(description="When, UTC.")

    def signed_bytes(self) -> bytes:
        """Return the bytes that are signed."""
        return canonical_json(self.model_dump(mode="json"))


class SignedPackage(Model):
    """`signatures/NAME-VERSION-DIGEST.json`: the signed files of a distribution, and the signature."""

    signed: SignedFiles = Field(description="What is signed.")
    signature: str = Field(description="By `ssh-keygen -Y sign -n benchhouse-package`.")
