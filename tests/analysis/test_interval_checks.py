"""What a sample shows against its own interval."""

import random

from tables import check_table

from benchhouse.analysis.compare import compare
from benchhouse.analysis.interval_checks import doubt
from benchhouse.analysis.paired import compare_paired

FEW, MODES = "only 2 distinct values: a spread, not an interval", "two far modes: a spread, not an interval"


@check_table(
    "values, says",
    [
        ([0.9, 0.9, 0.95], FEW),
        ([3.0, 4.0, 4.0, 3.0, 3.0, 4.0, 3.0, 3.0], FEW),
        ([1.0, 1.01, 0.99, 1.5, 1.51], MODES),
        ([1.5, 1.0, 1.51, 1.01, 1.49, 0.99], MODES),
        ([0.9, 0.9, 0.9], ""),  # exact, or so coarse that nothing shows it: told as no spread
        ([1.0, 2.0], ""),
        ([1.0, 1.0, 2.0, 3.0, 4.0], ""),
        ([1.0, 1.01, 0.99, 1.02, 9.0], ""),  # one far value is an outlier
        ([1.0, 1.01, 1.5, 1.51], ""),  # two and two of four are chance
        ([], ""),
    ],
)
def test_doubts_about_the_interval_of_a_sample_are_listed(values, says):
    assert doubt(values) == says


def test_plain_noise_is_seldom_doubted():
    source = random.Random(1)
    for draw in (lambda: source.gauss(10, 1), lambda: source.expovariate(1)):
        assert sum(bool(doubt([draw() for _ in range(5)])) for _ in range(1000)) <= 40


def test_a_doubt_stands_beside_the_interval_and_not_beside_exact_values():
    found = compare([0.9, 0.9, 0.9, 0.9, 0.95], [0.9, 0.91, 0.92, 0.93, 0.94], direction="higher", seed=1)
    assert found.doubt == FEW and f"n=5 and 5; {FEW}): " in found.sentence()
    assert compare([1.0] * 5, [2.0] * 5, direction="higher", seed=1).doubt == ""
    assert compare_paired([1.0, 1.0, 1.0], [2.0, 2.0, 4.0], direction="higher").doubt == FEW
