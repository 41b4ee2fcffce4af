"""Faults that come and go: trials are counted, by an exact test, and those that were hit must be the slow ones."""

import math
from itertools import product
from random import Random

import pytest
from tables import check_table

from benchhouse.analysis.playbooks import diagnose
from benchhouse.analysis.playbooks.signals import HITS_P, chance, count_hits, odd_one_out
from benchhouse.analysis.playbooks.values import ComparedNumber, ComparedPoint, SeriesReading, Signal

LATENCY = {"metric": "latency", "unit": "ms", "direction": "lower", "verdict": "worse", "p_adjusted": 0.001}
TAIL = [ComparedNumber(**LATENCY, stat="p99", base=10, now=300, change=29.0),
        ComparedNumber(**LATENCY, stat="mean", base=5, now=10, change=1.0)]  # fmt: skip
MEAN = TAIL[1:]
QUIET = [0.0, 0.006, 0.009, 0.004, 0.0]
SOME = [0.41, 0.0, 0.39, 0.4, 0.42]
SLOW = [395.0, 8.0, 406.0, 402.0, 374.0]


def signal(base, now, scope="requests", series="held_together"):
    sides = [[SeriesReading(trial_id=f"{side}{at}", node="n", avg=value) for at, value in enumerate(values)]
             for side, values in (("a", base), ("b", now))]  # fmt: skip
    return Signal(scope=scope, series=series, unit="s", phase="trial", base=sides[0], now=sides[1])


def said(signals, slow=SLOW, numbers=TAIL):
    slowness = {one.name: {f"b{at}": value for at, value in enumerate(slow)} for one in numbers}
    return diagnose(ComparedPoint(point="p", numbers=numbers, signals=signals, slowness=slowness))


def test_a_stall_that_misses_one_trial_of_five_is_named_as_weak_evidence():
    (found,) = said([signal(QUIET, SOME)])
    assert (found.cause, found.certainty) == ("stall", "weak")
    (shown,) = found.evidence
    assert (shown.hits, shown.trials, shown.now) == (4, ["b0", "b2", "b3", "b4", "b1"], [0.41, 0.39, 0.4, 0.42, 0.0])
    assert shown.p_value == pytest.approx(5 / 210)
    assert "in 4 of 5 trials, the slow ones, and in none of 5 of the base" in shown.says


def test_more_hits_make_it_moderate_and_never_strong():
    sizes = [0.1, 0.3, 0.1, 3.0, 0.2]  # of which no mean is far from 0 for sure
    (found,) = said([signal(QUIET, sizes)], sizes)
    assert (found.certainty, found.evidence[0].hits) == ("moderate", 5)


@check_table(
    "base, now, slow",
    [
        (QUIET, [0.4, 0.0, 0.4, 0.0, 0.4], [400, 8, 400, 8, 400]),  # three of five: 8% by chance
        (QUIET, SOME, [395, 900, 406, 402, 374]),  # a trial that was not hit is the slowest
        ([0.4, *QUIET[1:]], SOME, SLOW),  # the base was hit as well: 10% by chance
        (QUIET, [0.018, 0.0, 0.017, 0.019, 0.018], SLOW),  # too little to matter
        (QUIET[:3], [0.4, 0.0, 0.4], SLOW[:3]),  # two of three
    ],
)
def test_random_and_small_differences_are_not_named(base, now, slow):
    assert said([signal(base, now)], slow) == []


def test_a_hiccup_of_the_base_does_not_hide_what_hits_every_trial():
    (found,) = said([signal([0.4, *QUIET[1:]], [0.3, 0.9, 0.35, 2.0, 0.5])])
    assert (found.cause, found.evidence[0].hits) == ("stall", 5)
    assert "in 1 of 5 of the base" in found.evidence[0].says


def test_three_trials_of_very_different_size_are_enough_where_all_were_hit():
    (found,) = said([signal(QUIET[:3], [0.1, 0.4, 1.5])], [100, 400, 1500])
    assert (found.cause, found.certainty) == ("stall", "weak")


def test_a_root_that_comes_and_goes_comes_before_the_stall_that_it_makes():
    throttled = signal([0.001, 0.002, 0.001, 0.002, 0.001], [0.3, 0.002, 0.2, 0.4, 0.3], "trial", "cgroup_throttled")
    (found,) = said([signal(QUIET, SOME), throttled])
    assert found.cause == "cpu_throttling"
    assert any("held_together" in line for line in found.also)


def test_where_only_the_mean_is_worse_for_sure_a_stall_is_still_seen_in_the_requests():
    (found,) = said([signal(QUIET, SOME)], numbers=MEAN)
    assert found.cause == "stall" and "no tail for sure" in found.why_so_sure
    assert said([signal([1.0] * 5, [9.0] * 5, "service:vllm", "requests_waiting")], numbers=MEAN) == []


def test_without_a_number_of_each_trial_nothing_is_counted():
    assert diagnose(ComparedPoint(point="p", numbers=TAIL, signals=[signal(QUIET, SOME)])) == []


@check_table("trials", [3, 5, 8])
def test_the_chance_is_that_of_all_ways_to_deal_the_hits(trials):
    for hit, base_hit in product(range(1, trials + 1), range(trials)):
        deals = [bin(deal) for deal in range(1 << 2 * trials) if bin(deal).count("1") == hit + base_hit]
        as_many = sum(deal.zfill(20)[-trials:].count("1") >= hit for deal in deals)
        assert chance(hit, trials, base_hit, trials) == pytest.approx(as_many / len(deals))
        if trials == 8:
            break  # of 65,536 deals, one is enough


@check_table("trials", [3, 5, 8, 10, 20])
def test_pairs_that_are_hit_at_one_rate_pass_in_less_than_two_percent(trials):
    """Exactly, at the worst of all rates; the two sides are independent."""
    passing = [
        (hit, base) for hit, base in product(range(1, trials + 1), range(trials + 1))
        if chance(hit, trials, base, trials) <= HITS_P or (hit == trials and not base)
    ]  # fmt: skip

    def likely(hit, rate):
        return math.comb(trials, hit) * rate**hit * (1 - rate) ** (trials - hit)

    worst = max(sum(likely(a, rate) * likely(b, rate) for a, b in passing) for rate in (at / 50 for at in range(1, 50)))
    assert 0 < worst < 0.02


@check_table("spread", [0.02, 0.3, 1.0])
def test_noise_of_any_width_is_hardly_ever_a_fault(spread):
    draw, passed = Random(3), 0
    for _ in range(400):
        base, now = ([0.1 * draw.lognormvariate(0, spread) for _ in range(5)] for _ in range(2))
        passed += count_hits(base, now, "up", 0.02, 0.5) is not None
    assert passed <= 8


def test_a_member_that_lies_beyond_the_others_in_all_of_few_trials_is_odd():
    def rows(value):
        return [SeriesReading(trial_id=f"t{at}", node="n", avg=value, low=0.0, peak=value) for at in range(3)]

    found = odd_one_out({"a": rows(4.0), "b": rows(2.0), "c": rows(2.0), "d": rows(2.0)}, "up", least=1.0, ratio=0.1)
    assert found is not None and found.member == "a"
