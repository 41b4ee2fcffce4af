"""Numbers and limits."""

from tables import check_table

from benchhouse.analysis.gating import stands


@check_table(
    "mean, interval, side, said",
    [
        (12.0, (11.0, 13.0), "above", "beyond"),
        (12.0, (9.0, 15.0), "above", "unsure"),
        (9.0, (7.0, 11.0), "above", "within"),
        (10.0, (10.0, 10.0), "above", "within"),
        (8.0, (7.0, 9.0), "below", "beyond"),
        (9.0, (7.0, 11.0), "below", "unsure"),
        (12.0, (9.0, 15.0), "below", "within"),
        (12.0, None, "above", "beyond"),
        (8.0, None, "above", "within"),
    ],
)
def test_only_a_whole_interval_beyond_the_limit_is_certain(mean, interval, side, said):
    assert stands(mean, interval, 10.0, side) == said
