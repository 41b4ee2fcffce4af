"""`workload: {service: NAME}` without an address: the recipe of that name is the server of each trial."""

from tables import check_table

from benchhouse.experiments.serving.load import serve
from benchhouse.plan.scenario_file import parse_scenario
from benchhouse.plan.services import with_own_server

REFERENCE = """
scenario: own
workload: {component: inference, service: vllm, model: mistral-7b-instruct, concurrency: [1, 8]}
"""


def own(text):
    served = with_own_server(parse_scenario(text, "own.yaml", {}), serve)
    return served and served.scenario


def test_the_service_is_started_with_the_model_and_answers_to_its_name():
    scenario = own(REFERENCE)
    assert scenario.target == {"url": "service:vllm"}
    (use,) = scenario.services.values()
    assert use.recipe == "vllm"
    assert use.parameters == {"model": "mistral-7b-instruct", "name": "mistral-7b-instruct"}


def test_a_name_with_a_dot_is_that_of_the_recipe_with_an_underscore():
    assert own(REFERENCE.replace("service: vllm", "service: llama.cpp")).target == {"url": "service:llama_cpp"}
    assert own(REFERENCE.replace("service: vllm", "service: llama-cpp")).target == {"url": "service:llama_cpp"}


def test_what_else_is_said_of_the_target_stays():
    assert own(REFERENCE + "target: {stream: false}\n").target == {"stream": False, "url": "service:vllm"}


@check_table(
    "more",
    [
        "target: {url: 'http://10.0.0.1:8000'}",
        "target: http://10.0.0.1:8000",
        "targets: [{name: a, url: 'http://10.0.0.1:8000'}]",
        "axes: [{grid: {target.url: ['http://10.0.0.1:8000']}}]",
        "services: {mine: {endpoint: 'http://10.0.0.1:8000'}}",
    ],
)
def test_a_server_that_is_named_is_the_one(more):
    assert own(f"{REFERENCE}{more}\n") is None


@check_table("workload", ["model: [a, b]", "gen_tokens: 8"])
def test_without_one_model_for_all_points_nothing_is_guessed(workload):
    assert own(f"scenario: own\nworkload: {{component: inference, service: vllm, {workload}}}\n") is None


def test_a_service_without_a_recipe_starts_nothing():
    assert own(REFERENCE.replace("service: vllm", "service: llm-d")) is None
