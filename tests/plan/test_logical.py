"""A logical benchmark as a scenario."""

import pytest
from tables import check_table

from benchhouse.catalog.logical import Logical
from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.plan.logical import LogicalSelection, make_scenario
from benchhouse.schema.errors import BenchError
from benchhouse.schema.nexus import LogicalFile

TEXT = """\
logicalBenchmark:
  benchmarkIdentifier: serving
  target: {identifier: model}
  properties:
  - {identifier: workload, propertyDomain: {values: [heavy, light]}}
  - {identifier: dataset}
  metrics: [ttft_ms]
bindings:
- benchmarkIdentifier: serving
  experiment: {actuatorIdentifier: benchhouse, experimentIdentifier: e}
  targetMapping: model_name
  staticFilters: [{property: {identifier: settings.mode}, value: prod}]
  propertyMapping:
  - {benchmark: {identifier: dataset}, experiment: {identifier: target.data}}
  - categoricalValue: {property: {identifier: workload}, value: heavy}
    predicate:
    - {identifier: concurrency, propertyDomain: {domainRange: [100, 1000]}}
    - {identifier: stream, propertyDomain: {values: [true, false]}}
  - categoricalValue: {property: {identifier: workload}, value: light}
    predicate:
    - {identifier: concurrency, propertyDomain: {domainRange: [1, 10]}}
    - {identifier: stream, propertyDomain: {values: [true]}}
"""


def scenario(text=TEXT, targets=("m",), repetitions=1, settings=None, **where):
    document = parse_yaml(text, "serving.yaml")
    logical = Logical(LogicalFile.model_validate(document.data), document)
    asked = LogicalSelection(tuple(targets), where, settings or {}, repetitions)
    return make_scenario(logical, logical.file.bindings[0], "e", "1.0", asked)


def test_filters_are_fixed_and_a_region_is_run_at_its_first_value_or_lower_end():
    made = scenario(workload="heavy", dataset="wiki", repetitions=5)
    assert made == {
        "scenario": "serving",
        "description": "Logical benchmark serving, by its binding to e.",
        "experiment": "e",
        "version": "1.0",
        "target": {"data": "wiki"},
        "workload": {"settings": {"mode": "prod"}, "concurrency": 100, "stream": True, "model_name": "m"},
        "repetitions": 5,
    }


def test_a_property_that_is_not_said_takes_each_of_its_values():
    made = scenario(dataset="wiki", targets=("a", "b"))
    assert made["axes"] == [
        {"points": [{"model_name": "a"}, {"model_name": "b"}]},
        {"points": [{"concurrency": 100}, {"concurrency": 1}]},
    ]
    assert made["workload"] == {"settings": {"mode": "prod"}, "stream": True}


@check_table("targets, key, value", [(("a",), "target", "a"), (("a", "b"), "targets", ["a", "b"])])
def test_the_whole_target_can_be_ranked(targets, key, value):
    text = TEXT.replace("targetMapping: model_name", "targetMapping: target").replace("target.data", "data")
    assert scenario(text, targets=targets, workload="heavy", dataset="wiki")[key] == value


def test_what_the_binding_leaves_open_can_be_set_and_what_it_fixes_can_not():
    made = scenario(workload="light", dataset="wiki", settings={"target.port": "80", "window": "5s"})
    assert (made["target"], made["workload"]["window"]) == ({"data": "wiki", "port": 80}, "5s")
    with pytest.raises(BenchError, match="'concurrency' is fixed by the binding"):
        scenario(workload="light", dataset="wiki", settings={"concurrency": "5"})


@check_table(
    "where, message, hint",
    [
        ({"dataset": "wiki", "workload": "hevy"}, "'hevy' is no value of 'workload'", "did you mean 'heavy'?"),
        ({"dataset": "wiki", "workloads": "heavy"}, "no property 'workloads'", "did you mean 'workload'?"),
        ({"workload": "heavy"}, "'dataset' has no list of values to take", "--where dataset=VALUE"),
    ],
)
def test_a_benchmark_that_cannot_run_is_reported_with_a_hint(where, message, hint):
    with pytest.raises(BenchError) as raised:
        scenario(**where)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_a_filter_outside_of_every_region_leaves_no_point():
    text = TEXT.replace("identifier: settings.mode}, value: prod", "identifier: concurrency}, value: 50")
    with pytest.raises(BenchError, match="the binding to e has no point with"):
        scenario(text, workload="heavy", dataset="wiki")


def test_regions_of_different_inputs_are_run_one_at_a_time():
    text = TEXT.replace("    - {identifier: stream, propertyDomain: {values: [true]}}\n", "")
    with pytest.raises(BenchError, match="regions of different inputs"):
        scenario(text, dataset="wiki")
    assert scenario(text, dataset="wiki", workload="light")["workload"]["concurrency"] == 1


def test_somebody_must_be_measured():
    with pytest.raises(BenchError, match="none is given"):
        scenario(targets=(), dataset="wiki")


def test_a_question_without_properties_and_filters_has_one_point():
    head, _, _ = TEXT.partition("  staticFilters")
    text = head.partition("  properties:")[0] + "  metrics: [ttft_ms]\n" + head[head.index("bindings:") :]
    assert scenario(text)["workload"] == {"model_name": "m"}
