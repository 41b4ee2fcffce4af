"""Logical benchmarks as files: what is read, and what is refused at which line."""

from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from benchhouse.catalog.benchmarks import list_benchmarks
from benchhouse.catalog.logical import (
    LogicalResult,
    Unreadable,
    answer,
    find_logical,
    fits_version,
    list_logical,
    read_logical,
)
from benchhouse.documents.problems import ProblemsError
from benchhouse.schema.errors import BenchError

PUBLISHED = """\
logicalBenchmark:
  benchmarkIdentifier: inference_serving
  target: {identifier: model}
  properties:
  - {identifier: workload, propertyDomain: {values: [heavy, light]}}
  - {identifier: dataset}
  metrics: [ttft_ms]
bindings:
- benchmarkIdentifier: inference_serving
  experiment: {actuatorIdentifier: a, experimentIdentifier: e, experimentVersion: 2.0.0}
  targetMapping: model_name
  staticFilters: [{property: {identifier: mode}, value: prod}]
  propertyMapping:
  - {benchmark: {identifier: dataset}, experiment: {identifier: data_path}}
  - categoricalValue: {property: {identifier: workload}, value: heavy}
    predicate: [{identifier: concurrency, propertyDomain: {domainRange: [100, 1000], interval: 1}}]
  - categoricalValue: {property: {identifier: workload}, value: light}
    predicate: [{identifier: concurrency, propertyDomain: {domainRange: [1, 10]}}]
  metricMapping: [{benchmark: {identifier: ttft_ms}, experiment: {identifier: ttft}}]
"""


def write(root: Path, text: str = PUBLISHED, name: str = "inference_serving") -> Path:
    path = root / "benchmarks" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def load_logical(path: Path):
    logical = read_logical(path)
    if isinstance(logical, Unreadable):
        raise logical.error
    return logical


def problems_of(path: Path) -> list[tuple[int, str]]:
    with pytest.raises(ProblemsError) as raised:
        load_logical(path)
    return [(item.line, item.message) for item in raised.value.problems]


def test_the_published_format_is_read(tmp_path):
    found = load_logical(write(tmp_path))
    assert (found.name, found.properties, found.metrics) == ("inference_serving", ["workload", "dataset"], ["ttft_ms"])
    assert found.file.bindings[0].experiment.experiment_version == "2.0.0"


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("benchmarkIdentifier: inference_serving\n  target", "benchmarkIdentifier: other\n  target", 2, "stands in"),
        ("- benchmarkIdentifier: inference_serving", "- benchmarkIdentifier: another", 9, "in another's file"),
        ("metrics: [ttft_ms]", "metrics: [ttft_ms, ttft_ms]", 7, "the metric 'ttft_ms' is given twice"),
        ("- {identifier: dataset}", "- {identifier: workload}", 6, "the property 'workload' is given twice"),
        ("{benchmark: {identifier: dataset}", "{benchmark: {identifier: data}", 14, "no property 'data'"),
        ("{benchmark: {identifier: ttft_ms}", "{benchmark: {identifier: ttft}", 19, "no metric 'ttft'"),
        ("value: heavy}", "value: hevy}", 15, "'hevy' is no value of 'workload'"),
        ("domainRange: [100, 1000]", "domainRange: [1000, 100]", 16, "no value is at least 1000 and below 100"),
        ("domainRange: [100, 1000]", "domainRange: [5, 1000]", 18, "overlaps propertyMapping[1]"),
        ("domainRange: [1, 10]", "values: []", 18, "no value can be in this domain"),
        (", propertyDomain: {domainRange: [1, 10]}", "", 18, "nothing is said of 'concurrency'"),
        ("{domainRange: [1, 10]}", "{}", 18, "this domain says nothing"),
        ("{property: {identifier: mode}", "{property: {identifier: concurrency}", 16, "a static filter fixes"),
        ("value: prod}]", "value: prod}, {property: {identifier: mode}, value: x}]", 12, "'mode' is given twice"),
        (", experiment: {identifier: data_path}}", "}", 14, "this maps nothing"),
        ("metrics: [ttft_ms]", "metrics: [ttft_ms]\n  metadata: {directions: {ttft_ms: down}}", 8, "is no direction"),
        ("metrics: [ttft_ms]", "metrics: [ttft_ms]\n  metadata: {directions: {x: lower}}", 8, "no metric 'x'"),
        ("targetMapping: model_name", "targetMaping: model_name", 11, "unknown key 'targetMaping'"),
    ],
)
def test_a_mistake_is_told_at_its_line(tmp_path, old, new, line, message):
    assert old in PUBLISHED
    found = problems_of(write(tmp_path, PUBLISHED.replace(old, new, 1)))
    assert any(at == line and message in said for at, said in found), found


def test_all_mistakes_are_told_at_once_with_what_was_meant(tmp_path):
    text = PUBLISHED.replace("value: heavy}", "value: hevy}").replace(
        "identifier: ttft_ms}, e", "identifier: tft_ms}, e"
    )
    with pytest.raises(ProblemsError) as raised:
        load_logical(write(tmp_path, text))
    assert [item.suggestion for item in raised.value.problems] == ["heavy", "ttft_ms"]


def test_no_binding_is_a_mistake(tmp_path):
    head = PUBLISHED.partition("bindings:")[0]
    assert problems_of(write(tmp_path, head)) == [(1, "no binding: no experiment answers it")]


def twice(**changes):
    """The published file with its binding twice, the second changed."""
    data = yaml.safe_load(PUBLISHED)
    data["bindings"].append(deepcopy(data["bindings"][0]) | changes)
    return yaml.safe_dump(data, sort_keys=False)


@pytest.mark.parametrize(
    ("changes", "overlap"),
    [
        ({}, True),
        ({"staticFilters": []}, True),
        ({"staticFilters": [{"property": {"identifier": "mode"}, "value": "test"}]}, False),
        ({"staticFilters": [{"property": {"identifier": "concurrency"}, "value": 50}], "propertyMapping": []}, False),
        ({"metricMapping": [], "experiment": {"actuatorIdentifier": "a", "experimentIdentifier": "f"}}, False),
        ({"experiment": {"actuatorIdentifier": "a", "experimentIdentifier": "e", "experimentVersion": "3.1"}}, False),
        ({"experiment": {"actuatorIdentifier": "a", "experimentIdentifier": "e"}}, True),
    ],
)
def test_two_bindings_that_take_the_same_results_are_a_mistake(tmp_path, changes, overlap):
    path = write(tmp_path, twice(**changes))
    if overlap:
        assert ["each would count twice" in said for _, said in problems_of(path)] == [True]
    else:
        assert len(load_logical(path).file.bindings) == 2


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"concurrency": 100}, LogicalResult("m", ("heavy", "wiki"))),
        ({"concurrency": 5}, LogicalResult("m", ("light", "wiki"))),
        ({"concurrency": 1000}, "no value of 'workload'"),
        ({"concurrency": 100, "mode": "test"}, None),
        ({"concurrency": 100, "data_path": None}, "no value of 'dataset'"),
        ({"concurrency": 100, "model_name": None}, "no input 'model_name', which is the target"),
    ],
)
def test_a_result_is_mapped_by_filters_regions_and_names(tmp_path, parameters, expected):
    found = load_logical(write(tmp_path))
    inputs = {"model_name": "m", "mode": "prod", "data_path": "wiki"} | parameters
    inputs = {name: value for name, value in inputs.items() if value is not None}
    assert answer(found, found.file.bindings[0], "some target", {}, inputs) == expected


@pytest.mark.parametrize(
    ("asked", "found", "fits"),
    [
        ("2.0.0", "2.1.7", True),
        ("2.0.0", "3.0.0", False),
        ("", "9", True),
        ("beta", "beta", True),
        ("beta", "b", False),
    ],
)
def test_of_a_version_only_major_is_identity(asked, found, fits):
    assert fits_version(asked, found) is fits


def test_our_own_benchmarks_stand_in_the_same_folder(tmp_path):
    write(tmp_path)
    write(tmp_path, "benchmark: ours\nexperiment: command\n", "ours")
    good, broken = list_logical(tmp_path)
    assert ([item.name for item in good], broken) == (["inference_serving"], [])
    good, broken = list_benchmarks(tmp_path / "benchmarks")
    assert ([item.benchmark.benchmark for item in good], broken) == (["ours"], [])


def test_a_broken_file_spoils_none_of_the_others_and_is_raised_when_it_is_meant(tmp_path):
    write(tmp_path)
    write(tmp_path, "logicalBenchmark: {\n", "bad")
    good, broken = list_logical(tmp_path)
    assert ([item.name for item in good], len(broken)) == (["inference_serving"], 1)
    assert find_logical("inference_serving", tmp_path)
    with pytest.raises(BenchError, match=r"bad\.yaml:\d"):
        find_logical("bad", tmp_path)
    with pytest.raises(BenchError) as raised:
        find_logical("inference-serving", tmp_path)
    assert "did you mean 'inference_serving'?" in raised.value.hint


def test_a_link_that_leads_out_of_the_nexus_is_not_followed(tmp_path):
    outside = write(tmp_path / "elsewhere", name="secret") if (tmp_path / "elsewhere").mkdir() is None else None
    (tmp_path / "nexus" / "benchmarks").mkdir(parents=True)
    (tmp_path / "nexus" / "benchmarks" / "secret.yaml").symlink_to(outside)
    good, broken = list_logical(tmp_path / "nexus")
    assert good == []
    assert "leads out of" in broken[0].error.message
