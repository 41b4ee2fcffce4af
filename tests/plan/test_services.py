"""Services of a scenario are bound to their recipes; what is wrong with them is told at its place."""

import pytest
from tables import check_table

from benchhouse.plan.scenario_file import parse_scenario
from benchhouse.plan.services import bind_services

RECIPE = """name: tiny
program: [serve]
command: ["{program}", "{port}", "{model}", "{size}"]
endpoint: "http://127.0.0.1:{port}"
parameters: {model: null, size: "3"}
"""


@pytest.fixture
def bind(tmp_path):
    def call(text, recipe=RECIPE):
        (tmp_path / "tiny.yaml").write_text(recipe)
        file = parse_scenario(f"scenario: s\nexperiment: e\n{text}\n", str(tmp_path / "s.yaml"), {})
        bound, problems = bind_services(file, tmp_path)
        return bound, [f"{found.line}:{found.column} {found.message}" for found in problems]

    return call


def test_a_service_is_bound_to_its_recipe_or_to_its_address(bind, tmp_path):
    text = "services: {a: {recipe: tiny, parameters: {model: m}}, b: {endpoint: 'http://x'}}\ntarget: {url: service:a}"
    bound, problems = bind(text)
    assert problems == []
    assert list(bound) == ["a", "b"]
    assert bound["a"].recipe.name == "tiny" and bound["a"].use.recipe == str(tmp_path / "tiny.yaml")
    assert bound["b"].recipe is None and bound["b"].use.endpoint == "http://x"


@check_table(
    "text, told",
    [
        ("services: {a: {recipe: nowhere}}", "3:24 "),
        ("services: {a: {recipe: tiny}}", "3:12 "),
        ("services: {a: {recipe: tiny, parameters: {model: m, sise: 4}}}", "3:53 "),
        ("services: {experiment: {endpoint: 'http://x'}}", "3:12 "),
        (
            "services: {a: {endpoint: 'http://x'}}\ntarget: {url: service:b}",
            "4:15 there is no service 'b' in this scenario",
        ),
        ("workload: {x: [1, service:b]}", "3:19 there is no service 'b' in this scenario"),
        (
            "resources: {nodes: 2}\nservices: {a: {recipe: tiny, parameters: {model: m}, node: 2}}",
            "4:60 node: 2 needs a trial of at least 3 nodes, and it has 2",
        ),
        (
            "resources: {nodes: 1}\nservices: {a: {recipe: tiny, parameters: {model: m}, node: others}}",
            "4:60 node: others needs a trial of at least 2 nodes, and it has 1",
        ),
        (
            "resources: {nodes: 2}\nservices: {a: {recipe: tiny, parameters: {model: m}, node: 1}}",
            "4:60 the recipe tiny can't be reached from another node: it does not say {host}",
        ),
    ],
)
def test_what_is_wrong_is_told_where_it_stands(bind, text, told):
    problems = bind(text)[1]
    assert problems and problems[0].startswith(told), problems


def test_services_that_nothing_names_here_are_not_looked_for(bind):
    assert bind("description: service:b")[1] == []


def test_a_recipe_of_several_nodes_is_refused_where_there_is_one(bind):
    text = "executor: {}\nservices: {{a: {{recipe: tiny, parameters: {{model: m}}}}}}"
    recipe = RECIPE + "scale: {nodes: 2}\n"
    assert bind(text.format("local"), recipe)[1] == ["4:15 the recipe tiny needs 2 nodes: here is one"]
    assert bind(text.format("local"))[1] == []
    (embedded,) = bind(text.format("slurm"), recipe)[1]
    assert embedded.endswith("needs 2 nodes, which only a job of its own has")


def test_an_attached_service_of_several_nodes_needs_a_recipe_that_says_how(bind):
    text = "executor: slurm\nservices: {{a: {{recipe: tiny, mode: attached, parameters: {{model: m}}{}}}}}"
    recipe = RECIPE.replace("127.0.0.1", "{host}") + "scale: {nodes: 2}\n"
    (fault,) = bind(text.format(""), recipe)[1]
    assert "does not say how one server spans 2 nodes" in fault
    assert bind(text.format(", replicas: 2"), recipe)[1] == []
    assert bind(text.format(""), recipe + "members: [serve, '{head}']\n")[1] == []


def test_what_is_wrong_in_a_recipe_is_told_with_its_place_in_it(bind, tmp_path):
    (problem,) = bind("services: {a: {recipe: tiny}}", "name: tiny\ncommand: [serve]\n")[1]
    assert problem.startswith(f"3:24 {tmp_path}/tiny.yaml:")
