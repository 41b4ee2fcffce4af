import math
import random
import statistics
from itertools import islice, product

import pytest
from laws import ENDLESS
from tables import check_rows

from benchhouse.load.arrivals import Constant, Gamma, Poisson, Ramp, StepRates, TraceArrivals
from benchhouse.load.certificate import gamma_cdf, gaps_fit

NS = 1_000_000_000


def first(n, arrivals, rate=None, seed=1, duration_s=None):
    return list(islice(arrivals.due(rate, seed, duration_s), n))


def test_exact_schedules_of_random_gaps_raise_at_most_one_false_alarm_in_fifty():
    laws = (Poisson(), Gamma(shape=0.3), Gamma(shape=5), Ramp(to=40, over=20), StepRates(rates=(9, 30), each=9))
    alarms = {}
    for arrivals, rate in product(laws, (10.0, 3_000.0)):
        schedules = [first(300, arrivals, rate, seed) for seed in range(50)]
        # Without a tolerance, which would hide a wrong critical distance.
        fits = [gaps_fit(arrivals, times, times, rate, tolerance_ns=0) for times in schedules]
        alarms[str(arrivals), rate] = sum(not fit.passed for fit in fits)
    assert max(alarms.values()) <= 1, alarms


def test_the_critical_distance_is_neither_too_wide_nor_too_narrow():
    shares = []
    for seed in range(300):
        times = first(200, Poisson(), 10.0, seed)
        fit = gaps_fit(Poisson(), times, times, 10.0, tolerance_ns=0)
        shares.append(fit.statistic / fit.limit)
    # The median of Kolmogorov's law is 0.8276, its 99.9% point 1.9495.
    assert statistics.median(shares) == pytest.approx(0.8276 / 1.9495, rel=0.06)


@pytest.mark.parametrize("arrivals", [*ENDLESS, "trace"], ids=str)
def test_small_delays_of_every_send_pass_for_every_kind(arrivals, trace):
    if arrivals == "trace":
        arrivals = TraceArrivals(
            file=trace("".join(f"{due / NS:.9f}\n" for due in first(5_000, Gamma(shape=0.4), 300.0)))
        )
    late = random.Random(2)
    times = first(5_000, arrivals, 300.0, seed=4)
    sent = [due + round(late.expovariate(1 / 20_000)) for due in times]
    fit = gaps_fit(arrivals, sent, times, 300.0)
    assert fit.passed and fit.n == 4_999


def test_a_client_that_is_a_little_late_at_three_thousand_a_second_passes():
    times = first(30_000, Poisson(), 3_000.0)
    sent, free = [], 0
    for due in times:  # one send takes 15 microseconds, so that close ones queue
        free = max(due, free) + 15_000
        sent.append(free)
    assert gaps_fit(Poisson(), sent, times, 3_000.0).passed


PAIRS_OF_LAWS = [
    (Poisson(), Constant()),
    (Constant(), Poisson()),
    (Poisson(), Gamma(shape=0.4)),
    (Gamma(shape=0.4), Poisson()),
    (Constant(), Gamma(shape=9)),
    (Gamma(shape=9), Constant()),
    (Ramp(to=100, over=5), Ramp(to=100, over=5, gaps="constant")),
    (Ramp(to=100, over=5, gaps="constant"), Ramp(to=100, over=5)),
]


def test_another_law_than_the_one_of_the_scenario_fails():
    passed = []
    for (planned, sent), rate in product(PAIRS_OF_LAWS, (20.0, 100.0, 1_000.0, 20_000.0)):
        fit = gaps_fit(planned, first(4_000, sent, rate), first(4_000, planned, rate), rate)
        assert fit.passed == (fit.statistic <= fit.limit)
        if fit.passed:
            passed.append((str(planned), str(sent), rate))
    assert not passed


def test_sends_bunched_by_a_tick_of_ten_milliseconds_fail():
    passed = []
    for arrivals in (Constant(), Poisson(), Gamma(shape=2), Ramp(to=777, over=3)):
        for rate in (30.0, 130.0, 1_000.0, 3_000.0):
            times = first(3_000, arrivals, rate)
            sent = [-(-due // 10_000_000) * 10_000_000 for due in times]
            if gaps_fit(arrivals, sent, times, rate).passed:
                passed.append((str(arrivals), rate))
    assert not passed


def test_a_trace_sent_with_other_gaps_fails(trace):
    times = first(500, Gamma(shape=0.4), 100.0)
    made = TraceArrivals(file=trace("".join(f"{due / NS:.9f}\n" for due in times)))
    assert gaps_fit(made, times, times, None).passed
    assert not gaps_fit(made, first(500, Constant(), 100.0), times, None).passed


def test_a_rate_that_was_not_delivered_fails():
    times = first(2_000, Poisson(), 100.0)
    assert not gaps_fit(Poisson(), [round(due * 1.2) for due in times], times, 100.0).passed


def test_even_gaps_may_be_off_by_a_twentieth_or_the_tolerance_but_no_more():
    rows = [(10, 2e6, True), (10, 30e6, False), (1_000, 0.05e6, True), (1_000, 0.4e6, False)]

    def check(rate, late_ns, passed):
        times = first(2_000, Constant(), rate)
        late = random.Random(8)
        sent = [due + round(late.uniform(0, late_ns)) for due in times]
        assert gaps_fit(Constant(), sent, times, rate).passed is passed

    check_rows(check, rows)


def test_one_late_send_does_not_fail_a_short_run_and_too_few_sends_say_so():
    times = first(20, Constant(), 10.0)
    late = [*times[:10], times[10] + 50_000_000, *times[11:]]
    assert gaps_fit(Constant(), late, times, 10.0).passed
    assert gaps_fit(Poisson(), [5], [4], 10.0).what == "no gaps to look at"
    with pytest.raises(ValueError, match="3 sent, 2 intended"):
        gaps_fit(Poisson(), [1, 2, 3], [1, 2], 10.0)


def test_the_gamma_law_meets_its_closed_forms():
    rows = [1e-6, 0.01, 0.3, 1.0, 2.5, 10.0]

    def check(gap):
        assert gamma_cdf(1.0, gap) == pytest.approx(1 - math.exp(-gap), rel=1e-9)
        assert gamma_cdf(1 + 1e-12, gap) == pytest.approx(1 - math.exp(-gap), rel=1e-7)
        assert gamma_cdf(0.5, gap) == pytest.approx(math.erf(math.sqrt(gap / 2)), rel=1e-9)
        assert gamma_cdf(3.0, gap) == pytest.approx(1 - math.exp(-3 * gap) * (1 + 3 * gap + 4.5 * gap**2), abs=1e-9)
        assert gamma_cdf(2.0, -gap) == 0.0

    check_rows(check, rows)
