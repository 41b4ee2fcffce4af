"""A form made from an experiment's schema: checked during typing, planned, and written as YAML.

The address contains all inputs, so a plan can be shared; without JavaScript the button checks them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from benchhouse.api.workspace import Workspace
from benchhouse.report.tags import Content, table, tag
from benchhouse.results.numbers import duration, number
from benchhouse.schema.errors import BenchError
from benchhouse.serve.pages import actions, parts
from benchhouse.serve.pages.forms import ask, choice
from benchhouse.serve.pages.shell import WebPage, anchor, link
from benchhouse.serve.scenario_text import refuse_variables
from benchhouse.serve.verb_requests import hide_places

if TYPE_CHECKING:
    from benchhouse.api.catalog import ExperimentDetails, InputKey
    from benchhouse.api.workspace import PlanSummary

_PLACE = {"executor": "str", "price_per_hour": "float"}
_OWN = ("scenario", "repetitions", *_PLACE)
_PREFIXES = ("target.", "workload.")
_LONGEST = 10_000
_WORDS = ("str", "int", "float", "bool", "none", "list", "dict", "mapping", "Any")
_MOST_POINTS = 20


@dataclass
class _Filled:
    """The content of the form: the scenario, and the mistakes of fields by name."""

    scenario: dict[str, Any]
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        from benchhouse.documents.yaml_writer import dump_yaml

        return dump_yaml(self.scenario)


def new(workspace: Workspace, request: Request) -> WebPage:
    params = parts.form_fields(request, "experiment")["experiment"]
    names = [item.name for item in workspace.catalog.experiments() if item.installed and not item.broken]
    chosen = [("", "choose one"), *((name, name) for name in dict.fromkeys(names))]
    select = ask(request, "/new", choice("experiment", "Experiment", chosen, params), button="Choose")
    if not params:
        words = "Choose an experiment; its form comes next. What is filled in stands in the address, to be shared."
        return WebPage("New run", (select, tag("p", words, class_="soft")))
    details = workspace.catalog.show(params)
    filled = _read(request.query_params, details)
    plan, trouble = _plan(workspace, filled) if not filled.faults else (None, [])
    form = tag(
        "form",
        tag("input", type="hidden", name="experiment", value=details.name),
        _line("scenario", "str", "Name of the scenario.", request, filled, "mine"),
        _line("repetitions", "int", "Trials per point; 5 or more make intervals meaningful.", request, filled, "5"),
        *(_group(title, prefix, some, request, filled) for title, prefix, some in _groups(details)),
        _place(workspace, request, filled),
        tag("button", "Check", type="submit", class_="plain"),
        method="get",
        action=link(request, "/new"),
        id="builder",
    )
    outcome = tag(
        "section", *_outcome(request, filled, plan, trouble), id="plan", aria_live="polite", aria_label="Plan"
    )
    about = tag(
        "p", anchor(request, details.name, f"/catalogue/{details.name}"), f": {details.description}", class_="soft"
    )
    columns = tag("div", form, outcome, class_="columns")
    return WebPage(f"New run of {details.name}", (select, about, columns), scripts=("builder.js",))


def download(workspace: Workspace) -> Callable[[Request], Response]:
    """Return an endpoint that answers the YAML of the form as a file."""

    def answer(request: Request) -> Response:
        try:
            details = workspace.catalog.show(request.query_params.get("experiment", ""))
        except BenchError as error:
            return Response(f"{hide_places(error.message, workspace)}\n", 400, media_type="text/plain")
        headers = {"Content-Disposition": 'attachment; filename="scenario.yaml"'}
        return Response(_read(request.query_params, details).text, media_type="application/yaml", headers=headers)

    return answer


def _groups(details: "ExperimentDetails") -> Iterator[tuple[str, str, "list[InputKey]"]]:
    yield from (
        (title, title.lower(), some) for title, some in (("Target", details.target), ("Workload", details.workload))
    )


def _read(given: Mapping[str, str], details: "ExperimentDetails") -> _Filled:
    """Return the scenario of the inputs; an empty field is left out, so that its default applies."""
    scenario: dict[str, Any] = {"scenario": given.get("scenario", "").strip() or "mine"}
    scenario["uses" if details.benchmark else "experiment"] = (
        details.benchmark.name if details.benchmark else details.name
    )
    filled = _Filled(scenario)
    for title, prefix, inputs in _groups(details):
        values = {}
        for item in inputs:
            name, text = f"{prefix}.{item.name}", given.get(f"{prefix}.{item.name}", "").strip()
            if not text:
                continue
            try:
                values[item.name] = _value(text, item.type)
            except BenchError as error:
                filled.faults[name] = error.hint or error.message
        if values:
            filled.scenario[title.lower()] = values
    for name, kind, text in (("repetitions", "int", "5"), *((name, kind, "") for name, kind in _PLACE.items())):
        try:
            if text := given.get(name, "").strip() or text:
                filled.scenario[name] = _value(text, kind)
        except BenchError as error:
            filled.faults[name] = error.message
    return filled


def _value(text: str, kind: str) -> Any:
    """Parse an input as a scenario would. Text is taken literally; several numbers or words are an axis: `1, 2, 4`.

    Variables are refused except for secrets, which stay references: a page must not show the server's environment.
    """
    from benchhouse.documents.yaml_reader import parse_yaml

    if len(text) > _LONGEST:
        raise BenchError("too long", f"at most {_LONGEST:,} characters")
    refuse_variables(text)
    if kind == "str" and not text.startswith("["):
        return text
    flat = " ".join(text.split())
    several = "," in flat and not flat.startswith(("[", "{", '"', "'"))
    try:
        value = parse_yaml(f"value: {f'[{flat}]' if several else flat}\n", "the form").data["value"]
    except BenchError as error:
        problems = getattr(error, "problems", ())
        raise BenchError("not YAML", problems[0].message if problems else error.message) from error
    refuse_variables(value)
    return value


def _plan(workspace: Workspace, filled: _Filled) -> "tuple[PlanSummary | None, list[str]]":
    """Return the plan, or None and the general mistakes; mistakes of fields are added to `filled`."""
    try:
        (plan,) = workspace.plan(filled.scenario, points=_MOST_POINTS)
        notes = [hide_places(note, workspace) for note in plan.notes]
        return replace(plan, runtime=hide_places(plan.runtime, workspace), notes=notes), []
    except BenchError as error:
        problems = getattr(error, "problems", None)
        if problems is None:
            return None, [hide_places(f"{error.message} {error.hint}".strip(), workspace)]
    places, trouble = _places(filled), []
    for problem in problems:
        words = [problem.message, f"expected: {problem.expected}" if problem.expected else ""]
        words.append(f"did you mean '{problem.suggestion}'?" if problem.suggestion else "")
        message = hide_places("; ".join(filter(None, words)), workspace)
        above = [name for line, name in places if line <= (problem.line or 0)]
        if above and above[-1]:
            filled.faults.setdefault(above[-1], message)
        else:
            trouble.append(message)
    return None, trouble


def _places(filled: _Filled) -> list[tuple[int, str]]:
    """Return the YAML line of each field, with an empty name for lines that belong to no field."""
    from benchhouse.documents.yaml_reader import parse_yaml

    document, places = parse_yaml(filled.text, "the form"), []
    for key, value in filled.scenario.items():
        places.append((document.position((key,), key=True)[0], key if key in _OWN else ""))
        if isinstance(value, dict):
            places += [(document.position((key, name), key=True)[0], f"{key}.{name}") for name in value]
    return sorted(places)


def _group(title: str, prefix: str, inputs: "list[InputKey]", request: Request, filled: _Filled) -> Markup | None:
    if not inputs:
        return None
    lines = [
        _line(
            f"{prefix}.{item.name}", item.type, item.description, request, filled,
            "required" if item.required else parts.written(item.default),
        )
        for item in inputs
    ]  # fmt: skip
    return tag("fieldset", tag("legend", title), *lines)


def _place(workspace: Workspace, request: Request, filled: _Filled) -> Markup:
    executors = " | ".join(workspace.catalog.plugs("executors"))
    return tag(
        "fieldset",
        tag("legend", "Where"),
        _line("executor", executors, "Where jobs go.", request, filled, "that of the site"),
        _line("price_per_hour", "float", "Cost of one node for one hour.", request, filled, "no cost is told"),
    )


def _line(name: str, kind: str, meaning: str, request: Request, filled: _Filled, default: str) -> Markup:
    """Return a field with its description and its mistake."""
    fault = filled.faults.get(name, "")
    choices = [word.strip() for word in kind.split("|")]
    known = ["true", "false"] if kind == "bool" else choices if len(choices) > 1 else []
    suggested = [word for word in known if word.partition("[")[0] not in _WORDS]
    about, wrong = f"{name}-about", f"{name}-fault"
    return tag(
        "div",
        tag("label", name.partition(".")[2] or name, tag("small", f" {kind}", class_="soft"), for_=name),
        tag("input", type="text", id=name, name=name, value=request.query_params.get(name, ""),
            placeholder=default[:80], list=f"{name}-list" if suggested else None, aria_describedby=f"{about} {wrong}",
            aria_invalid="true" if fault else None, autocomplete="off"),
        tag("datalist", *(tag("option", value=word) for word in suggested), id=f"{name}-list") if suggested else None,
        tag("small", meaning, id=about, class_="soft"),
        tag("small", fault, id=wrong, class_="bad fault"),
        class_="field",
    )  # fmt: skip


def _outcome(request: Request, filled: _Filled, plan: "PlanSummary | None", trouble: list[str]) -> list[Content]:
    """Return the plan or its obstacles, and the YAML in any case."""
    content: list[Content] = [tag("h2", "Plan")]
    if plan:
        content += _planned(plan, priced="price_per_hour" in filled.scenario)
    else:
        count = len(filled.faults) + len(trouble)
        content.append(tag("p", f"{count} thing{'' if count == 1 else 's'} to mend", class_="verdict trouble"))
        content.append(
            tag(
                "ul",
                *(tag("li", line) for line in trouble),
                *(tag("li", f"{name}: {line}") for name, line in filled.faults.items()),
            )
        )
    names = ("experiment", *_OWN)
    params = {key: value for key, value in request.query_params.items() if key in names or key.startswith(_PREFIXES)}
    content += [
        tag("h2", "As a file"),
        tag("pre", filled.text, tabindex=0, id="yaml"),
        tag("p", anchor(request, "Download it", "/new/scenario.yaml", **params), ", then: ",
            tag("code", "bench run scenario.yaml")),
        _start(request, filled) if plan else None,
    ]  # fmt: skip
    return content


def _planned(plan: "PlanSummary", *, priced: bool) -> list[Content]:
    estimate = plan.estimate
    unknown = "not known before it ran once" if priced else "not known: give price_per_hour"
    time = "unknown" if estimate.seconds is None else duration(estimate.seconds)
    facts: list[tuple[str, Content]] = [
        ("Trials", f"{plan.trials} = {plan.points} points × {plan.repetitions} repetitions, {plan.order}"),
        ("Axes", ", ".join(plan.axes)),
        ("Time", f"{time} ({estimate.basis})"),
        ("Cost", unknown if estimate.cost is None else number(estimate.cost)),
        ("Where", f"{plan.executor}; {plan.runtime}"),
        ("Storage", plan.storage.text),
        ("Plan digest", tag("code", plan.plan_digest)),
    ]
    points = plan.first_points if plan.first_points and plan.first_points[0] else []
    rows = [[parts.written(value) for value in point.values()] for point in points]
    more = plan.points - len(rows)
    return [
        tag("p", f"{plan.trials} trials of {plan.experiment} {plan.version}", class_="verdict"),
        parts.facts(facts),
        table(list(points[0]), rows, label="First points") if points else None,
        tag("p", f"and {more:,} more points", class_="note") if points and more > 0 else None,
        parts.notes(plan.notes),
    ]


def _start(request: Request, filled: _Filled) -> Markup:
    """Return a button that starts the run; empty if the caller may not."""
    return actions.form(request, "submit", "Start this run", {"scenario": filled.text}, then="/runs/{run_id}")
