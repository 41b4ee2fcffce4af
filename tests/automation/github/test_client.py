"""What we ask of GitHub, and what the fake answers, as GitHub's own description has it."""

import json

import pytest
from jsonschema import Draft202012Validator
from services.fake_github import TOKEN, fake_github
from services.github_payloads import DATA

from benchhouse.automation.github.client import GitHub, Later

SCHEMAS = json.loads((DATA / "openapi.json").read_text())


def check(schema, value):
    Draft202012Validator(schema | {"components": SCHEMAS["components"]}).validate(value)


def test_the_fake_answers_as_the_schemas_say():
    with fake_github() as fake:
        comment = {"body": "x"}
        check(SCHEMAS["requests"]["POST issue comment"], comment)
        made = fake.answer("POST", "/repos/team/bench/issues/7/comments", {}, comment)[1]
        check(SCHEMAS["answers"]["POST issue comment"], made)
        listed = fake.answer("GET", "/repos/team/bench/issues/comments", {"since": ""}, {})[1]
        check(SCHEMAS["answers"]["GET comments"], listed)
        edited = fake.answer("PATCH", f"/repos/team/bench/issues/comments/{made['id']}", {}, {"body": "y"})[1]
        check(SCHEMAS["answers"]["PATCH comment"], edited)
        status = {"state": "success", "context": "benchhouse", "description": "good"}
        check(SCHEMAS["requests"]["POST status"], status)
        check(SCHEMAS["answers"]["POST status"], fake.answer("POST", "/repos/team/bench/statuses/ab", {}, status)[1])


def test_a_wrong_token_is_never_shown():
    with fake_github() as fake, pytest.raises(Later) as error:
        GitHub(fake.api, "ghp_wrong").comment("team/bench", 7, "x")
    assert "is the token right?" in str(error.value) and "ghp_wrong" not in str(error.value)
    assert "ghp_wrong" not in repr(GitHub("https://api.github.com", "ghp_wrong"))
    assert TOKEN
