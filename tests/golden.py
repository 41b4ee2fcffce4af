"""Generated text compared with stored files: `golden("slurm/array.sh", text)`.

After an intended change, `pytest FILE --update-golden` rewrites the stored files; `git diff` then shows the change.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

STORED = Path(__file__).parent / "data" / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the files in tests/data/golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` fails if the text differs from the file `tests/data/golden/NAME`."""

    def compare(name: str, text: str) -> None:
        path = STORED / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.is_file(), f"{path} is missing; --update-golden writes it"
        assert text.splitlines() == path.read_text().splitlines(), f"{name} differs; see --update-golden"

    return compare
