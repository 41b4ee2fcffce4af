"""How commands are declared: their help with examples, `--json`, the workspace they work in, and shared options."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.shell_completion import CompletionItem

from benchhouse.cli.overview import first_clause

if TYPE_CHECKING:
    from benchhouse.api.placement import Placement
    from benchhouse.api.workspace import Workspace
    from benchhouse.schema.query import QueryLimits
    from benchhouse.schema.resources import Budget

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def help_with(text: str, *examples: str) -> dict[str, Any]:
    """Return `help`, which ends with example commands, and `short_help`, its first clause.

    In an example, three spaces separate the command from its description.
    """
    parts = [line.partition("   ") for line in examples]
    width = max(len(typed) for typed, _, _ in parts)
    lines = [f"  {typed:<{width}}   {about.strip()}".rstrip() for typed, _, about in parts]
    sentence = text.strip().partition("\n")[0].partition(". ")[0]
    return {
        "help": f"{text}\n\n\b\nExamples:\n" + "\n".join(lines),
        "short_help": first_clause(sentence).rstrip("."),
    }


def verb(
    text: str, *examples: str, name: str | None = None, json: bool = True, cls: type[click.Command] = click.Command
) -> Callable[[Function], click.Command]:
    """Make a function a command, named after it. It is called with the workspace first, and with `as_json`."""

    def declare(function: Function) -> click.Command:
        @functools.wraps(function)
        def callback(**given: Any) -> Any:
            return function(open_workspace(click.get_current_context()), **given)

        own_name = name or function.__name__.strip("_").replace("_", "-")
        command = click.command(own_name, cls=cls, **help_with(text, *examples))(callback)
        if json:
            command.params.append(click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."))
        return command

    return declare


class CommandGroup(click.Group):
    """A command with verbs of its own."""

    def verb(self, text: str, *examples: str, **settings: Any) -> Callable[[Function], click.Command]:
        """Declare a verb of this group; `settings` as in `verb`."""

        def declare(function: Function) -> click.Command:
            command = verb(text, *examples, **settings)(function)
            self.add_command(command)
            return command

        return declare

    def subgroup(self, name: str, text: str, *examples: str) -> "CommandGroup":
        """Declare a group below this one."""
        group = CommandGroup(name, **help_with(text, *examples))
        self.add_command(group)
        return group


def group(text: str, *examples: str) -> CommandGroup:
    """Return a verb of `bench` that has verbs of its own. It is named after its file."""
    return CommandGroup(**help_with(text, *examples))


def open_workspace(ctx: click.Context) -> "Workspace":
    """Return the workspace that `-C` names, otherwise the one in the current folder."""
    from benchhouse.api.workspace import Workspace

    workspace = Workspace(ctx.obj)
    workspace.catch_up(_note)
    return workspace


def _note(text: str) -> None:
    from benchhouse.api import screen

    screen.note(text)


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2
    """A time above zero such as `90s`, `10m`, or `1h30m`, as seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from benchhouse.schema.quantities import parse_seconds

        try:
            seconds = float(parse_seconds(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail(f"the time must be above zero, not {value}", param, ctx)
        return seconds


class ShareType(click.ParamType):  # type: ignore[type-arg]
    """A share above 0 and below 1, written 3% or 0.03."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
        except ValueError:
            share = 0.0
        if not 0.0 < share < 1.0:
            self.fail(f"{text!r} is not a share: write 3% or 0.03", param, ctx)
        return share


class MemoryType(click.ParamType):  # type: ignore[type-arg]
    """An amount of memory in bytes. `64G` is 64 GiB, as in Slurm."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from benchhouse.schema.resources import value_of

        text = str(value).strip()
        try:
            return int(value_of("memory", f"{text}i" if text[-1:].lower() in ("k", "m", "g", "t") else text))
        except ValueError as error:
            self.fail(str(error).rpartition("Value error, ")[2], param, ctx)


DURATION = Duration()
SHARE = ShareType()
FILE = click.Path(path_type=Path)


def completing(names: "Callable[[Workspace], dict[str, str]]") -> Complete:
    """Complete the names that `names` returns, each with its description; nothing if `-C` does not name a folder."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from benchhouse.api.workspace import Workspace
        from benchhouse.schema.errors import BenchError

        try:
            workspace = Workspace(ctx.find_root().params.get("folder"))
        except BenchError:  # a shell that completes a word can't show the error
            return []
        items = names(workspace).items()
        return [CompletionItem(name, help=about or None) for name, about in items if name.startswith(incomplete)]

    return complete


complete_run = completing(lambda ws: dict.fromkeys(["@last", *(run.id for run in reversed(ws.runs()))], ""))
complete_experiment = completing(
    lambda ws: {item.name: item.description for item in ws.catalog.experiments(installed_only=True)}
)


def complete_plug(group: Literal["executors", "runtimes"]) -> Complete:
    return completing(lambda ws: dict.fromkeys(ws.catalog.plugs(group), ""))


def together(*options: Decorator) -> Decorator:
    """Return several options as one decorator, in the order of the help."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def run_argument(default: str | None = "@last", **extra: Any) -> Decorator:
    return click.argument("run", default=default, shell_complete=complete_run, **extra)


def scenario_argument(required: bool = True) -> Decorator:
    return click.argument("scenario", required=required, type=FILE)


scenario_or_config = together(
    scenario_argument(required=False),
    click.option("-c", "--config", type=FILE, help="The same as SCENARIO."),
)
confidence_option = click.option("--confidence", default=0.95, show_default=True, type=click.FloatRange(0.5, 0.9999))


def _budget_option(text: str) -> Decorator:
    return click.option("--budget", "budgets", multiple=True, metavar="NAME=VALUE", help=text)


budget_option = _budget_option(
    "What each run may use that is started by somebody with less than the role approve: trials=100, wall=1h, "
    "cpu=2h or cost=5; repeatable."
)
whole_budget_option = _budget_option(
    "What all runs together may use: trials=100, wall=8h, cpu=16h or cost=50; repeatable."
)
query_limit_option = click.option(
    "--query-limit",
    "query_limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="What a query of somebody else may cost: memory=512MiB, answer=8MiB, spill=1GiB, seconds=60, rows=100000; how "
    "many run at_once=3, and how long others wait=10s; repeatable.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only list what would be done.")
metric_options = together(
    click.option("--metric", help="Which metric; by default the first that has a direction."),
    click.option("--stat", help="Which statistic of it: value, mean, p99, ..."),
)
nexus_option = click.option(
    "--nexus", metavar="DIR", envvar="BENCH_NEXUS", help="Folder with packages/; else the nearest above."
)
outliers_option = click.option(
    "--outliers",
    type=click.Choice(["keep", "mad"]),
    default="keep",
    show_default=True,
    help="mad: leave out values 5 robust deviations off. How many there are is reported either way.",
)
runs_option = click.option("--run", "runs", multiple=True, metavar="RUN", help="Only this run; repeatable.")
where_option = click.option(
    "--where", "conditions", multiple=True, metavar="PROPERTY=VALUE", help="Of a logical benchmark; repeatable."
)
which_options = together(
    click.option("--all", is_flag=True, help="Every benchmark of the nexus that can be run."),
    click.option("--package", metavar="NAME", help="Those of a package."),
    click.option("--model", metavar="ID", help="Those of a model, by its id or its folder."),
    click.option("--changed-since", metavar="REF",
                 help="Those that differ from where the checkout left this branch, tag or commit, and all that use "
                      "them."),
)  # fmt: skip
where_options = together(  # by default, the scenario's settings, otherwise the site's
    click.option("--executor", "--engine", metavar="NAME", help="Where jobs go, whatever the scenario says.",
                 shell_complete=complete_plug("executors")),
    click.option("--runtime", metavar="NAME", help="What jobs run inside, whatever the scenario says.",
                 shell_complete=complete_plug("runtimes")),
    click.option("--site", metavar="SITE", help="Site profile, by name or file; see: bench site list."),
)  # fmt: skip


contract_option = click.option(
    "--contract", type=FILE, metavar="FILE", help="Contract that governs the run, whatever the scenario says."
)
job_options = together(
    click.option("--executor", metavar="NAME", help="Where it runs: local, or slurm for a job on a compute node.",
                 shell_complete=complete_plug("executors")),
    click.option("--site", metavar="SITE", help="Site profile, by name or file."),
    click.option("--time", "time_s", type=DURATION, help="Time limit of its batch job, e.g. 2h."),
    click.option("--nodes", type=click.IntRange(1), help="Nodes of its batch job, if the recipe can use several."),
    click.option("--cpus", type=click.IntRange(1), help="Cores of its batch job, on each node."),
    click.option("--gpus", type=click.IntRange(0), help="GPUs of its batch job; by default as the recipe says."),
    click.option("--mem", "memory", type=MemoryType(), help="Memory of its batch job: 64G, as Slurm counts."),
    click.option("--partition", metavar="NAME", help="Partition of its batch job; by default that of the site."),
    click.option("--node", metavar="NAME", help="Node that its batch job runs on; by default any."),
    click.option("--account", metavar="NAME", help="Account to charge."),
    click.option("--qos", metavar="NAME", help="Quality of service."),
)  # fmt: skip


def placement_of(settings: dict[str, Any]) -> "Placement":
    """Return the placement that `job_options` describe, and remove these options from the settings."""
    from benchhouse.api.placement import Placement

    asked = {name: settings.pop(name) for name in ("nodes", "cpus", "gpus", "memory")}
    given = {name: settings.pop(name) for name in ("executor", "site", "time_s", "partition", "account", "qos", "node")}
    return Placement(**given, resources={name: value for name, value in asked.items() if value is not None})


def logical_options(function: Function) -> Function:
    """Let SCENARIO be `logical:ID`: these options select the part of that logical benchmark that becomes the
    scenario."""

    @functools.wraps(function)
    def made(*args: Any, **given: Any) -> Any:
        names = ("targets", "conditions", "bound", "settings", "repetitions")
        targets, conditions, bound, settings, repetitions = (given.pop(name) for name in names)
        scenario = str(given.get("scenario") or "")
        if scenario.startswith("logical:"):
            given["scenario"] = open_workspace(click.get_current_context()).leaderboards.scenario(
                scenario.removeprefix("logical:"),
                targets=targets,
                where=pairs(conditions, "--where"),
                settings=pairs(settings, "--set"),
                repetitions=repetitions or 1,
                experiment=bound,
            )
        elif targets or conditions or bound or settings or repetitions:
            raise click.UsageError("--target, --where, --experiment, --set and --repetitions go with logical:ID")
        return function(*args, **given)

    return together(
        click.option("--target", "targets", multiple=True, metavar="NAME", help="With logical:ID: what to measure."),
        where_option,
        click.option("--experiment", "bound", metavar="NAME", help="With logical:ID: the binding to run by."),
        click.option("--set", "settings", multiple=True, metavar="INPUT=VALUE", help="With logical:ID: an open input."),
        click.option("--repetitions", type=click.IntRange(min=1), help="With logical:ID: trials a point."),
    )(made)


def pairs(texts: tuple[str, ...], option: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """Return the `KEY=VALUE` pairs of a repeatable option. `form` is how its help writes them."""
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"{option} {text!r} is not {form}")
        if key in values:
            raise click.UsageError(f"{option} {key} is given twice")
        values[key] = value
    return values


def query_limits_of(texts: tuple[str, ...]) -> "QueryLimits":
    """Return the limits that `--query-limit NAME=VALUE` options set, with the defaults for the others."""
    from benchhouse.schema.query import named_query_limits

    return named_query_limits(pairs(texts, "--query-limit", "NAME=VALUE"))


def budget_of(texts: tuple[str, ...]) -> "Budget | None":
    """Return the budget that `--budget NAME=VALUE` options set; None if there are none."""
    from benchhouse.schema.resources import named_budget

    return named_budget(pairs(texts, "--budget", "NAME=VALUE"))
