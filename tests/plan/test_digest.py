"""What the plan's digest covers, and what it leaves out."""

import pytest
from pydantic import BaseModel, Field, SecretStr, computed_field
from tables import check_table

from benchhouse.documents.problems import ProblemsError
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import experiment

TWO_BLOCKS = "axes: [{zip: {size: [1, 2], share: [0.1, 0.2]}}, {points: [{pause: 1s}, {pause: 2s}]}]\n"
BASE = "workload: {size: [1, 2]}\nrepetitions: 2\n"


@check_table(
    "more",
    [
        "parallel: 4",
        "budget: {trials: 3, cost: 5}\nprice_per_hour: 2",
        "retries: {max_retries: 9}",
        "executor: slurm",
        "partition: gpu",
        "description: other words",
        "price_per_hour: 3",
        "resources: {cpus: 2}",
        "runtime: {kind: venv}",
    ],
)
def test_where_and_how_it_runs_is_not_part_of_the_plan(more, plan_of):
    assert plan_of(BASE + more).digest == plan_of(BASE).digest


def test_the_names_of_scenario_and_file_are_not_part_of_the_plan(plan_of):
    assert plan_of(BASE, path="other.yaml").digest == plan_of(BASE).digest


@check_table(
    "text",
    [
        BASE.replace("2]", "3]"),
        BASE.replace("[1, 2]", "[2, 1]"),
        BASE + "target: other",
        BASE + "order: sequential",
        BASE + "order: random",
        BASE.replace("repetitions: 2", "repetitions: 3"),
        BASE + "warmup: 1",
        BASE + "seed: 1",
        BASE + "limits: {wall: 10m}",
        BASE + "limits: {memory: 1GB}",
        BASE + "exclude: [{size: 1}]",
    ],
)
def test_instances_order_repetitions_seed_and_limits_are_part_of_the_plan(text, plan_of):
    assert plan_of(text).digest != plan_of(BASE).digest


@check_table(
    "same",
    [
        BASE.replace("1", "1.0"),
        BASE.replace("size: [1, 2]", "size: [1, 2], algorithm: quick, share: 1"),
        BASE.replace("size: [1, 2]", "size: {range: {from: 1, to: 2, step: 1}}"),
        BASE + "target: {name: here}",
        BASE + "target: here",
        BASE + "order: interleaved\nseed: 0",
        "repetitions: 2\naxes: [{grid: {size: [1, 2]}}]",
        "repetitions: 2\naxes: [{points: [{size: 1}, {size: 2}]}]",
        "repetitions: 2\nworkload: {size: [1, 2, 3]}\nexclude: [{size: 3}]",
    ],
)
def test_equivalent_plans_have_the_same_digest(same, plan_of):
    assert plan_of(same).digest == plan_of(BASE).digest


def test_another_version_of_the_experiment_is_another_plan(plan_of):
    @experiment("sort", version="2.0")
    def newer(size: int = 1) -> None: ...

    @experiment("sort", version="1.0")
    def older(size: int = 1) -> None: ...

    assert plan_of(BASE, code=newer).digest != plan_of(BASE, code=older).digest


def test_the_digests_are_pinned(plan_of):
    """A change here makes every finished run a stranger to its own plan: bump schema_version, never this."""
    plan = plan_of(BASE)
    first = next(plan.instances())
    assert first.digest() == "379836b0be193379bac6ad81de73b5d33a202cd55ea93c55d88eb8f7cab1e2c4"
    assert plan.digest == "9cdf72e1c9e69c459ed8af2774c6e0aa47087267c79227298a0336806c0c50c5"


def test_points_that_only_a_validator_makes_equal_are_refused(plan_of):
    class Index(BaseModel):
        kind: str = "flat"
        lists: int | None = None

        def model_post_init(self, _context: object) -> None:
            if self.kind == "flat":
                self.lists = None

    @experiment("index", version="1")
    def index(workload: Index) -> None: ...

    text = "workload: {kind: [ivf, flat], lists: [1, 2]}\n"
    with pytest.raises(ProblemsError, match="kind=flat, lists=1 and kind=flat, lists=2 are the same to index"):
        _ = plan_of(text, code=index).digest
    assert plan_of(text + "exclude: [{kind: flat, lists: 2}]", code=index).points == 3


def test_inputs_survive_being_written_down(plan_of):
    class Odd(BaseModel):
        from_: int = Field(1, alias="from")
        key: SecretStr = Field(SecretStr("$NONE"), alias="api_key")

        @computed_field
        def twice(self) -> int:
            return self.from_ * 2

    @experiment("odd", version="1")
    def odd(workload: Odd) -> None: ...

    plan = plan_of("workload: {from: [1, 2], api_key: $KEY}", code=odd, environ={"KEY": "hidden"})
    assert [instance.parameters for instance in plan.instances()] == [
        {"from": 1, "api_key": "$KEY"},
        {"from": 2, "api_key": "$KEY"},
    ]


def test_a_plain_function_may_default_to_none(plan_of):
    @experiment("plain", version="1")
    def plain(size: int = None, copy: bool = False) -> None: ...  # noqa: RUF013

    assert next(plan_of("", code=plain).instances()).parameters == {"size": None, "copy": False}


def test_an_experiment_that_refuses_its_own_defaults_is_named(plan_of):
    class Wrong(BaseModel):
        size: int = None

    @experiment("wrong", version="1")
    def wrong(workload: Wrong) -> None: ...

    with pytest.raises(BenchError, match="the inputs of wrong can't be written down and read back: size"):
        plan_of("", code=wrong)


def test_a_model_that_ignores_unknown_keys_does_not_let_a_misspelt_one_pass(plan_of):
    class Loose(BaseModel):
        size: int = 1

    @experiment("loose", version="1")
    def loose(workload: Loose) -> None: ...

    with pytest.raises(ProblemsError, match=r"2:12: unknown key 'siez'"):
        plan_of("workload: {siez: [1, 2]}", code=loose)


@check_table(
    "text, digest",
    [
        (BASE, "9cdf72e1c9e69c459ed8af2774c6e0aa47087267c79227298a0336806c0c50c5"),
        (
            "targets: [a, {name: b, cores: 2}]\norder: random\nexclude: [{size: 1, pause: 2s}]\n" + TWO_BLOCKS,
            "805e7c388b4c96d4f1ede6db072c93db6288cdea389b55896c4c2eeeb32a739f",
        ),
    ],
)
def test_the_digest_of_a_plan_is_the_same_in_every_release(text, digest, plan_of):
    assert plan_of(text).digest == digest


def test_a_dotted_name_that_leads_into_no_mapping_is_a_name_in_every_release(plan_of):
    text = "workload: {component: a, service: b, x: [1, 2]}\naxes: [{grid: {y.z: [3, 4]}}]"
    digest = "19b259248c45018268e0c25a95dae1582e03df55d61d10c719f499f6a92ac777"
    assert plan_of(text, code=None).digest == digest


@check_table(
    "text",
    [
        "workload: {size: [1, 2, 3]}\n",
        "workload: {size: [1, 2.0, 3], pause: 1m}\n",
        "target: {cores: 2}\nworkload: {size: [1, 2]}\n",
        "axes: [{grid: {pivots: [[1], [2, 3]]}}]\n",
        "workload: {size: [1, 2, 3]}\nexclude: [{size: 2}]\n",
        "targets: [{name: a}, {name: b}]\nworkload: {size: 5}\n",
        TWO_BLOCKS,
    ],
)
def test_the_stored_fields_of_a_point_are_those_it_is_bound_to(text, plan_of):
    plan = plan_of(text)
    bound = [plan._instance(*plan._inputs(point), {}) for point in plan.space.points()]
    assert list(plan.instances()) == bound
    assert [digest for _, _, digest, _ in plan._bound()] == [instance.digest() for instance in bound]
