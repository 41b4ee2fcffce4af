"""Load clients that stand by: only their owner may use them, one load at a time, and it ends with its connection."""

import os
import socket
import sys
import threading
import time
from functools import partial

import pytest
from laboratory import children, wait_until
from services.started import running
from test_nodes import spread_load

from benchhouse.load.clients import RECIPE, LoadNodeConnection
from benchhouse.load.shape import Shape
from benchhouse.schema.errors import BenchError


@pytest.fixture(scope="module")
def clients():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for the driver of these tests
        with running(RECIPE) as first, running(RECIPE) as second:
            yield [first, second]


def spread(clients, tmp_path, monkeypatch, shape):
    by_name = {f"client-{number}": client.endpoint for number, client in enumerate(clients)}
    link = lambda node, arguments: LoadNodeConnection(by_name[node], arguments)  # noqa: E731
    return spread_load(tmp_path, monkeypatch, shape, nodes=list(by_name), link=link)


def test_load_of_two_clients_begins_on_one_edge_and_merges_exactly(clients, tmp_path, monkeypatch):
    shape = Shape(concurrency=6, requests=203, warmup=0, processes=3, nodes="service:clients")
    book, used = spread(clients, tmp_path, monkeypatch, shape)
    assert (book.sent, book.succeeded, book.failed, book.processes) == (203, 203, 0, 3)
    assert book.tally.latency.histogram.n == 203
    assert {name: facts["processes"] for name, facts in used.facts.items()} == {"client-0": [0, 2], "client-1": [1]}
    book, _ = spread(clients, tmp_path, monkeypatch, shape)
    assert book.succeeded == 203, "they may be used again"


def test_a_client_that_dies_is_named_while_the_other_goes_on(clients, tmp_path, monkeypatch):
    shape = Shape(concurrency=4, duration=3, warmup=0, processes=2, nodes="service:clients")

    def kill():
        steps = [partial(children, client.pid) for client in clients]
        wait_until(lambda: all(step() and children(step()[0]) for step in steps), "load processes of both")
        time.sleep(1.5)
        for pid in children(clients[1].pid):
            os.kill(pid, 9)

    killer = threading.Thread(target=kill)
    killer.start()
    book, _ = spread(clients, tmp_path, monkeypatch, shape)
    killer.join()
    assert [(lost.shard, "on client-1 ended with its node" in lost.how) for lost in book.lost] == [(1, True)]
    assert book.processes == 1 and book.seconds[2].completed > 10


def test_a_load_ends_with_its_connection(clients, tmp_path):
    link = LoadNodeConnection(clients[0].endpoint, [str(tmp_path), "client-0", "0"])
    link.close()
    wait_until(lambda: not children(clients[0].pid), "its end")


def test_whoever_does_not_know_the_secret_gets_nothing(clients, tmp_path):
    head, _, place = clients[0].endpoint.rpartition("@")
    with pytest.raises(BenchError, match="was asked with another secret"):
        LoadNodeConnection(f"{head[:-1]}@{place}", [str(tmp_path), "client-0", "0"])
    with socket.create_connection(place.split(":")) as stranger:
        stranger.recv(100)
        stranger.sendall(b"GET / HTTP/1.0\n\n")
        assert b"another secret" in stranger.recv(100)
    assert not children(clients[0].pid)


def test_nobody_there_is_told_with_what_to_look_at():
    with pytest.raises(BenchError, match=r"no load client answers at 127\.0\.0\.1:1:") as caught:
        LoadNodeConnection("client://:secret@127.0.0.1:1", [])
    assert caught.value.hint == "see: bench clients list"
