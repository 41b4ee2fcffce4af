"""The types of the answers of verbs, imported only when the OpenAPI document is requested."""

from dataclasses import dataclass
from typing import Any

from pydantic import computed_field

from benchhouse.analysis.online import LevelAlarm
from benchhouse.api.access import Token as TokenSummary
from benchhouse.api.answers import Validation as Validation
from benchhouse.api.approvals import ApprovalStanding as ApprovalStanding
from benchhouse.api.badges import Badge as Badge
from benchhouse.api.catalog import MeasuredTarget as MeasuredTarget
from benchhouse.api.changes import Changes as Changes
from benchhouse.api.claims import ClaimEntry as ClaimEntry
from benchhouse.api.contracts import ContractTemplate as ContractTemplate
from benchhouse.api.evaluation import Evaluation as Evaluation
from benchhouse.api.evaluations import StoppedEvaluation as StoppedEvaluation
from benchhouse.api.execution import SubmittedRun as SubmittedRun
from benchhouse.api.github import GitHubOrder as GitHubOrder
from benchhouse.api.images import LockedImage as LockedImage
from benchhouse.api.images import PinnedImage as PinnedImage
from benchhouse.api.infra import Infra as Infra
from benchhouse.api.packages import LogicalSummary as LogicalSummary
from benchhouse.api.run_list import RunPage as RunPage
from benchhouse.api.schedules import ScheduleStanding as ScheduleStanding
from benchhouse.api.servers import CheckedServer as CheckedServer
from benchhouse.api.servers import RecipeStatus as RecipeStatus
from benchhouse.api.servers import Server as Server
from benchhouse.api.sites import SiteSummary as SiteSummary
from benchhouse.api.stores import TableInfo as TableInfo
from benchhouse.api.verification import Verification as Verification
from benchhouse.automation.alarms import AlarmState as AlarmState
from benchhouse.claims.lint import Linted as Linted
from benchhouse.claims.signatures import Signature
from benchhouse.claims.verification import ClaimCheck as CheckedClaim
from benchhouse.nexus.benchmarks import ListedBenchmark as ListedBenchmark
from benchhouse.nexus.evaluation import EvaluationPlan as EvaluationPlan
from benchhouse.nexus.experiments import ListedExperiment as ListedExperiment
from benchhouse.nexus.packages import PackageDetails as PackageDetails
from benchhouse.nexus.packages import PackageRequirement as PackageRequirement
from benchhouse.nexus.packages import PackageSummary as PackageSummary
from benchhouse.results.comparison import ComparisonTable, Difference
from benchhouse.results.content import CaseRanking
from benchhouse.results.curves import Scaling, Tradeoff
from benchhouse.results.history import CaseSummary as CaseSummary
from benchhouse.results.lineage import LineageTrace as LineageTrace
from benchhouse.results.measured_values import MeasuredPage as MeasuredPage
from benchhouse.results.metric_history import MetricHistory
from benchhouse.results.release import ReleaseView
from benchhouse.results.run_points import PointPage as PointPage
from benchhouse.results.why import WhyAnswer
from benchhouse.runs.batch import Stopped as Stopped
from benchhouse.runs.estimate import PlanSummary as PlanSummary
from benchhouse.runs.execution import CollectionReport as CollectionReport
from benchhouse.runs.fetch import Fetchable as Fetchable
from benchhouse.runs.sharing import Destination as Destination
from benchhouse.runs.status import RunOverview as RunOverview
from benchhouse.runs.status import RunStatus as RunStatus
from benchhouse.runs.status import RunWarning as RunWarning
from benchhouse.runs.status import UnsuccessfulTrial as UnsuccessfulTrial
from benchhouse.runs.team_store import Followed as Followed
from benchhouse.schema.access import AuditRecord as AuditRecord
from benchhouse.schema.alarms import Notice as Notice
from benchhouse.schema.claim import Claim as Claim
from benchhouse.schema.contract_rules import Settled
from benchhouse.schema.logs import LogLine as LogLine
from benchhouse.schema.quality import BaselineRecord as BaselineRecord
from benchhouse.schema.quality import SelftestRecord as SelftestRecord
from benchhouse.schema.query import QuerySpec
from benchhouse.schema.site import Site as Site
from benchhouse.warehouse.contract_rows import RunContract as RunContract
from benchhouse.worker.monitors.series_catalog import Monitored as Monitored
from benchhouse.worker.monitors.standing_monitor import MonitorStatus as MonitorStatus

__all__ = ["CheckedClaim", "TokenSummary"]


@dataclass(frozen=True)
class PairComparison(ComparisonTable):
    """B compared with A, and what the last selftest found about verdicts on this machine."""

    selftest: str


@dataclass(frozen=True)
class TargetComparisonAnswer:
    """Targets compared side by side."""

    cases: list[CaseRanking]
    points: dict[str, str]
    alone: int
    notes: list[str]


Comparison = PairComparison | Tradeoff | Scaling | TargetComparisonAnswer


@dataclass(frozen=True)
class GateAnswerRow:
    """One value at the gate; a worsening is above zero, whatever the direction of the metric."""

    point: str
    metric: str
    stat: str
    n_a: int
    n_b: int
    sentence: str
    p_adjusted: float | None
    judgement: str
    worse: float | None
    low: float | None
    high: float | None
    visible: float | None
    needed: int | None


@dataclass(frozen=True)
class GateAnswer:
    """Whether NEW is worse than BASE: good, regression, or can't tell."""

    base: str
    new: str
    mde: float
    judgement: str
    rows: list[GateAnswerRow]
    metrics: list[str]
    missing: list[str]
    repetitions_needed: int | None
    selftest: str
    differences: list[Difference]
    notes: list[str]
    exit_code: int


@dataclass(frozen=True)
class BrokenBaseline(LevelAlarm):
    """A baseline that new runs no longer fit."""

    run: str
    since_run: str


@dataclass(frozen=True, kw_only=True)
class HistoryAnswer(MetricHistory):
    """One metric of one case over all runs."""

    baseline: BaselineRecord | None
    alarm: BrokenBaseline | None
    selftest: str


@dataclass(frozen=True)
class BoardRow:
    """One target of a board."""

    rank: int
    target: str
    n: int
    mean: float
    median: float
    stdev: float | None
    min: float
    max: float
    change: float | None
    change_interval: tuple[float, float] | None
    difference: float | None
    difference_interval: tuple[float, float] | None
    verdict: str
    surely_better: list[str]
    experiments: list[str]
    experiments_disagree: bool
    points: int
    invalid: int
    failed: int
    runs: list[str]
    trials: list[str]


@dataclass(frozen=True)
class BoardAnswer:
    """One metric at one combination of properties: its ranking, or the reason why there is none."""

    properties: dict[str, Any]
    metric: str
    unit: str
    direction: str
    sentence: str
    refused: str
    standings: list[BoardRow]


@dataclass(frozen=True)
class LeaderboardAnswer:
    """All boards of a logical benchmark."""

    benchmark: str
    target: str
    notes: list[str]
    queries: list[str]
    boards: list[BoardAnswer]


class DiagnosisAnswer(WhyAnswer):
    """Why a run got slower, with the answer in one sentence."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def headline(self) -> str:
        return super().headline


class ReleaseAnswer(ReleaseView):
    """The changes from one release to another, with the answer in one sentence."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def headline(self) -> str:
        return super().headline


@dataclass(frozen=True)
class QueryAnswer:
    """The rows of one SELECT, and the pinned query that reproduces them."""

    rows: list[dict[str, Any]]
    query: QuerySpec
    query_spec_digest: str
    more: bool


@dataclass(frozen=True)
class ContractAnswer:
    """The contract that a run fulfills, and what its publisher has to confirm."""

    contract: dict[str, Any]
    to_confirm: list[str]


@dataclass(frozen=True)
class ContractVerdict:
    """A contract without mistakes and its result: accepted, downgraded, or rejected."""

    name: str
    settled: Settled


@dataclass(frozen=True)
class SignedClaimAnswer:
    """A complete claim and the state of its signature."""

    id: str
    signature: Signature
    claim: Claim


@dataclass(frozen=True)
class ServerOutputAnswer:
    """The last lines of a server's output."""

    lines: list[str]
