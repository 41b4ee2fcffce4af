"""What a plan knows beside its points: who is measured, by what, within which limits."""

from array import array

import pytest
from pydantic import BaseModel
from tables import check_table

from benchhouse.documents.problems import ProblemsError
from benchhouse.plan import expand
from benchhouse.plan.expand import join_versions
from benchhouse.schema.experiment import experiment
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.resources import Limits, Resources


class Store(BaseModel, extra="forbid"):
    driver: str = "flat"
    name: str = ""


@experiment("search", version="1", component="vector", services=("faiss", "qdrant"), resources=Resources(cpus=3))
def search(target: Store, size: int = 1) -> None: ...


@experiment("look", version="1", component="vector", services=("qdrant",))
def look(size: int = 1) -> None: ...


@check_table(
    "text, drivers",
    [
        ("workload: {component: vector, service: qdrant}", ["qdrant"]),
        ("workload: {component: vector, service: faiss, size: [1, 2]}", ["faiss", "faiss"]),
        ("workload: {component: vector, service: unheard_of}", ["flat"]),
        ("workload: {size: 1}", ["flat"]),
        ("target: {driver: faiss}\nworkload: {service: qdrant}", ["faiss"]),
        ("target: {driver: [faiss, chroma]}\nworkload: {service: qdrant}", ["faiss", "chroma"]),
    ],
)
def test_a_service_is_measured_by_its_driver_unless_the_target_names_another(plan_of, text, drivers):
    assert [instance.target["driver"] for instance in plan_of(text, code=search).instances()] == drivers


def test_a_target_without_a_driver_gets_none(plan_of):
    assert next(plan_of("workload: {service: qdrant}", code=look).instances()).target == {}


@check_table(
    "code, workload, said, parameters",
    [
        (search, "size: 2", ("vector", "search", False), {"size": 2}),
        (look, "size: 2", ("vector", "qdrant", False), {"size": 2}),
        (look, "component: db, service: mine", ("db", "mine", True), {"size": 1}),
        (search, "service: faiss", ("vector", "faiss", True), {"size": 1}),
        (None, "x: 1", ("custom", "", False), {"x": 1}),
        (None, "component: a, service: b", ("a", "b", True), {"component": "a", "service": "b"}),
    ],
)
def test_component_and_service_come_from_the_workload_or_the_declaration(plan_of, code, workload, said, parameters):
    plan = plan_of(f"workload: {{{workload}}}", code=code)
    assert (plan.component, plan.service, plan.service_is_explicit) == said
    assert next(plan.instances()).parameters == parameters


def test_an_experiment_that_takes_a_service_as_a_parameter_gets_it(plan_of):
    @experiment("own", version="1")
    def own(service: str = "none", size: int = 1) -> None: ...

    plan = plan_of("workload: {component: c, service: faiss}", code=own)
    assert next(plan.instances()).parameters == {"service": "faiss", "size": 1}


BENCHMARK = "benchmark: b\nexperiment: search\nworkload: {size: [1, 2]}\n"


def test_the_scenario_overrides_resources_and_each_limit_of_its_benchmark(plan_of):
    asked = BENCHMARK + "resources: {cpus: 2}\nlimits: {wall: 60, memory: 5MiB}\n"
    assert plan_of("", code=search).resources == Resources(cpus=3)
    assert plan_of("", code=None).resources == Resources()
    assert plan_of("uses: b", code=search, benchmark=BENCHMARK).resources == Resources(cpus=3)
    assert plan_of("uses: b", code=search, benchmark=asked).resources == Resources(cpus=2)
    plan = plan_of("uses: b\nresources: {gpus: 1}\nlimits: {wall: 30}", code=search, benchmark=asked)
    assert plan.resources == Resources(gpus=1)
    assert plan.limits == Limits(wall=30.0, memory=5 << 20)


@check_table(
    "text, told",
    [
        ("workload: {size: 3}", "3:12: 'size' is fixed by the benchmark 'b'"),
        ("axes: [{grid: {size: [3]}}]", "3:16: 'size' is fixed by the benchmark 'b'"),
        ("axes: [{zip: {workload.size: [3]}}]", "3:15: 'workload.size' is fixed by the benchmark 'b'"),
        ("axes: [{points: [{size: 3}]}]", "3:19: 'size' is fixed by the benchmark 'b'"),
    ],
)
def test_fields_that_a_benchmark_fixes_cannot_change_in_any_form(plan_of, text, told):
    with pytest.raises(ProblemsError) as caught:
        plan_of(f"uses: b\n{text}", code=search, benchmark=BENCHMARK)
    assert [f"{found.line}:{found.column}: {found.message}" for found in caught.value.problems] == [told]


def test_rules_of_a_benchmark_and_of_a_scenario_both_exclude(plan_of):
    benchmark = "benchmark: b\nexperiment: search\nworkload: {size: [1, 2, 3]}\nexclude: [{size: 1}]\n"
    plan = plan_of("uses: b\nexclude: [{size: 3}]", code=search, benchmark=benchmark)
    assert [point["size"] for point in plan.space.points()] == [2]
    with pytest.raises(ProblemsError, match="every point is excluded: nothing is left to run"):
        plan_of("uses: b\nexclude: [{size: [2, 3]}]", code=search, benchmark=benchmark)


def test_a_point_that_does_not_fit_is_named(plan_of):
    plan = plan_of("workload: {algorithm: [heap, quick], size: [10, 5000]}")
    with pytest.raises(ProblemsError, match=r"the point algorithm=quick, size=5000 does not fit sort: .*at most 1000"):
        list(plan.instances())


def versions_of(plan_of):
    plans = [plan_of("workload: {size: [1, 2]}\nrepetitions: 2\norder: random\nseed: 4"), None]

    @experiment("sort", version="2.0")
    def newer(size: int = 1) -> None: ...

    plans[1] = plan_of("workload: {size: [1, 2, 3]}\nrepetitions: 2\norder: random\nseed: 4", code=newer)
    return join_versions(plans, plans[0].scenario.model_copy(update={"version": ["1.0", "2.0"]}))


def test_versions_of_an_experiment_are_one_plan(plan_of):
    plan = versions_of(plan_of)
    every = {("1.0", 1), ("1.0", 2), ("2.0", 1), ("2.0", 2), ("2.0", 3)}
    assert {(one.version, one.parameters["size"]) for one in plan.instances()} == every
    assert (plan.points, plan.trial_count, plan.axes) == (5, 10, ["experiment.version", "size"])
    assert list(plan.shown_points())[:3] == [
        {"experiment.version": "1.0", "size": 1},
        {"experiment.version": "1.0", "size": 2},
        {"experiment.version": "2.0", "size": 1},
    ]
    trials = [(one.experiment.version, one.parameters["size"], one.repetition, one.seed) for one in plan.trials()]
    assert sorted(trials) == sorted((*point, number, 4 + number) for point in every for number in (0, 1))
    assert trials != sorted(trials), "their order is random"
    assert list(plan.plans[0].shown_points()) == [{"size": 1}, {"size": 2}]
    assert plan.digest != plan.plans[0].digest
    with pytest.raises(IndexError):
        plan._plan_at(5)


def test_the_folder_of_inputs_is_told_where_an_input_is_a_path(plan_of, tmp_path):
    @experiment("reads", version="1")
    def reads(file: InputPath = "x") -> None: ...

    assert plan_of("", path="deep/s.yaml").input_folder == ""
    assert plan_of("", code=reads, path=str(tmp_path / "deep" / "s.yaml")).input_folder == str(tmp_path / "deep")
    inside = plan_of("folder: data", code=reads, path=str(tmp_path / "s.yaml"))
    assert inside.input_folder == str(tmp_path / "data")
    both = join_versions([plan_of(""), inside], inside.scenario)
    assert both.input_folder == inside.input_folder
    assert plan_of("workload: {x: 1}", code=None).input_folder == ""


def test_the_axes_of_targets_without_names_are_the_fields_that_differ(plan_of):
    assert plan_of("targets: [{cores: 1}, {cores: 2}]\nworkload: {size: [1, 2]}").axes == ["target.cores", "size"]
    assert plan_of("targets: [{cores: 1, name: a}, {cores: 2}]").axes == ["target.cores", "target.name"]
    assert plan_of("targets: [{cores: 1, name: a}, {cores: 1}]").axes == ["target.name"]


def test_a_plan_that_is_too_large_to_be_kept_has_the_same_digest(plan_of, monkeypatch):
    text = "workload: {size: [1, 2, 3], both: [true, false]}"
    small = plan_of(text)
    assert small.points == 6 and len(small._kept) == 6
    monkeypatch.setattr(expand, "MOST_KEPT", 5)
    large = plan_of(text)
    assert (large.digest, large._kept) == (small.digest, [])
    monkeypatch.setattr(expand, "MOST_KEPT", 6)
    assert plan_of(text).points == 6


@check_table("more", [0, 10_000])
def test_a_number_that_comes_twice_is_found_among_few_and_among_many(more):
    others = range(10, 10 + more)
    assert expand._repeats(array("Q", [1, 2, 3, *others, 2]))
    assert not expand._repeats(array("Q", [1, 2, 3, *others]))
