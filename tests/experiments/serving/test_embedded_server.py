"""Embedded mode: what a scenario says about the server that is started for a trial."""

from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from benchhouse.experiments.serving.embedded_server import Starting, address
from benchhouse.experiments.serving.inputs import ServingTarget


def test_without_a_command_the_address_is_as_given():
    assert address(None, "http://somewhere", SimpleNamespace()) == "http://somewhere"


def test_readiness_is_asked_beside_the_api_and_not_below_it():
    asked = []
    ctx = SimpleNamespace(service=lambda recipe: asked.append(recipe) or SimpleNamespace(endpoint="there"))
    assert (
        address(Starting(command=("serve", "{port}")), "http://127.0.0.1:{port}/v1/", ctx, verify_tls=False) == "there"
    )
    assert asked[0].ready.url == "http://127.0.0.1:{port}/health" and not asked[0].ready.verify_tls


def test_a_port_that_only_one_of_command_and_address_knows_is_refused():
    for url, start, said in [
        ("http://127.0.0.1:{port}", None, "must say {port}"),
        ("http://127.0.0.1:{port}", {"command": ["server"]}, "must say {port}"),
        ("http://127.0.0.1:8000", {"command": ["server", "{port}"]}, "so target.url must"),
    ]:
        with pytest.raises(ValidationError, match=said):
            ServingTarget(url=url, start=start)
