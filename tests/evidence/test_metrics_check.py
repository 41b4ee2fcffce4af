"""metrics.json in the common schema, whoever wrote it."""

import json

import pytest

from benchhouse.documents.problems import ProblemsError
from benchhouse.evidence.metrics_check import check_metrics
from benchhouse.schema.measurement import common_unit

COMMON = {
    "trial_id": "2f1c", "timestamp": "2026-01-01T00:00:00Z", "component": "inference", "service": "vllm",
    "config": {"gpus": 1, "batch": 32, "concurrency": 8, "nodes": 1},
    "throughput": {"value": 123.4, "unit": "items_per_s"}, "latency_ms": {"p50": 10.2, "p90": 15.8, "p99": 30.1},
    "resource": {"gpu_util": 0.76, "gpu_mem_mb": 11000, "cpu_util": 0.55, "ram_mb": 20480},
    "errors": {"rate": 0.0, "timeouts": 0}, "notes": "optional",
}  # fmt: skip


@pytest.fixture
def check(tmp_path):
    def write(**changed):
        path = tmp_path / "metrics.json"
        path.write_text(json.dumps(COMMON | changed, indent=1))
        return check_metrics(path)

    return write


def test_a_file_of_another_tool_is_good(check):
    assert check() == 0
    assert check(resource={"gpu_util": None, "gpu_mem_mb": None, "cpu_util": 1.0, "ram_mb": 1}) == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"resource": COMMON["resource"] | {"cpu_util": 55}}, "55"),
        ({"throughput": {"value": 1, "unit": "1/s"}}, "1/s"),
        ({"latency_ms": {"p50": 1, "p90": 2}}, "missing key 'p99'"),
        ({"errors": {"rate": 1.5, "timeouts": 0}}, "1.5"),
        ({"errors": {"rate": 0, "timeouts": 0.5}}, "0.5"),
        ({"latency": 3}, "unknown key 'latency'"),
    ],
)
def test_what_the_schema_does_not_mean_is_told_with_its_line(check, changed, message):
    with pytest.raises(ProblemsError, match=r"metrics\.json:[0-9]+:") as refused:
        check(**changed)
    assert message in str(refused.value)


def test_other_files_are_not_judged(tmp_path):
    (tmp_path / "package.json").write_text('{"name": "x"}')
    assert check_metrics(tmp_path / "package.json") is None
    assert check_metrics(tmp_path / "scenario.yaml") is None


@pytest.mark.parametrize(
    ("unit", "spelt"),
    [("1/s", "items_per_s"), ("MB/s", "MB_per_s"), ("tokens/s", "tokens_per_s"), ("1", "items"), ("µs", "s")],
)
def test_units_are_spelt_as_words(unit, spelt):
    assert common_unit(unit) == spelt
