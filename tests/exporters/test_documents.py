"""Each text format says the numbers of the tables, and its own reader takes it."""

import json
from pathlib import Path

import jsonschema
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from services.prometheus import needs_prometheus, promtool

from benchhouse.api.workspace import Workspace
from benchhouse.schema.hot_metrics import result_name

RECORDED = Path(__file__).parents[1] / "importers" / "data" / "google-benchmark-1.9.5.json"
BENCHER_SCHEMA = {  # as https://bencher.dev/bmf.json demands
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {key: {"type": "number"} for key in ("value", "lower_value", "upper_value")},
                    "required": ["value"],
                }
            },
        }
    },
}


def test_openmetrics_has_every_number_with_interval_trials_unit_and_time(greetings, exported, numbers):
    families = list(text_string_to_metric_families(exported("openmetrics")))
    samples = {(sample.name, sample.labels.get("point")): sample for family in families for sample in family.samples}
    rows = numbers(greetings)
    assert len({label for label, _, _ in rows}) == 2
    for (label, metric, stat), row in rows.items():
        name, factor, unit = result_name(metric, stat, row.unit)
        sample = samples[name, label]
        assert sample.value == row.mean * factor
        assert f"{sample.labels['run_id']}:instance={sample.labels['instance']}:{metric}.{stat}" == row.ref
        stem, end = (name.removesuffix(f"_{unit}"), f"_{unit}") if unit else (name, "")
        assert samples[f"{stem}_trials", label].value == row.n
        ends = (samples[f"{stem}_ci_low{end}", label].value, samples[f"{stem}_ci_high{end}", label].value)
        assert ends == tuple(value * factor for value in row.interval)
        assert float(sample.timestamp) > 1.7e9
    assert {family.unit for family in families if "wall" in family.name} >= {"seconds"}


@needs_prometheus
def test_prometheus_takes_it_as_history(exported, greetings, numbers, tmp_path):
    (tmp_path / "run.om").write_text(exported("openmetrics"), encoding="utf-8")
    made = promtool("tsdb", "create-blocks-from", "openmetrics", tmp_path / "run.om", tmp_path / "tsdb")
    assert made.returncode == 0, made.stderr
    (tmp_path / "tsdb" / "wal").mkdir(exist_ok=True)  # a database that never ran has none
    dumped = promtool("tsdb", "dump", tmp_path / "tsdb").stdout
    row = numbers(greetings)["name=plain", "wall_ms", "mean"]
    name, factor, _ = result_name("wall_ms", "mean", "ms")
    (line,) = [line for line in dumped.splitlines() if f'__name__="{name}"' in line and 'point="name=plain"' in line]
    assert float(line.rpartition("} ")[2].split()[0]) == row.mean * factor


def test_bencher_takes_it_by_its_published_schema_with_the_interval_as_bounds(greetings, exported_json, numbers):
    content = exported_json("bencher")
    jsonschema.validate(content, BENCHER_SCHEMA)
    row = numbers(greetings)["name=plain", "wall_ms", "mean"]
    measured = content["greetings/name=plain"]["wall_ms.mean (ms)"]
    assert (measured["value"], measured["lower_value"], measured["upper_value"]) == (row.mean, *row.interval)
    assert all(len(measure) <= 64 for measures in content.values() for measure in measures)


def test_google_benchmark_comes_back_by_import_bit_for_bit(greetings, exported, numbers, tmp_path):
    path = tmp_path / "gb.json"
    document = json.loads(exported("google-benchmark"))
    document["benchmarks"] = [row for row in document["benchmarks"] if "name=plain" in row["name"]]
    path.write_text(json.dumps(document), encoding="utf-8")
    back = Workspace(tmp_path)
    imported = back.import_results(path)
    assert all(abs(item.ours - item.theirs) <= 1e-12 * abs(item.theirs) for item in imported.runs[0].figures)
    again = numbers(back)
    for (label, metric, stat), row in numbers(greetings).items():
        if row.unit != "ms" or stat == "stdev" or label != "name=plain":
            continue
        name = f"greetings/{label}/{metric}.{stat}"
        (found,) = [
            value
            for value in again.values()
            if (value.target_name, value.metric, value.stat) == (name, "real_time_ms@google-benchmark", "mean")
        ]
        assert found.mean == pytest.approx(row.mean, rel=1e-15)


AGGREGATE = {"name", "run_name", "run_type", "repetitions", "threads", "aggregate_name", "aggregate_unit", "iterations",
             "real_time", "cpu_time", "time_unit"}  # fmt: skip


def test_google_benchmark_has_the_members_that_the_real_tool_writes(exported_json):
    """Readers such as compare.py use these members; the stored file is by Google Benchmark 1.9.5."""
    document, real = exported_json("google-benchmark"), json.loads(RECORDED.read_text())
    assert document["context"]["json_schema_version"] == real["context"]["json_schema_version"] == 1
    expected = {"iteration": set(real["benchmarks"][0]), "aggregate": AGGREGATE}
    for row in document["benchmarks"]:
        assert row.keys() >= expected[row["run_type"]]
    aggregates = {row["aggregate_name"] for row in document["benchmarks"] if row["run_type"] == "aggregate"}
    assert aggregates == {"mean", "stddev"}
    assert {row["time_unit"] for row in document["benchmarks"]} <= {"ns", "us", "ms", "s"}


def test_github_action_benchmark_has_a_file_for_each_direction(greetings, numbers, tmp_path):
    """Contract-tested: the action itself is not on npm; these are the keys that its README names."""
    made = greetings.export("@last", "github-action-benchmark", tmp_path / "gab")
    smaller = json.loads((tmp_path / "gab" / "customSmallerIsBetter.json").read_bytes())
    assert all({"name", "unit", "value", "range", "extra"} == item.keys() for item in smaller)
    row = numbers(greetings)["name=plain", "wall_ms", "mean"]
    (found,) = [item for item in smaller if item["name"] == "greetings/name=plain wall_ms.mean"]
    assert (found["value"], found["unit"]) == (row.mean, "ms")
    assert f"bench trace {row.ref}" in found["extra"] and "3 trials" in found["extra"]
    known = numbers(greetings).values()
    assert len(smaller) == sum(item.direction == "lower" and item.stat != "stdev" for item in known)
    assert any("neither higher nor lower" in line for line in made.left_out) == any(not i.direction for i in known)
