"""Problems of a file that a user wrote: what is wrong, where, and how to fix it.

A reader of a file collects every `Problem` it can find and raises them together, so that one run of `bench` shows all
of them.
"""

import difflib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, TypeVar

from benchhouse.schema.cancellation import stop_if_cancelled
from benchhouse.schema.errors import BenchError
from benchhouse.schema.quoting import MAX_QUOTED

MAX_RENDERED = 100
MOST_PROBLEMS = 100
"""The number of problems after which checking a file ends."""
_MOST_COMPARED = 1_000  # words that a misspelled one is compared with
_Made = TypeVar("_Made")
_MAX_SOURCE = 100
_MIN_GUESSED = 3  # fewer letters match the start of too many words


@dataclass(frozen=True)
class Problem:
    """A problem in a file. Line and column count from 1, in characters, without a byte order mark.

    `suggestion` is the word to use instead; `width` is the number of wrong characters in `source`.
    """

    message: str
    path: str
    line: int | None
    column: int | None
    source: str
    expected: str = ""
    suggestion: str = ""
    width: int = 1

    @property
    def place(self) -> str:
        """`file:line:column`, as far as they are known."""
        return ":".join(str(part) for part in (self.path, self.line, self.column) if part is not None)

    def render(self) -> str:
        """Return the lines for a terminal, with control characters in the source replaced."""
        lines = [f"{self.place}: {self.message}"]
        if self.line is not None and self.column is not None and self.source.strip():
            source, column = _excerpt(self.source, self.column)
            before, marked = source[: column - 1], source[column - 1 : column - 1 + self.width]
            lines.append(f"{self.line:>5} | {source}")
            lines.append(f"{'':>5} | {' ' * _cells(before)}{'^' * max(1, _cells(marked))}")
        if self.expected:
            lines.append(f"  expected: {self.expected}")
        if self.suggestion:
            lines.append(f"  did you mean '{self.suggestion}'?")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the problem for `--json` output; a very long source line is shortened around the fault."""
        fields = asdict(self) | {"source": _excerpt(self.source, self.column or 1)[0]}
        return {name: value for name, value in fields.items() if name != "width"}


class ProblemsError(BenchError):
    """All problems found in the user's input, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        if not problems:
            raise ValueError("a ProblemsError needs at least one problem")
        self.problems = sorted(problems, key=lambda problem: (problem.path, problem.line or 0, problem.column or 0))
        paths = {problem.path for problem in problems}
        where = paths.pop() if len(paths) == 1 else f"{len(paths)} files"
        summary = f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'} in {where}"
        if len(problems) > MAX_RENDERED:
            summary += f", the first {MAX_RENDERED} shown"
        if len(problems) == MOST_PROBLEMS:
            summary += f", and perhaps more: checking ends after {MOST_PROBLEMS}"
        super().__init__("\n".join([*(problem.render() for problem in self.problems[:MAX_RENDERED]), summary]))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems,)  # the default would pass the message to __init__


class ProblemList(list[Problem]):
    """The problems of a file as they are found.

    Raises ProblemsError at MOST_PROBLEMS, so that a file with very many takes little more time than a correct one.
    """

    def append(self, problem: Problem) -> None:
        super().append(problem)
        self._raise_if_full()

    def extend(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.append(problem)

    def __iadd__(self, problems: Iterable[Problem]) -> "ProblemList":  # type: ignore[override,misc]
        self.extend(problems)
        return self

    def _raise_if_full(self) -> None:
        stop_if_cancelled()
        if len(self) >= MOST_PROBLEMS:
            raise ProblemsError(self)


def all_or_problems(calls: Iterable[Callable[[], _Made]]) -> list[_Made]:
    """Return the results of all calls. If some raise ProblemsError, raise their distinct problems together."""
    made, problems = list[_Made](), list[Problem]()
    for call in calls:
        stop_if_cancelled()
        try:
            made.append(call())
        except ProblemsError as error:
            problems += [problem for problem in error.problems if problem not in problems]
            if len(problems) >= MOST_PROBLEMS:
                raise ProblemsError(problems[:MOST_PROBLEMS]) from error
    if problems:
        raise ProblemsError(problems)
    return made


def did_you_mean(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that was most likely meant by `word`, ignoring case and `-` for `_`; None if none is similar.

    Similar words come first, then the same letters in another order (`rnu`), then the shortest choice that starts with
    it.
    """
    if len(word) > MAX_QUOTED:
        return None
    plain = {choice.lower().replace("-", "_"): choice for choice in islice(choices, _MOST_COMPARED)}
    typed = word.lower().replace("-", "_")
    close = difflib.get_close_matches(typed, plain, n=1, cutoff=0.72)
    if not close and len(typed) >= _MIN_GUESSED:
        close = [choice for choice in plain if sorted(choice) == sorted(typed)]
        close += sorted((choice for choice in plain if choice.startswith(typed)), key=len)
    return plain[close[0]] if close else None


def guess_hint(word: str, choices: Iterable[str]) -> str:
    """Return `did you mean 'x'? `, to be followed by the choices; empty if none is similar."""
    guess = did_you_mean(word, choices)
    return f"did you mean '{guess}'? " if guess else ""


def _excerpt(source: str, column: int) -> tuple[str, int]:
    """Return the part of a long line around `column`, with unprintable characters replaced, and the column in it."""
    start = 0
    if len(source) > _MAX_SOURCE:
        start = max(0, min(column - 1 - _MAX_SOURCE // 2, len(source) - _MAX_SOURCE))
    piece = source[start : start + _MAX_SOURCE]
    return "".join(c if c.isprintable() else " " if c == "\t" else "\ufffd" for c in piece), column - start


def _cells(text: str) -> int:
    """Return the terminal columns that the text fills: none for a combining mark, two for a wide character."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
