"""How text meets a terminal: `report/terminal/screen.py`."""

import sys

import pytest

from benchhouse.report.terminal import screen

LONG = "note: " + "one of " + ", ".join(["alphabet", "betatest", "gammaray"] * 6)


@pytest.fixture
def printed(monkeypatch, capsys):
    """What `note` prints where standard error is a terminal of 80 columns."""

    def note(text):
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", "80")
            patch.setattr(sys.stderr, "isatty", lambda: True)
            screen.note(text)
        return capsys.readouterr().err.splitlines()

    return note


def test_a_note_breaks_at_spaces_on_a_terminal(printed):
    lines = printed(LONG)
    assert len(lines) > 1 and max(map(len, lines)) <= 80
    assert " ".join(line.strip() for line in lines) == LONG


def test_what_was_expected_breaks_at_spaces_and_the_quoted_line_of_a_file_stays_as_it_is(printed):
    quoted = f"    3 | {'x: ' + 'y ' * 60}"
    broken = printed(f"s.yaml:3:1: unknown key\n{quoted}\n  expected: {LONG}")
    assert broken[1] == quoted
    assert max(len(line) for line in broken if line != quoted) <= 80
    assert broken[2].startswith("  expected: note: one of")
    assert all(word in LONG.split() for line in broken[3:] for word in line.split())


def test_a_command_to_copy_stays_in_one_piece(printed):
    command = "bench run --resume 20260412-101500-3072c1d --rerun-failed --parallel 4"
    lines = printed(f"these trials can be tried again, whenever you like, by:  {command}")
    assert [line.strip() for line in lines] == ["these trials can be tried again, whenever you like, by:", command]


def test_nothing_is_broken_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    screen.note(LONG)
    assert capsys.readouterr().err == LONG + "\n"


@pytest.mark.parametrize("columns", [None, "", "wide", "0"])
def test_a_table_in_a_pipe_is_as_wide_as_it_needs_unless_columns_says_otherwise(monkeypatch, capsys, columns):
    monkeypatch.delenv("COLUMNS")
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    screen.table(("a", "b"), [("x" * 300, "y" * 300)])
    assert max(map(len, capsys.readouterr().out.splitlines())) > 600


def test_a_number_is_not_broken_between_its_thousands(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    screen.table(("metric", "change"), [("build_s", "+35\u2009779.2% (+16\u2009255.3% to +78\u2009609.7%)")])
    words = {word for line in capsys.readouterr().out.splitlines()[2:] for word in line.split(" ")}
    assert words >= {"+35\u2009779.2%", "(+16\u2009255.3%", "+78\u2009609.7%)"}


def test_a_long_fact_goes_on_below_itself_and_loses_no_word(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    screen.facts([("storage", "about 1.2 MiB in 216 files; 62.5 GiB and 15,885,808 files left"), ("trials", "12")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "storage  about 1.2 MiB in 216 files;" and lines[-1] == "trials   12"
    assert all(line.startswith(" " * 9) for line in lines[1:-1])
    assert "15,885,808" in " ".join(lines).split()


def test_a_column_goes_before_a_value_of_another_is_broken_in_two(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "34")
    rows = [("values.n=4000000", "43.2 ± 28", "12.9 ± 1.1")]
    dropped = screen.table(("point", "wall", "cpu"), rows, right=("wall", "cpu"), whole=("wall", "cpu"), spare=("cpu",))
    assert dropped == ["cpu"] and "values.n=4000000 " in capsys.readouterr().out
