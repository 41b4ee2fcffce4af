"""A space of ado, or an operation that names one, read as scenarios."""

import json

import pytest
from tables import check_table

from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.plan.scenario_file import is_space, parse_scenario
from benchhouse.plan.spaces import benchmark_of_space, domain_values, read_space, scenarios
from benchhouse.schema.ado import PropertyDomain

SPACE = """\
entitySpace:
  - identifier: size
    propertyDomain: {values: [1, 2, 4]}
  - identifier: kind
    propertyDomain: {values: [fast, safe], variableType: CATEGORICAL_VARIABLE_TYPE}
experiments:
  - actuatorIdentifier: benchhouse
    experimentIdentifier: sums
    experimentVersion: 1.0
    parameterization:
      - {property: {identifier: depth}, value: 3}
"""
SUMS = """
from benchhouse import Metric, experiment

@experiment("sums", version="1.0", metrics=[Metric(name="n", unit="1")])
def sums(size: int, kind: str = "fast", depth: int = 1):
    return {"n": size * depth}

@experiment("halves", version="1.0", metrics=[Metric(name="n", unit="1")])
def halves(size: int):
    return {"n": size / 2}
"""


def domain(**keys):
    return PropertyDomain.model_validate(keys)


@pytest.fixture
def made(tmp_path):
    """The scenarios of a space that is written to `space.yaml`."""

    def make(text=SPACE, name="space.yaml", **more):
        path = tmp_path / name
        path.write_text(text)
        return [file.scenario for file in scenarios(read_space(load_yaml(path)), {}, **more)]

    return make


@check_table(
    "said, values",
    [
        ({"values": ["a", "b"]}, ["a", "b"]),
        ({"domainRange": [1, 4], "interval": 1}, [1, 2, 3]),
        ({"domainRange": [0, 1], "interval": 0.25}, [0, 0.25, 0.5, 0.75]),
        ({"domainRange": [0, 0.3], "interval": 0.1}, [0, 0.1, 0.2]),
        ({"domainRange": [0, 5], "interval": 2}, [0, 2, 4]),
        ({"domainRange": [3, 4], "interval": 1}, [3]),
        ({"variableType": "BINARY_VARIABLE_TYPE"}, [False, True]),
    ],
)
def test_a_domain_has_the_values_that_ado_gives_it(said, values):
    from ado.schema.domain import PropertyDomain as Theirs

    assert domain_values(domain(**said)) == values
    assert Theirs.model_validate(said).domain_values == values


@check_table(
    "said, words",
    [
        ("{domainRange: [0, 1], variableType: CONTINUOUS_VARIABLE_TYPE}", "a continuous range has no points"),
        ("{domainRange: [3, 3], interval: 1}", "it is empty"),
        ("{domainRange: [0, 1000000000], interval: 1}", "at most 1,000,000 values"),
        ("{values: []}", "it has no values"),
        ("{variableType: OPEN_CATEGORICAL_VARIABLE_TYPE}", "does not say which values"),
    ],
)
def test_a_space_without_points_is_refused_at_its_place(said, words, made):
    with pytest.raises(ProblemsError, match=words) as refused:
        made(SPACE.replace("{values: [1, 2, 4]}", said))
    assert (refused.value.problems[0].line, refused.value.problems[0].column) == (3, 21)


def test_a_space_is_a_scenario_with_its_properties_as_axes(made, tmp_path):
    (scenario,) = made()
    assert (scenario.scenario, scenario.experiment, scenario.version) == (tmp_path.name, "sums", "1.0")
    assert scenario.workload == {"depth": 3}
    assert scenario.axes[0].grid == {"size": [1, 2, 4], "kind": ["fast", "safe"]}


def test_ados_own_experiments_have_their_actuator_in_front(made):
    (scenario,) = made(SPACE.replace("benchhouse", "custom_experiments"), "speed test.yaml")
    assert (scenario.scenario, scenario.experiment) == ("speed-test", "custom_experiments.sums")


def test_each_experiment_of_a_space_is_a_scenario_with_the_properties_that_it_takes(made):
    text = SPACE + "  - {actuatorIdentifier: benchhouse, experimentIdentifier: halves}\n"
    inputs = {"sums": ["size", "kind", "depth"], "halves": ["size"]}
    first, second = made(text, "both.yaml", inputs=lambda name, version: inputs[name])
    assert [first.scenario, second.scenario] == ["both.sums", "both.halves"]
    assert (list(first.axes[0].grid), list(second.axes[0].grid)) == (["size", "kind"], ["size"])


def test_a_scenario_made_of_a_space_reads_back_as_the_same(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    (file,) = scenarios(read_space(load_yaml(path)), {})
    assert parse_scenario(file.text, "kept", {}).scenario == file.scenario


def test_a_property_that_is_given_twice_is_told_at_its_second_place(made):
    with pytest.raises(ProblemsError, match=r"space.yaml:4:17: 'size' is given twice"):
        made(SPACE.replace("identifier: kind", "identifier: size"))


def test_a_scenario_is_no_space():
    assert not is_space({"scenario": "s", "experiments": []})
    assert not is_space(["entitySpace"])


OPERATION = """\
operation:
  module: {operationType: explore, operatorName: random_walk}
  parameters: {numberEntities: %s, batchSize: 2, samplerConfig: {mode: %s}}
spaces: [space.yaml]
"""


@check_table(
    "number, mode, points, order",
    [
        ("all", "sequential", None, "interleaved"),
        ("all", "random", None, "random"),
        ("2", "sequential", [{"size": 1, "kind": "fast"}, {"size": 1, "kind": "safe"}], "interleaved"),
        ("6", "sequential", None, "interleaved"),
    ],
)
def test_an_operation_selects_the_points_of_its_space(number, mode, points, order, made, tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    (scenario,) = made(OPERATION % (number, mode), "operation.yaml")
    assert (scenario.order, scenario.parallel, scenario.axes[0].points) == (order, 2, points)


def test_a_random_choice_of_points_is_the_same_each_time(made, tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    first, again = (made(OPERATION % ("3", "random"), "operation.yaml")[0] for _ in range(2))
    assert first == again
    assert len(first.axes[0].points) == 3


@check_table(
    "change, words",
    [
        (("random_walk", "ray_tune"), "operation.yaml:2:50: the operator 'ray_tune' chooses"),
        (("[space.yaml]", "[space-3af2]"), "operation.yaml:4:10: there is no file 'space-3af2'"),
        (("[space.yaml]", "[../space.yaml]"), "there is no file '../space.yaml'"),
        (("mode: sequential", "samplerType: selector"), "from ado's own store"),
        (("numberEntities: 2", "numberEntities: 0"), "operation.yaml:3:32: no point is asked for"),
        (("batchSize", "batchSise"), "did you mean 'batchSize'"),
    ],
)
def test_operations_that_only_ado_can_run_are_refused_at_their_place(change, words, made, tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    with pytest.raises(ProblemsError) as refused:
        made((OPERATION % ("2", "sequential")).replace(*change), "operation.yaml")
    assert words in refused.value.message


@pytest.mark.starts
def test_a_space_is_validated_planned_and_run_by_its_own_name(packages, bench, tmp_path):
    packages.add("pack", "pack_sums", SUMS, "sums = pack_sums", version="2.3")
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    assert bench("validate", path).out == f"{path}: valid, 6 points, 6 trials\n"
    assert json.loads(bench("plan", path, "--json").out)["axes"] == ["size", "kind"]
    ran = bench("run", path, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["outcomes"] == {"succeeded": 6}
    assert bench("run", "--resume", "@last", "--json").code == 0  # from what the ledger kept


def test_what_does_not_fit_the_experiment_is_told_at_its_place_in_the_space(packages, bench, tmp_path):
    packages.add("pack", "pack_sums", SUMS, "sums = pack_sums", version="2.3")
    path = tmp_path / "space.yaml"
    path.write_text(SPACE.replace("[1, 2, 4]", "[1, two, 4]").replace("identifier: kind", "identifier: kins"))
    told = bench("validate", path)
    assert told.code == 2
    assert f"{path}:3:34: " in told.err and f"{path}:4:17: unknown key 'kins'" in told.err
    assert "did you mean 'kind'?" in told.err


@pytest.mark.starts
def test_a_space_of_two_experiments_is_two_runs(packages, bench, tmp_path):
    packages.add("pack", "pack_sums", SUMS, "sums = pack_sums", version="2.3")
    path = tmp_path / "both.yaml"
    path.write_text(SPACE + "  - {actuatorIdentifier: benchhouse, experimentIdentifier: halves}\n")
    assert bench("validate", path).out == f"{path}: valid, 9 points, 9 trials\n"
    ran = bench("run", path)
    assert ran.code == 0, ran.err
    assert sorted(folder.name for folder in (tmp_path / "results").iterdir()) == ["both.halves", "both.sums"]


def test_a_benchmark_of_a_space_has_its_experiment_version_and_axes(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    benchmark, view = benchmark_of_space(load_yaml(path), "b", {})
    assert (benchmark.benchmark, benchmark.experiment, benchmark.version) == ("b", "sums", "1.0")
    assert view.value(("workload", "depth")) == benchmark.workload["depth"] == 3
    assert view.position(("workload", "depth")) == (11, 48)


def test_a_mistake_in_an_experiment_that_ado_described_is_told_in_its_own_file(tmp_path):
    path = tmp_path / "space.yaml"
    described = SPACE.partition("experiments:")[0] + "experiments:\n  experiments:\n    - {identifier: [1]}\n"
    path.write_text(described)
    with pytest.raises(ProblemsError) as refused:
        read_space(load_yaml(path))
    assert {(problem.line, problem.column) for problem in refused.value.problems} >= {(8, 20)}
