"""One connection against a server that says exactly what it is told to say."""

import contextlib
import os
import resource
import socket
import ssl
import subprocess
import time

import pytest
from mocks.scripted import ScriptedServer

from benchhouse.load.endpoint import HttpEndpoint
from benchhouse.load.http import HttpConnection
from benchhouse.load.reactor import Reactor
from benchhouse.schema.errors import BenchError

pytestmark = pytest.mark.usefixtures("each_engine")

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def post(body=b"{}"):
    return b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Asking:
    """A connection that keeps what it was told, and waits for it."""

    def __init__(self, url, verify=True):
        self.reactor = Reactor()
        self.connection = HttpConnection(self.reactor, HttpEndpoint(url, verify=verify), self.done)
        self.heard = []

    def done(self, connection, exchange, error, detail):
        self.heard.append((exchange, error, detail))
        self.reactor.stop()

    def until(self, true, limit_s=120.0):
        deadline = time.monotonic() + limit_s
        while not true():
            assert time.monotonic() < deadline, "nothing came"
            self.reactor.at(time.monotonic_ns() + 2_000_000, lambda _: self.reactor.stop())
            self.reactor.run()

    def ask(self, data=None):
        before = len(self.heard)
        self.connection.send(data or post())
        self.until(lambda: len(self.heard) > before)
        assert len(self.heard) == before + 1
        return self.heard[-1]

    def ready(self):
        self.connection.connect()
        self.until(lambda: self.connection.ready or not self.connection.open)
        return self


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate that nobody has signed, for 127.0.0.1."""
    home = tmp_path_factory.mktemp("tls")
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", home / "key.pem", "-out", home / "cert.pem"],
        capture_output=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return home


@pytest.fixture
def tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


def answers(*texts):
    """A script: one answer for each request of a connection, then the end."""

    def script(wire):
        for text in texts:
            if not wire.request():
                return
            wire.send(text)

    return script


def test_a_kept_connection_serves_one_request_after_the_other():
    with ScriptedServer(answers(OK, OK, OK)) as server:
        asking = Asking(server.url)
        for _ in range(3):
            exchange, error, _ = asking.ask()
            assert (exchange.status, exchange.body, error) == (200, b"ok", None)
        assert server.connections == 1


def test_each_read_is_stamped_when_it_came_and_the_answer_ends_with_its_last_byte():
    def script(wire):
        wire.request()
        for part in (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"3\r\none\r\n",
            b"3\r\ntwo\r\n0\r\n\r\n",
        ):
            wire.send(part)
            time.sleep(0.05)

    with ScriptedServer(script) as server:
        exchange, _, _ = Asking(server.url).ask()
    assert exchange.body == b"onetwo"
    assert exchange.marks[::3].tolist() == [0, 3, 6]
    stamps = exchange.marks[1::3].tolist()
    assert exchange.sent_ns <= stamps[0] and exchange.ended_ns == stamps[-1]
    assert stamps[1] - stamps[0] > 45e6 and stamps[2] - stamps[1] > 45e6


def test_the_kernel_stamps_what_came_while_this_process_was_busy():
    def script(wire):
        wire.request()
        wire.send(OK)
        wire.request()

    with ScriptedServer(script) as server:
        asking = Asking(server.url).ready()
        asking.connection.send(post())
        time.sleep(0.3)  # the answer lies in the kernel meanwhile
        asking.until(lambda: asking.heard)
        exchange = asking.heard[0][0]
        assert asking.connection.kernel_stamps
        assert exchange.ended_ns - exchange.sent_ns < 200e6
        assert asking.connection.read_lag_ns > 100e6


def test_a_connection_that_the_server_closes_is_opened_again_for_the_next_request():
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with ScriptedServer(answers(closing)) as server:
        asking = Asking(server.url)
        assert [asking.ask()[1] for _ in range(3)] == [None] * 3
        assert server.connections == 3


def test_an_answer_without_length_is_complete_when_the_connection_ends():
    with ScriptedServer(answers(b"HTTP/1.1 200 OK\r\n\r\nall of it")) as server:
        exchange, error, _ = Asking(server.url).ask()
        assert (exchange.body, error) == (b"all of it", None)


def test_a_request_on_a_kept_connection_that_was_closed_meanwhile_is_stale_and_can_be_sent_again():
    def script(wire):
        wire.request()
        wire.send(OK)
        if wire.number == 0:
            wire.request()
            wire.reset()
        else:
            wire.request()

    with ScriptedServer(script) as server:
        asking = Asking(server.url)
        asking.ask()
        assert asking.ask()[1] == "stale"
        asking.connection.resend()
        asking.until(lambda: len(asking.heard) == 3)
        assert asking.heard[-1][1] is None
        assert len(server.requests) == 3


def test_a_connection_opened_in_advance_and_never_used_can_be_stale_too():
    def script(wire):
        wire.request()
        if wire.number:
            wire.send(OK)

    with ScriptedServer(script) as server:
        asking = Asking(server.url).ready()
        assert asking.ask()[1] == "stale"


def test_a_new_connection_that_is_closed_without_an_answer_is_a_reset():
    with ScriptedServer(lambda wire: wire.request() and None) as server:
        _, error, detail = Asking(server.url).ask()
        assert (error, detail) == ("reset", "the server closed the connection")


@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.parametrize(
    "begun",
    [b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"],
)  # fmt: skip
def test_an_answer_that_ends_in_the_middle_is_a_reset_even_on_a_kept_connection(begun, ending):
    def script(wire):
        wire.request()
        wire.send(OK)
        wire.request()
        wire.send(begun)
        time.sleep(0.05)  # a reset throws away what has not been read
        getattr(wire, ending)()

    with ScriptedServer(script) as server:
        asking = Asking(server.url)
        asking.ask()
        exchange, error, _ = asking.ask()
        assert error == "reset"
        assert exchange.body in (b"", b"half")


def test_malformed_answers_end_the_request_and_the_connection_but_not_the_client():
    with ScriptedServer(lambda wire: answers(OK if wire.number else b"HTTP/9 hello\r\n\r\n")(wire)) as server:
        asking = Asking(server.url)
        assert asking.ask()[1:] == ("malformed", "not an HTTP answer: b'HTTP/9 hello\\r\\n\\r\\n'")
        assert asking.ask()[1] is None


def test_a_server_that_sends_more_than_it_said_gets_no_further_request_on_that_connection():
    with ScriptedServer(answers(OK + b"HTTP/1.1 500 what\r\nContent-Length: 0\r\n\r\n", OK)) as server:
        asking = Asking(server.url)
        assert asking.ask()[0].body == b"ok"
        assert asking.ask()[0].status == 200
        assert server.connections == 2


def test_a_server_that_speaks_out_of_turn_loses_its_connection():
    def script(wire):
        wire.request()
        wire.send(OK)
        if wire.number == 0:
            time.sleep(0.05)
            wire.send(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n")
        wire.request()

    with ScriptedServer(script) as server:
        asking = Asking(server.url)
        asking.ask()
        asking.until(lambda: not asking.connection.open)
        assert asking.ask()[0].status == 200


def test_a_request_of_a_megabyte_arrives_whole_though_the_server_reads_slowly():
    body = os.urandom(1 << 20)

    def script(wire):
        time.sleep(0.2)
        wire.request()
        wire.send(OK)
        wire.request()
        wire.send(OK)

    with ScriptedServer(script) as server:
        asking = Asking(server.url)
        assert asking.ask(post(body))[1] is None
        assert asking.ask()[1] is None
        assert server.requests == [post(body), post()]


def test_a_request_that_is_answered_before_it_was_all_sent_does_not_spoil_the_next_connection():
    body = os.urandom(8 << 20)

    def script(wire):
        if wire.number == 0:
            wire.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            time.sleep(0.2)
        else:
            wire.request()
            wire.send(OK)

    with ScriptedServer(script) as server:
        asking = Asking(server.url)
        assert asking.ask(post(body))[0].status == 413
        assert asking.ask()[0].status == 200
        assert server.requests == [post()]


def test_giving_up_ends_the_request_once_and_the_next_one_has_a_new_connection():
    with ScriptedServer(lambda wire: wire.request() and (wire.send(OK) if wire.number else wire.request())) as server:
        asking = Asking(server.url)
        asking.connection.send(post())
        asking.until(lambda: server.requests)
        asking.connection.fail("timeout", "too long")
        assert [(error, detail) for _, error, detail in asking.heard] == [("timeout", "too long")]
        assert asking.ask()[1] is None


def test_a_port_without_a_server_refuses():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    _, error, detail = Asking(f"http://127.0.0.1:{port}").ask()
    assert (error, detail) == ("refused", "Connection refused")


def test_too_many_open_files_are_a_refusal_and_no_crash():
    with ScriptedServer(answers(OK)) as server:
        asking = Asking(server.url)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
        taken = []
        try:
            while True:
                try:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
                except OSError:
                    break
            asking.connection.send(post())
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert asking.heard[0][1:] == ("refused", "Too many open files")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host", "not an http"),
        ("localhost:8000", "not an http"),
        ("http://", "not an http"),
        ("http://host:99999", "not an address"),
        ("http://host:port", "not an address"),
        ("http://no-such-host.invalid:80", "'no-such-host.invalid' can't be resolved"),
        (f"http://{'a' * 70}.com", "can't be resolved"),
    ],
)
def test_an_address_that_cannot_be_is_refused_before_anything_is_measured(url, said):
    with pytest.raises(BenchError, match=said):
        HttpEndpoint(url)


def test_of_the_addresses_of_a_host_the_one_that_answers_is_taken(monkeypatch):
    with ScriptedServer(answers(OK)) as server, socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()
        closed.close()
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", nobody),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert HttpEndpoint("http://localhost:1").address == ("127.0.0.1", server.port)


def test_tls_without_a_trusted_signature_is_an_error_unless_it_need_not_be_verified(tls):
    with ScriptedServer(answers(OK, OK), tls) as server:
        _, error, detail = Asking(server.url).ask()
        assert error == "tls" and "self-signed" in detail.replace("self signed", "self-signed")
        asking = Asking(server.url, verify=False)
        assert [asking.ask()[1] for _ in range(2)] == [None, None]


def test_a_server_without_tls_behind_https_is_told(tls):
    with ScriptedServer(lambda wire: wire.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        assert Asking(server.url.replace("http:", "https:"), verify=False).ask()[1] == "tls"


def test_tls_carries_a_megabyte_each_way(tls):
    body = os.urandom(1 << 20)

    def script(wire):
        assert wire.request() == post(body)
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with ScriptedServer(script, tls) as server:
        exchange, error, _ = Asking(server.url, verify=False).ask(post(body))
        assert (exchange.body == body, error) == (True, None)


def test_an_answer_over_tls_may_end_with_the_connection(tls):
    with ScriptedServer(answers(b"HTTP/1.1 200 OK\r\n\r\nall of it"), tls) as server:
        exchange, error, _ = Asking(server.url, verify=False).ask()
        assert (exchange.body, error) == (b"all of it", None)


def test_a_tls_connection_that_says_goodbye_while_idle_is_opened_again(tls):
    with ScriptedServer(answers(OK), tls) as server:
        asking = Asking(server.url, verify=False)
        asking.ask()
        asking.until(lambda: not asking.connection.open)
        assert asking.ask()[1] is None
        assert server.connections == 2


def test_an_endless_line_ends_early_and_takes_no_memory():
    piece = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"

    def script(wire):
        wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(100):
                wire.send(piece)

    with ScriptedServer(script) as server:
        exchange, error, detail = Asking(server.url).ask()
    assert (error, detail) == ("malformed", "a line of the stream has more than 8 MiB")
    assert len(exchange.body) < 12 << 20
