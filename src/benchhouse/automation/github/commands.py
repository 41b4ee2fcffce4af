"""The command in a comment: found as GitHub's Markdown has it, split as a shell would, never given to a shell. Pure."""

import re
import shlex
from dataclasses import dataclass
from typing import Literal, get_args

from markdown_it import MarkdownIt
from markdown_it.token import Token

from benchhouse.automation.github.deliveries import WORD
from benchhouse.schema.errors import BenchError
from benchhouse.schema.quoting import quote
from benchhouse.schema.roles import Role

Name = Literal["run", "evaluate", "compare", "status", "stop", "approve", "help"]
NEEDS: dict[Name, Role] = {
    "run": "run", "evaluate": "admin", "compare": "read", "status": "read", "stop": "run", "approve": "approve",
    "help": "read",
}  # fmt: skip
HELP = """/bench run NAME|FILE [--set key=value]   run a scenario of the workspace
/bench evaluate --changed-since REF      run the registered benchmarks that a change touches; or: --package NAME,
                                         --model ID, --all
/bench compare RUN|BRANCH                the last run of this thread against RUN: an id, a scenario, @last-1; or
                                         against the newest of the same scenario that measured BRANCH
/bench status [RUN]                      how a run stands; by default the last of this thread
/bench stop RUN                          end a run or an evaluation
/bench approve DIGEST                    approve a plan that needs it, by the name of its request or its digest
/bench help                              this"""
_BLOCKS = ("fence", "code", "blockquote", "list", "html_block", "heading", "lheading", "hr", "reference")
_MAIL = re.compile(r"-+ ?original message ?-+|_{10,}|on .{1,200} wrote:|from: .+|reply to this email directly.*", re.I)
_LONGEST = 2000  # characters of one command
_WHICH = ("changed-since", "package", "model")  # the selections of an evaluation, each with a value; and --all


@dataclass(frozen=True)
class CommentCommand:
    """A command of a comment."""

    name: Name
    about: str = ""
    """The scenario, run, or digest."""
    settings: tuple[tuple[str, str], ...] = ()
    """For a run, the changes of `--set`; for an evaluation, its selection of benchmarks."""


def find_command(text: str) -> str | None:
    """Return the line that begins with `/bench`; None if there is none. Raise BenchError if there are several.

    Only lines in a comment's own paragraphs count: no quote, list, code, HTML, or heading, and no text of a mail that
    it answers.
    """
    lines = []
    for line in _command_lines(text):
        if _MAIL.fullmatch(line.strip()):
            break
        if line == WORD or line.startswith((f"{WORD} ", f"{WORD}\t")):
            lines.append(line)
    if len(lines) > 1:
        raise BenchError(f"a comment gives one command, and this has {len(lines)}", "write a comment for each")
    return lines[0] if lines else None


def parse_command(line: str) -> CommentCommand:
    """Return the parsed command. Raise BenchError if the line is invalid."""
    if len(line) > _LONGEST or not line.replace("\t", " ").isprintable():
        raise BenchError(f"a command has at most {_LONGEST} printable characters", "/bench help")
    try:
        _, *words = shlex.split(line)
    except ValueError as error:
        raise BenchError(f"{str(error).lower()}", "close each quote, or write \\' for one") from error
    name: Name | None = next((item for item in get_args(Name) if words and words[0] == item), None)
    if not words:
        return CommentCommand("help")
    if name is None:
        raise BenchError(f"there is no command {quote(words[0])}", "/bench help")
    if name == "evaluate":
        return CommentCommand("evaluate", settings=_which(words[1:]))
    about, settings = _arguments(name, words[1:])
    if name == "help":
        return CommentCommand("help")
    if not about and name != "status":
        raise BenchError(f"/bench {name} needs one more word", "/bench help")
    return CommentCommand(name, about, settings)


def _arguments(name: Name, words: list[str]) -> tuple[str, tuple[tuple[str, str], ...]]:
    about, settings = [], []
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option != "--set" or name != "run":
            if word.startswith("-"):
                raise BenchError(f"/bench {name} has no option {quote(word)}", "/bench help")
            about.append(word)
            continue
        key, equals, value = (value if equals else next(rest, "")).partition("=")
        if not (key and equals):
            raise BenchError("--set needs key=value", "/bench run NAME --set repetitions=3")
        settings.append((key, value))
    if len(about) > 1:
        raise BenchError(f"/bench {name} takes one word, and was given {len(about)}", "quote what has spaces in it")
    return (about[0] if about else ""), tuple(settings)


def _which(words: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the one option of an evaluation: `--all`, or another with its value."""
    option, equals, value = (words[0] if words else "").partition("=")
    rest = words[1:] if words else []
    if not equals and option != "--all" and rest:
        value, *rest = rest
    name = option.removeprefix("--")
    if option == "--all" and not (equals or rest):
        return (("all", ""),)
    if not option.startswith("--") or name not in _WHICH or not value or value.startswith("-") or rest:
        raise BenchError(
            "say which benchmarks, once",
            "/bench evaluate --changed-since REF, --package NAME, --model ID, or --all",
        )
    return ((name.replace("-", "_"), value),)


def _command_lines(text: str) -> list[str]:
    # Within a line, only code and HTML are parsed: the rest of a command stays as it was written.
    markdown = MarkdownIt("zero", {"html": True}).enable([*_BLOCKS, "backticks", "html_inline", "newline"])
    lines: list[str] = []
    before: Token | None = None
    for token in markdown.parse(text):
        if token.type == "inline" and before and before.type == "paragraph_open" and before.level == 0:
            lines.append("")
            for child in token.children or ():
                if child.type in ("softbreak", "hardbreak"):
                    lines.append("")
                else:
                    lines[-1] += f"{child.markup}{child.content}{child.markup}"
        before = token
    return lines
