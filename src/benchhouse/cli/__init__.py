"""The command line: parse, call `api`, print. Each verb is one file in `verbs/`; nothing is decided here.

A verb's module is imported only when it is used: `bench --help` reads the first line of each file instead.
"""

import errno
import gc
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from benchhouse.cli.output import OutputError, end_of_output, guard_output
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.progress import show_by
from benchhouse.schema.version import __version__

_OBJECTS = 200_000  # objects made before garbage collection: a short command mostly imports, which leaves none
# Failures of a disk or system that can hit any file: reported in one line, because they are not bugs of this program.
_OF_THE_SYSTEM = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EMFILE, errno.ENFILE,
                  errno.ESTALE)  # fmt: skip
_EXAMPLES = """\b
Examples:
  bench init                               a first scenario in this folder
  bench run scenarios/first.yaml           plan, run, collect, show the result
  bench compare @last                      what differs, and how sure that is
  bench report @last                       one HTML file that opens offline
"""


class Verbs(click.Group):
    """Finds verbs by their files. To add a verb, add a file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_files())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        import importlib

        file = _files().get(cmd_name)
        return importlib.import_module(f"benchhouse.cli.verbs.{file.stem}").command if file else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from benchhouse.api.screen import did_you_mean

            option = f"--{args[0]}" if args[0] in ("help", "version") else ""
            guess = f"bench {option}" if option else did_you_mean(args[0], self.list_commands(ctx))
            hint = f" Did you mean '{guess}'?" if guess else ""
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from benchhouse.cli.overview import first_clause, grouped

        files = _files()
        widest = max(map(len, files))
        with formatter.section("Commands"):
            for title, group in grouped(sorted(files)).items():
                with formatter.section(title):
                    formatter.write_dl([(f"{verb:{widest}}", first_clause(_first_line(files[verb]))) for verb in group])


def _files() -> dict[str, Path]:
    """Return the module file of each verb. A name that Python or its library already uses ends with `_`."""
    paths = (Path(__file__).parent / "verbs").glob("[a-z]*.py")
    return {path.stem.removesuffix("_"): path for path in paths}


def _first_line(path: Path) -> str:
    """Return the first line of a verb's docstring, without importing the verb."""
    with path.open(encoding="utf-8") as file:
        return file.readline().strip().strip('"').rstrip(".")


folder_option = click.option(
    "-C", "folder", metavar="DIR", envvar="BENCH_WORKSPACE", help="Work in DIR instead of the current folder."
)


@click.command(cls=Verbs, help=f"Benchmarks whose every number walks back to raw bytes.\n\n{_EXAMPLES}")
@folder_option
@click.version_option(__version__, message="benchhouse %(version)s")
@click.pass_context
def bench(ctx: click.Context, folder: str | None) -> None:
    if folder and not Path(folder).is_dir():
        missing = "is not a folder" if Path(folder).exists() else "does not exist"
        raise BenchError(f"the folder of the workspace {missing}: {folder}", "give one that exists: bench -C DIR")
    ctx.obj = folder


def main() -> None:
    """Run the command line."""
    run(bench, "bench")


def run(command: click.Command, name: str) -> NoReturn:
    """Run a command and exit. Every error of ours is printed once, here, and becomes the exit code."""
    gc.set_threshold(_OBJECTS)
    guard_output()
    show_by(lambda text: click.echo(text, err=True))
    try:
        code = _exit_code(command, name)
        sys.stdout.flush()
    except OutputError as error:
        code = end_of_output(error)
    gc.disable()  # the rest is freed with the process
    sys.exit(code)


def _exit_code(command: click.Command, name: str) -> str | int | None:
    try:
        code = command.main(prog_name=name, standalone_mode=False, auto_envvar_prefix="BENCH")
    except SystemExit as end:
        return end.code
    except click.exceptions.Abort:
        return Exit.INTERRUPTED
    except click.ClickException as error:
        if _wants_json() and error.exit_code == Exit.BAD_INPUT:
            path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else name
            show_error(BenchError(error.format_message(), f"see: {path} --help"))
        else:
            error.show()
        return error.exit_code
    except BenchError as error:
        show_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return Exit.INTERRUPTED
    except OutputError:
        raise
    except OSError as error:
        if error.errno not in _OF_THE_SYSTEM:
            raise
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        show_error(BenchError(message, "look at the disk, and at who may use it; what is sealed stays"))
        return Exit.TRIAL_FAILED
    return code if isinstance(code, int) else Exit.GOOD


def _wants_json() -> bool:
    return "--json" in sys.argv


def show_error(error: BenchError) -> None:
    """Print an error with its hint; as JSON on stdout if JSON was requested."""
    if _wants_json():
        import json

        problems = [problem.as_dict() for problem in getattr(error, "problems", [])]
        document = {"error": error.message, "hint": error.hint, "problems": problems, "exit_code": int(error.exit_code)}
        click.echo(json.dumps(document, indent=2))
        return
    colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    label = click.style("error:", fg="red", bold=True) if colours else "error:"
    from benchhouse.api.screen import on_stderr
    from benchhouse.schema.quoting import visible

    click.echo(on_stderr(f"{label} {visible(error.message)}"), err=True)
    if error.hint:
        click.echo(on_stderr(f"  {visible(error.hint)}"), err=True)
