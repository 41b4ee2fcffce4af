"""The entry point: a workspace, with every verb as a method. Methods import what they need when they are called."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack, get_args, overload

from benchhouse.api.groups import Groups
from benchhouse.api.run import Run
from benchhouse.schema.errors import BenchError
from benchhouse.sites import places

if TYPE_CHECKING:
    from benchhouse.analysis.slo_search import Search
    from benchhouse.api.answers import (
        Comparison,
        CurveComparison,
        Diagnosis,
        History,
        QueryResult,
        Report,
        TargetComparison,
        Trace,
        Validation,
    )
    from benchhouse.api.badges import Badge
    from benchhouse.api.comparisons import CompareKeywords, PairKeywords
    from benchhouse.api.execution import PlaceKeywords, RunKeywords, RunListener, ScenarioText, Source, SubmittedRun
    from benchhouse.api.gates import Gate, GateKeywords
    from benchhouse.api.lifecycle import OfferedLoad
    from benchhouse.api.measured_values import MeasuredKeywords
    from benchhouse.api.observation import Dashboards
    from benchhouse.api.pages import ReportForm
    from benchhouse.api.placement import Placement
    from benchhouse.api.remedies import TryKeywords
    from benchhouse.api.rows import Points
    from benchhouse.api.run_list import RunFilters, RunPage
    from benchhouse.api.servers import StartedServer
    from benchhouse.api.slo import ProbeRun, SearchRequest, SloSearchResult
    from benchhouse.api.timing import Timing
    from benchhouse.api.verification import Verification
    from benchhouse.results.history import CaseSummary
    from benchhouse.results.measured_values import MeasuredPage
    from benchhouse.runs.estimate import PlanSummary as PlanSummary
    from benchhouse.runs.fetch import Fetchable as Fetchable
    from benchhouse.schema.claim import Claim
    from benchhouse.schema.quality import SelftestRecord
    from benchhouse.schema.query import QueryLimits
    from benchhouse.schema.resources import Budget

Audience = Literal["engineering", "product", "partner"]
AUDIENCES: tuple[str, ...] = get_args(Audience)


class Workspace(Groups):
    """A folder that holds scenarios, results, reports, and the hidden `.bench` state.

    Runs are named by their id or the first characters of it, by `@last` and `@last-1`, or by their scenario (its last
    run). Points of a run are selected by `RUN:key=value,...`.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = places.workspace(folder)
        if not self.folder.root.is_dir():
            missing = "is not a folder" if self.folder.root.exists() else "does not exist"
            raise BenchError(f"the folder of the workspace {missing}: {self.folder.root}", "give one that exists")
        self.query_limits: QueryLimits | None = None
        """Limits of the queries that a server answers for others; by default those of `QueryLimits`."""

    def __repr__(self) -> str:
        return f"<Workspace {self.root}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workspace) and other.root == self.root

    def __hash__(self) -> int:
        return hash(self.root)

    @property
    def root(self) -> Path:
        """The path of the workspace's folder."""
        return self.folder.root

    def catch_up(self, note: Callable[[str], None] = lambda text: None) -> list[str]:
        """Collect the sealed trials of runs that were killed before that, and return the ids of these runs.

        `note` is called with each run, and with what can't be collected now.
        """
        if not self.folder.uncollected.is_dir() or not any(self.folder.uncollected.iterdir()):
            return []
        from benchhouse.runs.execution import collect_forgotten

        return collect_forgotten(self.folder, note)

    def init(self, folder: str | os.PathLike[str] | None = None) -> list[Path]:
        """Make this folder, or `folder` below it, a workspace: a first scenario and a .gitignore. Return the paths."""
        from benchhouse.nexus import scaffold

        return scaffold.workspace(places.workspace(self.root / folder) if folder else self.folder)

    # Runs

    def __getitem__(self, run: str) -> Run:
        """Return a run that was made or pulled here: `ws["@last"]`."""
        from benchhouse.runs.selection import find_run

        return Run(self, find_run(self.folder, run))

    def runs(self, *, made_here: bool = False) -> list[Run]:
        """Return all runs, oldest first; with `made_here`, without those that were pulled into the tables."""
        from benchhouse.runs.ledger import list_runs
        from benchhouse.runs.selection import local_and_pulled_runs

        return [Run(self, run_id) for run_id in (list_runs if made_here else local_and_pulled_runs)(self.folder)]

    def run_page(self, *, after: str | None = None, limit: int = 50, **filters: Unpack["RunFilters"]) -> "RunPage":
        """Return the state of runs, made or pulled here, newest first. `after` is the cursor of the previous page."""
        from benchhouse.api.run_list import run_page

        return run_page(self.folder, filters, after, limit)

    def run(
        self,
        scenario: "Source",
        *,
        progress: "bool | RunListener" = False,
        new: bool = False,
        **settings: Unpack["RunKeywords"],
    ) -> Run:
        """Plan, run, and collect a scenario: a file, a dict, or `bh.Scenario(...)`. Blocks until the run has ended.

        An unfinished run of the same plan is continued, unless `new`. `progress=True` shows progress. Settings:
        `parallel`, `rerun_failed`, `textfile`, `labels`; `executor`, `runtime`, and `site` set where it runs. After
        Ctrl-C, finished trials are kept, and the same call, or `resume`, continues the run.
        """
        runs = self.run_all(scenario, progress=progress, new=new, **settings)
        if len(runs) > 1:
            raise BenchError(f"{scenario} is a space of {len(runs)} experiments, a run each", "use run_all")
        return runs[0]

    def run_all(
        self,
        scenario: "Source",
        *,
        progress: "bool | RunListener" = False,
        new: bool = False,
        each: Callable[[Run], None] = lambda run: None,
        **settings: Unpack["RunKeywords"],
    ) -> list[Run]:
        """Run a file that may be a space: one run for each of its experiments. `each` is called with every run."""
        from benchhouse.api import execution
        from benchhouse.runs.hot_metrics import check_labels

        where, chosen = execution.settings_of(settings)
        listener = execution.listener_of(progress)
        check_labels(chosen.textfile, chosen.labels)
        runs = []
        for prepared, path in execution.prepare_every(self.folder, scenario, where):
            ledger = execution.opened(self.folder, prepared, path, listener, new=new, finished_too=chosen.rerun_failed)
            summary = execution.carry_out(self.folder, ledger, prepared, chosen, listener)
            runs.append(Run(self, ledger.folder.run_id, summary))
            each(runs[-1])
        return runs

    def submit(
        self,
        scenario: "Source",
        *,
        progress: "bool | RunListener" = False,
        new: bool = False,
        run_id: str | None = None,
        budget: "Budget | None" = None,
        by: str = "",
        **where: Unpack["PlaceKeywords"],
    ) -> "SubmittedRun":
        """Start a scenario in the background and return at once; `ws[submitted.run_id].wait()` waits for its end.

        With `run_id`, a new run gets this id; repeating the call does not start a second run. A new run is limited by
        `budget`, and refused if its plan needs more. `by` names the person for whom a program submits the run.
        """
        from benchhouse.api import execution

        listener = execution.listener_of(progress)
        behalf = execution.OnBehalf(by, budget)
        return execution.submit_new(self.folder, scenario, where, listener, behalf, new=run_id or new)

    def resume(self, run: str, *, progress: "bool | RunListener" = False, **settings: Unpack["RunKeywords"]) -> Run:
        """Continue an interrupted run. `executor` and `site` may move the missing trials elsewhere."""
        from benchhouse.api import execution
        from benchhouse.runs.preparation import Where
        from benchhouse.runs.records import resume_run

        where, chosen = execution.settings_of(settings)
        ledger, prepared = resume_run(self.folder, run, Where(**where))
        summary = execution.carry_out(self.folder, ledger, prepared, chosen, execution.listener_of(progress))
        return Run(self, ledger.folder.run_id, summary)

    def plan(self, scenario: "Source", *, points: int = 20, **where: Unpack["PlaceKeywords"]) -> "list[PlanSummary]":
        """Return what a scenario would run: points, trials, time, cost, disk space; one per experiment."""
        from benchhouse.api import execution
        from benchhouse.runs.estimate import summarise

        prepared = execution.prepare_every(self.folder, scenario, where)
        return [summarise(self.folder, item, points) for item, _ in prepared]

    def render(self, scenario: "Source", **where: Unpack["PlaceKeywords"]) -> str:
        """Return the exact jobs of the first trials, as the executor would start them."""
        from benchhouse.api import execution
        from benchhouse.runs.execution import render

        prepared = execution.prepare_every(self.folder, scenario, where)
        return "\n".join(render(self.folder, item) for item, _ in prepared)

    def missing(self, scenario: "Source", **where: Unpack["PlaceKeywords"]) -> list[str]:
        """Return what its jobs need and would not find, such as an image, each with a remedy; empty if none."""
        from benchhouse.api import execution
        from benchhouse.runs.fetch import refusals

        prepared = execution.prepare_every(self.folder, scenario, where)
        return [lacking for item, _ in prepared for lacking in refusals(self.folder, item)]

    # Results

    def measured(self, **asked: Unpack["MeasuredKeywords"]) -> "MeasuredPage":
        """Return values of all runs as one table, newest runs first, 1000 per page unless `limit` is given."""
        from benchhouse.api import measured_values

        return measured_values.page(self, asked)

    def points(self, *runs: str) -> "Points":
        """Return the values of runs, by default of the last run."""
        from benchhouse.api.rows import Points
        from benchhouse.results.run_points import points, tried_points

        run_ids = self.collected(*(runs or ("@last",)))
        return Points(points(self.folder, run_ids), tried_points(self.folder, run_ids))

    @overload
    def compare(self, base: str, new: str, /, **options: Unpack["PairKeywords"]) -> "Comparison": ...
    @overload
    def compare(
        self, *selectors: str, **options: Unpack["CompareKeywords"]
    ) -> "Comparison | CurveComparison | TargetComparison": ...
    def compare(
        self, *selectors: str, **options: Unpack["CompareKeywords"]
    ) -> "Comparison | CurveComparison | TargetComparison":
        """Compare two runs or points of runs, the second with the first; with one, three, or more, their targets.

        `at="recall=0.95"` compares targets at equal quality, `along="concurrency"` compares their curves; `of` is then
        the metric. Without a selector, the targets of the last run are compared.
        """
        from benchhouse.api.comparisons import compare

        return compare(self, self.select(*(selectors or ("@last",))), options)

    def gate(
        self,
        base: str | None = None,
        new: str = "@last",
        *,
        baseline: str | None = None,
        endpoint: str = "",
        record: bool = True,
        **rules: Unpack["GateKeywords"],
    ) -> "Gate":
        """Judge a change for a pipeline: NEW against BASE, or against the newest run of its scenario in a store.

        `baseline` is that store, `endpoint` its S3 endpoint. Without either, BASE is the previous run (`@last-1`).
        Verdicts are stored as rows of `regression_fact`, unless `record=False`. Raises NoBaselineError if there is
        nothing to compare with yet.
        """
        from benchhouse.api import gates

        if baseline:
            return gates.judge_against_store(self, baseline, new, gates.rules(rules), endpoint)
        return gates.judge(self, base or "@last-1", new, gates.rules(rules), record=record)

    def time(
        self,
        *commands: str,
        names: Sequence[str] = (),
        runs: int = 10,
        warmup: int = 1,
        shell: bool = True,
        prepare: str = "",
        progress: "bool | RunListener" = False,
    ) -> "tuple[Run, Timing]":
        """Time commands against each other, in the current folder. They alternate; the run is stored like any other."""
        from benchhouse.api.execution import listener_of
        from benchhouse.api.timing import TimingRequest, run_timing

        request = TimingRequest(commands, tuple(names), runs, warmup, shell, prepare)
        return run_timing(self, request, Path.cwd(), listener_of(progress))

    def find_knee(
        self,
        scenario: str | os.PathLike[str],
        request: "SearchRequest",
        *,
        each: "Callable[[ProbeRun, Search], None]" = lambda probed, search: None,
        note: Callable[[str], None] = lambda text: None,
    ) -> "SloSearchResult":
        """Find the highest load at which a service-level objective holds, with an interval: `bench slo find`.

        Each probe is a run of the scenario. `each` is called with every probe that counts, `note` with the progress.
        """
        from benchhouse.api.slo import find

        return find(self.folder, Path(scenario), request, each, note)

    def selftest(
        self,
        scenario: str | os.PathLike[str] | None = None,
        *,
        pairs: int = 20,
        repetitions: int | None = None,
        progress: "bool | RunListener" = False,
    ) -> "SelftestRecord":
        """Run a workload against itself: how often equal things look different here, and the smallest visible change.

        Without a scenario, that of the last run is used. From then on, comparisons cite the result.
        """
        from benchhouse.api.execution import listener_of
        from benchhouse.api.selftest import selftest

        path = Path(scenario) if scenario is not None else None
        return selftest(self.folder, path, pairs, repetitions, listener_of(progress))

    def last_selftest(self) -> "SelftestRecord | None":
        """Return the newest selftest of this workspace; None if there is none."""
        from benchhouse.results import selftest_record

        return selftest_record.last(self.folder)

    def history(
        self, metric: str | None = None, case: str | None = None, *, stat: str | None = None, floor: float = 0.01
    ) -> "History":
        """Return one metric over all runs: where its level changed, and whether new runs fit the accepted baseline.

        `case` is a scenario (if it has one point), `scenario/point`, or the id of a case; by default the only case.
        """
        from benchhouse.api.answers import History
        from benchhouse.results import history

        return History(history.history(self.folder, case or history.only_case(self.folder), metric, stat, floor))

    def badge(self, case: str, metric: str, stat: str | None = None) -> "Badge":
        """Return the newest valid value of a metric and whether it holds the accepted level. `.svg()` draws it."""
        from benchhouse.api import badges

        return badges.make(self.folder, case, metric, stat)

    def cases(self) -> "list[CaseSummary]":
        """Return the cases that have a history."""
        from benchhouse.results.history import cases

        return cases(self.folder)

    def why(self, run: str = "@last", vs: str | None = None, **trying: Unpack["TryKeywords"]) -> "Diagnosis":
        """Return why a run got slower than `vs` or, by default, than the newest earlier run of its plan.

        With `rounds`, the experiment of the most certain cause is run as well, and `tried` shows whether it restored
        the values.
        """
        from benchhouse.api.remedies import diagnose

        return diagnose(self, *self.collected(run, *([vs] if vs else [])), **trying)

    def report(
        self,
        *runs: str,
        audience: Audience | None = None,
        curves: "CurveComparison | None" = None,
        progress: "bool | RunListener" = False,
    ) -> "Report":
        """Write a page of runs that opens offline, with Markdown and JSON copies next to it.

        `audience` (engineering, product, or partner): one page for that reader, about one run or two (the base and the
        run). `curves`: the comparison at equal quality to show; by default there is one if a search parameter was
        swept.
        """
        from benchhouse.api import pages
        from benchhouse.api.execution import listener_of

        return pages.write(self, runs or ("@last",), audience, curves, listener_of(progress))

    def report_text(self, *runs: str, audience: Audience | None = None, form: "ReportForm" = "html") -> str:
        """Return the report as text (html, markdown, or json). Nothing is written."""
        from benchhouse.api import pages

        return pages.text(self, runs or ("@last",), audience, form)

    def validate(self, path: "str | os.PathLike[str] | ScenarioText") -> "Validation":
        """Check a scenario, a space of ado, a logical benchmark, or a metrics.json of any tool. Raises BenchError with
        every mistake and its place."""
        from benchhouse.api.validation import validate

        return validate(self.folder, path)

    def query(self, sql: str, *, engine: str | None = None) -> "QueryResult":
        """Return the answer to one SELECT over the tables of this workspace, or of a shared engine in its dialect."""
        from benchhouse.api.answers import QueryResult
        from benchhouse.warehouse.query import Warehouse

        if engine:
            from benchhouse.warehouse.transfer import query

            return QueryResult(query(engine, sql))
        with Warehouse.open(self.folder) as warehouse:
            return QueryResult(warehouse.query(sql))

    def trace(self, ref: str) -> "Trace":
        """Trace a value back to its bytes, by a reference of a report, a claim, a trial, or `RUN:metric[.stat]`."""
        from benchhouse.api.answers import Trace
        from benchhouse.claims import claim_files
        from benchhouse.claims.verification import trace_claim
        from benchhouse.results.lineage import trace
        from benchhouse.runs.selection import find_selector

        if ":" in ref:
            return Trace(trace(self.folder, find_selector(self.folder, ref)))
        claim_id = claim_files.find(self.folder, ref)
        return Trace(trace_claim(self.folder, claim_id, ref) if claim_id else trace(self.folder, ref))

    def verify(self, run: str | os.PathLike[str] | None = None) -> "Verification":
        """Hash the evidence again: of a run, of one trial's folder, or of everything here, including tables and
        claims."""
        from benchhouse.api import verification

        return verification.verify_what(self.folder, run)

    def claim(self, number: str, against: str | None = None, *, realism: bool = False) -> "Claim":
        """Claim a value for publication; the same as `ws.claims.make`."""
        return self.claims.make(number, against, realism=realism)

    # Requirements of runs: servers, data, dashboards

    def start(
        self,
        what: str,
        parameters: Mapping[str, str] | None = None,
        *,
        load: "OfferedLoad | None" = None,
        placement: "Placement | None" = None,
        progress: "bool | RunListener" = False,
    ) -> "SubmittedRun | StartedServer | Run":
        """Submit the scenario in the file `what`; anything else is a recipe, whose server is started with `parameters`.

        With `load=OfferedLoad("scenario.yaml", clients=4)`, the server, a monitor of its node, and load clients are
        started in this order, the scenario is run, and all are stopped in reverse order.
        """
        from benchhouse.api.lifecycle import start

        return start(self, what, parameters or {}, load, placement, progress)

    def fetchable(self) -> "list[Fetchable]":
        """Return the data that installed experiments declare, and whether it is in the cache."""
        from benchhouse.runs.fetch import fetchable

        return fetchable()

    def fetch(self, *names: str) -> "list[Fetchable]":
        """Download declared data and check it by digest. Data in the cache is only checked."""
        from benchhouse.runs.fetch import fetch

        return [item for name in names for item in fetch(name)]

    def fetch_for(
        self, scenario: "Source", *, progress: "bool | RunListener" = False, **where: Unpack["PlaceKeywords"]
    ) -> list[Path]:
        """Fetch everything external that a scenario needs: data, and the packages of its runtime. Return their
        paths."""
        from benchhouse.api import execution
        from benchhouse.runs.fetch import fetch_for

        prepared, _ = execution.prepare_source(self.folder, scenario, where)
        return fetch_for(self.folder, prepared, execution.listener_of(progress).note)

    def dashboards(self, folder: str | os.PathLike[str]) -> "Dashboards":
        """Write Grafana dashboards and Prometheus rules for every metric and series that is declared here."""
        from benchhouse.api.observation import write_dashboards

        return write_dashboards(Path(folder))

    def collected(self, *runs: str) -> list[str]:
        """Return the ids of runs, after collecting their sealed trials."""
        from benchhouse.runs.execution import collect

        run_ids = [self[run].id for run in runs]
        for run_id in run_ids:
            collect(self.folder, run_id, unless_complete=True)
        return run_ids

    def select(self, *selectors: str) -> list[str]:
        """Return selectors (`RUN` or `RUN:key=value,...`) with the full ids of their runs, which are collected."""
        heads = [selector.partition(":") for selector in selectors]
        run_ids = self.collected(*(run for run, _, _ in heads))
        return [f"{run_id}{colon}{rest}" for run_id, (_, colon, rest) in zip(run_ids, heads, strict=True)]
