"""Answers of the API's methods: typed values that print themselves, become data frames, and display in notebooks."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchhouse.api.rows import frame
from benchhouse.schema.errors import BenchError, Exit, unwritable

if TYPE_CHECKING:
    import pyarrow as pa

    from benchhouse.api.workspace import Workspace
    from benchhouse.results.comparison import ComparisonTable
    from benchhouse.results.comparisons import SideBySide
    from benchhouse.results.curves import Scaling, Tradeoff
    from benchhouse.results.history import CaseSummary as CaseSummary
    from benchhouse.results.history import Watched
    from benchhouse.results.lineage import LineageStep as LineageStep
    from benchhouse.results.lineage import LineageTrace as TraceSteps
    from benchhouse.results.release import ReleaseView
    from benchhouse.results.remedy_outcome import Tried
    from benchhouse.results.why import WhyAnswer
    from benchhouse.schema.query import QuerySpec
    from benchhouse.warehouse.query import LimitedResult, Result

_MOST_ROWS = 200


class _Printed(ABC):
    """An answer that a notebook displays the way `show` prints it."""

    @abstractmethod
    def show(self) -> None: ...

    def _repr_html_(self) -> str:
        from benchhouse.report.notebook import text_html

        return text_html(self.show)


@dataclass(frozen=True)
class Comparison:
    """B compared with A: one row per value that both have, with interval, effect size, and verdict."""

    table: "ComparisonTable"
    """The rows, the differences between the sides, and notes."""
    selftest: str
    """The result of the last selftest for verdicts on this machine, in words."""

    def show(self) -> None:
        """Print the output of `bench compare A B`."""
        from benchhouse.report.terminal.comparison import show_comparison

        show_comparison(self.table, self.selftest)

    def markdown(self) -> str:
        """Return a Markdown table for a pull request."""
        from benchhouse.report.pull_request import comparison_markdown

        return f"{comparison_markdown(self.table).rstrip()}\n\n{self.selftest[:1].upper()}{self.selftest[1:]}.\n"

    def svg(self) -> str:
        """Return the changes as a chart, as the text of an SVG file."""
        from benchhouse.report.pull_request import comparison_svg

        return comparison_svg(self.table)

    def write_svg(self, file: Path) -> None:
        """Write the chart to an SVG file."""
        from benchhouse.evidence.writing import write_text

        try:
            write_text(file, self.svg())
        except OSError as error:
            raise BenchError(f"{file} can't be written: {error.strerror or error}") from error

    def _repr_html_(self) -> str:
        from benchhouse.report.notebook import comparison_html

        return comparison_html(self.table, self.selftest)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as `bench compare --json` prints it."""
        return self.table.as_dict() | {"selftest": self.selftest}


@dataclass(frozen=True)
class CurveComparison(_Printed):
    """Targets at equal quality (`at`), or along an axis (`along`)."""

    curves: "Tradeoff | Scaling"
    """A curve for each target, and the results at the level or along the axis."""
    run_ids: list[str]
    """The runs that the targets are from."""

    def show(self) -> None:
        """Print the output of `bench compare --at` or `--along`."""
        from benchhouse.report.terminal.curves import show_curves

        show_curves(self.curves)

    def markdown(self) -> str:
        """Return the comparison as Markdown."""
        from benchhouse.report.markdown import curves_markdown

        return curves_markdown(self.curves)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as `--json` prints it."""
        return self.curves.model_dump(mode="json")


@dataclass(frozen=True)
class TargetComparison(_Printed):
    """Targets that were measured in the same test, side by side."""

    beside: "SideBySide"
    """A ranking of the targets for each test and metric."""

    def show(self) -> None:
        """Print the output of `bench compare RUN`."""
        from benchhouse.report.terminal.curves import show_incomparable

        show_incomparable(self.beside)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as `--json` prints it."""
        return {
            "cases": [case.model_dump(mode="json") for case in self.beside.cases],
            "points": {member.at: member.label for member in self.beside.members},
            "alone": self.beside.alone,
            "notes": self.beside.notes,
        }


@dataclass(frozen=True)
class History:
    """One metric of one case over all runs, with the accepted baseline and how later runs compare with it."""

    watched: "Watched"
    """The values of all runs, changes of level, the baseline, and later runs that break it."""

    @property
    def exit_code(self) -> Exit:
        """The exit code of `bench history`: 3 if later runs are worse than the baseline."""
        return Exit.REGRESSION if self.watched.alarm and self.watched.alarm.worse else Exit.GOOD

    def show(self) -> None:
        """Print the output of `bench history`: a chart, the changes of level, and the baseline."""
        from benchhouse.report.terminal.history import show_history

        show_history(self.watched)

    def _repr_html_(self) -> str:
        from benchhouse.report.notebook import history_html

        return history_html(self.watched)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as `--json` prints it."""
        return self.watched.as_dict()


@dataclass(frozen=True)
class Diagnosis(_Printed):
    """Why a run got slower: points that are worse, causes with their evidence, and what to check next."""

    workspace: "Workspace"
    """The workspace that holds the run."""
    why: "WhyAnswer"
    """Points that got worse, each with its diagnoses, and other differences."""
    tried: "Tried | None" = None
    """The result of the experiment in the playbook; None if it was not run."""

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return self.why.headline

    @property
    def exit_code(self) -> Exit:
        """The exit code of `bench why`: 1 if trials failed and there is nothing to compare with.

        If a remedy was tried, 3 unless it restored the values; 2 if there is no remedy to try.
        """
        if self.tried and self.why.points:
            codes = {"restored": Exit.GOOD, "impossible": Exit.BAD_INPUT}
            return codes.get(self.tried.outcome, Exit.REGRESSION)
        return Exit.TRIAL_FAILED if self.why.failures and not self.why.base else Exit.GOOD

    def show(self) -> None:
        """Print the output of `bench why`."""
        from benchhouse.report.terminal.why import show_why

        show_why(self.why)
        if self.tried:
            from benchhouse.report.terminal.remedy import show_tried

            show_tried(self.tried)

    def write(self) -> Path:
        """Write the diagnosis as one HTML page that opens offline, with a Markdown copy next to it; return the page's
        path."""
        from benchhouse.api.why import page

        return page(self.workspace.folder, self.why)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as `--json` prints it."""
        from benchhouse.results.why import filled_in

        document = self.why.model_dump(mode="json")
        for point in document["points"]:
            for diagnosis in point["diagnoses"]:
                diagnosis["next"] = filled_in(self.why, diagnosis["next"])
        if self.tried:
            document["tried"] = {"headline": self.tried.headline} | self.tried.model_dump(mode="json")
        return {"headline": self.headline} | document


@dataclass(frozen=True)
class Release(_Printed):
    """What got better, got worse, or stayed the same between two releases, judged by claims alone."""

    workspace: "Workspace"
    """The workspace that holds the claims."""
    view: "ReleaseView"
    """One row per value that both releases claim, and the values that only one of them claims."""

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return self.view.headline

    def show(self) -> None:
        """Print the output of `bench views release`."""
        from benchhouse.report.terminal.release import show_release

        show_release(self.view)

    def markdown(self) -> str:
        """Return the page as Markdown."""
        from benchhouse.report.pages import as_markdown
        from benchhouse.report.release_page import release_page

        return as_markdown(release_page(self.view))

    def write(self) -> Path:
        """Write reports/releases/FROM..TO.html, which opens offline, with a Markdown copy next to it; return its
        path."""
        from benchhouse.evidence.writing import write_text
        from benchhouse.report.pages import as_html
        from benchhouse.report.release_page import release_page

        folder = self.workspace.folder.reports / "releases"
        name = "..".join(re.sub(r"[^\w.@=-]+", "_", token) for token in (self.view.older, self.view.newer))
        path = folder / f"{name}.html"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / f"{name}.md", self.markdown())
            write_text(path, as_html(release_page(self.view)))
        except OSError as error:
            raise unwritable(folder, error) from error
        return path

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as `--json` prints it."""
        return {"headline": self.headline} | self.view.model_dump(mode="json")


@dataclass(frozen=True)
class Trace:
    """The four steps from a value to its bytes: report, query, identity, evidence."""

    trace: "TraceSteps"
    """The traced value, and the steps of the trace."""

    @property
    def ok(self) -> bool:
        """Whether every step holds."""
        return self.trace.ok

    @property
    def steps(self) -> "list[LineageStep]":
        """The steps, from the report to the evidence."""
        return self.trace.steps

    def show(self, *, sql: bool = False) -> None:
        """Print the steps, and the text of the query if `sql`."""
        from benchhouse.report.terminal.trace import show_trace

        show_trace(self.trace, sql=sql)

    def _repr_html_(self) -> str:
        from benchhouse.report.notebook import trace_html

        return trace_html(self.trace)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as `--json` prints it."""
        return self.trace.as_dict()


class QueryResult:
    """The rows of one SELECT, and the pinned query that returns them again."""

    def __init__(self, result: "Result") -> None:
        self.columns: tuple[str, ...] = result.columns
        """The names of the columns."""
        self.types: tuple[str, ...] = result.types
        """The types of the columns, as SQL names them."""
        self.rows: list[tuple[Any, ...]] = result.rows
        """One tuple per row."""
        self.spec: QuerySpec = result.spec
        """The query with everything that its answer depends on, so that it can be repeated."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def df(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """Return a data frame of pandas or polars."""
        return frame(self.arrow(), library)

    def arrow(self) -> "pa.Table":
        """Return an Arrow table."""
        import pyarrow as pa

        return pa.table({name: [row[at] for row in self.rows] for at, name in enumerate(self.columns)})

    def show(self) -> None:
        """Print the rows as a table, at most the first 200."""
        from benchhouse.report.terminal import screen

        screen.table(self.columns, self.rows[:_MOST_ROWS])
        more = len(self.rows) - _MOST_ROWS
        cut = f"; and {more:,} more: --csv or --json prints all" if more > 0 else ""
        screen.note(screen.count(len(self.rows), "row") + cut)

    def _repr_html_(self) -> str:
        from benchhouse.report.notebook import rows_html

        return rows_html(self.columns, self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as `--json` prints it: rows, the pinned query, and its digest."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"rows": rows, "query": self.spec.model_dump(), "query_spec_digest": self.spec.digest()}


class LimitedAnswer:
    """The rows of a SELECT that somebody else wrote, as JSON, with the pinned query and whether there are more rows."""

    def __init__(self, result: "LimitedResult") -> None:
        self.json_rows: list[str] = result.json_rows
        """One JSON object per row, as text."""
        self.more = result.more
        """Whether there are more rows than the limits allow."""
        self.spec: QuerySpec = result.spec
        """The query with everything that its answer depends on, so that it can be repeated."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as plain data."""
        return [json.loads(row) for row in self.json_rows]

    def to_json(self) -> str:
        """Return the rows, the query, and `more` as JSON, without parsing the rows."""
        rest = {"query": self.spec.model_dump(), "query_spec_digest": self.spec.digest(), "more": self.more}
        return f'{{"rows": [{", ".join(self.json_rows)}], {json.dumps(rest, ensure_ascii=False)[1:]}'


@dataclass(frozen=True)
class Report:
    """A report that was written to files."""

    html: Path
    """The HTML page."""
    headline: str = ""
    """For a page that is written for one reader: its message in one sentence."""
    invalid: int = 0
    """Number of trials that every value of the report leaves out because their measurements are invalid."""

    @property
    def markdown(self) -> Path:
        """The Markdown copy of the page."""
        return self.html.parent / "report.md" if self.html.name == "index.html" else self.html.with_suffix(".md")

    @property
    def json(self) -> Path:
        """Everything that the report shows, as data."""
        return self.html.parent / "report.json"

    def open(self) -> None:
        """Open the page in a browser."""
        import webbrowser

        webbrowser.open(self.html.absolute().as_uri())

    def _repr_html_(self) -> str:
        from benchhouse.report.tags import tag

        return tag("a", str(self.html), href=self.html.absolute().as_uri(), target="_blank")

    def to_dict(self) -> dict[str, str]:
        """Return plain data, as `--json` prints it: the paths of the files."""
        if self.html.name != "index.html":
            return {"html": str(self.html), "markdown": str(self.markdown), "headline": self.headline}
        return {"html": str(self.html), "markdown": str(self.markdown), "json": str(self.json)}


@dataclass(frozen=True)
class Validation:
    """What a valid file holds: points and trials of a scenario, bindings of a logical benchmark, or measurements."""

    file: str
    points: int | None = None
    trials: int | None = None
    bindings: int | None = None
    measurements: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The counts that are known, by noun."""
        names = ("points", "trials", "bindings", "measurements")
        counts = {name: getattr(self, name) for name in names}
        return {noun: number for noun, number in counts.items() if number is not None}
