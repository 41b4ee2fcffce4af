"""What tests of workers share."""

from typing import Any

import pytest
from laboratory import Lab


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The trial.json of a trial of `mischief` that has run: what an executor leaves for a worker, but for its paths."""
    lab = Lab(tmp_path_factory.mktemp("template"))
    lab.run("mischief", workload={"act": "ok"})
    return lab.trials()[0].spec
