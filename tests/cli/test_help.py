"""`bench --help` and the help of every verb."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click

import benchhouse.cli
from benchhouse.cli import overview
from benchhouse.cli.nexus import nexus
from benchhouse.schema.errors import BenchError

VERBS = sorted(
    path.stem.removesuffix("_") for path in (Path(benchhouse.cli.__file__).parent / "verbs").glob("[a-z]*.py")
)


def test_help_begins_with_examples_and_lists_every_verb(bench):
    done = bench("--help")
    assert done.code == 0
    assert done.out.index("Examples:") < done.out.index("Options:") < done.out.index("Commands:")
    listed = [line.split() for line in done.out.partition("Commands:")[2].splitlines() if line.strip()]
    told = {words[0]: words[1:] for words in listed if words[0] in VERBS}
    assert sorted(told) == VERBS
    assert all(told.values()), "a verb without a word of help"
    for verb in ("init", "list", "show", "validate", "plan", "run", "submit", "status", "collect", "report", "compare"):
        assert verb in VERBS


def test_the_overview_is_grouped_and_a_line_each_on_a_terminal_of_80_columns(bench, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    commands = bench("--help").out.partition("Commands:")[2]
    titles = [line.strip(" :") for line in commands.splitlines() if line.startswith("  ") and line.endswith(":")]
    assert titles == [*overview.GROUPS, overview.REST]
    lines = [line for line in commands.splitlines() if line.startswith("    ")]
    assert sorted(line.split()[0] for line in lines) == VERBS


def test_a_verb_that_no_group_names_is_listed_all_the_same():
    assert overview.grouped(["brew", "run"]) == {"Run": ["run"], overview.REST: ["brew"]}


def test_each_verb_has_help(bench):
    for verb in VERBS:
        done = bench(verb, "--help")
        assert done.code == 0 and done.out.startswith(f"Usage: bench {verb}"), verb


def every_command(command, path=()):
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below
            yield from every_command(below, (*path, name))


def commands_of(text):
    """The lines of a help that can be typed, one a part of `&&`, without what is said behind them."""
    for line in text.splitlines():
        if line.strip().startswith(("bench ", "nexus ")) and len(line) - len(line.lstrip()) <= 12:
            typed = re.split(r"\s{3,}|\s# |\s>\s", line.strip())[0]
            yield from (part.strip() for part in typed.split("&&"))


EVERY = [(root, path, command) for root in (benchhouse.cli.bench, nexus) for path, command in every_command(root)]


def wrong_examples(root, path, command):
    """Mistakes in the examples of the help of a command."""
    text = command.get_help(click.Context(command, info_name=" ".join((root.name, *path))))
    shown = [*commands_of(text.partition("Examples:")[2].partition("\nOptions:")[0])]
    if not any(f"{line} ".startswith(" ".join((root.name, *path, ""))) for line in shown):
        yield "no example of its own before the options"
    for line in (*shown, *commands_of(command.help or "")):
        _, *words = shlex.split(line)
        here = root
        while isinstance(here, click.Group) and words:
            if not (here := here.get_command(click.Context(here), words.pop(0))):
                break
        try:
            assert here, "no such command"
            here.make_context(here.name, words)  # raises for an option, a choice or a number of arguments that is wrong
        except (AssertionError, click.ClickException) as error:
            yield f"{line}: {error}"


def test_every_help_has_an_example_of_its_own_and_all_examples_are_valid_commands():
    found = {(root.name, *path): list(wrong_examples(root, path, command)) for root, path, command in EVERY}
    assert len(found) > 100
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_no_word_of_a_group_s_commands_is_cut_off(bench, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for path, command in every_command(benchhouse.cli.bench):
        if len(path) == 1 and isinstance(command, click.Group):
            assert "..." not in bench(*path, "--help").out.partition("Commands:")[2]


def test_no_verb_at_all_shows_the_help(bench):
    done = bench()
    assert "Commands:" in done.out + done.err


def test_help_imports_neither_pydantic_nor_rich_nor_duckdb():
    code = (
        "import sys; sys.argv = ['bench', '--help']\n"
        "from benchhouse.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    print(sorted({'pydantic', 'rich', 'duckdb', 'yaml', 'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_the_list_of_experiments_comes_without_pydantic(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_CACHE_DIR", str(tmp_path / "cache"))
    bench("list", "experiments")  # from then on they are described
    code = (
        "import sys; sys.argv = ['bench', 'list', 'experiments']\n"
        "from benchhouse.cli import main\n"
        "try:\n    main()\nfinally:\n    print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.endswith("False\n")


def test_an_odd_verb_is_refused(bench):
    for odd in ("../run", "__init__", "", "run.py", "ünïcode"):
        done = bench(odd)
        assert done.code == 2 and "No such command" in done.err, odd


def test_an_unknown_option_is_bad_input(bench):
    assert bench("plan", "--colour").code == 2


def test_the_version_is_told(bench):
    assert bench("--version").out == f"benchhouse {benchhouse.__version__}\n"


def test_a_misspelled_word_is_answered_with_the_nearest(bench):
    for typed, meant in (
        ("rnu", "run"),
        ("valdate", "validate"),
        ("help", "bench --help"),
        ("version", "bench --version"),
        ("rep", "report"),
    ):
        done = bench(typed)
        assert done.code == 2 and f"Did you mean '{meant}'?" in done.err, typed


def test_wrong_usage_with_json_is_an_answer_in_json(bench):
    for args in (("rnu",), ("plan", "--colour"), ("plan", "--points", "x")):
        done = bench(*args, "--json")
        answer = json.loads(done.out)
        assert done.code == answer["exit_code"] == 2
        assert answer["error"] and "--help" in answer["hint"]
        assert done.err == ""


def test_a_workspace_that_does_not_exist_is_refused(bench, tmp_path):
    done = bench("-C", tmp_path / "nowhere", "status")
    assert done.code == 2
    assert "does not exist" in done.err and "nowhere" in done.err
    (tmp_path / "file").touch()
    assert "is not a folder" in bench("-C", tmp_path / "file", "status").err


def test_colour_of_errors_is_for_terminals_without_no_color(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for no_color, styled in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        benchhouse.cli.show_error(BenchError("broken"))
        assert ("\x1b[" in capsys.readouterr().err) == styled


def test_the_beginning_of_an_experiments_name_is_enough_for_a_hint(bench):
    assert "did you mean 'vector.search'?" in bench("show", "vector").err
