"""A real server of Milvus Lite, from the recipe.

The fixture `milvus` (tests/conftest.py): one server a test process.
"""

from collections.abc import Iterator

import pytest
from services.started import running

from benchhouse.recipes.milvus_lite import RECIPE
from benchhouse.schema.recipe import Service


@pytest.fixture(scope="session")
def milvus() -> Iterator[Service]:
    with running(RECIPE) as service:
        yield service
