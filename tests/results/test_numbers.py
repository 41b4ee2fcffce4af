import math

import pytest
from tables import check_table

from benchhouse.results.numbers import (
    change_texts,
    headline_stats,
    mean_interval,
    number,
    percent,
    primary_stats,
    quantity,
    shaky,
    spread_text,
    titled,
)


@check_table(
    "value, spread, text",
    [
        (None, None, "–"),
        (0.0, None, "0"),
        (20953.91, 851.7, "20\u2009954"),
        (0.4251234, 0.0151, "0.425"),
        (1234.5678, None, "1235"),
        (0.97142, 0.0017, "0.9714"),
        (-3.25, None, "\u22123.25"),
        (1.5e12, None, "1.500e12"),
        (2.5e-7, None, "2.500e\u22127"),
        (-1.5e12, None, "\u22121.500e12"),
        (8681.0, 2329.0, "8681"),
        (-12345.0, None, "\u221212\u2009345"),
        (5.0, 0.0, "5"),
    ],
)
def test_number_keeps_the_digits_that_its_spread_leaves(value, spread, text):
    assert number(value, spread) == text


def test_spread_is_written_to_two_digits():
    spreads = {
        None: "",
        0.0: "0",
        0.0173: "0.017",
        851.7: "852",
        2329.4: "2329",
        12329.4: "12\u2009329",
        1.2e10: "1.2e10",
    }
    assert {spread: spread_text(1.0, spread) for spread in spreads} == spreads


def test_a_ratio_has_no_unit_and_a_rate_reads_naturally():
    assert quantity(0.5, "1") == "0.5"
    assert quantity(20000, "1/s") == "20\u2009000/s"
    assert quantity(3.2, "ms") == "3.2\u2009ms"


def test_a_column_of_ratios_names_no_unit():
    assert [titled("recall", "1"), titled("latency p99", "ms")] == ["recall", "latency p99 (ms)"]


@check_table(
    "change, ends, difference_ends, texts",
    [
        (0.5, (0.4, 0.6), (4.0, 6.0), ("+50.0%", "+40.0% to +60.0%")),
        (0.5, None, (-1.0, 11.0), ("+5\u2009ms", "\u22121 to +11\u2009ms")),
        (None, None, (4.0, 6.0), ("+5\u2009ms", "+4 to +6\u2009ms")),
        (0.5, (0.5, 0.5), (5.0, 5.0), ("+50.0%", "no spread")),
        (None, None, (-0.123456, 10.5), ("+5.00\u2009ms", "\u22120.12 to +10.50\u2009ms")),
        (None, None, (1e-7, 11.0), ("+5.0000000\u2009ms", "+0.0000001 to +11.0000000\u2009ms")),
        (0.5, None, None, ("+50.0%", "")),
        (None, None, None, ("+5\u2009ms", "")),
    ],
)
def test_a_change_is_relative_where_that_has_an_interval(change, ends, difference_ends, texts):
    assert change_texts(change, ends, 5.0, difference_ends, "ms") == texts


@check_table(
    "change, ends, texts",
    [
        (-0.998, (-0.99908, -0.997), ("\u221299.8%", "\u221299.9% to \u221299.7%")),
        (0.00095, (-0.003, 0.005), ("+0.1%", "\u22120.3% to +0.5%")),
        (0.00012, (0.0001, 0.00014), ("+0.012%", "+0.010% to +0.014%")),
        (-0.99995, (-0.99996, -0.99993), ("\u221299.995%", "\u221299.996% to \u221299.993%")),
        (-0.8, (-0.99996, -0.2), ("\u221280.000%", "\u221299.996% to \u221220.000%")),
        (0.01, (0.0002, 0.02), ("+1.00%", "+0.02% to +2.00%")),
        (146.3, (100.0, 180.0), ("+14\u2009630.0%", "+10\u2009000.0% to +18\u2009000.0%")),
    ],
)
def test_a_cell_has_one_precision(change, ends, texts):
    assert change_texts(change, ends, 5.0, None, "ms") == texts


def test_percent_never_rounds_to_a_total_loss():
    assert percent(-0.99995) == "\u221299.995%"
    assert percent(0.0) == "0%"
    assert percent(0.1234) == "+12.3%"
    assert percent(146.367) == "+14\u2009636.7%"


def test_shaky_percentile_says_how_many_samples_it_needs():
    assert shaky("p99", 10) == "p99 from 10 samples; 100 are needed"
    assert shaky("p99.9", 999) == "p99.9 from 999 samples; 1,000 are needed"
    assert shaky("p99", 100) == ""
    assert shaky("mean", 1) == ""


def test_a_single_value_leads_else_centre_and_tail_do():
    assert primary_stats({"value", "n"}) == ["value"]
    assert primary_stats({"mean", "p50", "p90", "p99", "max"}) == ["mean", "p50", "p99"]
    assert primary_stats({"p50", "p95"}) == ["p50"]


def test_headline_is_the_centre_and_the_tail():
    assert headline_stats({"value", "n"}) == ["value"]
    assert headline_stats({"mean", "p50", "p90", "p99", "max"}) == ["mean", "p99"]
    assert headline_stats({"p50", "p99"}) == ["p50", "p99"]
    assert headline_stats({"mean", "max"}) == ["mean"]
    assert headline_stats({"max"}) == []


def test_interval_ends_at_zero_where_no_value_is_below():
    assert mean_interval(1.0, 2.0, 3, minimum=0.0)[0] == 0.0
    assert mean_interval(1.0, 2.0, 3, minimum=-1.0)[0] < 0.0
    assert mean_interval(1.0, 2.0, 3)[0] < 0.0


def test_interval_of_the_mean_is_students():
    low, high = mean_interval(10.0, 2.0, 5)
    assert (low, high) == pytest.approx((10 - 2.7764451 * 2 / 5**0.5, 10 + 2.7764451 * 2 / 5**0.5))
    assert mean_interval(10.0, None, 1) is None


def test_interval_of_a_positive_metric_reaches_further_up_than_down():
    low, high = mean_interval(10.0, 2.0, 5, minimum=0.1)
    reach = 2.7764451 * 0.2 / 5**0.5
    assert (low, high) == pytest.approx((10.0 * (1.0 - reach), 10.0 * math.exp(reach)))
    assert mean_interval(10.0, 0.0, 5, minimum=10.0) == (10.0, 10.0)
    assert all(math.isfinite(end) for end in mean_interval(1.0, 1.4, 2, minimum=0.01, confidence=0.999_999))
