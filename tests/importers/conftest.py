"""Files of other tools, and what is wrong with them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchhouse.catalog.entries import plug
from benchhouse.documents.foreign_file import ForeignFile
from benchhouse.schema.imported import Imported

DATA = Path(__file__).parent / "data"


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture
def read() -> Callable[[str, Path], Imported]:
    """`read(kind, path)`: what the importer of that kind finds in a file."""
    return lambda kind, path: plug("importers", kind).read(ForeignFile(path))
