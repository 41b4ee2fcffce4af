import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchhouse.load.streams import FINE_NS, FINEST_NS, SharedWaits, ValueStream, Waits, figures
from benchhouse.schema.histogram import Histogram

MS = 1_000_000
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
TIMES = st.integers(0, 100 * MS) | st.integers(0, 10_000 * MS)
# What was measured, how much less and more it may be in truth, and where between these two the truth lies.
UNSURE = st.tuples(TIMES, TIMES | st.just(0), TIMES | st.just(0), st.floats(0, 1))


def exact(values):
    """Mean and percentiles (Hyndman and Fan's type 7) of the values themselves."""
    ordered = sorted(values)
    found = {"mean": sum(ordered) / len(ordered)}
    for stat, q in QUANTILES.items():
        position = (len(ordered) - 1) * q
        below = int(position)
        above = min(below + 1, len(ordered) - 1)
        found[stat] = ordered[below] + (ordered[above] - ordered[below]) * (position - below)
    return found


def stream_of(times):
    made = ValueStream()
    for value, earlier, later, _ in times:
        made.add_unsure(value, earlier, later)
    return made


def truths(times):
    """A true time for each, between the least and the most that it can be."""
    return [
        round(max(value - earlier, 0) + share * (value + (later or 0) - max(value - earlier, 0)))
        for value, earlier, later, share in times
    ]


@given(st.lists(UNSURE, min_size=1, max_size=60))
def test_no_figure_is_further_from_the_truth_than_its_bound(times):
    made = stream_of(times)
    published, bounds, true = figures(made.histogram), made.bounds_ns(), exact(truths(times))
    assert bounds.keys() == published.keys() == true.keys()
    for stat, bound in bounds.items():
        assert abs(published[stat] - true[stat]) <= bound + 1, stat


@pytest.mark.parametrize("end", [0.0, 1.0])
@given(times=st.lists(UNSURE, min_size=1, max_size=30))
def test_the_bound_holds_where_every_time_is_the_least_or_the_most_that_it_can_be(times, end):
    times = [(*numbers, end) for *numbers, _ in times]
    published, bounds, true = figures(stream_of(times).histogram), stream_of(times).bounds_ns(), exact(truths(times))
    for stat, bound in bounds.items():
        assert abs(published[stat] - true[stat]) <= bound + 1, stat


def test_the_largest_of_few_times_is_doubted_as_much_as_it_can_be_off():
    made = ValueStream()
    made.extend([MS] * 9)
    made.add_unsure(300 * MS, 299 * MS)
    bounds = made.bounds_ns()
    assert bounds["p99"] >= 0.91 * 299 * MS - 1
    assert bounds["mean"] >= 29.9 * MS - 1
    assert bounds["p50"] < 0.2 * MS


def test_one_doubtful_time_in_a_thousand_leaves_the_median_as_it_is():
    made = ValueStream()
    made.extend([10 * MS + number for number in range(999)])
    made.add_unsure(310 * MS, 300 * MS)
    bounds = made.bounds_ns()
    assert bounds["p50"] < 0.2 * MS and bounds["p99"] < 0.2 * MS
    assert bounds["mean"] == pytest.approx(0.3 * MS, abs=0.2 * MS)
    assert bounds["p99.9"] > 100_000


def test_what_is_finer_than_anybody_looks_is_in_every_bound_and_in_no_doubt():
    made = ValueStream()
    made.extend_unsure([5 * MS, 6 * MS], [FINE_NS, 0])
    assert FINE_NS <= made.bounds_ns()["mean"] < FINE_NS + 0.01 * MS


def test_an_empty_stream_has_no_bounds():
    assert ValueStream().bounds_ns() == {}


@given(st.lists(UNSURE, max_size=20), st.lists(UNSURE, max_size=20))
def test_streams_merge_and_travel_with_their_doubts(some, others):
    merged, whole = stream_of(some), stream_of([*some, *others])
    merged.merge(pickle.loads(pickle.dumps(stream_of(others))))
    assert merged.histogram == whole.histogram
    assert merged.bounds_ns() == whole.bounds_ns()


@given(st.lists(UNSURE, max_size=20))
def test_a_histogram_of_a_stream_holds_every_time_as_measured_doubted_or_not(times):
    made, expected = stream_of(times), Histogram()
    expected.extend([value for value, *_ in times])
    while made.settle_some():
        pass
    assert made.histogram == expected
    assert made.histogram == expected  # looking changes nothing


@given(st.lists(st.tuples(TIMES, TIMES), max_size=20))
def test_many_at_once_are_the_same_as_one_by_one(times):
    at_once, singly = ValueStream(), ValueStream()
    at_once.extend_unsure([value for value, _ in times], [earlier for _, earlier in times])
    for value, earlier in times:
        singly.add_unsure(value, earlier)
    assert at_once.histogram == singly.histogram
    assert at_once.bounds_ns() == singly.bounds_ns()


@given(st.lists(st.tuples(UNSURE, TIMES | st.just(0)), min_size=1, max_size=60), st.lists(TIMES, max_size=5))
def test_the_bound_holds_where_any_time_may_also_hold_a_wait_of_which_only_samples_are_known(both, other):
    """Here the samples are the waits themselves, and others of no use beside them."""
    waits = [wait for _, wait in both]
    times = [(value + wait, earlier, None, share) for (value, earlier, _, share), wait in both]
    true = exact([max(truth - wait, 0) for truth, wait in zip(truths(times), waits, strict=True)])
    made = stream_of(times)
    published, samples = figures(made.histogram), [Histogram(waits), Histogram(other), Histogram()]
    for stat, bound in made.bounds_ns(Waits(samples)).items():
        slack = 1 + max(waits) / 1000  # what two histograms round
        assert abs(published[stat] - true[stat]) <= bound + slack, stat


@given(st.lists(st.tuples(UNSURE, TIMES | st.just(0), st.booleans()), min_size=1, max_size=60))
def test_between_two_moments_a_wait_adds_or_takes_away(both):
    waits = [wait for _, wait, _ in both]
    times = [time for time, _, _ in both]
    made, moved = stream_of(times), [wait if missing else -wait for _, wait, missing in both]
    true = exact([max(truth + wait, 0) for truth, wait in zip(truths(times), moved, strict=True)])
    published = figures(made.histogram)
    for stat, bound in made.bounds_ns(Waits([Histogram(waits)])).items():
        assert abs(published[stat] - true[stat]) <= bound + 1 + max(waits) / 1000, stat


@given(st.lists(st.tuples(TIMES, TIMES | st.just(0)), min_size=1, max_size=60))
def test_the_bound_holds_where_only_some_calls_hold_waits(both):
    waits = [wait for _, wait in both if wait]
    made = stream_of([(value + wait, 0, 0, 0.0) for value, wait in both])
    true, published = exact([value for value, _ in both]), figures(made.histogram)
    for stat, bound in made.bounds_ns(Waits([Histogram(waits)], len(waits) / len(both))).items():
        assert abs(published[stat] - true[stat]) <= bound + 1 + max(waits, default=0) / 1000, stat


def test_rare_waits_leave_the_median_as_it_is_and_no_waits_all():
    made = ValueStream()
    made.extend([10 * MS + number * 100 for number in range(995)] + [310 * MS] * 5)
    rare = Histogram([0] * 995 + [300 * MS] * 5)
    bounds = made.bounds_ns(Waits([rare]))
    assert bounds["p50"] < 0.3 * MS and bounds["p99"] < 0.3 * MS
    assert bounds["p99.9"] == pytest.approx(300 * MS, rel=0.01)
    assert bounds["mean"] == pytest.approx(1.7 * MS, abs=0.1 * MS)
    waking = made.bounds_ns(Waits([Histogram([0] * 100)]))  # a thread that never waits is still to be woken
    assert all(bound >= 0.25 * MS for bound in waking.values())


def test_a_bound_is_no_more_than_the_time_itself_and_nothing_where_no_thread_was_ever_away():
    """Calls of 0.1 ms of an index in the process that asks."""
    made = ValueStream()
    made.extend([100_000 + number for number in range(1000)])
    published, rounding = figures(made.histogram), 1000
    for stat, bound in made.bounds_ns(Waits([Histogram([300_000] * 10)])).items():
        assert bound == pytest.approx(published[stat], abs=rounding)
    for samples in ([], [Histogram([MS] * 10)]):
        assert max(made.bounds_ns(Waits(samples, broken=0.0)).values()) < rounding
    made.repeat(2 * MS, 4)
    rarely = made.bounds_ns(Waits([Histogram([2 * MS] * 10)], broken=0.004))
    assert rarely["p50"] < rounding and rarely["p99"] < rounding
    assert rarely["p99.9"] == pytest.approx(1.9 * MS, rel=0.01)


GROUPS = st.lists(st.lists(st.tuples(TIMES, TIMES | st.just(0)), min_size=1, max_size=12), min_size=1, max_size=8)


@given(GROUPS, st.lists(TIMES, max_size=5))
def test_the_bound_holds_where_only_the_sum_of_the_waits_of_several_times_is_known(groups, sampled):
    """Each time may hold a share of that sum, and a wait of which there are samples."""
    pairs = [pair for group in groups for pair in group]
    other = [sampled[at % len(sampled)] if sampled else 0 for at in range(len(pairs))]
    made, shared = ValueStream(), SharedWaits()
    made.extend(time + wait + more for (time, wait), more in zip(pairs, other, strict=True))
    for group in groups:
        shared.add(sum(wait for _, wait in group), len(group))
    true, published = exact([time for time, _ in pairs]), figures(made.histogram)
    bounds = made.bounds_ns(Waits([Histogram(other)], shared=shared, fine_ns=FINEST_NS))
    slack = 1 + max(wait + more for (_, wait), more in zip(pairs, other, strict=True)) / 500  # histograms round
    for stat, bound in bounds.items():
        assert abs(published[stat] - true[stat]) <= bound + slack, stat


def finest(shared):
    return Waits((), shared=shared, fine_ns=FINEST_NS)


def test_waits_of_few_times_leave_the_figures_of_many_as_they_are():
    made, shared = ValueStream(), SharedWaits()
    made.extend([100_000] * 995 + [2_000_000] * 5)
    shared.add(5_000_000, 50)
    bounds = made.bounds_ns(finest(shared))
    assert bounds["mean"] == pytest.approx(5_000 + FINEST_NS, rel=0.1)
    assert bounds["p50"] == bounds["p90"] < 1.2 * FINEST_NS
    assert made.bounds_ns(finest(SharedWaits()))["p99.9"] < 3 * FINEST_NS
    whole = SharedWaits()
    whole.merge(shared)
    whole.merge(SharedWaits())
    assert made.bounds_ns(finest(whole)) == bounds
