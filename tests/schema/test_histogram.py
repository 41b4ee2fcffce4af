import json
import math
import pickle
import random
import statistics
import subprocess
import sys
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import check_table

from benchhouse.schema.histogram import LARGEST, RELATIVE_ERROR, Histogram

anything = st.one_of(st.integers(0, 5_000), st.integers(0, 10**12), st.integers(0, LARGEST))
some = st.lists(anything, max_size=60)
many = st.lists(anything, min_size=1, max_size=60)


def exact_quantile(values: list[int], q: float) -> Fraction:
    """Hyndman and Fan's type 7 without any rounding but that of the position."""
    ordered = sorted(values)
    position = Fraction((len(ordered) - 1) * q)
    below = math.floor(position)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return low + (high - low) * (position - below)


def off(found: float, exact: Fraction) -> float:
    """Relative error; a value of zero must be met exactly."""
    return float(abs(Fraction(found) - exact) / exact) if exact else (0.0 if found == 0 else math.inf)


@given(many, st.floats(0, 1))
def test_quantile_stays_within_its_error_of_the_exact_quantile(values, q):
    assert off(Histogram(values).quantile(q), exact_quantile(values, q)) <= RELATIVE_ERROR + 1e-15


@given(some, some, some)
def test_merged_parts_equal_the_histogram_of_all_values_in_any_grouping(a, b, c):
    left, right, whole = Histogram(a), Histogram(c), Histogram(a + b + c)
    left.merge(Histogram(b))
    left.merge(Histogram(c))
    right.merge(Histogram(b))
    right.merge(Histogram(a))
    assert left == right == whole
    assert json.dumps(left.to_json()) == json.dumps(right.to_json()) == json.dumps(whole.to_json())


@given(some)
def test_values_added_one_by_one_and_in_bulk_give_the_same_histogram(values):
    one_by_one = Histogram()
    for value in values:
        one_by_one.add(value)
    assert one_by_one == Histogram(values) == Histogram(iter(values))


@given(some)
def test_a_histogram_comes_back_from_json_and_pickle_as_it_was(values):
    made = Histogram(values)
    assert Histogram.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert pickle.loads(pickle.dumps(made)) == made


@given(st.lists(anything, min_size=2, max_size=60))
def test_mean_and_stdev_are_exact(values):
    made = Histogram(values)
    assert made.mean == float(Fraction(sum(values), len(values)))
    assert made.stdev == pytest.approx(math.sqrt(statistics.variance([Fraction(value) for value in values])), rel=1e-15)
    assert (made.n, made.min, made.max) == (len(values), min(values), max(values))


@check_table("power", [0, 1, 10, 11, 12, 30, 52, 53, 54, 61])
def test_neighbours_of_powers_of_two_keep_their_error_and_both_ways_of_adding_agree(power):
    values = [2**power - 1, 2**power, 2**power + 1, *[2**power * (1024 + step) // 1024 - 1 for step in (1, 2, 1023)]]
    for value in values:
        # Two outliers keep min and max from hiding the bucket of the value in between.
        made = Histogram([0, value, LARGEST])
        assert off(made.quantile(0.5), Fraction(value)) <= RELATIVE_ERROR
        alone = Histogram()
        alone.add(value)
        assert alone == Histogram([value])


def test_values_below_two_thousand_and_forty_eight_are_kept_exactly():
    made = Histogram(range(2048))
    assert made.to_json()["counts"] == [1] * 2048  # a bucket for each
    assert made.quantile(0.5) == 1023.5


def test_the_stated_error_is_reached_so_it_is_no_idle_promise():
    worst = 2**40
    assert off(Histogram([0, worst, LARGEST]).quantile(0.5), Fraction(worst)) > 0.99 * RELATIVE_ERROR


def test_quantiles_of_an_exponential_law_meet_theory():
    mean, n = 50e6, 100_000
    draw = random.Random(7)
    made = Histogram([round(draw.expovariate(1 / mean)) for _ in range(n)])
    for q in (0.5, 0.9, 0.99, 0.999):
        share = 1 - math.exp(-made.quantile(q) / mean)
        assert abs(share - q) <= 4 * math.sqrt(q * (1 - q) / n) + RELATIVE_ERROR
    assert made.stdev == pytest.approx(mean, rel=4 * math.sqrt(2 / n))


def test_a_constant_sample_has_that_value_at_every_quantile_and_no_spread():
    made = Histogram()
    made.add(123_456_789, count=1_000)
    assert {made.quantile(q) for q in (0, 0.3, 0.999, 1)} == {123_456_789.0}
    assert (made.mean, made.stdev, made.n) == (123_456_789.0, 0.0, 1_000)


def test_an_empty_histogram_has_no_statistics_and_merges_without_trace():
    empty, made = Histogram(), Histogram([3, 5])
    assert (empty.n, empty.min, empty.max, empty.mean, empty.stdev) == (0, None, None, None, None)
    with pytest.raises(ValueError, match="at least one value"):
        empty.quantile(0.5)
    made.merge(empty)
    assert made == Histogram([3, 5])
    empty.merge(made)
    assert empty == made
    assert Histogram([4]).stdev is None


@check_table("value, named", [(-7, "-7"), (LARGEST + 1, str(LARGEST + 1))])
def test_a_value_out_of_range_is_named_and_leaves_the_histogram_as_it_was(value, named):
    made = Histogram([1, 2])
    with pytest.raises(ValueError, match=named):
        made.add(value)
    with pytest.raises(ValueError, match=named):
        made.extend([5, value, 6])
    assert made == Histogram([1, 2])


def test_other_wrong_input_is_refused():
    made = Histogram([1])
    with pytest.raises(ValueError, match="64 bits"):
        made.extend([2**70])
    with pytest.raises(TypeError):
        made.add(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        made.extend([1.5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="count"):
        made.add(1, count=0)
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            made.quantile(q)
    assert made == Histogram([1])


def test_numpy_integers_do_not_overflow_in_the_sum_of_squares():
    numpy = pytest.importorskip("numpy")
    values = [2**40, 2**40 + 5, 2**40 + 9]
    made = Histogram(numpy.array(values))
    made.add(numpy.int64(2**40))
    assert made == Histogram([*values, 2**40])


SPOILT = {
    "another scheme": ({"scheme": "log-linear-7"}, "scheme"),
    "n too high": ({"n": 5}, "add up"),
    "n true": ({"n": True}, "n should"),
    "min in another bucket": ({"min": 11}, "outside its bucket"),
    "max beyond its bucket": ({"max": 9_000_000}, "outside its bucket"),
    "max missing": ({"max": None}, "max should"),
    "total too low": ({"total": "3"}, "total is 3"),
    "total not digits": ({"total": "1e6"}, "total is no string"),
    "total a number": ({"total": 5_000_030}, "total is no string"),
    "squares too high": ({"squares": "9" * 40}, "squares is 9"),
    "squares below total": ({"squares": "0"}, "squares is 0"),
    "a negative count": ({"counts": [3, -1, 2]}, "counts is no list"),
    "an empty bucket": ({"counts": [3, 0, 1]}, "add up"),
    "a count too few": ({"counts": [3, 1]}, "2 counts"),
    "a fraction": ({"counts": [2.0, 1, 1]}, "counts is no list"),
    "text for counts": ({"counts": "211"}, "counts is no list"),
    "buckets that stand still": ({"buckets": [1051648, 0, 20000]}, "add up"),
    "a bucket of no integer": ({"buckets": [1047553, 4096, 20000]}, "no value belongs to bucket 1047553"),
    "a bucket beyond all values": ({"buckets": [1051648, 2000, 10**15]}, "no value belongs to bucket"),
    "an unknown name": ({"mean": 4}, "exactly"),
}


@check_table("change, reason", SPOILT.values())
def test_spoilt_json_is_refused_with_its_reason(change, reason):
    good = Histogram([10, 10, 20, 5_000_000]).to_json()
    assert Histogram.from_json(good).n == 4
    with pytest.raises(ValueError, match=f"not a histogram: .*{reason}"):
        Histogram.from_json({**good, **change})


@check_table("content", [{}, [], None, {"n": 0}])
def test_json_of_another_shape_is_refused(content):
    with pytest.raises(ValueError, match="expected an object"):
        Histogram.from_json(content)


def test_numbers_of_one_bucket_that_contradict_each_other_are_refused():
    good = Histogram([5_000_000, 5_000_001, 5_000_002]).to_json()
    with pytest.raises(ValueError, match="above max"):
        Histogram.from_json({**good, "min": good["max"], "max": good["min"]})
    with pytest.raises(ValueError, match="too small for the total"):
        Histogram.from_json({**good, "squares": str(int(good["squares"]) - 3)})


def test_an_empty_histogram_with_sums_is_refused():
    for change in ({"total": "1"}, {"squares": "1"}, {"min": 0}, {"max": 3}):
        with pytest.raises(ValueError, match="not a histogram"):
            Histogram.from_json({**Histogram().to_json(), **change})


def test_a_million_values_cost_no_more_memory_than_their_spread():
    draw, made = random.Random(3), Histogram()
    for _ in range(10):
        made.extend([int(draw.uniform(1e6, 1e9)) for _ in range(20_000)])
    assert len(made.to_json()["buckets"]) <= 11 * 1024


def test_importing_it_brings_in_nothing_but_the_standard_library():
    code = (
        "import sys, benchhouse.schema.histogram; print([m for m in sys.modules if m in ('numpy', 'pydantic', 'yaml')])"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"


def test_bulk_adding_is_cheap():
    draw = random.Random(1)
    values = [int(draw.lognormvariate(18, 1)) for _ in range(10_000)]

    def one_by_one():
        histogram = Histogram()
        for value in values:
            histogram.add(value)

    def least_ns(work):
        costs = []
        for _ in range(10):
            start = time.process_time_ns()
            work()
            costs.append(time.process_time_ns() - start)
        return min(costs)

    assert least_ns(one_by_one) > 1.5 * least_ns(lambda: Histogram(values))  # about three times
