"""Claims: numbers that may be published, with the query, trials, and policy behind them."""

import hashlib
import json
import re
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.query import Cell, QuerySpec

Label = Literal["PUBLICATION-GRADE", "REALISM-GRADE"]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
ID_LENGTH = 16
CLAIM_ID = re.compile(r"[0-9a-f]{16}")


class Policy(Model, strict=True):
    """claims.yaml: the requirements for publishing a number of this workspace."""

    schema_version: Literal[1] = Field(1, description="Version of this file format.")
    min_replicates: int = Field(3, ge=3, le=10_000, description="Fewest trials behind a number; never below 3.")
    confidence: float = Field(0.95, ge=0.8, lt=1.0, description="Of the interval.")
    max_relative_half_width: float = Field(
        0.1, gt=0.0, le=10.0, description="Widest half interval, as a share of the mean."
    )
    max_drift: float = Field(0.05, gt=0.0, le=10.0, description="Largest trend over the trials, as a share.")
    refused_warnings: list[str] = Field(
        ["drift", "server_unhealthy", "server_changed", "page_cache"], description="Warnings that disqualify."
    )
    trusted_keys: list[str] = Field([], description="Files of public keys, relative to the workspace.")


class UnsafeReason(Model):
    """A reason why a number is not safe to publish."""

    code: Literal[
        "few_replicates", "wide_interval", "no_interval", "drift", "doubted_trials", "failed_trials",
        "failed_certificate", "thin_percentile", "several_variables", "same_trials", "dirty_tree", "unknown_source",
        "unpinned_image", "broken_lineage", "realism_contract", "guarantee_missing", "contract_rejected",
    ]  # fmt: skip
    message: str = Field(description="What was found and what the policy asks for.")

    @property
    def may_be_labelled(self) -> bool:
        """Whether the number may be published as REALISM-GRADE despite this reason; not if the number itself cannot be
        trusted.
        """
        return self.code not in ("broken_lineage", "same_trials", "contract_rejected")


class ClaimTrial(Model):
    """One trial behind a claim, with the digests of its evidence."""

    trial_id: str
    run_id: str
    side: Literal["a", "b"] = Field(description="b is the number itself, a what it is compared with.")
    repetition: int
    folder: str = Field(description="Its evidence, relative to the workspace.")
    workload_spec_digest: Digest
    instance_digest: Digest
    artifact_manifest_digest: Digest = Field(description="sha256 of its manifest.json.")
    value: float = Field(description="What it measured of this metric and statistic.")


class Citation(Model):
    """The contract of a run behind a claim, and the guarantees that were not kept."""

    run_id: str
    name: str
    digest: Digest = Field(description="Of the contract, which is in trial.json of each trial.")
    asked: str = Field(description="publication or realism.")
    mode: str = Field(description="publication, realism or rejected: by what was observed.")
    missing: list[str] = Field(description="Guarantees that were not, each with the reason.")


class Changed(Model):
    """One difference between the sides of a comparison."""

    dimension: str
    a: str
    b: str


class Claim(Model):
    """claims/<id>.json: a number or comparison to publish. The id is the start of the sha256 of the file's bytes."""

    schema_version: Literal[1] = 1
    kind: Literal["value", "comparison"]
    label: Label
    reasons: list[UnsafeReason] = Field(description="What a REALISM-GRADE claim lacks; empty for PUBLICATION-GRADE.")
    statement: str = Field(description="The claim in one sentence.")
    scenario: str
    point: str
    metric: str
    stat: str
    direction: str | None
    value: float = Field(description="Mean over the trials; of a comparison the change, in percent or the unit.")
    unit: str
    interval: tuple[float, float] | None = Field(description="Of the value, at the policy's confidence.")
    n: int = Field(description="Trials; of a comparison on the side with fewer.")
    method: str = Field(description="How the interval was computed.")
    verdict: str = Field("", description="Of a comparison, in words.")
    changed: list[Changed] = Field(default_factory=empty_list, description="What differs between the sides.")
    seed: int | None = Field(None, description="Of the resampling, where there is any.")
    definition: int | None = Field(None, ge=1, description="Version of the definition of intervals; null: unknown.")
    contracts: list[Citation] = Field(default_factory=empty_list, description="Of the runs behind it; empty: none.")
    policy: Policy
    cells: list[Cell] = Field(description="Rows of the query: the number, or what is compared and the number.")
    queries: dict[str, QuerySpec] = Field(description="The pinned query by its digest.")
    trials: list[ClaimTrial]
    measured_from: str = Field(description="Start of the first trial, UTC.")
    measured_to: str = Field(description="End of the last trial, UTC.")
    benchhouse: str = Field(description="Version that made it.")

    def text(self) -> bytes:
        """Return the bytes of the file; equal claims give equal bytes."""
        plain = self.model_dump(mode="json")  # floats stay floats: canonical JSON would write -0.0 as 0
        if self.definition is None:
            del plain["definition"]  # claims from before this field keep their bytes
        if not self.contracts:
            del plain["contracts"]
        return json.dumps(plain, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n"

    def sha256(self) -> str:
        return hashlib.sha256(self.text()).hexdigest()

    @property
    def id(self) -> str:
        return self.sha256()[:ID_LENGTH]

    @property
    def spec(self) -> QuerySpec:
        return next(iter(self.queries.values()))

    def summary(self) -> dict[str, Any]:
        """Return the fields for lists and for the readable part of a signature."""
        return {
            "id": self.id, "label": self.label, "statement": self.statement, "metric": self.metric, "stat": self.stat,
            "value": self.value, "unit": self.unit, "interval": self.interval, "n": self.n,
        }  # fmt: skip
