"""The groups of verbs of a workspace, such as `ws.servers.start(...)`. Each is imported when it is first used."""

import os
from typing import TYPE_CHECKING, Unpack, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchhouse.api.access import Audit, Tokens
    from benchhouse.api.alarms import Alarms, Baselines
    from benchhouse.api.answers import LimitedAnswer
    from benchhouse.api.approvals import Approvals
    from benchhouse.api.catalog import Catalog
    from benchhouse.api.changes import Changes
    from benchhouse.api.claims import Claims
    from benchhouse.api.clients import Clients
    from benchhouse.api.contracts import Contracts
    from benchhouse.api.conversion import Conversion
    from benchhouse.api.evaluation import EvaluateKeywords, Evaluation
    from benchhouse.api.evaluations import Evaluations
    from benchhouse.api.execution import PlaceKeywords, RunListener
    from benchhouse.api.exporting import Export
    from benchhouse.api.github import GitHubVerbs
    from benchhouse.api.images import Images
    from benchhouse.api.importing import Imports
    from benchhouse.api.infra import Infrastructures
    from benchhouse.api.observation import Logs, Monitors
    from benchhouse.api.packages import Leaderboards, Packages, Scaffolds
    from benchhouse.api.run import Run
    from benchhouse.api.schedules import Schedules
    from benchhouse.api.servers import Servers
    from benchhouse.api.sites import Sites
    from benchhouse.api.stores import EvidenceStore, Tables
    from benchhouse.api.views import Views
    from benchhouse.api.workspace import Workspace
    from benchhouse.schema.query import QueryLimits


class Groups:
    """What `Workspace` has in addition to its own methods: one object for each group of verbs."""

    @property
    def _workspace(self) -> "Workspace":
        return cast("Workspace", self)  # only Workspace derives from this

    def changes(self, since: str = "24h") -> "Changes":
        """Return what changed since a time, and what needs a person: runs, levels, broken baselines, alarms."""
        from benchhouse.api.changes import changes

        return changes(self._workspace.folder, since)

    def query_within(self, limits: "QueryLimits", sql: str) -> "LimitedAnswer":
        """Return the answer to one SELECT that somebody else wrote, over the tables of this workspace.

        It runs in its own process, which is killed when it exceeds a limit; BenchError then names the limit.
        """
        from benchhouse.api.answers import LimitedAnswer
        from benchhouse.warehouse.query import Warehouse

        with Warehouse.open(self._workspace.folder) as warehouse:
            return LimitedAnswer(warehouse.query_within(limits, sql))

    def evaluate(
        self,
        *,
        dry_run: bool = False,
        progress: "bool | RunListener" = False,
        each: "Callable[[Run], None]" = lambda run: None,
        **wanted: Unpack["EvaluateKeywords"],
    ) -> "Evaluation":
        """Run registered benchmarks of a nexus: `all=True`, or those of a `package`, a `model`, or `changed_since`.

        All are first planned together within `budget`; what an earlier run measured under the same conditions is
        reused. The runs are executed one after the other, and `each` is called with every run that has ended. `dry_run`
        only plans.
        """
        from benchhouse.api import evaluation
        from benchhouse.api.execution import listener_of

        if dry_run:
            return evaluation.Evaluation(evaluation.plan(self._workspace, wanted)[0])
        ledger = evaluation.create(self._workspace, wanted)
        return evaluation.carry_out(self._workspace, ledger, listener_of(progress), each)

    @property
    def evaluations(self) -> "Evaluations":
        """Evaluations that were started: `ws.evaluations.list()`, `ws.evaluations.submit(all=True)`."""
        from benchhouse.api.evaluations import Evaluations

        return Evaluations(self._workspace)

    def convert(self, descriptor: "str | os.PathLike[str]", **where: Unpack["PlaceKeywords"]) -> "Conversion":
        """Convert a descriptor of Benchmark AI (TOML) to a scenario, and list which of its parts have no effect
        here."""
        from benchhouse.api.conversion import convert

        return convert(self._workspace.folder, descriptor, where)

    @property
    def alarms(self) -> "Alarms":
        """The rules of alarms.yaml: `ws.alarms.check()`."""
        from benchhouse.api.alarms import Alarms

        return Alarms(self._workspace)

    @property
    def approvals(self) -> "Approvals":
        """Plans beyond a budget, and who approved them: `ws.approvals.approve("4f1c2a90")`."""
        from benchhouse.api.approvals import Approvals

        return Approvals(self._workspace)

    @property
    def audit(self) -> "Audit":
        """The record of writes through `bench serve`: `ws.audit.list()`."""
        from benchhouse.api.access import Audit

        return Audit(self._workspace)

    @property
    def baselines(self) -> "Baselines":
        """Accepted levels that new runs are compared with: `ws.baselines.accept("first/name=short")`."""
        from benchhouse.api.alarms import Baselines

        return Baselines(self._workspace)

    @property
    def catalog(self) -> "Catalog":
        """Experiments, benchmarks, and targets: `ws.catalog.experiments()`, `ws.catalog.show("vector.search")`."""
        from benchhouse.api.catalog import Catalog

        return Catalog(self._workspace)

    @property
    def claims(self) -> "Claims":
        """Values that may be published: `ws.claims.make("@last:name=flat:qps")`."""
        from benchhouse.api.claims import Claims

        return Claims(self._workspace)

    @property
    def contracts(self) -> "Contracts":
        """BenchmarkRun contracts, promised before a run: `ws.contracts.render("scenario.yaml")`."""
        from benchhouse.api.contracts import Contracts

        return Contracts(self._workspace)

    @property
    def evidence(self) -> "EvidenceStore":
        """Sealed trials in a store, on S3 or in a folder: `ws.evidence.push("s3://team/evidence")`."""
        from benchhouse.api.stores import EvidenceStore

        return EvidenceStore(self._workspace)

    @property
    def leaderboards(self) -> "Leaderboards":
        """Targets ranked on logical benchmarks: `ws.leaderboards.rank("inference_serving")`."""
        from benchhouse.api.packages import Leaderboards

        return Leaderboards(self._workspace)

    @property
    def new(self) -> "Scaffolds":
        """Template files to fill in: `ws.new.scenario("mine", experiment="vector.search")`."""
        from benchhouse.api.packages import Scaffolds

        return Scaffolds(self._workspace)

    @property
    def packages(self) -> "Packages":
        """Packages of a nexus: `ws.packages.validate("terratorch")`."""
        from benchhouse.api.packages import Packages

        return Packages(self._workspace)

    @property
    def warehouse(self) -> "Tables":
        """The curated tables: `ws.warehouse.schema()`, `rebuild()`, `push(...)`."""
        from benchhouse.api.stores import Tables

        return Tables(self._workspace)

    @property
    def servers(self) -> "Servers":
        """Servers that run until they are stopped: `ws.servers.start("postgres")`."""
        from benchhouse.api.servers import Servers

        return Servers(self._workspace)

    @property
    def clients(self) -> "Clients":
        """Load clients on nodes of their own: `ws.clients.run("scenario.yaml", count=4)`."""
        from benchhouse.api.clients import Clients

        return Clients(self._workspace)

    @property
    def monitors(self) -> "Monitors":
        """Monitors of the machine or of a process, without a benchmark: `ws.monitors.start(for_s=600)`."""
        from benchhouse.api.observation import Monitors

        return Monitors(self._workspace)

    @property
    def logs(self) -> "Logs":
        """Output of trials, servers, and workers: `ws.logs.tail("@last")`."""
        from benchhouse.api.observation import Logs

        return Logs(self._workspace)

    @property
    def github(self) -> "GitHubVerbs":
        """Orders from GitHub webhooks and comments, and reports on pull requests: `ws.github.list()`."""
        from benchhouse.api.github import GitHubVerbs

        return GitHubVerbs(self._workspace)

    @property
    def schedules(self) -> "Schedules":
        """Runs that an external clock starts: `ws.schedules.render("nightly.yaml", "0 2 * * *")`."""
        from benchhouse.api.schedules import Schedules

        return Schedules(self._workspace)

    @property
    def sites(self) -> "Sites":
        """Profiles of machines and clusters: `ws.sites.check()`."""
        from benchhouse.api.sites import Sites

        return Sites(self._workspace)

    @property
    def images(self) -> "Images":
        """Container images, pinned by digest: `ws.images.pull("docker://...")`."""
        from benchhouse.api.images import Images

        return Images(self._workspace)

    @property
    def infra(self) -> "Infrastructures":
        """Clusters as plain files: `ws.infra.create(ws.infra.plan("kind", "lab"))`."""
        from benchhouse.api.infra import Infrastructures

        return Infrastructures(self._workspace)

    @property
    def tokens(self) -> "Tokens":
        """Tokens that identify people and programs to `bench serve`: `ws.tokens.make("ada", "run")`."""
        from benchhouse.api.access import Tokens

        return Tokens(self._workspace)

    @property
    def views(self) -> "Views":
        """Views of the curated store: `ws.views.release("0.9.1", "0.10.0")`."""
        from benchhouse.api.views import Views

        return Views(self._workspace)

    def import_results(
        self,
        path: str | os.PathLike[str],
        *,
        kind: str | None = None,
        mapping: str | os.PathLike[str] | None = None,
        progress: "bool | RunListener" = False,
    ) -> "Imports":
        """Make runs from files that other tools wrote: one file, or every file in a folder that an importer recognizes.

        `kind` names the importer if the file does not identify its tool; `mapping` describes the columns of a table.
        The same bytes are imported only once. A file that is not in its tool's format leaves nothing behind.
        """
        from pathlib import Path

        from benchhouse.api.execution import listener_of
        from benchhouse.api.importing import import_path

        given = None if mapping is None else Path(mapping)
        return import_path(self._workspace, Path(path), kind, given, listener_of(progress))

    def export(
        self,
        subject: str,
        kind: str,
        output: str | os.PathLike[str] | None = None,
        *,
        force: bool = False,
        licence: str = "",
        url: str = "",
    ) -> "Export":
        """Export the valid values of a run, or the content of a claim's packet, in the format of another tool.

        `kind` is one of `ws.catalog.exporters()`. Without `output`, a document is returned in `.text`. An existing
        export is replaced only with `force`; a store, such as MLflow's, holds each point once. `licence` and `url`
        apply to packets.
        """
        from benchhouse.api.exporting import Published, export

        where = None if output is None else os.fspath(output)
        return export(self._workspace, subject, kind, where, Published(licence, url), force=force)
