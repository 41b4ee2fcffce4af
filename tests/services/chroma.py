"""A real Chroma server, from the recipe.

The fixture `chroma` (tests/conftest.py): one server a test process.
"""

from collections.abc import Iterator

import pytest
from services.started import running

from benchhouse.recipes.chroma import RECIPE
from benchhouse.schema.recipe import Service


@pytest.fixture(scope="session")
def chroma() -> Iterator[Service]:
    with running(RECIPE) as service:
        yield service
