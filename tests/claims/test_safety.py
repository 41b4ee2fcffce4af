import itertools
import math
import random
from types import SimpleNamespace

import pytest

from benchhouse.claims.safety import (
    Basis,
    ClaimedNumber,
    changes,
    drift,
    interval_of,
    judge_changes,
    judge_images,
    judge_percentile,
    judge_source,
    judge_trials,
    judge_values,
    kendall_p,
)
from benchhouse.schema.claim import Changed, Policy


def test_the_exact_distribution_of_kendalls_score_is_that_of_all_orders():
    orders = list(itertools.permutations(range(5)))
    scores = [sum((b > a) - (b < a) for a, b in itertools.combinations(order, 2)) for order in orders]
    for score in range(0, 11, 2):
        assert kendall_p(5, score) == pytest.approx(sum(abs(one) >= score for one in scores) / len(orders))
    assert kendall_p(31, 200) == pytest.approx(kendall_p(30, 193), abs=0.002)  # the normal one joins smoothly


def test_a_trend_is_told_by_its_size_and_noise_is_not():
    assert drift([100.0, 102.0, 104.0, 106.0, 108.0]) == pytest.approx(8 / 104)
    assert drift([100.0, 102.0, 99.0, 101.0, 100.5]) is None
    assert drift([100.0, 102.0, 104.0]) is None  # three in order are no trend
    assert drift([0.0] * 6) is None
    noise = random.Random(3)
    alarms = sum(drift([noise.gauss(100, 5) for _ in range(8)]) is not None for _ in range(1000))
    assert alarms <= 35  # 2%, and three standard deviations


def test_an_interval_of_the_mean_covers_as_often_as_it_says():
    noise = random.Random(7)
    covered = 0
    for _ in range(1000):
        low, high = interval_of([noise.gauss(50, 5) for _ in range(5)], 0.95) or (0.0, 0.0)
        covered += low <= 50 <= high
    assert 925 <= covered <= 975
    assert interval_of([1.0], 0.95) is None
    assert interval_of([0.0, 1.0], 0.95)[0] == 0.0  # none was below zero


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([100.0, 101.0, 100.5], []),
        ([100.0, 101.0], ["few_replicates"]),
        ([100.0], ["few_replicates", "no_interval"]),
        ([100.0, 140.0, 70.0], ["wide_interval"]),
        ([100.0, 103.0, 106.0, 109.0, 112.0], ["drift"]),
        ([-1.0, 0.0, 1.0], ["wide_interval"]),  # around zero no share says anything
        ([0.0, 0.0, 0.0], []),
    ],
)
def test_each_fault_of_values_is_named(values, codes):
    found = [reason.code for reason in judge_values("x", values, Policy())]
    assert found == codes
    assert all(math.isfinite(value) for value in values)


def told(reasons):
    return [(reason.code, reason.message) for reason in reasons]


def test_intervals_are_students():
    half = 4.302653 * 10.0 / math.sqrt(3)
    assert interval_of([30.0, 10.0, 20.0], 0.95, 2) == pytest.approx((max(0.0, 20.0 - half), 20.0 + half))
    assert interval_of([-10.0, 0.0, 10.0], 0.95) == pytest.approx((-half, half))
    assert interval_of([1.0, 3.0], 0.9, 2) == pytest.approx((0.0, 2.0 + 6.313752))


def test_the_upper_end_of_positive_values_is_on_the_scale_of_logarithms():
    half = 4.302653 * 10.0 / math.sqrt(3)
    assert interval_of([30.0, 10.0, 20.0], 0.95) == pytest.approx((0.0, 20.0 * math.exp(half / 20.0)))


def test_the_limits_of_the_policy_are_those_of_the_number():
    policy = Policy(min_replicates=4, confidence=0.9, max_relative_half_width=0.02, max_drift=0.01)
    assert told(judge_values("x", [99.0, 100.0, 101.0], policy)) == [
        ("few_replicates", "x: 3 trials, the policy asks for 4 or more")
    ]
    (reason,) = told(judge_values("x", [98.0, 100.0, 100.0, 102.0], Policy(max_relative_half_width=0.02)))
    assert reason == (
        "wide_interval", "x: the 95% interval is ±2.6% of the value; the policy allows ±2.0%",
    )  # fmt: skip
    rising = [100.0, 101.0, 102.0, 103.0, 104.0]
    assert told(judge_values("x", rising, Policy())) == []
    assert told(judge_values("x", rising[::-1], Policy(max_drift=0.039))) == [
        ("drift", "x: the trials follow a trend, -3.9% from the first to the last; the policy allows 3.9%")
    ]
    assert told(judge_values("x", [5.0], Policy()))[0] == (
        "few_replicates", "x: 1 trial, the policy asks for 3 or more",
    )  # fmt: skip


def test_a_trend_is_the_middle_of_all_slopes():
    assert drift([1.0, 2.0, 3.0, 4.0, 15.0]) == pytest.approx(1.0 * 4 / 5.0)
    assert drift([8.0, 6.0, 4.0, 2.0, 0.0]) == pytest.approx(-2.0 * 4 / 4.0)
    assert drift([-8.0, -6.0, -4.0, -2.0, -1.0, 0.5]) is not None
    assert drift([1.0, 2.0, 3.0, 4.0]) is None
    assert drift([]) is None


def test_many_values_are_judged_by_the_normal_law():
    spread = math.sqrt(31 * 30 * 67 / 18.0)
    assert kendall_p(31, 200) == pytest.approx(math.erfc(199 / spread / math.sqrt(2.0)))
    assert kendall_p(31, 0) == 1.0
    assert kendall_p(30, 435) == pytest.approx(2 / math.factorial(30), rel=1e-9)


def trial(at=1, **fields):
    usual = {
        "trial_id": f"t{at}", "run_id": "r", "instance_digest": "d" * 64, "warmup": False, "outcome": "succeeded",
        "failure_code": None, "failure_message": None, "warnings": [], "git_dirty": False, "git_commit": "c" * 40,
        "host": "h", "duration_s": 1.0, "started": f"2026-01-0{at}", "ended": f"2026-02-0{at}", "repetition": at,
        "folder": f"f{at}", "workload_spec_digest": "e" * 64, "artifact_manifest_digest": "a" * 64,
    }  # fmt: skip
    return usual | fields


def test_trials_that_failed_are_invalid_or_doubt_themselves_are_told():
    bad = [trial(at, outcome="failed", failure_code=f"code{at}") for at in range(1, 7)]
    ((code, message),) = told(judge_trials("x", [trial(8), *bad], ["t8"], Policy()))
    assert code == "failed_trials" and message.startswith("x: 6 of 7 trials did not succeed: failed (code1); failed")
    assert message.endswith("failed (code4); and 2 more")
    invalid = trial(2, outcome="invalid", failure_code="late", failure_message="it was late")
    assert told(judge_trials("x", [trial(), invalid], ["t1"], Policy())) == [
        ("failed_certificate", "x: 1 of 2 trials are INVALID, their load was not what it says: late: it was late")
    ]
    doubts = [trial(1, warnings=["drift: it rose", "small-n: few"]), trial(2, warnings=["page_cache: warm"])]
    assert told(judge_trials("x", doubts, ["t1"], Policy())) == [
        ("doubted_trials", "x: trials doubt themselves: drift: it rose")
    ]
    assert told(judge_trials("x", [trial(1, warnings=None)], ["t1"], Policy())) == []


def test_a_source_that_is_dirty_or_not_known_is_told():
    assert told(judge_source("x", [trial()])) == []
    assert told(judge_source("x", [trial(), trial(git_dirty=True), trial(git_dirty=True)])) == [
        ("dirty_tree", "x: the git tree had uncommitted changes beside commit cccccccccccc")
    ]
    for unknown in ({"git_commit": ""}, {"git_dirty": None}):
        assert [code for code, _ in told(judge_source("x", [trial(), trial(**unknown)]))] == ["unknown_source"]


def test_a_percentile_of_too_few_samples_a_trial_is_told():
    assert told(judge_percentile("x", "p99", 995, 10)) == [
        ("thin_percentile", "x: p99 of about 99 samples a trial is too few to be told")
    ]
    assert told(judge_percentile("x", "p99", 1000, 10)) == told(judge_percentile("x", "p50", 20, 10)) == []
    assert told(judge_percentile("x", "p99", 0, 0)) == []


def test_images_without_a_digest_and_servers_of_others_are_told():
    def spec(image=None, digest=None, **services):
        runtime = SimpleNamespace(image=image)
        return SimpleNamespace(runtime=runtime, container_digest=digest, services=services, artifacts={}, target={})

    meta, known = (SimpleNamespace(container_digest=digest, custom={}) for digest in (None, "d"))
    endpoint = SimpleNamespace(recipe=None, use=SimpleNamespace(endpoint="http://a"))
    kept = SimpleNamespace(recipe="r", use=None)
    assert (
        told(judge_images("x", [(spec(), meta), (spec("i"), known), (spec("i", "d"), meta), (spec(a=kept), meta)]))
        == []
    )
    ((code, message),) = told(judge_images("x", [(spec("i", db=endpoint), meta), (spec("i"), meta)]))
    assert code == "unpinned_image"
    assert message.startswith(
        "x: the image i has no digest; nobody noted the version or image of the server at http://a"
    )


def row(**fields):
    usual = {
        "run_id": "r", "instance_digest": "d" * 64, "point": "p", "target": "t", "target_name": "n", "experiment": "e",
        "parameters": '{"a": {"b": 1}, "c": 2}', "axes": "{}", "trials": ["t2", "t1"], "values": [20.0, 10.0],
    }  # fmt: skip
    return usual | fields


def test_what_differs_is_told_by_name():
    facts = {"host": "h"}
    assert changes(row(), row(), facts, facts) == []
    other = row(target="u", parameters='{"a": {"b": 3}, "d": "x"}', experiment="f")
    assert changes(row(), other, facts, {"host": "", "limits": "l"}) == [
        Changed(dimension="target", a="t", b="u"),
        Changed(dimension="parameter a.b", a="1", b="3"),
        Changed(dimension="parameter c", a="2", b="null"),
        Changed(dimension="parameter d", a="null", b="x"),
        Changed(dimension="experiment", a="e", b="f"),
        Changed(dimension="host", a="h", b="unknown"),
        Changed(dimension="limits", a="unknown", b="l"),
    ]
    (change,) = changes(row(), row(target="u", target_name="m"), facts, facts)
    assert (change.a, change.b) == ("n", "m")


def test_one_change_is_a_comparison_and_two_are_none():
    one = Changed(dimension="host", a="a", b="b")
    assert told(judge_changes([one])) == []
    ((code, message),) = told(judge_changes([one, Changed(dimension="limits", a="a", b="b")]))
    assert code == "several_variables" and message.startswith("2 things changed at once (host, limits)")


def test_a_basis_has_the_trials_of_its_points_in_the_order_of_their_values():
    every = [
        trial(1), trial(2), trial(3, warmup=True), trial(4, run_id="other"), trial(5, instance_digest="f" * 64),
        trial(6, outcome="failed"),
    ]  # fmt: skip
    basis = Basis.of([row(), row(run_id="other", trials=["t4", "gone"], values=[40.0], point="")], every)
    first, second = basis.sides
    assert [one["trial_id"] for one in first.tried] == ["t1", "t2", "t6"]
    assert [one["trial_id"] for one in first.used] == ["t2", "t1"]
    assert (first.name, second.name) == ("r p", "other")
    assert basis.times() == ("2026-01-01", "2026-02-04")
    assert [(one.trial_id, one.side, one.value) for one in basis.trials()] == [
        ("t2", "a", 20.0), ("t1", "a", 10.0), ("t4", "b", 40.0),
    ]  # fmt: skip
    assert [one.side for one in Basis([first], {}).trials()] == ["b", "b"]
    assert Basis([first], {}).changed() == []
    assert ClaimedNumber(row(), []).used == []
