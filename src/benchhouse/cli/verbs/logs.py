"""Read the logs of trials, servers, and workers: get, tail, prune."""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands

if TYPE_CHECKING:
    from benchhouse.api.observation import LogFilters
    from benchhouse.schema.logs import LogLine

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TIMES = "90s, 10m, 2h ago, or 2026-11-15T10:00 (UTC, or with a zone)"


command = commands.group(
    __doc__,
    "bench logs tail @last --follow   all components of all trials, as lines are written",
    "bench logs tail @last --component postgres -n 50",
    "bench logs get @last --since 10m -o logs.tar.gz",
)
_filter_options = commands.together(
    click.option("--component", "components", metavar="NAME", multiple=True,
                 help="Only experiment, worker, orchestrator, slurm, or the server of that name; repeatable."),
    click.option("--trial", "trials", metavar="ID", multiple=True, help="Only this trial; repeatable."),
    click.option("--since", metavar="TIME", help=f"Only lines from this time on: {_TIMES}."),
    click.option("--until", metavar="TIME", help="Only lines before this time."),
)  # fmt: skip


@command.verb(
    "Pack the logs of a run into a tarball, with a manifest of its content.",
    "bench logs get @last",
    "bench logs get @last --since 10m -o logs.tar.gz",
)
@commands.run_argument()
@_filter_options
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Default: RUN-logs.tar.gz."
)
def get(workspace: Workspace, /, run: str, output: Path | None, as_json: bool, **filters: Unpack["LogFilters"]) -> None:
    archive = workspace.logs.get(run, output, **filters)
    manifest = archive.manifest
    if as_json:
        screen.as_json(archive.to_dict())
        return
    click.echo(archive.path)
    lines = sum(file.lines for file in manifest.files)
    screen.note(f"{screen.count(len(manifest.files), 'file')}, {screen.count(lines, 'line')}")
    if manifest.left_out:
        screen.note(
            f"{screen.count(len(manifest.left_out), 'raw log')} left out: raw lines have no times; see manifest.json"
        )


@command.verb(
    "Show the newest lines of all trials and components, in the order of their times.",
    "bench logs tail @last --follow",
    "bench logs tail @last --component worker -n 50",
    json=False,
)
@commands.run_argument()
@_filter_options
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the run has ended.")
@click.option("-n", "--lines", metavar="N", type=click.IntRange(0), default=20, help="Number of lines (20).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def tail(
    workspace: Workspace, /, run: str, follow: bool, lines: int, as_json: bool, **filters: Unpack["LogFilters"]
) -> None:
    logs = workspace.logs
    batches = logs.follow(run, lines, **filters) if follow else iter([logs.tail(run, lines, **filters)])
    style = _Style(colours=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    for batch in batches:
        for line in batch:
            click.echo(line.model_dump_json(exclude_unset=True) if as_json else style.text(line), color=style.colours)
        sys.stdout.flush()


@command.verb(
    "Remove old logs of workers, orchestrators and Slurm jobs, and those of servers and monitors that have ended. "
    "Trials keep theirs: they are evidence, sealed and hashed.",
    "bench logs prune --older-than 30d --dry-run",
)
@click.option("--older-than", "older_than_s", type=commands.DURATION, metavar="TIME",
              help="Age since their last change: 30d, 12h. Default: keep_logs of the site.")  # fmt: skip
@commands.dry_run_option
def prune(workspace: Workspace, older_than_s: float | None, dry_run: bool, as_json: bool) -> None:
    pruned = workspace.logs.prune(older_than_s, dry_run=dry_run)
    if as_json:
        screen.as_json(pruned)
        return
    for path in pruned.removed:
        click.echo(path)
    screen.note(f"{len(pruned.removed)} {'would be' if dry_run else 'were'} removed ({screen.size(pruned.size)})")


@command.verb(
    "Print the configuration of Fluent Bit that sends what pods print to `search` of workspace.yaml.",
    "bench logs fluent-bit > fluent-bit.yaml",
    name="fluent-bit",
    json=False,
)
def fluent_bit(workspace: Workspace) -> None:
    click.echo(workspace.logs.fluent_bit(), nl=False)


class _Style:
    """Lines for people: time, trial, component, text. Each component keeps its color while the command runs."""

    def __init__(self, *, colours: bool) -> None:
        self.colours = colours
        self._of: dict[str, str] = {}

    def text(self, line: "LogLine") -> str:
        colour = self._of.setdefault(line.component, _COLOURS[len(self._of) % len(_COLOURS)])
        name = click.style(f"{line.component:<10}", fg=colour) if self.colours else f"{line.component:<10}"
        return f"{line.time[11:-1]} {line.trial_id[:8]:<8} {name} {_printable(line)}"


def _printable(line: "LogLine") -> str:
    """Return the last state of a progress bar, without the colors and control characters that a program printed."""
    if line.message:
        text = f"{line.level}: {line.message}" if line.level not in ("", "info") else line.message
        text = " ".join([text, *(f"{name}={value}" for name, value in line.more.items())])
    else:
        text = line.line.rpartition("\r")[2] + (" [...]" if line.cut else "")
    return _CONTROL.sub("", click.unstyle(text))
