"""Arrivals: when the requests of an open loop are due.

The schedule of a kind consists of its expected number of arrivals by any time (its course), and how the arrivals are
spaced on that count: evenly, or with gaps from a gamma distribution with mean one (shape 1 is the exponential
distribution, a Poisson process).
"""

import csv
import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate, count
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar, Literal, TextIO

from pydantic import BeforeValidator, Field, model_validator

from benchhouse.schema.digests import file_digest
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.shorthand import AlsoTakes

_NS = 1_000_000_000
_JSON = json.JSONDecoder(parse_float=Decimal)
_LATEST_S = Decimal(10**12)  # of a trace: seconds of the Unix epoch are far below, nanoseconds far above


class Course:
    """The expected number of arrivals by any time, and its inverse: pieces of linearly changing rate, then the last
    rate."""

    def __init__(self, hold: float, pieces: Sequence[tuple[float, float, float]] = ()) -> None:
        """`pieces` are (seconds, rate at the start, rate at the end), in order; `hold` is the rate after them."""
        self._starts, self._reached, self._rates, self._slopes = [0.0], [0.0], [], []
        for length, first, last in pieces:
            self._starts.append(self._starts[-1] + length)
            self._reached.append(self._reached[-1] + length * (first + last) / 2)
            self._rates.append(first)
            self._slopes.append((last - first) / length)
        self._rates.append(hold)
        self._slopes.append(0.0)

    def expected(self, seconds: float) -> float:
        piece = bisect_right(self._starts, seconds, lo=1) - 1
        passed = seconds - self._starts[piece]
        return self._reached[piece] + passed * (self._rates[piece] + self._slopes[piece] * passed / 2)

    def when(self, arrivals: float) -> float:
        """Return the second by which this number of arrivals is expected; the exact inverse of `expected`."""
        piece = bisect_right(self._reached, arrivals, lo=1) - 1
        more, rate = arrivals - self._reached[piece], self._rates[piece]
        # The usual form of the larger root loses its digits if the rate hardly changes; this one does not.
        return self._starts[piece] + 2 * more / (rate + math.sqrt(rate * rate + 2 * self._slopes[piece] * more))

    @property
    def peak(self) -> float:
        """The highest rate; a rising piece is followed by one that starts at its end rate."""
        return max(self._rates)

    def times(self, reached: Iterator[float]) -> Iterator[int]:
        """Yield the nanosecond by which each of these numbers of arrivals is expected."""
        if len(self._rates) == 1:
            scale = _NS / self._rates[0]
            return (round(arrivals * scale) for arrivals in reached)
        when = self.when
        return (round(when(arrivals) * _NS) for arrivals in reached)


class _Kind(Model):
    """The common interface of all kinds of arrivals."""

    own_rate: ClassVar[bool] = False
    """Whether the kind defines its own rates, so that the load's `rate` is ignored."""

    def due(self, rate: float | None, seed: int, duration_s: float | None = None) -> Iterator[int]:
        """Return the intended times in nanoseconds after the start, never decreasing, endless unless the kind differs.

        The same seed gives the same times. Evenly spaced arrivals start at 0, random ones after their first gap. Raises
        ValueError at once for an impossible rate.
        """
        return self.course(rate, duration_s).times(_spaced(self.gap_shape, seed))

    def course(self, rate: float | None, duration_s: float | None) -> Course:
        return Course(_positive(rate))

    def peak(self, rate: float | None, duration_s: float | None) -> float:
        """Return the highest expected number of arrivals per second."""
        return self.course(rate, duration_s).peak

    @property
    def gap_shape(self) -> float | None:
        """Shape of the gamma distribution of the gaps; None for even gaps."""
        return None


class Constant(_Kind):
    """Evenly spaced arrivals."""

    kind: Literal["constant"] = Field("constant", description="Evenly spaced arrivals.")

    def due(self, rate: float | None, seed: int, duration_s: float | None = None) -> Iterator[int]:
        """Return times of which the k-th is k/rate after the start, rounded once, so that no error accumulates."""
        exact = Fraction(repr(float(_positive(rate))))
        step, unit = 2 * _NS * exact.denominator, 2 * exact.numerator
        return (reached // unit for reached in count(exact.numerator, step))


class Poisson(_Kind):
    """Independent arrivals, such as those of many unrelated users: gaps are exponential."""

    kind: Literal["poisson"] = Field("poisson", description="Independent arrivals with exponential gaps.")

    @property
    def gap_shape(self) -> float:
        return 1.0


class Gamma(_Kind):
    """Independent gaps from a gamma distribution with the mean of the other kinds; their variation is 1/sqrt(shape)."""

    kind: Literal["gamma"] = Field("gamma", description="Gaps of a gamma law.")
    shape: float = Field(ge=0.01, le=1000, description="Below 1 bursty, 1 as poisson, above 1 more even.")

    @property
    def gap_shape(self) -> float:
        return self.shape


class _Changing(_Kind):
    """Arrivals whose rate changes."""

    gaps: Literal["constant", "poisson"] = Field("poisson", description="Even or independent arrivals at that rate.")

    @property
    def gap_shape(self) -> float | None:
        return 1.0 if self.gaps == "poisson" else None


class Ramp(_Changing):
    """The rate changes linearly from the load's `rate` to `to`, and stays there."""

    kind: Literal["ramp"] = Field("ramp", description="A rate that rises or falls in a straight line.")
    to: float = Field(gt=0, le=1e6, description="Requests a second at the end.")
    over: Seconds | None = Field(None, gt=0, description="Length of the ramp; the load's duration by default.")

    def course(self, rate: float | None, duration_s: float | None) -> Course:
        length = self.over or duration_s
        if length is None or not 0 < length < math.inf:
            raise ValueError(f"a ramp needs a length above 0 s: give `over` or a duration, found {length}")
        return Course(self.to, [(length, _positive(rate), self.to)])


class StepRates(_Changing):
    """One rate after the other; the last one stays."""

    own_rate: ClassVar[bool] = True
    kind: Literal["steps"] = Field("steps", description="One rate after the other.")
    rates: tuple[Annotated[float, Field(gt=0, le=1e6)], ...] = Field(min_length=1, description="Requests a second.")
    each: Seconds = Field(gt=0, description="Length of one step.")

    def course(self, rate: float | None, duration_s: float | None) -> Course:
        return Course(self.rates[-1], [(self.each, each, each) for each in self.rates])


class TraceArrivals(_Kind):
    """The arrivals of a file, counted from its first one; the load ends with the file."""

    own_rate: ClassVar[bool] = True
    kind: Literal["trace"] = Field("trace", description="Arrivals replayed from a file.")
    file: InputPath = Field(description="Ascending seconds: one a line, or column `timestamp` of CSV or JSON lines.")
    speed: float = Field(1.0, gt=0, le=1e9, description="Replay so many times as fast; 1000 where it has milliseconds.")

    @model_validator(mode="after")
    def _is_a_trace(self) -> "TraceArrivals":
        try:
            state = Path(self.file).stat()
            _check_trace(Path(self.file), state.st_size, state.st_mtime_ns)
        except OSError as error:
            raise ValueError(f"the trace {self.file} can't be read: {error.strerror}") from None
        return self

    def due(self, rate: float | None, seed: int, duration_s: float | None = None) -> Iterator[int]:
        """Yield times while the file is read. Raises ValueError if the file is no longer the one that was checked."""
        times = _read_trace(Path(self.file))
        first = next(times)
        yield 0
        for time in times:
            yield round((time - first) / self.speed)

    def peak(self, rate: float | None, duration_s: float | None) -> float:
        """Return the arrivals in the busiest second."""
        return max(Counter(at // _NS for at in self.due(None, 0)).values())

    def digest(self) -> str:
        """Return the sha256 of the file's bytes, which identifies the trace at any path."""
        return file_digest(Path(self.file))


def _spell_out(given: Any) -> Any:
    """Let a kind without further fields be written as one word: `arrivals: poisson`."""
    return {"kind": given} if isinstance(given, str) else given


Kind = Constant | Poisson | Gamma | Ramp | StepRates | TraceArrivals
_WORDS = AlsoTakes({"enum": ["constant", "poisson"]})
Arrivals = Annotated[Kind, Field(discriminator="kind"), BeforeValidator(_spell_out), _WORDS]


def _positive(rate: float | None) -> float:
    if rate is None or not 0 < rate < math.inf:
        raise ValueError(f"arrivals need a rate above 0 requests a second, found {rate}")
    return rate


def _spaced(shape: float | None, seed: int) -> Iterator[float]:
    """Yield the number of arrivals expected by the time of each arrival."""
    if shape is None:
        return map(float, count())
    if shape == 1:
        return _exponential(seed)
    return accumulate(iter(partial(Random(seed).gammavariate, shape, 1 / shape), None))


def _exponential(seed: int) -> Iterator[float]:
    """Do the same as `gammavariate` of shape 1 in half the time."""
    uniform, log, reached = Random(seed).random, math.log, 0.0
    while True:
        reached -= log(1.0 - uniform())
        yield reached


@lru_cache(maxsize=16)
def _check_trace(path: Path, size: int, changed_ns: int) -> None:
    """Check the file once, even if the same scenario is validated often; its size and modification time identify it."""
    for _ in _read_trace(path):
        pass


def _read_trace(path: Path) -> Iterator[int]:
    """Yield timestamps in nanoseconds. Raises ValueError with the line if one is invalid or out of order."""
    before = None
    for line, text in _timestamps(path):
        try:
            seconds = Decimal(text)
            fits = -_LATEST_S < seconds < _LATEST_S  # False for infinity; NaN can't be compared and raises
        except (InvalidOperation, TypeError, ValueError):
            fits = False
        if not fits:
            shown = str(text).strip()[:40]
            raise ValueError(f"{path}:{line}: expected seconds, or a column `timestamp` with them, found {shown!r}")
        time = int(seconds * _NS)
        if before is not None and time < before:
            raise ValueError(f"{path}:{line}: timestamps must ascend, found {str(text).strip()} after a later one")
        before = time
        yield time
    if before is None:
        raise ValueError(f"the trace {path} has no timestamps")


def _timestamps(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield each line number and the unchecked timestamp of that line."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = ((number, line) for number, line in enumerate(file, 1) if not line.isspace())
        number, head = next(lines, (0, ""))
        columns = [name.strip() for name in next(csv.reader([head]), [])]
        if "timestamp" in columns:
            yield from _csv_column(file, columns.index("timestamp"), number)
        elif number:
            read = _json_timestamp if head.lstrip().startswith("{") else str
            yield number, read(head)
            yield from ((number, read(line)) for number, line in lines)


def _csv_column(file: TextIO, column: int, lines_before: int) -> Iterator[tuple[int, str]]:
    rows = csv.reader(file)
    try:
        for row in rows:
            if row:
                yield lines_before + rows.line_num, row[column] if column < len(row) else ""
    except csv.Error as error:
        raise ValueError(f"{file.name}:{lines_before + rows.line_num}: {error}") from None


def _json_timestamp(line: str) -> Any:
    try:
        return _JSON.decode(line)["timestamp"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return line  # not a timestamp; the message shows it as found
