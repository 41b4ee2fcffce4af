"""Arrivals: when the requests of an open loop are due.

A kind's schedule is its expected number of arrivals by a time, its course, and how the arrivals are spaced on that
count: evenly, or with gaps drawn from a gamma law of mean one (shape 1 is the exponential law, a Poisson process).
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
    """The expected number of arrivals by any time, and back: pieces of linearly changing rate, then the last rate."""

    def __init__(self, hold: float, pieces: Sequence[tuple[float, float, float]] = ()) -> None:
        """`pieces` are (seconds, rate at the beginning, rate at the end), in order; `hold` is the rate after them."""
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
        """The second by which so many arrivals are expected; the exact inverse of `expected`."""
        piece = bisect_right(self._reached, arrivals, lo=1) - 1
        more, rate = arrivals - self._reached[piece], self._rates[piece]
        # The larger root's usual form loses its digits where the rate hardly changes; this one does not.
        return self._starts[piece] + 2 * more / (rate + math.sqrt(rate * rate + 2 * self._slopes[piece] * more))

    @property
    def peak(self) -> float:
        """The highest rate; a piece that rises is followed by one that begins there."""
        return max(self._rates)

    def times(self, reached: Iterator[float]) -> Iterator[int]:
        """The nanosecond by which each of the given numbers of arrivals is expected."""
        if len(self._rates) == 1:
            scale = _NS / self._rates[0]
            return (round(arrivals * scale) for arrivals in reached)
        when = self.when
        return (round(when(arrivals) * _NS) for arrivals in reached)


class _Kind(Model):
    """What every kind of arrivals can do."""

    own_rate: ClassVar[bool] = False
    """Whether the kind brings its rates itself, so that the load's `rate` has no say."""

    def due(self, rate: float | None, seed: int, duration_s: float | None = None) -> Iterator[int]:
        """Intended times in nanoseconds after the start, never decreasing, endless unless the kind says otherwise.

        The same seed gives the same times. Evenly spaced arrivals begin at 0, random ones after their first gap.
        Raises ValueError at once for a rate that can't be.
        """
        return self.course(rate, duration_s).times(_spaced(self.gap_shape, seed))

    def course(self, rate: float | None, duration_s: float | None) -> Course:
        return Course(_positive(rate))

    def peak(self, rate: float | None, duration_s: float | None) -> float:
        """The most arrivals a second that are to be expected."""
        return self.course(rate, duration_s).peak

    @property
    def gap_shape(self) -> float | None:
        """Shape of the gamma law that the gaps follow; None for even gaps."""
        return None


class Constant(_Kind):
    """Evenly spaced arrivals."""

    kind: Literal["constant"] = Field("constant", description="Evenly spaced arrivals.")

    def due(self, rate: float | None, seed: int, duration_s: float | None = None) -> Iterator[int]:
        """The k-th is k/rate after the start, rounded once: nothing adds up over a long run."""
        exact = Fraction(repr(float(_positive(rate))))
        step, unit = 2 * _NS * exact.denominator, 2 * exact.numerator
        return (reached // unit for reached in count(exact.numerator, step))


class Poisson(_Kind):
    """Independent arrivals, as of many users who don't know of each other: gaps are exponential."""

    kind: Literal["poisson"] = Field("poisson", description="Independent arrivals with exponential gaps.")

    @property
    def gap_shape(self) -> float:
        return 1.0


class Gamma(_Kind):
    """Independent gaps of a gamma law with the same mean as the other kinds; their variation is 1/sqrt(shape)."""

    kind: Literal["gamma"] = Field("gamma", description="Gaps of a gamma law.")
    shape: float = Field(ge=0.01, le=1000, description="Below 1 bursty, 1 as poisson, above 1 more even.")

    @property
    def gap_shape(self) -> float:
        return self.shape


class _Changing(_Kind):
    """A rate that changes."""

    gaps: Literal["constant", "poisson"] = Field("poisson", description="Even or independent arrivals at that rate.")

    @property
    def gap_shape(self) -> float | None:
        return 1.0 if self.gaps == "poisson" else None


class Ramp(_Changing):
    """The rate goes in a straight line from the load's `rate` to `to`, and stays there."""

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
        """The file is read as the times are taken; ValueError where it is no longer what was checked."""
        times = _read_trace(Path(self.file))
        first = next(times)
        yield 0
        for time in times:
            yield round((time - first) / self.speed)

    def peak(self, rate: float | None, duration_s: float | None) -> float:
        """Of its busiest second."""
        return max(Counter(at // _NS for at in self.due(None, 0)).values())

    def digest(self) -> str:
        """sha256 of the file's bytes: what identifies the trace, wherever the file lies."""
        return file_digest(Path(self.file))


def _spell_out(given: Any) -> Any:
    """Lets a kind without further fields be written as one word: `arrivals: poisson`."""
    return {"kind": given} if isinstance(given, str) else given


Kind = Constant | Poisson | Gamma | Ramp | StepRates | TraceArrivals
_WORDS = AlsoTakes({"enum": ["constant", "poisson"]})
Arrivals = Annotated[Kind, Field(discriminator="kind"), BeforeValidator(_spell_out), _WORDS]


def _positive(rate: float | None) -> float:
    if rate is None or not 0 < rate < math.inf:
        raise ValueError(f"arrivals need a rate above 0 requests a second, found {rate}")
    return rate


def _spaced(shape: float | None, seed: int) -> Iterator[float]:
    """How many arrivals are expected by the time of each one."""
    if shape is None:
        return map(float, count())
    if shape == 1:
        return _exponential(seed)
    return accumulate(iter(partial(Random(seed).gammavariate, shape, 1 / shape), None))


def _exponential(seed: int) -> Iterator[float]:
    """As `gammavariate` of shape 1 would have it, in half the time."""
    uniform, log, reached = Random(seed).random, math.log, 0.0
    while True:
        reached -= log(1.0 - uniform())
        yield reached


@lru_cache(maxsize=16)
def _check_trace(path: Path, size: int, changed_ns: int) -> None:
    """Reads the file once, however often the same scenario is validated: size and time of change tell it apart."""
    for _ in _read_trace(path):
        pass


def _read_trace(path: Path) -> Iterator[int]:
    """Timestamps in nanoseconds, one at a time; ValueError with the line where one is wrong or out of order."""
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
    """Line number and what stands for the timestamp there, whatever it is."""
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
        return line  # which is no timestamp, and is shown as found
