"""The poller hands over an answer in parts; wherever these are cut, its end is noticed."""

import time

import pytest

from benchhouse.load.endpoint import HttpEndpoint
from benchhouse.load.http import HttpConnection
from benchhouse.load.poller import PythonPoller
from benchhouse.load.reactor import Reactor
from tests.mocks.scripted import ScriptedServer

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED = HEAD + b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
TRAILED = HEAD + b"3\r\none\r\n3\r\ntwo\r\n0\r\nX-Sum: 6\r\n\r\n"


@pytest.fixture(params=["compiled", "python"])
def poller(request):
    if request.param == "python":
        return PythonPoller()
    return pytest.importorskip("benchhouse.load._poller").Poller()


def ask(url, poller, times):
    """The exchanges of so many requests, one after the other on one connection."""
    reactor, ended = Reactor(poller=poller), []

    def done(connection, exchange, error, detail):
        assert error is None, detail
        ended.append(exchange)
        if len(ended) < times:
            connection.send(b"GET / HTTP/1.1\r\n\r\n")
        else:
            reactor.stop()

    connection = HttpConnection(reactor, HttpEndpoint(url), done)
    connection.send(b"GET / HTTP/1.1\r\n\r\n")
    reactor.at(time.monotonic_ns() + 60_000_000_000, lambda _: reactor.stop())
    reactor.run()
    connection.close()
    reactor.close()
    assert len(ended) == times, "an answer did not end"
    return ended


@pytest.mark.parametrize("text", [CHUNKED, TRAILED], ids=["chunks", "trailer"])
def test_an_answer_cut_anywhere_near_its_end_is_complete(poller, text):
    cuts = range(len(text) - 12, len(text))

    def script(wire):
        for cut in cuts:
            wire.request()
            wire.send(text[:cut])
            time.sleep(0.01)
            wire.send(text[cut:])

    with ScriptedServer(script) as server:
        assert [exchange.body for exchange in ask(server.url, poller, len(cuts))] == [b"onetwo"] * len(cuts)


def test_an_answer_of_single_bytes_is_complete(poller):
    def script(wire):
        for _ in range(5):
            wire.request()
            for at in range(len(CHUNKED)):
                wire.send(CHUNKED[at : at + 1])

    with ScriptedServer(script) as server:
        assert {exchange.body for exchange in ask(server.url, poller, 5)} == {b"onetwo"}


def test_a_kept_body_that_is_handed_over_in_several_parts_is_complete(poller):
    body = bytes(range(256)) * (11 << 10) + b"end"  # 2.75 MiB: the parts are of 1 MiB

    def script(wire):
        wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for at in range(0, len(body), 700_000):
            wire.send(body[at : at + 700_000])
            time.sleep(0.01)

    with ScriptedServer(script) as server:
        (exchange,) = ask(server.url, poller, 1)
    assert exchange.body == body
