"""Read what trials, servers and workers said: get, tail, prune."""

import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples

if TYPE_CHECKING:
    from benchhouse.runs.logs import Selection
    from benchhouse.schema.logs import LogLine

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TIMES = "90s, 10m, 2h ago, or 2026-11-15T10:00 (UTC, or with a zone)"
_EXAMPLES = """\b
Examples:
  bench logs tail @last --follow              all components of all trials, as it comes
  bench logs tail @last --component postgres -n 50
  bench logs get @last --since 10m -o logs.tar.gz
"""


def _filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which lines; the function is given a `selection` of them."""

    @functools.wraps(function)
    def selecting(
        *, components: tuple[str, ...], trials: tuple[str, ...], since: str | None, until: str | None, **others: Any
    ) -> Any:
        from benchhouse.runs import logs

        return function(selection=logs.select(components, trials, since, until), **others)

    for option in (
        click.option("--until", metavar="TIME", help="Only lines before then."),
        click.option("--since", metavar="TIME", help=f"Only lines from then on: {_TIMES}."),
        click.option("--trial", "trials", metavar="ID", multiple=True, help="Only this trial; may be given again."),
        click.option(
            "--component",
            "components",
            metavar="NAME",
            multiple=True,
            help="Only experiment, worker, orchestrator or a server's name; may be given again.",
        ),
    ):
        option(selecting)
    return selecting


@click.group(help=f"{__doc__}\n\n{_EXAMPLES}")
def command() -> None:
    pass


@command.command(
    help="Pack the logs of a run into a tarball, with a manifest of what is inside."
    + examples("bench logs get @last", "bench logs get @last --since 10m -o logs.tar.gz")
)
@options.run_argument()
@_filters
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Default: RUN-logs.tar.gz."
)
@options.json_option
@click.pass_context
def get(ctx: click.Context, run: str, selection: "Selection", output: Path | None, as_json: bool) -> None:
    from benchhouse.runs import log_files, status

    workspace = options.workspace(ctx).folder
    run_id = status.find_run(workspace, run)
    output = output or Path(f"{run_id}-logs.tar.gz")
    manifest = log_files.pack(workspace, run_id, selection, output)
    if as_json:
        screen.as_json({"output": str(output), **manifest.model_dump(mode="json")})
        return
    click.echo(output)
    lines = sum(file.lines for file in manifest.files)
    screen.note(f"{screen.count(len(manifest.files), 'file')}, {screen.count(lines, 'line')}")
    if manifest.left_out:
        screen.note(
            f"{screen.count(len(manifest.left_out), 'raw log')} left out: raw lines have no times; see manifest.json"
        )


@command.command(
    help="Show the newest lines of all trials and components, in the order of their times."
    + examples("bench logs tail @last --follow", "bench logs tail @last --component worker -n 50")
)
@options.run_argument()
@_filters
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until the run has ended.")
@click.option("-n", "--lines", "n", metavar="N", type=click.IntRange(0), default=20, help="How many (20).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
@click.pass_context
def tail(ctx: click.Context, run: str, selection: "Selection", follow: bool, n: int, as_json: bool) -> None:
    from benchhouse.runs import logs, status

    workspace = options.workspace(ctx).folder
    run_id = status.find_run(workspace, run)
    if not follow:
        batches = iter([logs.tail(workspace, run_id, selection, n)])
    else:
        batches = logs.follow(workspace, run_id, selection, n)
    shown = _Shown(colours=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    for lines in batches:
        for line in lines:
            click.echo(line.model_dump_json(exclude_unset=True) if as_json else shown.text(line), color=shown.colours)
        sys.stdout.flush()


@command.command(
    help="Remove old logs of workers, orchestrators and Slurm jobs, and those of servers and monitors that have ended. "
    "Trials keep theirs: they are evidence, sealed and hashed."
    + examples("bench logs prune --older-than 30d --dry-run")
)
@click.option("--older-than", metavar="TIME", help="By their last change: 30d, 12h. Default: keep_logs of the site.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@options.json_option
@click.pass_context
def prune(ctx: click.Context, older_than: str | None, dry_run: bool, as_json: bool) -> None:
    from benchhouse.runs import log_files
    from benchhouse.schema.quantities import parse_seconds, show_bytes

    workspace = options.workspace(ctx).folder
    try:
        older_than_s = parse_seconds(older_than) if older_than else log_files.keep_logs_s(workspace)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param_hint="--older-than") from error
    pruned = log_files.prune(workspace, older_than_s, dry_run=dry_run)
    if as_json:
        screen.as_json(pruned.model_dump())
        return
    for path in pruned.removed:
        click.echo(path)
    screen.note(f"{len(pruned.removed)} {'would be' if dry_run else 'were'} removed ({show_bytes(pruned.size)})")


class _Shown:
    """Lines for people: time, trial, component, words. Each component has a colour for as long as the command runs."""

    def __init__(self, *, colours: bool) -> None:
        self.colours = colours
        self._of: dict[str, str] = {}

    def text(self, line: "LogLine") -> str:
        colour = self._of.setdefault(line.component, _COLOURS[len(self._of) % len(_COLOURS)])
        name = click.style(f"{line.component:<10}", fg=colour) if self.colours else f"{line.component:<10}"
        return f"{line.time[11:-1]} {line.trial_id[:8]:<8} {name} {_words(line)}"


def _words(line: "LogLine") -> str:
    """What a terminal may be shown: the last state of a progress bar, no colours or commands of a stranger's."""
    if line.message:
        said = f"{line.level}: {line.message}" if line.level not in ("", "info") else line.message
        said = " ".join([said, *(f"{name}={value}" for name, value in line.more.items())])
    else:
        said = line.line.rpartition("\r")[2] + (" [...]" if line.cut else "")
    return _CONTROL.sub("", click.unstyle(said))
