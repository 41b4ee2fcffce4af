"""How commands are declared: their help with its examples, `--json`, and the workspace that they work in."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from benchhouse.cli.overview import first_clause

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace

Function = Callable[..., Any]


def help_with(text: str, *examples: str) -> dict[str, Any]:
    """`help`, which ends with commands as they are typed, and `short_help`, its first clause.

    What an example does stands three blanks behind it.
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
    """Make a function a command, named after it: it is called with the workspace first, and with `as_json`."""

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


class Group(click.Group):
    """A command with verbs of its own."""

    def verb(self, text: str, *examples: str, **settings: Any) -> Callable[[Function], click.Command]:
        """Declare one of them; `settings` as of `verb`."""

        def declare(function: Function) -> click.Command:
            command = verb(text, *examples, **settings)(function)
            self.add_command(command)
            return command

        return declare

    def subgroup(self, name: str, text: str, *examples: str) -> "Group":
        """Declare a group below this one."""
        group = Group(name, **help_with(text, *examples))
        self.add_command(group)
        return group


def group(text: str, *examples: str) -> Group:
    """A verb of `bench` that has verbs of its own; it is named after its file."""
    return Group(**help_with(text, *examples))


def open_workspace(ctx: click.Context) -> "Workspace":
    """The workspace that `-C` names, else the current folder."""
    from benchhouse.api.workspace import Workspace

    return Workspace(ctx.obj)
