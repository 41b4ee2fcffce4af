"""What the page's scripts are given."""

import made_up
import pytest

from benchhouse.report.payload import payload, tradeoff


def data(**metrics):
    """Points whose metrics have these values, two equal trials each; a ratio is called so by its name."""
    points = []
    for at in range(len(next(iter(metrics.values())))):
        numbers = [
            made_up.number(name, "value", "1", "higher", [values[at]] * 2, [f"{at}-0", f"{at}-1"], {"at": at})
            for name, values in metrics.items()
        ]
        points.append(made_up.point(at, {"p": at}, numbers))
    return made_up.assemble(points, [])


@pytest.mark.parametrize(
    ("metrics", "chosen"),
    [
        ({"qps": [1, 2, 3], "recall": [0.9, 0.8, 0.3], "mb": [3, 1, 2]}, ["qps", "recall"]),
        ({"qps": [1, 2, 3], "errors": [0, 0, 0], "mb": [3, 1, 2]}, ["qps", "mb"]),
        ({"errors": [0, 0, 0], "qps": [1, 2, 3], "mb": [3, 1, 2]}, ["qps", "mb"]),
        ({"qps": [100, 50, 20], "latency": [10.01, 20, 50], "recall": [0.5, 0.8, 0.9]}, ["qps", "recall"]),
        ({"ms": [1, 2, 3], "s": [0.001, 0.002, 0.003], "mb": [3, 1, 2]}, ["ms", "mb"]),
        ({"qps": [1, 2, 3], "errors": [0, 0, 0]}, ["qps", "errors"]),
    ],
)
def test_tradeoff_is_between_the_first_metrics_that_vary_and_tell_different_things(metrics, chosen):
    made = data(**metrics)
    columns = made.columns()
    assert [columns[at].metric for at in tradeoff(made.points, columns)] == chosen


def test_a_tail_is_no_news_where_its_mean_is_none(sweep):
    columns = sweep.columns()
    assert [columns[at].name for at in tradeoff(sweep.points, columns)] == ["qps", "recall"]
    late = sorted(columns, key=lambda column: column.metric == "recall")
    assert [late[at].name for at in tradeoff(sweep.points, late)] == ["qps", "recall"]


def test_one_metric_has_no_tradeoff():
    assert payload(data(qps=[1, 2]))["tradeoff"] is None
