import math
import random
import statistics
import time
import tracemalloc
from collections import deque
from fractions import Fraction
from itertools import islice, pairwise, takewhile

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import ENDLESS
from pydantic import TypeAdapter, ValidationError
from tables import check_rows

from benchhouse.load.arrivals import (
    Arrivals,
    Constant,
    Course,
    Gamma,
    Poisson,
    Ramp,
    StepRates,
    TraceArrivals,
)

NS = 1_000_000_000
READ = TypeAdapter(Arrivals)


def first(n, arrivals, rate=None, seed=1, duration_s=None):
    return list(islice(arrivals.due(rate, seed, duration_s), n))


def until(seconds, arrivals, rate=None, seed=1, duration_s=None):
    return list(takewhile(lambda due: due < seconds * NS, arrivals.due(rate, seed, duration_s)))


def gaps(times):
    return [after - before for before, after in pairwise(times)]


# Reading


def test_arrivals_are_read_from_a_word_or_a_mapping_and_come_back_from_json():
    rows = [
        ("poisson", Poisson()),
        ("constant", Constant()),
        ({"kind": "gamma", "shape": 0.5}, Gamma(shape=0.5)),
        ({"kind": "ramp", "to": 50, "over": "1m30s"}, Ramp(to=50, over=90)),
        ({"kind": "steps", "rates": [1, 2], "each": "10s"}, StepRates(rates=(1, 2), each=10)),
        (Poisson(), Poisson()),
    ]

    def check(given, made):
        assert READ.validate_python(given) == made
        assert READ.validate_json(READ.dump_json(made)) == made

    check_rows(check, rows)


def test_the_json_schema_allows_what_validation_allows():
    schema = READ.json_schema()
    for good in ("poisson", {"kind": "gamma", "shape": 0.5}):
        jsonschema.validate(good, schema)
    for bad in ("gamma", "poison", {"kind": "gamma"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)
        with pytest.raises(ValidationError):
            READ.validate_python(bad)


def test_bad_arrivals_are_refused_with_the_reason():
    rows = [
        ("poison", "'constant', 'poisson', 'gamma'"),
        ("gamma", "Field required"),
        ({"kind": "gamma", "shape": 0}, "greater than or equal to 0.01"),
        ({"kind": "gamma", "shape": -1}, "greater than or equal to 0.01"),
        ({"kind": "gamma", "shape": math.nan}, "finite number"),
        ({"kind": "ramp", "to": 0}, "greater than 0"),
        ({"kind": "ramp", "to": math.inf}, "finite number"),
        ({"kind": "ramp", "to": 5, "over": 0}, "greater than 0"),
        ({"kind": "steps", "rates": [], "each": 1}, "at least 1 item"),
        ({"kind": "steps", "rates": [5, -1], "each": 1}, "greater than 0"),
        ({"kind": "steps", "rates": [5], "each": 0}, "greater than 0"),
        ({"kind": "poisson", "shape": 2}, "not permitted"),
        (7, "valid dictionary"),
    ]

    def check(given, said):
        with pytest.raises(ValidationError, match=said):
            READ.validate_python(given)

    check_rows(check, rows)


def test_an_impossible_rate_is_refused_before_the_first_arrival():
    for arrivals in (Constant(), Poisson(), Gamma(shape=2), Ramp(to=5, over=1)):
        for rate in (None, 0, -3.0, math.nan, math.inf):
            with pytest.raises(ValueError, match=f"rate above 0.*{rate}"):
                arrivals.due(rate, 1, 10)


def test_a_ramp_without_a_length_says_what_to_give():
    with pytest.raises(ValueError, match="give `over` or a duration"):
        Ramp(to=5).due(1.0, 1, None)


# Schedules


@given(st.floats(1e-3, 1e6), st.integers(0, 2000))
def test_constant_arrivals_are_rounded_once_and_never_drift(rate, k):
    exact = Fraction(k) * NS / Fraction(str(rate))
    assert abs(next(islice(Constant().due(rate, 1), k, None)) - exact) <= Fraction(1, 2)


def test_a_late_constant_arrival_is_where_a_division_says():
    for rate in (0.1, 999.7):
        due = next(islice(Constant().due(rate, 1), 200_000, None))
        assert due == round(200_000 * NS / Fraction(str(rate)))


@pytest.mark.parametrize("arrivals", ENDLESS, ids=str)
def test_due_times_never_decrease_and_depend_on_nothing_but_the_seed(arrivals):
    times = first(5_000, arrivals, 300.0, seed=5)
    assert times == sorted(times) == first(5_000, arrivals, 300.0, seed=5)
    assert times[0] >= 0
    assert all(type(due) is int for due in times)
    if arrivals.gap_shape is not None:
        assert times != first(5_000, arrivals, 300.0, seed=6)


def test_known_seeds_give_known_times_on_every_version_of_python():
    assert first(4, Poisson(), 100.0, seed=7) == [3913148, 5548333, 16073289, 16825227]
    assert first(4, Gamma(shape=0.5), 100.0, seed=7) == [2939888, 14818446, 22869032, 22963336]
    assert first(4, Gamma(shape=3), 100.0, seed=7) == [7194670, 20408526, 31072630, 33947307]


@pytest.mark.parametrize(
    ("arrivals", "variation"), [(Poisson(), 1), (Gamma(shape=0.2), 0.2**-0.5), (Gamma(shape=9), 1 / 3)]
)
def test_mean_and_variation_of_random_gaps_meet_theory(arrivals, variation):
    n = 40_000
    seen = gaps([0, *first(n, arrivals, 500.0, seed=3)])
    mean = statistics.fmean(seen)
    assert mean == pytest.approx(NS / 500, rel=4 * variation / math.sqrt(n))
    # Of a gamma law the kurtosis is 3 + 6 / shape, which sets how well a sample knows its variation.
    spread = math.sqrt((2 + 6 * variation**2) / n) / 2 + variation / math.sqrt(n)
    assert statistics.stdev(seen) / mean == pytest.approx(variation, rel=4 * spread)


def test_random_gaps_are_independent_of_the_one_before():
    for arrivals in (Poisson(), Gamma(shape=0.3)):
        seen = gaps(first(20_000, arrivals, 500.0, seed=11))
        assert abs(statistics.correlation(seen[1:], seen[:-1])) <= 4 / math.sqrt(len(seen))


@pytest.mark.parametrize(("start", "to"), [(100, 700), (700, 100), (300, 300)])
def test_an_even_ramp_has_as_many_arrivals_as_the_integral_of_its_rate(start, to):
    ramp = Ramp(to=to, gaps="constant")
    for part in (0.25, 0.5, 1.0):
        seconds = 20 * part
        integral = start * seconds + (to - start) * seconds**2 / 40
        assert abs(len(until(seconds, ramp, start, duration_s=20)) - integral) <= 1
    after = until(25, ramp, start, duration_s=20)
    assert len(after) - len(until(20, ramp, start, duration_s=20)) == pytest.approx(5 * to, abs=1)


def test_a_poisson_ramp_keeps_to_the_integral_within_chance_and_over_overrules_the_duration():
    counts = [len(until(10, Ramp(to=400, over=10), 100.0, seed, duration_s=99)) for seed in range(40)]
    assert statistics.fmean(counts) == pytest.approx(2500, abs=4 * math.sqrt(2500 / 40))
    assert statistics.variance(counts) == pytest.approx(2500, rel=4 * math.sqrt(2 / 39))


def test_steps_change_the_rate_at_their_time_and_the_last_one_stays():
    even = StepRates(rates=(10, 200, 50), each=2, gaps="constant")
    assert [len(until(second, even)) for second in (2, 4, 6, 8)] == pytest.approx([20, 420, 520, 620], abs=1)
    counts = [len(until(4, StepRates(rates=(10, 200, 50), each=2), seed=seed)) for seed in range(40)]
    assert statistics.fmean(counts) == pytest.approx(420, abs=4 * math.sqrt(420 / 40))


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 1e4), st.floats(0.1, 1e4)), max_size=5),
    st.floats(0.1, 1e4),
    st.floats(0, 1000),
)
def test_a_course_is_inverted_exactly(pieces, hold, seconds):
    course = Course(hold, pieces)
    assert course.when(course.expected(seconds)) == pytest.approx(seconds, rel=1e-9, abs=1e-9)


# Cost


def test_a_long_schedule_needs_no_memory(trace):
    made = TraceArrivals(file=trace("".join(f"{k}\n" for k in range(6_000))))
    for arrivals in (Poisson(), Gamma(shape=0.5), Ramp(to=50, over=60), made):
        tracemalloc.start()
        deque(islice(arrivals.due(100.0, 1, 60.0), 6_000), maxlen=0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100_000


def test_an_arrival_costs_a_few_times_what_drawing_a_number_does():
    """In CPU time, the least of several tries."""

    def cost(numbers):
        begun = time.process_time_ns()
        deque(islice(numbers, 3_000), maxlen=0)
        return time.process_time_ns() - begun

    draw = random.Random(1)
    number = min(cost(draw.expovariate(1.0) for _ in range(3_000)) for _ in range(8))
    ratios = {str(law): min(cost(law.due(100.0, 1, 60.0)) for _ in range(8)) / number for law in ENDLESS}
    assert max(ratios.values()) <= 15, ratios  # at most 6, about a microsecond, on a quiet machine
