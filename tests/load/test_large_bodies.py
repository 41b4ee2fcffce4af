"""Contents that are sent piece by piece, and bodies that a sink takes instead of memory."""

import ssl
import subprocess
import threading
import time

import pytest
from mocks.scripted import ScriptedServer

from benchhouse.load.endpoint import HttpEndpoint
from benchhouse.load.framing import IncomingResponse
from benchhouse.load.http import HttpConnection
from benchhouse.load.protocols.calls import discard
from benchhouse.load.reactor import Reactor

pytestmark = pytest.mark.usefixtures("each_engine")

LARGE = bytes(range(256)) * 40_000  # 10 MB, more than any socket buffer
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A certificate that nobody has signed, for 127.0.0.1."""
    home = tmp_path_factory.mktemp("tls")
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", home / "key", "-out", home / "cert", "-subj", "/CN=127.0.0.1", "-days", "1"]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "cert", home / "key")
    return context


def ask(url, pieces=(), sink=None, times=1):
    """What `done` was told of each request, one after the other on one connection."""
    reactor, heard = Reactor(), []
    connection = HttpConnection(
        reactor, HttpEndpoint(url, verify=False), lambda *told: (heard.append(told[1:]), reactor.stop())
    )
    size = sum(map(len, pieces))
    for _ in range(times):
        connection.send(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size, pieces, sink)
        reactor.at(0, lambda _: None)
        reactor.run()
    open_at_the_end = connection.open
    connection.close()
    return heard, open_at_the_end


def test_pieces_arrive_in_order_and_the_connection_is_used_again():
    def script(wire):
        while wire.request():
            wire.send(HEAD % 2 + b"ok")

    pieces = [memoryview(LARGE)[at : at + 1_000_000] for at in range(0, len(LARGE), 1_000_000)]
    with ScriptedServer(script) as server:
        heard, still_open = ask(server.url, pieces, times=2)
        bodies = [request.partition(b"\r\n\r\n")[2] for request in server.requests]
    assert [(exchange.body, error) for exchange, error, _ in heard] == [(b"ok", None)] * 2
    assert bodies == [LARGE, LARGE]
    assert (server.connections, still_open) == (1, True)


@pytest.mark.parametrize("sink", ["compare", "discard"])
def test_it_is_all_the_same_over_tls(tls, sink):
    def script(wire):
        while request := wire.request():
            body = request.partition(b"\r\n\r\n")[2]
            wire.send(HEAD % len(body) + body)

    taken = []
    pieces = [memoryview(LARGE)[:1_000_000], memoryview(LARGE)[1_000_000:3_000_000]]
    with ScriptedServer(script, tls) as server:
        heard, _ = ask(
            server.url, pieces, sink=discard if sink == "discard" else lambda piece: taken.append(bytes(piece))
        )
    assert [(exchange.size, error) for exchange, error, _ in heard] == [(3_000_000, None)]
    assert b"".join(taken) == (LARGE[:3_000_000] if sink == "compare" else b"")


def test_an_answer_before_all_was_sent_ends_the_connection():
    heard_of_it = threading.Event()

    def script(wire):
        wire._socket.recv(1000)
        wire.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        heard_of_it.wait(120)

    with ScriptedServer(script) as server:
        heard, still_open = ask(server.url, [memoryview(LARGE)])
        heard_of_it.set()
    assert [(exchange.status, exchange.body, error) for exchange, error, _ in heard] == [(403, b"no", None)]
    assert not still_open


@pytest.mark.parametrize("chunked", [False, True])
def test_a_sink_gets_the_body_and_nothing_is_kept(chunked):
    def script(wire):
        while wire.request():
            if chunked:
                wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                wire.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(LARGE), LARGE))
            else:
                wire.send(HEAD % len(LARGE) + LARGE)

    taken = []
    with ScriptedServer(script) as server:
        heard, still_open = ask(server.url, sink=lambda piece: taken.append(bytes(piece)), times=2)
    assert b"".join(taken) == LARGE * 2
    assert [(exchange.size, exchange.body, error) for exchange, error, _ in heard] == [(len(LARGE), b"", None)] * 2
    assert still_open


def test_what_is_discarded_is_counted_to_the_byte_and_the_next_answer_is_read_right():
    def script(wire):
        while wire.request():
            wire.send(HEAD % len(LARGE) + LARGE)

    with ScriptedServer(script) as server:
        heard, still_open = ask(server.url, sink=discard, times=3)
    assert [(exchange.size, exchange.status, error) for exchange, error, _ in heard] == [(len(LARGE), 200, None)] * 3
    assert still_open


def test_a_body_that_trickles_wakes_the_client_few_times_and_a_short_answer_comes_at_once_after_it():
    def script(wire):
        wire.request()
        wire.send(HEAD % 1_000_000)
        for at in range(0, 1_000_000, 50_000):
            wire.send(LARGE[at : at + 50_000])
            time.sleep(0.002)
        wire.request()
        wire.send(HEAD % 2 + b"ok")

    taken = []
    with ScriptedServer(script) as server:
        heard, still_open = ask(server.url, sink=lambda piece: taken.append(bytes(piece)), times=2)
    assert [(exchange.size, error) for exchange, error, _ in heard] == [(1_000_000, None), (2, None)]
    assert b"".join(taken) == LARGE[:1_000_000] + b"ok"
    assert len(heard[0][0].marks) <= 3 * 5  # twenty pieces were sent
    assert still_open


def test_the_body_of_an_error_is_kept_beside_a_sink():
    def script(wire):
        wire.request()
        wire.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone")

    taken = []
    with ScriptedServer(script) as server:
        ((exchange, error, _),), _ = ask(server.url, sink=taken.append)
    assert (exchange.body, error, taken) == (b"gone", None, [])


def test_a_body_cut_short_is_a_reset():
    def script(wire):
        wire.request()
        wire.send(HEAD % len(LARGE) + LARGE[: len(LARGE) // 2])

    with ScriptedServer(script) as server:
        ((_, error, _),), _ = ask(server.url, sink=discard)
    assert error == "reset"


def test_more_than_was_announced_goes_into_no_sink():
    taken = []
    answer = IncomingResponse(taken.append)
    assert answer.feed(HEAD % 3 + b"abcdef")
    assert (taken, answer.size, answer.closing) == ([b"abc"], 3, True)


def test_a_body_up_to_the_end_of_the_connection_goes_into_the_sink():
    taken = []
    answer = IncomingResponse(taken.append)
    assert not answer.feed(b"HTTP/1.1 200 OK\r\n\r\nab")
    assert not answer.feed(b"cd")
    assert (b"".join(taken), answer.ends_with_connection) == (b"abcd", True)
