"""The fake of Weaviate's protocol, as a server that tests start like any other."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from services.started import running

from benchhouse.schema.recipe import Ready, Recipe, Service

FAKE = Recipe(
    name="fake_weaviate",
    program=("python",),
    command=(
        "{python}",
        str(Path(__file__).parent.parent / "mocks" / "fake_weaviate.py"),
        "{port}",
        "{grpc}",
    ),
    ports={"port": 0, "grpc": 0},
    endpoint="http://127.0.0.1:{port}?grpc={grpc}",
    ready=Ready(kind="http", url="http://127.0.0.1:{port}/v1/meta"),
)


@pytest.fixture(scope="session")
def fake_weaviate() -> Iterator[Service]:
    with running(FAKE) as service:
        yield service
