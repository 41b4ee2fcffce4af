"""Service-level objectives as written by people: `ttft.p99<300ms,error<0.1%`.

Every clause consists of one question about a request, "is it over the limit?", and the share of requests that may be.
"""

import re
from collections.abc import Collection, Mapping
from fractions import Fraction

from pydantic import Field

from benchhouse.documents.problems import Problem, ProblemsError, did_you_mean
from benchhouse.schema.model import Model
from benchhouse.schema.quoting import quote

METRICS = ("ttft", "itl", "tpot", "e2e", "latency")
"""The times of every load experiment; an experiment with others passes its own names."""

_SHARES = {"error": "<", "goodput": ">"}
_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_EXAMPLE = "ttft.p99<300ms, error<0.1% or goodput>95%"
_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,4})?)")
_CLAUSE = re.compile(
    r"\s*(?P<metric>[^\s.<>=,]*)\s*(?:\.\s*(?P<quantile>[^\s<>=,]*))?\s*(?P<op>[<>=]*)\s*"
    r"(?P<number>\d+(?:\.\d+)?|\.\d+)?\s*(?P<unit>[^\s,]*)\s*"
)


class Clause(Model):
    """One limit, and the share of all requests that may be over it.

    `<=` is read as `<`: times are whole nanoseconds, so the two do not differ in practice.
    """

    metric: str = Field(description="What is limited: a time such as ttft, or error, or goodput.")
    quantile: float | None = Field(default=None, description="0.99 for p99; none for error and goodput.", gt=0, lt=1)
    limit: int | None = Field(default=None, description="In ns; none for error and goodput.", gt=0)
    share: float = Field(description="Share of the requests that may be over the limit: 0.01 for p99.", gt=0, lt=1)

    def __str__(self) -> str:
        if self.metric in _SHARES:
            share = self.share if self.metric == "error" else 1.0 - self.share
            return f"{self.metric}{_SHARES[self.metric]}{share * 100:.10g}%"  # removes binary rounding
        return f"{self.metric}.p{(self.quantile or 0) * 100:.10g}<{_show_ns(self.limit or 0)}"


class Slo(Model):
    """The objectives of a service: all clauses, in the order in which they were written."""

    clauses: tuple[Clause, ...] = Field(min_length=1)

    def __str__(self) -> str:
        return ",".join(str(clause) for clause in self.clauses)

    def over(self, times_ns: Mapping[str, int], error: bool = False) -> tuple[bool, ...]:
        """Return for each clause whether one request is over it.

        A request that failed is over every clause, because it did not answer in time either. A time that a good answer
        does not have (no second token, no tpot) is not over. `goodput` counts requests over any of the other clauses.
        """
        over = [error or (c.limit is not None and times_ns.get(c.metric, 0) >= c.limit) for c in self.clauses]
        return tuple(any(over) if c.metric == "goodput" else flag for c, flag in zip(self.clauses, over, strict=True))


def missed(slo: Slo | None, times_ns: Mapping[str, int | None] | None) -> int:
    """Return a bit mask of the clauses that one request is over; `times_ns` is None if it failed."""
    if slo is None:
        return 0
    times = {name: time for name, time in (times_ns or {}).items() if time is not None}
    return sum(flag << number for number, flag in enumerate(slo.over(times, error=times_ns is None)))


def parse_slo(text: str, metrics: Collection[str] = METRICS, path: str = "slo") -> Slo:
    """Parse an SLO. Raises all of its mistakes at once, with their places; `path` names the source of the text."""
    clauses: list[Clause] = []
    problems: list[Problem] = []
    at = 0
    for part in text.split(","):
        try:
            clause = _parse_clause(part, metrics)
            if any((clause.metric, clause.quantile) == (other.metric, other.quantile) for other in clauses):
                raise _Mistake(f"{quote(part.strip())} limits the same a second time", _first(part), len(part.strip()))
            clauses.append(clause)
        except _Mistake as fault:
            column, width = at + fault.at + 1, max(1, fault.width)
            problems.append(Problem(fault.message, path, 1, column, text, fault.expected, fault.suggestion, width))
        at += len(part) + 1
    if problems:
        raise ProblemsError(problems)
    return Slo(clauses=tuple(clauses))


class _Mistake(Exception):  # noqa: N818 it never leaves this file
    """A mistake in one clause; `at` counts from the start of the clause."""

    def __init__(self, message: str, at: int, width: int = 1, expected: str = "", suggestion: str = "") -> None:
        super().__init__(message)
        self.message, self.at, self.width, self.expected, self.suggestion = message, at, width, expected, suggestion


def _parse_clause(part: str, metrics: Collection[str]) -> Clause:
    if not part.strip():
        raise _Mistake("a clause is missing", 0, len(part), _EXAMPLE)
    match = _CLAUSE.fullmatch(part)
    if match is None:
        raise _Mistake(f"{quote(part.strip())} is not a clause", _first(part), len(part.strip()), _EXAMPLE)
    known = (*metrics, *_SHARES)
    if match["metric"] not in known:
        message = f"{quote(match['metric'])} is not a metric here" if match["metric"] else "a metric is missing"
        guess = did_you_mean(match["metric"], known) or ""
        raise _Mistake(message, *_span(match, "metric"), f"one of {', '.join(known)}", guess)
    operator, written = _SHARES.get(match["metric"], "<"), match["op"]
    if written not in (operator, f"{operator}="):
        message = f"expected {operator}, found {quote(written) if written else 'nothing'}"
        raise _Mistake(message, *_span(match, "op"), _EXAMPLE, operator if written else "")
    if match["number"] is None:
        raise _Mistake("a number is missing", *_span(match, "unit"), _EXAMPLE)
    number = Fraction(match["number"])  # exactly as written: 0.1% must not become 0.10000000000000000555%
    return _share_clause(match, number) if match["metric"] in _SHARES else _time_clause(match, number)


def _share_clause(match: re.Match[str], number: Fraction) -> Clause:
    metric, unit = match["metric"], match["unit"]
    if match["quantile"] is not None:
        raise _Mistake(f"{metric} is a share and has no quantile", *_span(match, "quantile"), _EXAMPLE)
    if unit != "%":
        raise _Mistake(f"{metric} is a share in %, found {_found(unit)}", *_span(match, "unit"), _EXAMPLE, "%")
    if not 0 < number < 100:
        message = f"{metric} needs a share between 0% and 100%, both excluded: no number of requests can show more"
        raise _Mistake(message, *_span(match, "number"), _EXAMPLE)
    return Clause(metric=metric, share=float(number / 100 if metric == "error" else 1 - number / 100))


def _time_clause(match: re.Match[str], number: Fraction) -> Clause:
    metric, unit, written = match["metric"], match["unit"], match["quantile"]
    quantile = _QUANTILE.fullmatch(written or "")
    if quantile is None or not Fraction(quantile[1]):
        message = f"{metric} needs a quantile" if not written else f"{quote(written)} is not a quantile"
        where = _span(match, "quantile") if written else (match.end("metric"), 1)
        hint = f"{metric}.p99: above 0 and below 100; a mean or a maximum allows no share of requests over it"
        raise _Mistake(message, *where, hint)
    if unit not in _NANOSECONDS:
        guess = did_you_mean(unit, _NANOSECONDS) or ("ms" if unit.startswith(("ms", "milli")) else "")
        message = f"{metric} is a time, found {_found(unit)}"
        raise _Mistake(message, *_span(match, "unit"), f"a unit: {', '.join(_NANOSECONDS)}", guess)
    limit = round(number * _NANOSECONDS[unit])
    if limit < 1:
        raise _Mistake(f"{metric} needs a limit above zero", *_span(match, "number"), _EXAMPLE)
    part = Fraction(quantile[1]) / 100
    return Clause(metric=metric, quantile=float(part), limit=limit, share=float(1 - part))


def _span(match: re.Match[str], group: str) -> tuple[int, int]:
    """Return the position and width of a group; an absent one is at the end of the clause."""
    start, end = match.span(group)
    return (start, end - start) if start >= 0 else (len(match.string.rstrip()), 1)


def _found(unit: str) -> str:
    return f"the unit {quote(unit)}" if unit else "no unit"


def _first(part: str) -> int:
    return len(part) - len(part.lstrip())


def _show_ns(limit: int) -> str:
    """Format with the largest unit that needs no fraction: `300ms`, `2s`, `1500ms`."""
    unit = next(name for name in ("s", "ms", "us", "ns") if limit % _NANOSECONDS[name] == 0)
    return f"{limit // _NANOSECONDS[unit]}{unit}"
