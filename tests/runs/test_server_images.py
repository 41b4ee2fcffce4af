"""Pins of servers' images and runs: a plan stays what it is, and a run says when it would mix two images."""

import json

import pytest

from benchhouse.runs.conditions import conditions
from benchhouse.runs.preparation import prepare
from benchhouse.schema.layout import WorkspaceFolder

FIRST, SECOND = (f"sha256:{letter * 64}" for letter in "ab")


@pytest.fixture
def prepared(tmp_path):
    """The scenario, prepared with that digest in the lock; `recipe` changes the recipe of its server."""

    def make(digest=None, **recipe):
        recipe = {
            "name": "box", "program": ["no-such-program-on-any-host"], "published": "a/b:1", "command": ["{program}"],
            "endpoint": "http://127.0.0.1:{port}",
        } | recipe  # fmt: skip
        (tmp_path / "recipes").mkdir(exist_ok=True)
        (tmp_path / "recipes" / "box.yaml").write_text(json.dumps(recipe))
        lock = {"images": {"a/b:1": {"digest": digest, "source": "given", "pinned": "2026-01-01"}} if digest else {}}
        (tmp_path / "images.lock.yaml").write_text(json.dumps(lock))
        scenario = {"scenario": "s", "experiment": "command", "target": {"argv": ["true"]}}
        (tmp_path / "s.yaml").write_text(json.dumps(scenario | {"services": {"web": {"recipe": "box"}}}))
        return prepare(WorkspaceFolder(tmp_path), tmp_path / "s.yaml")

    return make


def test_another_pin_is_another_condition_of_the_same_plan(prepared):
    plain, first, second = prepared(), prepared(FIRST), prepared(SECOND)
    assert plain.plan.digest == first.plan.digest == second.plan.digest
    assert "server image" not in conditions(plain)
    assert conditions(first)["server image"] != conditions(second)["server image"]
    assert conditions(first)["server image"] == conditions(prepared(FIRST))["server image"]
    service = first.plan.services["web"]
    assert service.recipe.pinned_image == f"docker.io/a/b:1@{FIRST}"


def test_the_pin_of_a_server_that_is_installed_is_no_condition(prepared):
    assert "server image" not in conditions(prepared(FIRST, program=["sh"]))


def test_an_image_that_a_recipe_names_itself_is_part_of_the_plan(prepared):
    own = [prepared(image=f"a/b@{digest}") for digest in (FIRST, SECOND)]
    assert own[0].plan.digest != own[1].plan.digest
    assert "server image" not in conditions(own[0])
