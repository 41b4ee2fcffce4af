"""What a recipe may say."""

import pytest
from pydantic import ValidationError
from tables import check_table

from benchhouse.schema.model import SEALED
from benchhouse.schema.recipe import Recipe, fill
from benchhouse.schema.service import ServiceUse, TrialService

LEAST = {"name": "r", "program": ["x"], "command": ["{program}"], "endpoint": "http://127.0.0.1:{port}"}


def test_a_recipe_needs_little():
    recipe = Recipe.model_validate(LEAST)
    assert recipe.ports == {"port": 0} and recipe.ready.kind == "tcp" and recipe.scale.replicas == 1


@check_table(
    "more, said",
    [
        ({"endpoint": "http://127.0.0.1:{prot}"}, r"\{prot\} in .* is none of"),
        ({"program": []}, "a program, an image, or both"),
        ({"image": "qdrant/qdrant:latest"}, "not pinned: name@sha256"),
        ({"environment": {"API_KEY": "abcdef"}}, r"API_KEY is a secret in plain text: write \$API_KEY"),
        ({"endpoint": "http://user:open-sesame@127.0.0.1:{port}"}, "a secret in plain text"),
        ({"files": {"a.conf": "token = ghp_" + "a" * 36}}, "a secret in plain text"),
        ({"files": {"../a.conf": ""}}, "not below the server's folder"),
        ({"files": {"/etc/a.conf": ""}}, "not below the server's folder"),
        ({"binds": ["/data"]}, "not source:destination"),
        ({"ready": {"kind": "log"}}, "needs a pattern"),
        ({"ready": {"kind": "log", "pattern": "("}}, "missing \\)"),
        ({"ready": {"kind": "command"}}, "needs a command"),
        ({"ready": {"kind": "tcp", "port": "grpc"}}, "none of port"),
        ({"ready": {"kind": "http", "in_a_row": 0}}, "greater than or equal to 1"),
        ({"ports": {"port": 70000}}, "less than or equal to 65535"),
        ({"parameters": {"folder": "x"}}, "folder already means something else"),
        ({"parameters": {"model": None}, "binds": ["{modle}:/m"]}, r"\{modle\}"),
        ({"name": "../x"}, "can't be a name"),
        ({"comand": []}, "Extra inputs"),
        ({"scale": {"replicas": 0}}, "greater than or equal to 1"),
    ],
)
def test_contradictory_recipes_are_refused(more, said):
    with pytest.raises(ValidationError, match=said):
        Recipe.model_validate(LEAST | more)


def test_a_secret_that_is_made_up_or_comes_from_outside_is_none_in_plain_text():
    made = Recipe.model_validate(
        LEAST
        | {
            "endpoint": "http://user:{secret}@127.0.0.1:{port}",
            "environment": {"API_KEY": "{secret}", "HF_TOKEN": "$HF_TOKEN"},
            "files": {"a.json": '{"key": "{secret}"}'},
        }
    )
    assert fill(made.endpoint, {"secret": "s", "port": "1"}) == "http://user:s@127.0.0.1:1"


def test_braces_that_are_no_place_stay():
    assert fill('{"a": {port}} {A} {other}', {"port": "1"}) == '{"a": 1} {A} {other}'


def test_what_is_sealed_is_read_whatever_is_asked_of_recipes_today():
    given = {"name": "a", "program": ["a"], "command": ["a"], "endpoint": "http://h", "environment": {"A_TOKEN": "x"}}
    with pytest.raises(ValueError, match="A_TOKEN is a secret in plain text"):
        Recipe.model_validate(given)
    assert Recipe.model_validate(given, context=SEALED).environment == {"A_TOKEN": "x"}


@check_table(
    "nodes, replicas, more, fault",
    [
        (1, 1, {}, ""),
        (2, 2, {}, ""),
        (2, 1, {}, "does not say how one server spans 2 nodes (`members`), and 1 replica can't be spread"),
        (3, 2, {}, "and 2 replicas can't be spread"),
        (2, 1, {"members": ["join", "{head}:{head_port}"]}, ""),
        (2, 3, {"members": ["join", "{head}:{head_port}"]}, "it has no replicas"),
        (2, 2, {"endpoint": "http://127.0.0.1:{port}"}, "it does not say {host}"),
    ],
)
def test_several_nodes_need_a_recipe_that_supports_them(nodes, replicas, more, fault):
    given = {"name": "r", "program": ["sh"], "command": ["sh"], "endpoint": "http://{host}:{port}"}
    recipe = Recipe.model_validate(given | {"scale": {"nodes": nodes}} | more)
    assert fault in recipe.nodes_fault(replicas) and bool(fault) == bool(recipe.nodes_fault(replicas))


def test_a_recipe_without_members_has_the_identity_it_had():
    recipe = Recipe.model_validate({"name": "r", "program": ["sh"], "command": ["sh"], "endpoint": "x"})
    use = ServiceUse(recipe="r")
    assert "members" not in TrialService(use=use, recipe=recipe).identity()["recipe"]
    joined = recipe.model_copy(update={"members": ("join",)})
    assert TrialService(use=use, recipe=joined).identity()["recipe"]["members"] == ["join"]
