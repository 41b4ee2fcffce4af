"""`uses:` a registered benchmark: its workload is frozen, what it leaves open may be filled."""

import json

import pytest
from tables import check_table

from benchhouse.catalog.benchmark_lookup import BenchmarkIndex
from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml, parse_yaml
from benchhouse.plan.scenario_file import expand_benchmark
from benchhouse.schema.scenario import Benchmark

BENCHMARK = """\
benchmark: standard
experiment: sort
workload: {algorithm: [heap, merge]}
axes: [{grid: {share: [0.1, 0.2]}}]
exclude: [{algorithm: heap, share: 0.2}]
limits: {wall: 5m, memory: 1GB}
"""


def test_a_scenario_fills_what_the_benchmark_leaves_open(plan_of):
    plan = plan_of("uses: standard\nworkload: {size: [5, 6]}\nlimits: {wall: 1m}", benchmark=BENCHMARK)
    assert plan.points == 3 * 2
    assert (plan.limits.wall, plan.limits.memory) == (60, 10**9)


@check_table(
    "text, place",
    [
        ("workload: {algorithm: quick}", "s.yaml:3:12"),
        ("workload: {share: 0.5}", "s.yaml:3:12"),
        ("axes: [{grid: {algorithm: [quick]}}]", "s.yaml:3:16"),
        ("axes: [{points: [{share: 1}]}]", "s.yaml:3:19"),
    ],
)
def test_fields_that_the_benchmark_fixes_cannot_change(text, place, plan_of):
    with pytest.raises(ProblemsError, match=rf"{place}: '\w+' is fixed by the benchmark 'standard'"):
        plan_of(f"uses: standard\n{text}", benchmark=BENCHMARK)


def test_a_mistake_in_the_benchmark_is_shown_in_its_own_file(plan_of, tmp_path):
    wrong = BENCHMARK.replace("[0.1, 0.2]", "[0.1, much]").replace("exclude: [{algorithm: heap, share: 0.2}]\n", "")
    with pytest.raises(ProblemsError) as raised:
        plan_of("uses: standard\nworkload: {size: x}\n", benchmark=wrong)
    places = [(problem.path, problem.line, problem.column) for problem in raised.value.problems]
    assert sorted(places) == sorted([(str(tmp_path / "b.yaml"), 4, 29), ("s.yaml", 3, 18)])


def test_a_mistake_in_the_scenarios_axes_is_shown_in_its_own_place(plan_of):
    with pytest.raises(ProblemsError, match=r"s.yaml:3:26: expected a whole number"):
        plan_of("uses: standard\naxes: [{grid: {size: [1, x]}}]", benchmark=BENCHMARK)


def test_a_benchmark_names_an_experiment_or_another_benchmark(tmp_path):
    path = tmp_path / "b.yaml"
    for text in ("benchmark: a\n", "benchmark: a\nuses: b\nexperiment: c\n"):
        path.write_text(text)
        with pytest.raises(ProblemsError, match="a benchmark has either experiment or uses"):
            validated(load_yaml(path), Benchmark)


def shelf(*folders):
    return BenchmarkIndex(folders, None, read_space=None)


def test_benchmarks_in_a_circle_are_refused_and_each_of_them_named(tmp_path):
    for name, used in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.yaml").write_text(f"benchmark: {name}\nuses: {used}\n")
    with pytest.raises(ProblemsError, match="benchmarks in a circle: a -> b -> c -> a") as raised:
        shelf(tmp_path).find("a")
    places = [(problem.path, problem.line) for problem in raised.value.problems]
    assert places == [(str(tmp_path / f"{name}.yaml"), 2) for name in "abc"]
    (tmp_path / "d.yaml").write_text("benchmark: d\nuses: c\n")
    with pytest.raises(ProblemsError) as again:
        shelf(tmp_path).find("d")
    assert again.value.problems == raised.value.problems, "wherever it is entered"


def test_a_benchmark_fills_what_another_leaves_open_and_changes_nothing_of_it(tmp_path, bench):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "base.yaml").write_text(
        "benchmark: base\nexperiment: command\nworkload: {executions: [1, 2]}\nlimits: {wall: 1m, memory: 1GB}\n"
    )
    more = tmp_path / "benchmarks" / "more.yaml"
    more.write_text("benchmark: more\nuses: base\nworkload: {timeout: [1, 2, 3]}\nlimits: {wall: 2m}\n")
    (tmp_path / "s.yaml").write_text("scenario: s\nuses: more\ntarget: {argv: [ls]}\n")
    plan = json.loads(bench("plan", "s.yaml", "--json").out)
    assert (plan["points"], plan["limits"]["wall"], plan["limits"]["memory"]) == (6, 120, 10**9)
    more.write_text("benchmark: more\nuses: base\nworkload: {executions: 9}\n")
    done = bench("plan", "s.yaml")
    assert done.code == 2 and "more.yaml:3:12: 'executions' is fixed by the benchmark 'base'" in done.err
    (tmp_path / "s.yaml").write_text("scenario: s\nuses: more\ntarget: {argv: [ls]}\nworkload: {executions: 1}\n")
    assert "s.yaml:4:12: 'executions' is fixed by the benchmark" in bench("plan", "s.yaml").err


def test_variables_of_a_benchmark_are_expanded_and_its_secrets_refused():
    text = "benchmark: a\nexperiment: sort\nworkload: {data: $WORK/x}\n"
    assert expand_benchmark(parse_yaml(text, "b"), {"WORK": "/w"}).workload == {"data": "/w/x"}
    with pytest.raises(ProblemsError, match="b:3:18: the environment variable WORK is not set"):
        expand_benchmark(parse_yaml(text, "b"), {})
    with pytest.raises(ProblemsError, match="'token' is a secret in plain text"):
        expand_benchmark(parse_yaml(text.replace("data: $WORK/x", "token: abcdefgh"), "b"), {})
