"""Laws fitted to curves that follow them, of which the parameters are known."""

import math

import numpy as np
import pytest
from tables import check_table

from benchhouse.analysis.scaling import ScalingStage
from benchhouse.analysis.scaling_laws import fit

PLACES = (1, 2, 4, 8, 16, 32)
CURVES = {
    "amdahl": (lambda n: 70.0 * n / (1 + 0.05 * (n - 1)), {"s": 0.05}),
    "gustafson": (lambda n: 70.0 * (n - 0.1 * (n - 1)), {"s": 0.1}),
    "usl": (lambda n: 70.0 * n / (1 + 0.03 * (n - 1) + 0.001 * n * (n - 1)), {"sigma": 0.03, "kappa": 0.001}),
}


def stages(curve, places=PLACES, n=5, spread=0.0, source=None):
    noise = (lambda: np.exp(source.normal(0.0, spread, n))) if source else (lambda: np.ones(n))
    return [ScalingStage(place, (curve(place) * noise()).tolist()) for place in places]


@check_table("name", CURVES)
def test_a_curve_without_noise_gives_its_parameters(name):
    curve, truth = CURVES[name]
    law = fit(name, stages(curve), seed=1)
    assert {key: fitted.value for key, fitted in law.parameters.items()} == pytest.approx(truth, abs=1e-9)
    assert law.rate == pytest.approx(70.0)
    assert law.misfit < 1e-9
    assert [law.throughput(place) for place in PLACES] == pytest.approx([curve(place) for place in PLACES])


@pytest.mark.parametrize(("name", "n"), [("amdahl", 3), ("gustafson", 5), ("usl", 3)])
def test_intervals_cover_the_parameters(name, n):
    """38 of 40 are expected, fewer than 34 happen once in 100 times. benchmarks/scaling_fit.py takes thousands."""
    curve, truth = CURVES[name]
    source = np.random.default_rng([n, 22])
    laws = [fit(name, stages(curve, n=n, spread=0.03, source=source), seed=seed) for seed in range(40)]
    for key, value in truth.items():
        found = [law.parameters[key] for law in laws]
        assert sum(one.interval.covers(value) for one in found) >= 34, key
        width = np.median([one.interval.hi - one.interval.lo for one in found])
        assert width <= 6.0 * np.std([one.value for one in found]), f"{key}: intervals are far too wide"


@check_table(
    "name, first, expected",
    [
        ("amdahl", 1, 21.0),  # 1 + 1/s
        ("amdahl", 4, 27.0),  # against four: 1 + 0.05 (N - 1) = 2 (1 + 0.05 * 3)
        ("usl", 1, (-0.029 + math.sqrt(0.029**2 + 4 * 0.001 * 1.03)) / 0.002),
        ("gustafson", 1, math.inf),
    ],
)
def test_it_pays_until_efficiency_is_half_of_that_of_the_first_stage(name, first, expected):
    places = [first * place for place in PLACES]
    law = fit(name, stages(CURVES[name][0], places), seed=1)
    assert law.pays_to.value == pytest.approx(expected, rel=1e-6)
    if expected < math.inf:
        assert CURVES[name][0](expected) / expected == pytest.approx(CURVES[name][0](first) / first / 2)


def test_weak_scaling_of_mostly_serial_work_stops_paying():
    law = fit("gustafson", stages(lambda n: n - 0.8 * (n - 1)), seed=1)
    assert law.pays_to.value == pytest.approx(1 / (1 - 0.3 / 0.8 - 0.25), rel=1e-6)


def test_the_peak_of_usl_is_where_throughput_is_highest():
    assert fit("usl", stages(CURVES["usl"][0]), seed=1).peak.value == pytest.approx(math.sqrt(0.97 / 0.001))
    assert fit("usl", stages(CURVES["amdahl"][0]), seed=1).peak.value > 1e3


def test_a_curve_in_step_has_no_serial_share_and_no_end():
    law = fit("amdahl", stages(lambda n: 10.0 * n), seed=1)
    assert law.parameters["s"].value == pytest.approx(0.0, abs=1e-12)
    assert law.pays_to.value == math.inf


def test_units_that_help_each_other_have_a_share_below_zero():
    law = fit("amdahl", stages(lambda n: 10.0 * n**1.1, places=(1, 2, 4, 8)), seed=1)
    assert law.parameters["s"].value < 0.0


def test_a_curve_that_follows_another_law_shows_in_the_misfit():
    assert fit("amdahl", stages(lambda n: 100.0 * min(n, 6)), seed=1).misfit > 0.1


def test_one_trial_a_stage_gives_no_interval():
    law = fit("amdahl", stages(CURVES["amdahl"][0], n=1), seed=1)
    assert law.parameters["s"].interval is None
    assert law.pays_to.interval is None


@check_table("name, fewest", [("amdahl", 3), ("gustafson", 3), ("usl", 4)])
def test_too_few_stages_fit_no_law(name, fewest):
    curve = CURVES[name][0]
    assert fit(name, stages(curve, PLACES[: fewest - 1]), seed=1) is None
    assert fit(name, stages(curve, PLACES[:fewest]), seed=1)


@check_table("values", [[0.0, 0.0], [-1.0, -1.0]])
def test_values_that_are_not_positive_fit_no_law(values):
    assert (
        fit("amdahl", [ScalingStage(1, values), ScalingStage(2, [1.0, 2.0]), ScalingStage(4, [1.0, 2.0])], seed=1)
        is None
    )
    assert fit("amdahl", [ScalingStage(place, [1.0, 1.1]) for place in (0, 1, 2)], seed=1) is None
