"""What tests of schedules and of sockets share."""

import sys
from pathlib import Path

import pytest

from benchhouse.load.poller import PythonPoller

sys.path.insert(0, str(Path(__file__).parent))  # for laws

POLLERS = ["python", "compiled"]


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


@pytest.fixture(params=POLLERS)
def poller(request):
    made = poller_class(request.param)()
    yield made
    made.close()


@pytest.fixture(params=POLLERS)
def each_poller(request, monkeypatch):
    """Every reactor of the test, in load processes too, has this poller."""
    poller_class(request.param)
    monkeypatch.setenv("BENCHHOUSE_POLLER", request.param)
