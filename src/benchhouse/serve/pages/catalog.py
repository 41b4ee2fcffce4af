"""The catalog with experiments, benchmarks, and their users, and the leaderboards."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.requests import Request

from benchhouse.api.workspace import Workspace
from benchhouse.report.tags import Content, join, table, tag
from benchhouse.results.numbers import number, spread_text, titled
from benchhouse.schema.errors import BenchError
from benchhouse.serve.pages import parts
from benchhouse.serve.pages.forms import ask, choice, field
from benchhouse.serve.pages.shell import WebPage, anchor, empty

if TYPE_CHECKING:
    from benchhouse.api.catalog import InputKey
    from benchhouse.api.packages import Board

_DEEPEST = 2


def catalogue(workspace: Workspace, request: Request) -> WebPage:
    wanted = parts.form_fields(request, "q")["q"]

    def fits(*texts: object) -> bool:
        return wanted.lower() in " ".join(map(str, texts)).lower()

    experiments = [
        item for item in workspace.catalog.experiments() if fits(item.name, item.description, item.component)
    ]
    benchmarks = [
        item for item in workspace.catalog.benchmarks() if fits(item.benchmark, item.description, item.experiment)
    ]
    targets = [item for item in workspace.catalog.targets() if fits(item.target, item.experiment)]
    of_experiments = [
        (anchor(request, item.name, f"/catalogue/{item.name}") if item.installed and not item.broken else item.name,
         item.version, item.component, item.broken or item.description,
         item.distribution if item.installed else f"not installed; registered by {', '.join(item.registered_by)}")
        for item in experiments
    ]  # fmt: skip
    of_benchmarks = [
        (item.benchmark or item.file, item.experiment, item.broken or item.description, ", ".join(item.used_by),
         anchor(request, item.last.run_id, f"/runs/{item.last.run_id}") if item.last else "")
        for item in benchmarks
    ]  # fmt: skip
    of_targets = [
        (
            item.target or "without a name",
            item.experiment,
            str(item.trials),
            anchor(request, item.last_run, f"/runs/{item.last_run}"),
        )
        for item in targets
    ]
    return WebPage(
        "Catalogue",
        (
            ask(request, "/catalogue", field("q", "Name or words", wanted, "search"), button="Find"),
            _listed("Experiments", ("experiment", "version", "component", "what it measures", "from"), of_experiments),
            _listed(
                "Registered benchmarks",
                ("benchmark", "experiment", "description", "used by", "last run"),
                of_benchmarks,
            ),
            _listed("Targets that were measured here", ("target", "experiment", "trials", "last run"), of_targets),
            _packages(workspace, wanted),
        ),
    )


def _listed(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    shown = table(heads, rows, label=title) if rows else tag("p", "None.", class_="soft")
    return join(tag("h2", f"{title} ({len(rows)})"), shown)


def _packages(workspace: Workspace, wanted: str) -> Content:
    try:
        listed = workspace.packages.list()
    except BenchError:  # there is no nexus
        return None
    rows = [
        (item.package, str(item.experiments), str(item.models), str(item.benchmarks), "; ".join(item.broken))
        for item in listed
        if wanted.lower() in item.package.lower()
    ]
    return _listed("Packages of the nexus", ("package", "experiments", "models", "benchmarks", "broken"), rows)


def experiment(workspace: Workspace, request: Request) -> WebPage:
    """Show the inputs, metrics, data, and resources of an experiment, and the benchmarks that use it."""
    details = workspace.catalog.show(request.path_params["name"])
    fixed = details.benchmark.workload if details.benchmark else {}
    metrics = [(item.name, item.unit, item.direction or "", item.formula) for item in details.metrics]
    heads = ("input", "type", "default", "meaning")
    inputs = [
        join(tag("h2", title), table(heads, list(dict.fromkeys(_inputs(some, fixed))), label=title))
        for title, some in (("Target", details.target), ("Workload", details.workload))
        if some
    ]
    users = [item for item in workspace.catalog.benchmarks(experiment=details.name) if not item.broken]
    used = [(item.benchmark, item.description, ", ".join(item.used_by)) for item in users]
    resources = [f"{key} {value}" for key, value in details.resources if value is not None]
    deprecated = f"Deprecated: {details.deprecated.reason}" if details.deprecated else ""
    return WebPage(
        f"{details.name} {details.version}",
        (
            tag("p", f"{details.distribution} {details.distribution_version}", class_="kind"),
            tag("p", details.description) if details.description else None,
            tag("p", deprecated, class_="bad") if deprecated else None,
            tag("p", anchor(request, f"Plan a run of {details.name}", "/new", experiment=details.name)),
            *inputs,
            tag("h2", "Metrics"),
            table(("metric", "unit", "better", "formula"), metrics, label="Metrics"),
            _listed(
                "Data", ("data", "source", "licence"), [(item.name, item.source, item.licence) for item in details.data]
            )
            if details.data
            else None,
            tag("h2", "Resources of a trial"),
            tag("p", ", ".join(resources) or "none asked for"),
            _listed("Benchmarks of it", ("benchmark", "description", "used by"), used),
            parts.notes(details.notes),
        ),
    )


def _inputs(
    inputs: "Sequence[InputKey]", fixed: dict[str, Any], above: str = "", kind: str = "", depth: int = 0
) -> Iterator[tuple[str, ...]]:
    """Yield a row per key, followed by the keys of the models that it may hold, with their full names."""
    for item in inputs:
        name = f"{above}{item.name}"
        default = (
            f"fixed: {fixed[name]}" if name in fixed else "required" if item.required else parts.written(item.default)
        )
        yield name, item.type, default, f"{kind}: {item.description}" if kind else item.description
        for variant in item.variants if depth < _DEEPEST else ():
            yield from _inputs(variant.fields, {}, f"{name}{variant.above}", variant.kind, depth + 1)


def leaderboards(workspace: Workspace, request: Request) -> WebPage:
    listed = workspace.leaderboards.list()
    broken = [item.broken for item in listed if item.broken]
    rows = [
        (anchor(request, item.benchmark, f"/leaderboards/{item.benchmark}"), item.target, ", ".join(item.properties),
         ", ".join(item.metrics), ", ".join(item.experiments))
        for item in listed
        if not item.broken
    ]  # fmt: skip
    heads = ("logical benchmark", "ranks", "properties", "metrics", "answered by")
    words = "No logical benchmark yet: a file benchmarks/ID.yaml with logicalBenchmark: and bindings:. Then:"
    shown = table(heads, rows, label="Logical benchmarks") if rows else empty(words, "bench leaderboard ID")
    return WebPage("Leaderboards", (shown, parts.notes([item or "" for item in broken], "Files that can't be read")))


def leaderboard(workspace: Workspace, request: Request) -> WebPage:
    name = request.path_params["benchmark"]
    params = parts.form_fields(request, "experiment", "where")
    pairs = [part.partition("=") for part in params["where"].replace(",", " ").split()]
    if wrong := [key for key, equals, _ in pairs if not equals]:
        raise BenchError(f"'{wrong[0]}' is no condition", "write property=value, several with a space between")
    where = {key: value for key, _, value in pairs}
    ranking = workspace.leaderboards.rank(name, where=where, experiment=params["experiment"] or None)
    form = ask(
        request,
        f"/leaderboards/{name}",
        field("where", "Where", params["where"], placeholder="property=value"),
        choice(
            "experiment",
            "Measured by",
            [("", "any"), *((item, item) for item in ranking.experiments)],
            params["experiment"],
        ),
    )
    measure = f"bench run logical:{ranking.benchmark} --target NAME --repetitions 5"
    nothing = None if ranking.boards else empty("No result answers it yet. Measure one:", measure)
    boards = [_board(ranking.target, board) for board in ranking.boards]
    return WebPage(f"Leaderboard {ranking.benchmark}", (form, nothing, *boards, parts.notes(ranking.notes)))


def _board(target: str, board: "Board") -> Markup:
    better = f"{board.direction} is better" if board.direction else ""
    heading = tag("h2", f"{titled(board.title, board.unit)} ", tag("span", better, class_="soft small"))
    if board.refused:
        return join(heading, tag("p", f"Refused: {board.refused}", class_="bad"))
    rows = []
    for row in board.rows:
        standing, summary = row.standing, row.standing.summary
        spread = spread_text(summary.mean, summary.stdev)
        mean = number(summary.mean, summary.stdev) + (f" ± {spread}" if spread else "")
        rows.append((
            str(standing.rank or "-"), standing.target, str(summary.n), mean, row.against_best,
            parts.verdict(standing.verdict), ", ".join(row.experiments),
        ))  # fmt: skip
    heads = ("rank", target, "n", "mean ± sd", "against the best", "verdict", "measured by")
    return join(heading, tag("p", board.sentence), table(heads, rows, (0, 2, 3), label=board.title, row_head=1))
