"""What tests of schedules and of sockets share."""

import sys
from pathlib import Path

import pytest

from benchhouse.load.poller import PythonPoller

sys.path.insert(0, str(Path(__file__).parent))  # for laws and engines

from engines import KINDS, engine


@pytest.fixture
def trace(tmp_path):
    def write(text, name="trace.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def poller_class(kind):
    if kind == "python":
        return PythonPoller
    return pytest.importorskip("benchhouse.load._poller", exc_type=ImportError).Poller


@pytest.fixture(params=KINDS)
def poller(request):
    made = poller_class(request.param)()
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def each_engine(request, monkeypatch):
    """Every load of the test, in load processes too, is compiled, or none is."""
    poller_class(request.param)
    monkeypatch.setenv("BENCHHOUSE_ENGINE", request.param)
    with engine(request.param):
        yield
