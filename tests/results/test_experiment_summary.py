"""summary.json of a run combines the numbers of its trials."""

import json
from statistics import fmean, median

import pytest


@pytest.fixture
def metrics(lab):
    """A lab whose site keeps summaries in $WORK/metrics."""
    lab.variables["WORK"] = str(lab.root)
    (lab.workspace / "site.yaml").write_text("site: test\nfolders: {metrics: $WORK/metrics}\n")
    return lab


def read(lab, run_id):
    return json.loads((lab.root / "metrics" / "s" / run_id / "summary.json").read_text())


def test_a_summary_has_the_metrics_and_telemetry_of_every_point_and_each_collection_writes_it(metrics):
    metrics.run(
        "slow", workload={"seconds": 0.5}, axes=[{"grid": {"n": [1, 2]}}], repetitions=3, warmup=1,
        monitors={"interval": 0.1},
    )  # fmt: skip
    run_id = metrics.run_id()
    summary = read(metrics, run_id)
    assert (summary["scenario"], summary["experiment"]) == ("s", "slow")
    assert [point["point"] for point in summary["points"]] in ([{"n": 1}, {"n": 2}], [{"n": 2}, {"n": 1}])
    for point in summary["points"]:
        own = [trial for trial in metrics.trials() if trial.folder.name in point["trials"]]
        assert len(own) == 3 and point["outcomes"] == {"succeeded": 3}
        measured = [row for trial in own for row in trial.metrics["benchhouse"]["measurements"]]
        for item in point["metrics"]:
            key = item["metric"], item["stat"]
            values = [row["value"] for row in measured if (row["metric"], row["stat"]) == key and row["window"] == ""]
            assert (item["n"], item["min"], item["max"]) == (3, min(values), max(values))
            assert item["avg"] == pytest.approx(fmean(values)) and item["p50"] == pytest.approx(median(values))
            assert item["too_few_for"] == ["p90", "p99"]
        sampled = [json.loads((trial.folder / "telemetry" / "summary.json").read_text()) for trial in own]
        (cpu,) = [item for item in point["telemetry"] if (item["scope"], item["series"]) == ("node", "cpu_busy")]
        each = [one["scopes"]["node"]["series"]["cpu_busy"]["phases"][cpu["phase"]] for one in sampled]
        assert cpu["trials"] == 3 and cpu["n"] == sum(one["n"] for one in each)
        assert cpu["avg"] == pytest.approx(sum(one["avg"] * one["n"] for one in each) / cpu["n"])
        assert cpu["min"] == min(one["min"] for one in each) and cpu["max"] == max(one["max"] for one in each)
        assert cpu["p95"] == [min(one["p95"] for one in each), max(one["p95"] for one in each)]

    path = metrics.root / "metrics" / "s" / run_id / "summary.json"
    path.write_text("torn")
    metrics.bench("collect", run_id)
    assert read(metrics, run_id) == summary
    del metrics.variables["WORK"]
    done = metrics.bench("collect", run_id)
    assert "no summary.json: the site 'test' keeps metrics in $WORK/metrics" in done.stderr
    assert read(metrics, run_id) == summary
