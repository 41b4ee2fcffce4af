"""Variables in a scenario file."""

import pytest
from tables import check_table

from benchhouse.documents.problems import ProblemsError
from benchhouse.plan.scenario_file import FaultyScenarioError, is_space, parse_scenario


def read(value, **environ):
    return parse_scenario(f"scenario: s\nenvironment: {{x: {value}}}\n", "s.yaml", environ).scenario.environment["x"]


@check_table(
    "written, read_as",
    [
        ("$WORK/a", "/w/a"),
        ('"${WORK}a"', "/wa"),
        ("$WORK:$HOME", "/w:/h"),
        ("a$$b", "a$b"),
        ("$$WORK", "$WORK"),
        ("a$", "a$"),
        ("cost $5", "cost $5"),
        ("'(\\d+)$'", "(\\d+)$"),
    ],
)
def test_variables_expand_and_other_dollars_stay(written, read_as):
    assert read(written, WORK="/w", HOME="/h") == read_as


def test_a_value_is_not_expanded_twice():
    assert read("$A", A="$B", B="no") == "$B"


def test_a_secret_stays_a_reference():
    file = parse_scenario("scenario: s\ntarget: {api_key: $KEY}\n", "s", {"KEY": "hidden"})
    assert file.scenario.target == {"api_key": "$KEY"}


def test_the_name_of_a_kubernetes_secret_is_none():
    file = parse_scenario("scenario: s\nkubernetes: {bucket_secret: keys}\n", "s", {})
    assert file.scenario.kubernetes.bucket_secret == "keys"


def test_a_secret_whose_variable_is_unset_is_an_error():
    with pytest.raises(ProblemsError, match=r"s:2:19: the environment variable KEY is not set"):
        parse_scenario("scenario: s\ntarget: {api_key: $KEY}\n", "s", {})


def test_an_anchor_may_hold_what_several_places_use():
    text = "scenario: s\nworkload: &w {a: 1}\ntarget: {<<: *w, b: 2}\n"
    assert parse_scenario(text, "s", {}).scenario.target == {"a": 1, "b": 2}


def test_a_variable_inside_an_address_must_be_named_as_a_secret():
    text = "scenario: s\ntarget: {url: 'http://me:$%s@host'}\n"
    kept = parse_scenario(text % "DB_PASSWORD", "s", {"DB_PASSWORD": "hidden"})
    assert kept.scenario.target == {"url": "http://me:$DB_PASSWORD@host"}
    with pytest.raises(ProblemsError, match=r"s:2:15: 'url' has the variable DB where a secret is"):
        parse_scenario(text % "DB", "s", {"DB": "hidden"})


ENVIRON = {"PROM_PASSWORD": "hunter2", "PROM_URL": "http://me:hun/ter2@host", "LLM": "hunter2", "PLAIN": "x"}


@check_table(
    "text, kept",
    [
        ("monitors: {prometheus: [{url: 'http://me:$PROM_PASSWORD@host/metrics'}]}", "$PROM_PASSWORD"),
        ("monitors: {prometheus: [{url: $PROM_URL}]}", "$PROM_URL"),
        ("target: {url: 'https://me:${PROM_PASSWORD}@host/d'}", "${PROM_PASSWORD}"),
        ("target: {headers: {Authorization: Bearer $LLM}}", "Bearer $LLM"),
        ("target: {url: $PROM_URL}", "$PROM_URL"),
        ("spark: {conf: {spark.hadoop.fs.s3a.secret.key: $LLM}}", "$LLM"),
        ("ray: {runtime_env: {env_vars: {HF_TOKEN: $LLM}}}", "$LLM"),
    ],
)
def test_secrets_stay_references_wherever_they_stand(text, kept):
    stored = parse_scenario(f"scenario: s\n{text}\n", "s", ENVIRON).scenario.model_dump_json(by_alias=True)
    assert kept in stored
    assert "ter2" not in stored


@check_table(
    "text, message",
    [
        ("target: {headers: {Authorization: Bearer hunter2}}", "'Authorization' is a secret in plain text"),
        ("target: {headers: {X-Api-Key: hunter2}}", "'X-Api-Key' is a secret in plain text"),
        ("monitors: {prometheus: [{url: 'http://me:hun/ter2@host'}]}", "'url' holds a secret in plain text"),
        ("artifacts: {dataset: 'https://me:hunter2@host/d'}", "'dataset' holds a secret in plain text"),
        ("spark: {conf: {spark.authenticate.secret: hunter2}}", "is a secret in plain text"),
        ("binds: ['$PROM_PASSWORD:/x']", "'binds' can't hold a secret, and \\$PROM_PASSWORD is one"),
        ("description: $PROM_URL", "'description' can't hold a secret"),
        ("artifacts: {dataset: $PROM_URL}", "'dataset' can't hold a secret"),
    ],
)
def test_secrets_in_plain_text_or_in_unknown_places_are_refused(text, message):
    with pytest.raises(ProblemsError, match=message) as refused:
        parse_scenario(f"scenario: s\n{text}\n", "s", ENVIRON)
    assert "ter2" not in str(refused.value)
    assert all("ter2" not in problem.source for problem in refused.value.problems)


def test_what_a_run_keeps_is_the_text_itself():
    assert parse_scenario("scenario: s\n", "s", {}).text == "scenario: s\n"


@check_table(
    "data, space",
    [
        ({"workload": {}}, False),
        ({"entitySpace": []}, True),
        ({"config": {"entitySpace": []}}, True),
        ({"experiments": []}, True),
        ({"experiments": {"experiments": []}}, True),
        ({"experiments": {}}, False),
        ({"operation": {}, "spaces": []}, True),
        ({"operation": {}}, False),
    ],
)
def test_a_space_of_ado_is_distinguished_from_a_scenario(data, space):
    assert is_space(data) is space


def test_a_version_is_the_text_that_is_written():
    assert parse_scenario("scenario: s\nexperiment: e\nversion: 1.10\n", "s.yaml", {}).scenario.version == "1.10"
    assert parse_scenario("scenario: s\nexperiment: e\nversion: v2\n", "s.yaml", {}).scenario.version == "v2"


def test_only_what_was_made_of_another_file_has_a_text_of_its_own():
    assert parse_scenario("scenario: s\nexperiment: e\n", "s.yaml", {}).made == ""


def test_what_is_left_without_its_mistakes_is_kept_to_be_searched_for_further_ones():
    with pytest.raises(FaultyScenarioError) as refused:
        parse_scenario("scenario: s\nexperiment: e\nworkload: {size: $UNSET}\npassword: hunter2\n", "s.yaml", {})
    error = refused.value
    assert error.rest is not None and error.rest.scenario.experiment == "e"
    assert (3, 18) in error.faults and error.secret_lines == {4}


def test_a_key_that_is_misspelt_is_not_told_to_be_absent_as_well():
    with pytest.raises(FaultyScenarioError) as refused:
        parse_scenario("scenario: s\nexperimnt: e\n", "s.yaml", {})
    (problem,) = refused.value.problems
    assert (problem.line, problem.suggestion) == (2, "experiment")
