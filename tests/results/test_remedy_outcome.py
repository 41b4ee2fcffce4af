"""Whether a remedy restored a number: levels that are known, and what must come out."""

from tables import check_table

from benchhouse.analysis.playbooks.values import ComparedNumber
from benchhouse.results.remedy_outcome import Tried, TriedNumber, judge, overall

GOOD, SLOW, MIDDLE = [10.0, 10.2, 9.9, 10.1, 10.0], [20.1, 20.4, 19.8, 20.0, 20.3], [15.0, 15.2, 14.8, 15.1, 15.0]
NEAR = [10.1, 10.0, 10.2, 9.9, 10.05]
WILD = [20.0, 9.0, 31.0, 12.0, 26.0]
LATENCY = ComparedNumber(metric="latency", stat="p99", unit="ms", direction="lower", base=10, now=20, verdict="worse")


@check_table(
    "as_it_was, changed, outcome",
    [
        (SLOW, NEAR, "restored"),
        (SLOW, MIDDLE, "partly"),
        (SLOW, [*SLOW[1:], SLOW[0]], "not restored"),
        (NEAR, NEAR[::-1], "not reproduced"),
        (SLOW, WILD, "unsure"),
    ],
)
def test_a_number_is_judged_by_both_its_neighbours(as_it_was, changed, outcome):
    assert judge(LATENCY, GOOD, as_it_was, changed).outcome == outcome


def test_of_a_rate_higher_is_better():
    rate = LATENCY.model_copy(update={"metric": "qps", "unit": "1/s", "direction": "higher"})
    assert judge(rate, SLOW, GOOD, [20.2, 20.0, 20.1, 19.9, 20.3]).outcome == "restored"


def numbers(*outcomes):
    made = judge(LATENCY, GOOD, SLOW, NEAR)
    return [TriedNumber(**made.model_dump() | {"outcome": outcome}) for outcome in outcomes]


@check_table(
    "outcomes, whole",
    [
        (["restored", "restored"], "restored"),
        (["restored", "not reproduced"], "restored"),
        (["restored", "unsure"], "restored"),
        (["unsure", "restored"], "unsure"),
        (["restored", "not restored"], "partly"),
        (["unsure", "not restored"], "not restored"),
        (["not reproduced"], "not reproduced"),
    ],
)
def test_the_overall_judgement_follows_from_those_of_the_numbers(outcomes, whole):
    assert overall(numbers(*outcomes)) == whole


@check_table("outcome", ["restored", "partly", "not restored", "not reproduced", "unsure"])
def test_every_outcome_has_its_sentence(outcome):
    assert Tried(outcome=outcome, remedy="without it", rounds=5).headline.startswith(outcome)
