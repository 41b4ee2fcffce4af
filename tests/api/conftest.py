"""A workspace with two runs of one scenario, made once."""

import pytest

from benchhouse.api.workspace import Workspace

SCENARIO = {
    "scenario": "greetings",
    "experiment": "command",
    "targets": [{"name": "echo", "argv": ["echo", "hello"]}, {"name": "true", "argv": ["true"]}],
    "workload": {"executions": 2},
    "repetitions": 3,
    "monitors": False,
}


@pytest.fixture
def greetings():
    """A scenario of two points and six short trials."""
    return SCENARIO


@pytest.fixture
def workspace(tmp_path):
    """An empty workspace; servers and clients that a test starts in it end with the test."""
    workspace = Workspace(tmp_path)
    yield workspace
    workspace.clients.stop()
    workspace.servers.stop_all()


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory, shared_cache):
    """A workspace with two runs; tests only read it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_CACHE_DIR", str(shared_cache))
        workspace = Workspace(tmp_path_factory.mktemp("greetings"))
        for _ in range(2):
            workspace.run(SCENARIO)
    return workspace
