"""SLOs as people write them, and every mistake told with its place."""

import pytest
from tables import check_rows

from benchhouse.documents.problems import ProblemsError
from benchhouse.load.slo import parse_slo


def test_a_clause_becomes_a_limit_and_a_share_that_may_be_over():
    rows = [
        ("ttft.p99<300ms", "ttft", 300_000_000, 0.01),
        ("e2e.p95<=2s", "e2e", 2_000_000_000, 0.05),
        ("itl.p99.9<1500us", "itl", 1_500_000, 0.001),
        ("latency.p50<.5s", "latency", 500_000_000, 0.5),
        ("tpot.p90<7ns", "tpot", 7, 0.1),
        ("error<0.1%", "error", None, 0.001),
        ("goodput>=95%", "goodput", None, 0.05),
    ]

    def check(text, metric, limit, share):
        (clause,) = parse_slo(text).clauses
        assert (clause.metric, clause.limit, clause.share) == (metric, limit, share)

    check_rows(check, rows)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        (" ttft . p99 < 300 ms , error < 0.10 % ", "ttft.p99<300ms,error<0.1%"),
        ("e2e.p95<=2000ms", "e2e.p95<2s"),
        ("e2e.p99.90<1.5s,goodput>=99.9%", "e2e.p99.9<1500ms,goodput>99.9%"),
    ],
)
def test_the_canonical_text_reads_back_as_the_same_slo(written, canonical):
    slo = parse_slo(written)
    assert str(slo) == canonical
    assert parse_slo(canonical) == slo


def test_a_mistake_is_told_with_its_column():
    rows = [
        ("tftt.p99<300ms", 1, "'tftt' is not a metric here", "ttft"),
        ("error<0.1%,ttf.p99<300ms", 12, "'ttf' is not a metric here", "ttft"),
        ("ttft.p99<300msec", 13, "ttft is a time, found the unit 'msec'", "ms"),
        ("ttft.p99<300", 13, "ttft is a time, found no unit", ""),
        ("ttft.p99<300%", 13, "ttft is a time, found the unit '%'", ""),
        ("ttft<300ms", 5, "ttft needs a quantile", ""),
        ("ttft.mean<300ms", 6, "'mean' is not a quantile", ""),
        ("ttft.p100<300ms", 6, "'p100' is not a quantile", ""),
        ("ttft.p0<300ms", 6, "'p0' is not a quantile", ""),
        ("ttft.p99>300ms", 9, "expected <, found '>'", "<"),
        ("ttft.p99 300ms", 10, "expected <, found nothing", ""),
        ("ttft.p99<ms", 10, "a number is missing", ""),
        ("ttft.p99<0ms", 10, "ttft needs a limit above zero", ""),
        ("error<1ms", 8, "error is a share in %, found the unit 'ms'", "%"),
        ("error.p99<1%", 7, "error is a share and has no quantile", ""),
        ("error<0%", 7, "error needs a share between 0% and 100%", ""),
        ("goodput<95%", 8, "expected >, found '<'", ">"),
        ("goodput>100%", 9, "goodput needs a share between 0% and 100%", ""),
        ("ttft.p99<1s,,error<1%", 13, "a clause is missing", ""),
        ("", 1, "a clause is missing", ""),
        ("ttft.p99<1s, ttft.p99<2s", 14, "limits the same a second time", ""),
    ]

    def check(text, column, message, suggestion):
        with pytest.raises(ProblemsError) as caught:
            parse_slo(text)
        (problem,) = caught.value.problems
        assert message in problem.message
        assert (problem.column, problem.suggestion) == (column, suggestion)

    check_rows(check, rows)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(ProblemsError) as caught:
        parse_slo("tftt.p99<1s,error<2s,e2e.p95<1s,itl<1s", path="--slo")
    assert [problem.column for problem in caught.value.problems] == [1, 20, 36]
    assert "--slo:1:20" in str(caught.value)


def test_an_experiment_may_have_metrics_of_its_own():
    assert str(parse_slo("read.p99<5ms", metrics=("read", "write"))) == "read.p99<5ms"
    with pytest.raises(ProblemsError):
        parse_slo("ttft.p99<5ms", metrics=("read", "write"))


def test_a_request_is_over_each_clause_on_its_own_and_goodput_needs_all_of_them():
    slo = parse_slo("ttft.p99<300ms,e2e.p95<2s,error<1%,goodput>95%")
    assert slo.over({"ttft": 299_999_999, "e2e": 1}) == (False, False, False, False)
    assert slo.over({"ttft": 300_000_000, "e2e": 1}) == (True, False, False, True)
    assert slo.over({"ttft": 1, "e2e": 3_000_000_000}) == (False, True, False, True)


def test_a_failed_request_is_over_every_clause_and_a_time_that_does_not_exist_is_not():
    slo = parse_slo("ttft.p99<300ms,tpot.p95<20ms,error<1%")
    assert slo.over({}, error=True) == (True, True, True)
    assert slo.over({"ttft": 1}) == (False, False, False)
