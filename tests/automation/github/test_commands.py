"""Which line of a comment is a command, and what it says."""

import time

import pytest
from tables import check_table

from benchhouse.automation.github.commands import CommentCommand, find_command, parse_command
from benchhouse.schema.errors import BenchError

QUOTED_MAIL = """Looks good to me.

On Tue, Jan 6, 2026 at 9:12 AM Mallory <m@example.org> wrote:

/bench stop @last
"""


@check_table(
    "comment, line",
    [
        ("/bench help", "/bench help"),
        ("Please look.\n/bench run s\nThanks!", "/bench run s"),
        ("Please look.\r\n\r\n/bench run s --set k=a*b_c\r\n", "/bench run s --set k=a*b_c"),
        ("/bench run `s`", "/bench run `s`"),
        ("nothing", None),
        ("see /bench run s", None),
        ("/benchmark run s", None),
        ("> /bench run s", None),
        ("> quoted\n/bench run s", None),  # goes on with the quote, as GitHub shows it
        ("> quoted\n\n/bench run s", "/bench run s"),
        ("```\n/bench run s\n```", None),
        ("~~~~ sh\n/bench run s", None),
        ("    /bench run s", None),
        ("`code\n/bench run s\nstill code`", None),
        ("- item\n  /bench run s", None),
        ("# head\n/bench run s", "/bench run s"),
        ("/bench run s\n===", None),
        ("<!-- a template\n/bench run s\n-->", None),
        ("<details>\n/bench run s\n</details>", None),
        ("text <!-- hidden\n/bench run s -->", None),
        (QUOTED_MAIL, None),
        ("ok\n\n-----Original Message-----\n/bench stop x", None),
        ("/bench status\n\nOn Tue someone wrote:\n> /bench stop x", "/bench status"),
    ],
)
def test_only_a_line_of_the_comments_own_text_counts(comment, line):
    assert find_command(comment) == line


def test_two_commands_in_one_comment_are_refused():
    with pytest.raises(BenchError, match="one command"):
        find_command("/bench run a\n/bench run b")


@check_table(
    "line, command",
    [
        ("/bench", CommentCommand("help")),
        ("/bench run nightly", CommentCommand("run", "nightly")),
        (
            "/bench run 'a b.yaml' --set a.b=1 --set=c=x=y",
            CommentCommand("run", "a b.yaml", (("a.b", "1"), ("c", "x=y"))),
        ),
        ("/bench run $(reboot);`id`|tee>x&", CommentCommand("run", "$(reboot);`id`|tee>x&")),
        ("/bench run ../../etc/passwd", CommentCommand("run", "../../etc/passwd")),
        ("/bench compare @last-1", CommentCommand("compare", "@last-1")),
        ("/bench status", CommentCommand("status")),
        ("/bench stop 2026", CommentCommand("stop", "2026")),
        ("/bench approve 0123abcd-1", CommentCommand("approve", "0123abcd-1")),
    ],
)  # fmt: skip
def test_a_command_is_split_as_a_shell_would_and_no_further(line, command):
    assert parse_command(line) == command


@check_table(
    "line",
    [
        "/bench run", "/bench run a b", "/bench run 'a", "/bench run a --set", "/bench run a --set k",
        "/bench rm -rf /", "/bench run a --executor slurm", "/bench status --json", "/bench stop a\x1b[2J",
        "/bench run " + "x" * 3000,
    ],
)  # fmt: skip
def test_an_unknown_command_gives_a_hint(line):
    with pytest.raises(BenchError) as error:
        parse_command(line)
    assert error.value.hint


@check_table("piece", ["`a", "[a](b", "> ", "a\n", "<!--", "- ", "/bench run x\n", "[a]: \n"])
def test_a_long_comment_is_read_in_seconds(piece):
    begin = time.process_time()
    try:
        find_command((piece * 60_000)[:60_000])
    except BenchError:
        assert piece == "/bench run x\n"
    assert time.process_time() - begin < 15


@check_table(
    "line, which",
    [
        ("/bench evaluate --changed-since origin/main", ("changed_since", "origin/main")),
        ("/bench evaluate --package=terratorch", ("package", "terratorch")),
        ("/bench evaluate --model ibm/prithvi", ("model", "ibm/prithvi")),
        ("/bench evaluate --all", ("all", "")),
    ],
)
def test_an_evaluation_names_its_benchmarks(line, which):
    assert parse_command(line) == CommentCommand("evaluate", settings=(which,))


@check_table(
    "words",
    ["", "main", "--all --model x", "--all=1", "--changed-since", "--changed-since=", "--changed-since --output=/tmp/x",
     "--nexus /tmp", "--budget trials=1", "--package a b", "'--all; reboot'"],
)  # fmt: skip
def test_an_unknown_choice_is_refused(words):
    with pytest.raises(BenchError, match="say which benchmarks, once"):
        parse_command(f"/bench evaluate {words}")
