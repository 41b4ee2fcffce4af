"""Numbers that a format has no good place for: told, not lost and not bent."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from benchhouse.catalog.entries import plug
from benchhouse.schema.errors import BenchError
from benchhouse.schema.exported import ExportedPoint, ExportedRun, ExportedStatistic

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def figure(metric: str, unit: str = "ms", stat: str = "value", *values: float, **more) -> ExportedStatistic:
    values = values or (1.0, 2.0)
    several = len(values) > 1
    given = {"direction": "lower", "headline": True, "shaky": False} | more
    return ExportedStatistic(
        metric=metric, stat=stat, unit=unit, mean=sum(values) / len(values), stdev=0.5 if several else None,
        interval=(0.5, 2.5) if several else None, values=values, trials=tuple(f"t{at}" for at in range(len(values))),
        ref=f"r:instance=d:{metric}.{stat}", **given,
    )  # fmt: skip


@pytest.fixture
def run():
    """A run of one point with these figures."""

    def made(*figures: ExportedStatistic, name: str = "p") -> ExportedRun:
        point = ExportedPoint(name, "t", {}, {}, "d", "c", AT, AT, figures, {}, ())
        return ExportedRun("r", "s", "command", "1.0", "local", ("h",), "", "0.1.0", (point,), ())

    return made


def test_two_metrics_that_are_one_name_in_openmetrics_are_told(run):
    document = plug("exporters", "openmetrics").render(run(figure("x_y"), figure("x.y")))
    assert document.left_out == ("x.y.value in ms: in OpenMetrics it would be called as x_y.value in ms is",)
    names = [family.name for family in text_string_to_metric_families(document.text)]
    assert names.count("benchhouse_result_x_y_seconds") == 1


def test_a_single_trial_has_no_interval_and_no_deviation_anywhere(run, tmp_path):
    single = run(figure("a", "ms", "value", 3.0))
    text = plug("exporters", "openmetrics").render(single).text
    families = {family.name for family in text_string_to_metric_families(text) if family.samples}
    assert {"benchhouse_result_a_seconds", "benchhouse_result_a_trials"} <= families
    assert not any("_ci_" in name for name in families)
    assert json.loads(plug("exporters", "bencher").render(single).text) == {"s/p": {"a (ms)": {"value": 3.0}}}
    rows = json.loads(plug("exporters", "google-benchmark").render(single).text)["benchmarks"]
    assert [row["run_type"] for row in rows] == ["iteration"]
    plug("exporters", "github-action-benchmark").write(single, tmp_path)
    (entry,) = json.loads((tmp_path / "customSmallerIsBetter.json").read_bytes())
    assert "range" not in entry and entry["extra"].startswith("1 trial\n")


def test_a_point_without_a_time_is_no_google_benchmark_and_told(run):
    timeless, timed = run(figure("qps", "1/s")), run(figure("a"))
    with pytest.raises(BenchError, match="no point of it has a time") as refused:
        plug("exporters", "google-benchmark").render(timeless)
    assert "--as bencher" in refused.value.hint
    both = replace(timed, points=(*timed.points, replace(timeless.points[0], name="q")))
    document = plug("exporters", "google-benchmark").render(both)
    assert {row["run_name"] for row in json.loads(document.text)["benchmarks"]} == {"s/p/a"}
    assert document.left_out == ("q: it has no time, and a benchmark of this format is one",)


def test_a_run_without_a_direction_is_nothing_for_the_action(run, tmp_path):
    with pytest.raises(BenchError, match="no number of it has a direction"):
        plug("exporters", "github-action-benchmark").write(run(figure("a", direction=None)), tmp_path)


def test_a_counter_stands_in_the_trial_that_it_is_of(run):
    partly = figure("qps", "1/s", "value", 7.0, direction="higher")
    rows = json.loads(plug("exporters", "google-benchmark").render(run(figure("a"), partly)).text)["benchmarks"]
    assert [row.get("qps.value") for row in rows if row["run_type"] == "iteration"] == [7.0, None]


def test_a_percentile_of_few_samples_is_marked_where_there_is_a_place(run, tmp_path):
    plug("exporters", "github-action-benchmark").write(run(figure("a", stat="p99", shaky=True)), tmp_path)
    (entry,) = json.loads((tmp_path / "customSmallerIsBetter.json").read_bytes())
    assert "a percentile of few samples" in entry["extra"]


def test_names_of_any_letters_and_length_stay_apart_in_bencher(run):
    figures = [figure("x" * 100 + end, "ü/ß") for end in "ab"]
    ((name, measures),) = json.loads(plug("exporters", "bencher").render(run(*figures, name='"\n\\é')).text).items()
    assert name == 's/"\n\\é'
    assert len(measures) == 2 and all(len(measure) == 64 for measure in measures)
