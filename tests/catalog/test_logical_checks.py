"""A logical benchmark beside the experiments that its bindings name."""

import pytest

from benchhouse.catalog.logical_checks import Facts, MetricFacts, check_experiments, split_stat
from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.schema.nexus import LogicalFile

TEXT = """\
logicalBenchmark:
  benchmarkIdentifier: b
  target: {identifier: model}
  metrics: [ttft_ms]
bindings:
- benchmarkIdentifier: b
  experiment: {actuatorIdentifier: benchhouse, experimentIdentifier: one}
  targetMapping: target.name
  staticFilters: [{property: {identifier: values.mode}, value: prod}]
  metricMapping: [{benchmark: {identifier: ttft_ms}, experiment: {identifier: ttft.p99}}]
- benchmarkIdentifier: b
  experiment: {actuatorIdentifier: benchhouse, experimentIdentifier: two}
  targetMapping: model
"""
ONE = Facts(frozenset({"target", "target.name", "values"}), {"ttft": MetricFacts("ms", "lower")})
TWO = Facts(frozenset({"target", "target.*", "model"}), {"ttft_ms": MetricFacts("ms", "lower")})


def check(one=ONE, two=TWO, text=TEXT):
    document = parse_yaml(text, "b.yaml")
    problems = check_experiments(
        LogicalFile.model_validate(document.data),
        document,
        lambda binding: {"one": one, "two": two}[binding.experiment.experiment_identifier],
    )
    return [(item.line, item.message, item.suggestion) for item in problems]


def test_what_fits_has_no_problem():
    assert check() == []


@pytest.mark.parametrize(
    ("old", "new", "line", "message", "meant"),
    [
        ("targetMapping: model", "targetMapping: modell", 13, "two has no input 'modell'", "model"),
        ("targetMapping: target.name", "targetMapping: target.nam", 8, "one has no input 'target.nam'", "target.name"),
        ("identifier: values.mode", "identifier: value.mode", 9, "one has no input 'value.mode'", ""),
        ("identifier: ttft.p99", "identifier: tft.p99", 10, "one has no metric 'tft'", "ttft"),
    ],
)
def test_inputs_and_metrics_exist_in_the_experiment(old, new, line, message, meant):
    assert (line, message, meant) in check(text=TEXT.replace(old, new))


def test_an_experiment_that_is_not_installed_is_a_problem_and_hides_nothing_else():
    found = check(two="no experiment named 'two' is installed")
    assert found == [(12, "no experiment named 'two' is installed", "")]


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (MetricFacts("s", "lower"), "'ttft_ms' has two units: ms of one, s of two"),
        (MetricFacts("ms", "higher"), "in dispute: lower of one, higher of two"),
    ],
)
def test_a_unit_and_a_direction_are_the_same_whoever_measures(metric, message):
    found = check(two=Facts(TWO.inputs, {"ttft_ms": metric}))
    assert [line for line, said, _ in found if message in said] == [4]


def test_a_metric_without_a_direction_is_a_problem_unless_the_file_says_it():
    silent = MetricFacts("ms", None)
    facts = {"one": Facts(ONE.inputs, {"ttft": silent}), "two": Facts(TWO.inputs, None)}
    assert [said for _, said, _ in check(**facts)] == ["'ttft_ms' has no direction, so nothing can be ranked by it"]
    said = TEXT.replace("metrics: [ttft_ms]", "metrics: [ttft_ms]\n  metadata: {directions: {ttft_ms: lower}}")
    assert check(**facts, text=said) == []
    assert "in dispute" in check(text=said.replace("ttft_ms: lower", "ttft_ms: higher"))[0][1]


def test_a_binding_that_answers_nothing_is_a_problem():
    assert "two answers none of the metrics" in [said for _, said, _ in check(two=Facts(TWO.inputs, {}))]


@pytest.mark.parametrize(
    ("name", "metrics", "expected"),
    [
        ("ttft.p99", ["ttft"], ("ttft", "p99")),
        ("ttft.p99.9", ["ttft"], ("ttft", "p99.9")),
        ("load.mean", ["load.mean"], ("load.mean", "")),
        ("rate", ["rate"], ("rate", "")),
    ],
)
def test_a_statistic_may_be_asked_for_behind_a_dot(name, metrics, expected):
    assert split_stat(name, metrics) == expected
