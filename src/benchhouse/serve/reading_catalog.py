"""Verbs that read what can be benchmarked and where: catalog, contracts, servers, sites, plans, and tables."""

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import Field

from benchhouse.api.workspace import Workspace
from benchhouse.documents.problems import ProblemsError
from benchhouse.schema.errors import BenchError
from benchhouse.serve.reading_verbs import Confidence
from benchhouse.serve.scenario_text import refuse_variables
from benchhouse.serve.verbs import Name, NoParams, Token, VerbParams, verb

if TYPE_CHECKING:
    from benchhouse.api.execution import PlaceKeywords, ScenarioText
    from benchhouse.serve import answer_types

_LARGEST = 1 << 20
_SCENARIO = "<scenario>"


@verb("GET", "/benchmark/contracts")
def benchmark_contracts(workspace: Workspace, params: NoParams) -> "list[answer_types.ContractTemplate]":
    """List the shipped contract templates, by class and kind of workload."""
    return workspace.contracts.list()


class ContractText(VerbParams):
    contract: Annotated[str, Field(max_length=_LARGEST)]
    """The text of a contract file."""


@verb("POST", "/benchmark/contracts/validate")
def validate_contract(workspace: Workspace, params: ContractText) -> "answer_types.ContractVerdict":
    """Check a contract without storing it; all mistakes are reported at once, each with its position."""
    checked = workspace.contracts.validate_text(params.contract)
    return cast("answer_types.ContractVerdict", {"name": checked.contract.name, "settled": checked.settled})


class OfContract(VerbParams):
    contract: Token
    """The name of the contract, such as `publication-inference`."""


@verb("GET", "/benchmark/contracts/{contract}")
def benchmark_contract(workspace: Workspace, params: OfContract) -> dict[str, Any]:
    """Show a shipped contract as its file states it; /api/schema/contract describes it."""
    return workspace.contracts.show(params.contract).model_dump(mode="json", by_alias=True, exclude_none=True)


@verb("GET", "/catalog/experiments")
def experiments(workspace: Workspace, params: NoParams) -> "list[answer_types.ListedExperiment]":
    """List installed experiments, including deprecated and broken ones, and those that a nexus registers."""
    return workspace.catalog.experiments()


class OfExperiment(VerbParams):
    experiment: Token
    """The name of an experiment or of a registered benchmark."""
    version: Token | None = None
    """The version of the experiment; by default the newest."""


@verb("GET", "/catalog/experiments/{experiment}")
def experiment_show(workspace: Workspace, params: OfExperiment) -> dict[str, Any]:
    """Show the inputs, metrics, data, and resources of an experiment, or what a registered benchmark fixes of them."""
    return workspace.catalog.show(params.experiment, params.version).to_dict()


class Benchmarks(VerbParams):
    package: Token | None = None
    """Only benchmarks of this package."""
    model: Token | None = None
    """Only benchmarks for this model."""
    experiment: Token | None = None
    """Only benchmarks of this experiment."""


@verb("GET", "/catalog/benchmarks")
def benchmarks(workspace: Workspace, params: Benchmarks) -> "list[answer_types.ListedBenchmark]":
    """List registered benchmarks of the workspace, of installed packages, and of a nexus."""
    return workspace.catalog.benchmarks(package=params.package, model=params.model, experiment=params.experiment)


@verb("GET", "/catalog/targets")
def targets(workspace: Workspace, params: NoParams) -> "list[answer_types.MeasuredTarget]":
    """List the targets that were benchmarked in this workspace."""
    return workspace.catalog.targets()


@verb("GET", "/catalog/importers")
def importers(workspace: Workspace, params: NoParams) -> dict[str, str]:
    """List the kinds of result files of other tools that can be imported, each with what it reads."""
    return workspace.catalog.importers()


@verb("GET", "/catalog/exporters")
def exporters(workspace: Workspace, params: NoParams) -> dict[str, str]:
    """List the formats of other tools that results can be exported to, each with a description."""
    return workspace.catalog.exporters()


@verb("GET", "/catalog/data")
def data(workspace: Workspace, params: NoParams) -> "list[answer_types.Fetchable]":
    """List the data that installed experiments declare, and whether it is in the cache."""
    return workspace.fetchable()


class OfSchema(VerbParams):
    format: Literal[
        "scenario", "benchmark", "recipe", "site", "trial", "metrics", "meta", "manifest", "telemetry", "contract"
    ]
    """The name of the file format."""


@verb("GET", "/schema/{format}")
def schema(workspace: Workspace, params: OfSchema) -> dict[str, Any]:
    """Return the JSON Schema of a file format."""
    if params.format == "contract":
        return workspace.contracts.json_schema()
    return workspace.catalog.json_schema(params.format)


@verb("GET", "/packages")
def packages(workspace: Workspace, params: NoParams) -> "list[answer_types.PackageSummary]":
    """List all packages of the nexus; a package that can't be read has `broken`."""
    return workspace.packages.list()


@verb("GET", "/packages/requirements")
def package_requirements(workspace: Workspace, params: NoParams) -> "list[answer_types.PackageRequirement]":
    """List the Python packages that packages install, and for which experiments."""
    return workspace.packages.requirements()


class OfPackage(VerbParams):
    package: Token
    """The name of the package."""


@verb("GET", "/packages/{package}")
def package_show(workspace: Workspace, params: OfPackage) -> "answer_types.PackageDetails":
    """Show a package: what it installs, its models, and its benchmarks."""
    return workspace.packages.show(params.package)


@verb("GET", "/leaderboards")
def leaderboards(workspace: Workspace, params: NoParams) -> "list[answer_types.LogicalSummary]":
    """List the logical benchmarks, and the experiments that answer each."""
    return workspace.leaderboards.list()


class RankParams(VerbParams):
    benchmark: Token
    """The name of the logical benchmark."""
    where: tuple[Token, ...] = ()
    """Only results with this value of a property, such as `load=heavy`; repeatable."""
    experiment: Token | None = None
    """Only results of this experiment."""
    confidence: Confidence = 0.95
    """The confidence level of the intervals."""
    named: Annotated[int, Field(ge=0)] = 20
    """The maximum number of runs and trials that a row lists; `n` counts all its trials."""


@verb("GET", "/leaderboards/{benchmark}")
def leaderboard(workspace: Workspace, params: RankParams) -> "answer_types.LeaderboardAnswer":
    """Rank the targets of a logical benchmark."""
    where = {}
    for condition in params.where:
        key, sign, value = condition.partition("=")
        if not sign:
            raise BenchError(f"where: '{condition}' is no condition", "such as load=heavy")
        where[key] = value
    ranked = workspace.leaderboards.rank(
        params.benchmark, where=where, experiment=params.experiment, confidence=params.confidence
    )
    return cast("answer_types.LeaderboardAnswer", ranked.as_dict(params.named))


@verb("GET", "/servers")
def servers(workspace: Workspace, params: NoParams) -> "list[answer_types.Server]":
    """List running servers: those started on their own and those attached to runs."""
    return workspace.servers.running()


class OfServer(VerbParams):
    server: Token
    """The id of the server, or the beginning of it."""


@verb("GET", "/servers/{server}/check", scope="run")
def server_check(workspace: Workspace, params: OfServer) -> "answer_types.CheckedServer":
    """Probe a server with its own health check until it answers, for at most 5 seconds."""
    return workspace.servers.check(params.server)


class ServerLogsParams(OfServer):
    lines: Annotated[int, Field(ge=0, le=10_000)] = 50
    """The maximum number of lines per replica; the newest are returned."""


@verb("GET", "/servers/{server}/logs")
def server_logs(workspace: Workspace, params: ServerLogsParams) -> "answer_types.ServerOutputAnswer":
    """Show the last lines of a server's output, also after it ended."""
    lines = workspace.servers.logs(params.server, lines=params.lines).lines
    return cast("answer_types.ServerOutputAnswer", {"lines": lines})


@verb("GET", "/clients")
def clients(workspace: Workspace, params: NoParams) -> "list[answer_types.Server]":
    """List running load clients."""
    return workspace.clients.running()


@verb("GET", "/recipes")
def recipes(workspace: Workspace, params: NoParams) -> "list[answer_types.RecipeStatus]":
    """List all recipes of servers, without checking whether their programs are installed.
    That check would start programs."""
    return workspace.servers.recipes(programs=False)


class RecipeText(VerbParams):
    recipe: Annotated[str, Field(max_length=_LARGEST)]
    """The text of a recipe file."""


@verb("POST", "/recipes/validate")
def validate_recipe(workspace: Workspace, params: RecipeText) -> dict[str, Any]:
    """Check a recipe and return it as it was parsed; all mistakes are reported at once, each with its position."""
    return workspace.servers.validate_text(params.recipe).model_dump(mode="json")


class OfRecipe(VerbParams):
    recipe: Name
    """The name of the recipe."""


@verb("GET", "/recipes/{recipe}")
def recipe_show(workspace: Workspace, params: OfRecipe) -> dict[str, Any]:
    """Show a recipe; /api/schema/recipe describes its format."""
    return workspace.servers.recipe(params.recipe).model_dump(mode="json")


@verb("GET", "/monitors")
def monitors(workspace: Workspace, params: NoParams) -> "list[answer_types.MonitorStatus]":
    """List the monitors of the workspace that are not part of a run, newest first."""
    return workspace.monitors.all()


@verb("GET", "/monitors/available")
def monitors_available(workspace: Workspace, params: NoParams) -> "list[answer_types.Monitored]":
    """List everything that can be monitored, and whether it was tested on the real system."""
    return workspace.monitors.list()


@verb("GET", "/images")
def images(workspace: Workspace, params: NoParams) -> "list[answer_types.LockedImage]":
    """List registry images that are pinned by digest."""
    return workspace.images.references()


@verb("GET", "/sites")
def sites(workspace: Workspace, params: NoParams) -> "list[answer_types.SiteSummary]":
    """List the profiles of machines and clusters; the one in use is marked."""
    return workspace.sites.profiles()


class OfSite(VerbParams):
    site: Name
    """The name of the site profile."""


@verb("GET", "/sites/{site}")
def site_show(workspace: Workspace, params: OfSite) -> "answer_types.Site":
    """Show a shipped site profile."""
    return workspace.sites.profile(params.site)


@verb("GET", "/infra")
def infra(workspace: Workspace, params: NoParams) -> "list[answer_types.Infra]":
    """List the infrastructure below infra/: its files, who changed them, and its cost."""
    found = [workspace.infra.show(folder) for folder in workspace.infra.folders()]
    return cast("list[answer_types.Infra]", [vars(item) | {"folder": str(item.folder)} for item in found])


@verb("GET", "/selftest")
def selftest(workspace: Workspace, params: NoParams) -> "answer_types.SelftestRecord | None":
    """Show the newest selftest: how often equal things look different here, and the smallest visible change."""
    return workspace.last_selftest()


@verb("GET", "/warehouse/schema")
def warehouse_schema(workspace: Workspace, params: NoParams) -> "list[answer_types.TableInfo]":
    """List the curated tables with their columns."""
    return workspace.warehouse.schema()


@verb("GET", "/warehouse/shared")
def warehouse_shared(workspace: Workspace, params: NoParams) -> "list[answer_types.Destination]":
    """Show how much of the workspace is stored at the destinations of workspace.yaml."""
    return workspace.warehouse.share(dry_run=True)


@verb("GET", "/warehouse/followed")
def warehouse_followed(workspace: Workspace, params: NoParams) -> "answer_types.Followed | None":
    """Show the state of the team's store that the server follows; null if it follows none."""
    return workspace.warehouse.followed()


class QueryParams(VerbParams):
    sql: Annotated[str, Field(max_length=100_000)]
    """One SELECT statement in the DuckDB dialect; /api/warehouse/schema lists the tables."""
    rows: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """The maximum number of rows; `more` shows whether there are others."""
    seconds: Annotated[float, Field(gt=0, le=60)] = 10.0
    """The time in seconds after which the query is stopped."""


def _query(workspace: Workspace, params: QueryParams) -> "answer_types.QueryAnswer":
    from benchhouse.schema.query import QueryLimits

    limits = workspace.query_limits or QueryLimits()
    wanted = {"seconds": min(params.seconds, limits.seconds), "rows": min(params.rows, limits.rows)}
    return cast("answer_types.QueryAnswer", workspace.query_within(limits.model_copy(update=wanted), params.sql))


@verb("GET", "/query", rows="rows")
def query(workspace: Workspace, params: QueryParams) -> "answer_types.QueryAnswer":
    """Query the tables in read-only SQL."""
    return _query(workspace, params)


@verb("POST", "/query", rows="rows")
def query_long(workspace: Workspace, params: QueryParams) -> "answer_types.QueryAnswer":
    """Query the tables in SQL that is too long for a URL; nothing is written."""
    return _query(workspace, params)


class OfScenario(VerbParams):
    scenario: Annotated[str, Field(max_length=_LARGEST)] | dict[str, Any]
    """The text of a scenario file, or its content. Relative paths in it start from the workspace."""


class PlanParams(OfScenario):
    points: Annotated[int, Field(ge=0, le=1000)] = 20
    """The maximum number of points to list."""
    executor: Name | None = None
    """The executor to use instead of the scenario's."""
    runtime: Name | None = None
    """The runtime of the trials, instead of the scenario's."""
    site: Name | None = None
    """The name of a site profile."""


def _source(params: OfScenario) -> "ScenarioText":
    from benchhouse.api.execution import ScenarioText
    from benchhouse.documents.yaml_reader import parse_yaml

    scenario = params.scenario
    refuse_variables(parse_yaml(scenario, _SCENARIO).data if isinstance(scenario, str) else scenario)
    return ScenarioText(scenario if isinstance(scenario, str) else json.dumps(scenario), _SCENARIO, read_only=True)


@contextlib.contextmanager
def _only_of_the_text() -> Iterator[None]:
    """Hide mistakes in files that a scenario refers to: these are files of this machine, and a remote caller must not
    see their content."""
    try:
        yield
    except ProblemsError as error:
        own = [problem for problem in error.problems if problem.path == _SCENARIO]
        if len(own) == len(error.problems):
            raise
        if own:
            raise ProblemsError(own) from error
        raise BenchError(
            "a file that the scenario names has mistakes", "on its machine: bench validate FILE"
        ) from error


@verb("POST", "/plan")
def plan(workspace: Workspace, params: PlanParams) -> "answer_types.PlanSummary":
    """Show what a scenario would run: points, trials, time, cost, and digest; nothing is started or written."""
    with _only_of_the_text():
        where: PlaceKeywords = {"executor": params.executor, "runtime": params.runtime, "site": params.site}
        (planned,) = workspace.plan(_source(params), points=params.points, **where)
    return planned


@verb("POST", "/validate")
def validate(workspace: Workspace, params: OfScenario) -> "answer_types.Validation":
    """Check a scenario; all mistakes are reported at once, each with its position."""
    with _only_of_the_text():
        return workspace.validate(_source(params))
