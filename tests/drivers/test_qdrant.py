"""What is Qdrant's own: on a folder it has no index, and whoever asks for one is told."""

import socket
import time

import pytest
from drivers.vector_conformance import DIMENSIONS, OPTIONS

from benchhouse.drivers import vector_shared
from benchhouse.drivers.qdrant import Qdrant
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection
from benchhouse.schema.errors import BenchError

pytestmark = pytest.mark.clients

HNSW = Collection("own", DIMENSIONS, "l2", "hnsw", OPTIONS["hnsw"])


def test_hnsw_on_a_folder_is_refused_rather_than_searched_exactly(tmp_path):
    with pytest.raises(BenchError, match="compares with every vector") as refused:
        Qdrant(str(tmp_path), HNSW)
    assert "flat" in refused.value.hint


def test_a_server_that_is_not_there_is_refused_and_a_silent_one_a_timeout(monkeypatch):
    monkeypatch.setattr(vector_shared, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        driver = Qdrant(f"http://127.0.0.1:{port}", HNSW)
        began = time.monotonic()
        with pytest.raises(CallFailed) as failed:
            driver.open()
        assert (failed.value.kind, time.monotonic() - began < 3) == ("timeout", True)
    with pytest.raises(CallFailed) as failed:
        Qdrant(f"http://127.0.0.1:{port}", HNSW).open()
    assert failed.value.kind == "refused"
