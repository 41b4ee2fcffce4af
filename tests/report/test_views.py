"""Numbers and causes in words for people who don't measure."""

from benchhouse.analysis.playbooks.idle_gpu import UNEXPLAINED
from benchhouse.analysis.playbooks.values import Diagnosis, Number
from benchhouse.report.impact import impact
from benchhouse.report.views import _blame, _lies


def cause(side):
    return Diagnosis(
        playbook="p", cause="c", title="t", says="s", certainty="weak", why_so_sure="few", side=side, point="p",
        symptoms=[], evidence=[], next=[], change="none", also=[],
    )  # fmt: skip


def test_a_change_and_its_interval_are_in_the_same_words():
    known = {"metric": "step_s", "stat": "value", "unit": "s", "direction": "lower", "verdict": "worse"}
    twice = Number(base=0.02, now=0.076, change=2.8, low=2.79, high=2.82, p_adjusted=0.001, **known)
    assert "takes 3.8 times as long" in impact(twice) and "between 3.79 and 3.82 times" in impact(twice)
    tenth = Number(base=0.02, now=0.022, change=0.1, low=0.08, high=0.12, p_adjusted=0.001, **known)
    assert "10% longer" in impact(tenth) and "between 8% and 12%" in impact(tenth)


def test_where_nobody_knows_the_cause_nobody_is_blamed():
    assert UNEXPLAINED.side == "unknown"
    assert _blame(cause("unknown")) == "Whose the cause is can't be told yet."
    assert _lies(cause("unknown")) == "Where it lies is not known yet."
    assert "not ours" in _blame(cause("service")) and "cause is ours" in _blame(cause("scenario"))
