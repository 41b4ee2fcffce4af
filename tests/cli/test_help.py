"""`bench --help` and the help of every verb."""

import subprocess
import sys
from pathlib import Path

import pytest

import benchhouse.cli

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


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help(verb, bench):
    done = bench(verb, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: bench {verb}")


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


def test_a_misspelt_verb_is_answered_with_the_nearest(bench):
    done = bench("valdate", "x.yaml")
    assert done.code == 2
    assert "Did you mean 'validate'?" in done.err


@pytest.mark.parametrize("odd", ["../run", "__init__", "", "run.py", "ünïcode"])
def test_an_odd_verb_is_refused(odd, bench):
    done = bench(odd)
    assert done.code == 2
    assert "No such command" in done.err


def test_an_unknown_option_is_bad_input(bench):
    assert bench("plan", "--colour").code == 2


def test_the_version_is_told(bench):
    assert bench("--version").out == f"benchhouse {benchhouse.__version__}\n"
