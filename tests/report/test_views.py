"""Numbers and causes in words for people who don't measure."""

from benchhouse.analysis.playbooks.idle_gpu import UNEXPLAINED
from benchhouse.analysis.playbooks.values import ComparedNumber, PointDiagnosis
from benchhouse.report.pages import Items, Page, Words, as_html, as_markdown
from benchhouse.report.views import _blame, _lies, impact


def cause(side):
    return PointDiagnosis(
        playbook="p", cause="c", title="t", says="s", certainty="weak", why_so_sure="few", side=side, point="p",
        symptoms=[], evidence=[], next=[], change="none", also=[],
    )  # fmt: skip


def test_a_change_and_its_interval_are_in_the_same_words():
    known = {"metric": "step_s", "stat": "value", "unit": "s", "direction": "lower", "verdict": "worse"}
    twice = ComparedNumber(base=0.02, now=0.076, change=2.8, low=2.79, high=2.82, p_adjusted=0.001, **known)
    assert "takes 3.8 times as long" in impact(twice) and "between 3.79 and 3.82 times" in impact(twice)
    tenth = ComparedNumber(base=0.02, now=0.022, change=0.1, low=0.08, high=0.12, p_adjusted=0.001, **known)
    assert "10% longer" in impact(tenth) and "between 8% and 12%" in impact(tenth)


def test_where_nobody_knows_the_cause_nobody_is_blamed():
    assert UNEXPLAINED.side == "unknown"
    assert _blame(cause("unknown")) == "Whose the cause is can't be told yet."
    assert _lies(cause("unknown")) == "Where it lies is not known yet."
    assert "not ours" in _blame(cause("service")) and "cause is ours" in _blame(cause("scenario"))


def test_weak_evidence_blames_nobody_for_sure():
    weak = cause("service").model_copy(update={"certainty": "weak"})
    assert _blame(weak).startswith("The evidence is weak. If it holds, the cause is not ours")
    assert _blame(weak.model_copy(update={"certainty": "moderate"})).startswith("By the evidence the cause is not ours")


def test_what_stands_between_backticks_is_code_in_both_forms():
    page = Page("t", "lead", [Items(["with `a: <1>`, again", "one ` alone"]), Words("`b`")])
    html = as_html(page)
    assert "with <code>a: &lt;1&gt;</code>, again" in html and "one ` alone" in html and "<p><code>b</code></p>" in html
    assert "with `a: &lt;1>`, again" in as_markdown(page)
