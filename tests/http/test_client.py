"""Requests beside the load, against real servers: good ones, slow ones, and ones that misbehave."""

import base64
import contextlib
import io
import socket
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchhouse.http.client import DownloadLimits, HttpClient, NoAnswer, without_secrets
from benchhouse.schema.errors import BenchError

CLIENT = HttpClient(timeout_s=30)


@contextlib.contextmanager
def serving(answer, context=None):
    """A server that calls `answer` with its handler; gives its address and what it was asked."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.append((self.command, self.path, dict(self.headers), body))
            with contextlib.suppress(OSError):
                answer(self)

        do_GET = do_POST = do_HEAD = handle_any  # noqa: N815 - as the library calls them

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'s' if context else ''}://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


def say(body: bytes, status: int = 200, **headers: str):
    def answer(handler):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    return answer


def drip(piece: bytes):
    def answer(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" if piece == b"x" else b"")
        for _ in range(400):
            handler.wfile.write(piece)
            time.sleep(0.05)

    return answer


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=nobody",
         "-keyout", key, "-out", certificate], check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_an_answer_of_any_status_is_an_answer():
    with serving(say(b'{"a": 1}', status=503, Kind="Odd")) as (url, seen):
        answer = CLIENT.post_json(f"{url}/x?y=1", {"b": 2}, {"Extra": "yes"})
    assert (answer.status, answer.ok, answer.json(), answer.headers["kind"]) == (503, False, {"a": 1}, "Odd")
    ((method, path, headers, body),) = seen
    assert (method, path, body) == ("POST", "/x?y=1", b'{"b": 2}')
    assert (headers["Content-Type"], headers["Extra"]) == ("application/json", "yes")


def test_what_is_no_json_is_told_with_its_beginning():
    with serving(say(b"<html>")) as (url, _), pytest.raises(NoAnswer, match="answers no JSON but b'<html>'"):
        CLIENT.get(url).json()


def test_a_password_in_the_address_is_sent_and_not_told():
    with serving(say(b"")) as (url, seen):
        CLIENT.get(url.replace("://", "://me:s%3Acret@"))
    assert seen[0][2]["Authorization"] == "Basic bWU6czpjcmV0"
    with pytest.raises(NoAnswer) as caught:
        CLIENT.get(f"http://me:scrt@127.0.0.1:{closed_port()}/path?key=scrt")
    assert "scrt" not in str(caught.value) and "/path" in str(caught.value)
    assert without_secrets("https://me:scrt@h:1/p?key=scrt#scrt") == "https://h:1/p"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://h/x", "nonsense", "http://", "http://h:port/", "http://me:scrt@[::1/"]
)
def test_what_is_no_address_of_a_server_is_refused(url):
    with pytest.raises(BenchError, match="is not the address of a server") as caught:
        CLIENT.get(url)
    assert "scrt" not in str(caught.value)


def test_a_closed_port_an_unknown_name_and_another_protocol_have_names():
    with pytest.raises(NoAnswer, match="refused") as refused:
        CLIENT.get(f"http://127.0.0.1:{closed_port()}/")
    with pytest.raises(NoAnswer) as unknown:
        CLIENT.get("http://no-such-host.invalid/")
    speaks_ssh = serving(lambda handler: handler.wfile.write(b"SSH-2.0\r\n\r\n"))
    with speaks_ssh as (url, _), pytest.raises(NoAnswer, match="does not speak HTTP") as odd:
        CLIENT.get(url)
    assert [each.value.failure for each in (refused, unknown, odd)] == ["refused", "dns", "malformed"]


@pytest.mark.parametrize("piece", [b"x", b"H"], ids=["body", "head"])
def test_a_server_that_drips_costs_no_more_than_the_limit(piece, tls):
    for context in (None, tls):
        with serving(drip(piece), context) as (url, _), pytest.raises(NoAnswer, match=r"within 0\.3 s") as caught:
            began = time.monotonic()
            HttpClient(0.3, verify_tls=False).get(url)
        assert caught.value.failure == "timeout"
        assert time.monotonic() - began < 10


def test_a_server_that_drips_may_where_only_waits_are_limited():
    def slowly(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
        for _ in range(4):
            time.sleep(0.3)
            handler.wfile.write(b"x")

    with serving(slowly) as (url, _):
        assert HttpClient(1.0, total=False).get(url).body == b"xxxx"


def test_an_answer_that_is_too_large_or_cut_short_is_none():
    with serving(say(bytes(3 << 20))) as (url, _), pytest.raises(NoAnswer, match="more than 1 MiB"):
        HttpClient(30, limit_bytes=1 << 20).get(url)
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc"

    def cuts(handler):
        handler.wfile.write(cut)
        handler.close_connection = True

    with serving(cuts) as (url, _), pytest.raises(NoAnswer, match="middle of its answer"):
        CLIENT.get(url)


def test_a_certificate_of_nobody_is_refused_unless_told_otherwise(tls):
    with serving(say(b"in"), tls) as (url, _):
        with pytest.raises(NoAnswer, match="TLS: self") as caught:
            CLIENT.get(url)
        assert caught.value.failure == "tls"
        assert HttpClient(30, verify_tls=False).get(url).body == b"in"


def test_a_redirect_is_followed_where_it_may_be_and_secrets_stay_behind():
    with serving(say(b"there")) as (there, seen):
        elsewhere = there.replace("127.0.0.1", "localhost")
        with serving(say(b"", 302, Location=f"{elsewhere}/new")) as (url, _):
            assert CLIENT.get(url).status == 302
            assert HttpClient(30, redirects=True).get(url, {"Authorization": "Bearer scrt"}).body == b"there"
    assert "Authorization" not in seen[0][2]


def test_the_environments_proxy_is_used_only_where_it_is_meant(monkeypatch):
    with serving(say(b"proxy")) as (proxy, _), serving(say(b"server")) as (url, _):
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert CLIENT.get(url).body == b"server"
        assert HttpClient(30, proxy=True).get(url).body == b"proxy"


def test_a_file_of_any_size_is_downloaded_and_a_refusal_is_none():
    with serving(say(bytes(5 << 20))) as (url, _):
        target = io.BytesIO()
        HttpClient(30, limit_bytes=1).download(url, target, DownloadLimits())
        assert len(target.getvalue()) == 5 << 20
    with serving(say(b"no", 404)) as (url, _), pytest.raises(NoAnswer, match="answers 404 Not Found"):
        CLIENT.download(url, io.BytesIO(), DownloadLimits())


HEAD = b"HTTP/1.1 200 OK\r\n"


def endless(head, piece, pause_s=0.0):
    """An answer that continues until the client leaves, or for ten seconds."""

    def answer(handler):
        handler.wfile.write(HEAD + head)
        for _ in range(int(10 / pause_s) if pause_s else 1000):
            try:
                handler.wfile.write(piece)
            except OSError:
                return
            time.sleep(pause_s)

    return answer


@pytest.mark.parametrize(
    ("answer", "limits", "failure"),
    [
        (endless(b"\r\n", bytes(1 << 20)), {"max_bytes": 3 << 20}, "too_large"),
        (endless(b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + bytes(1 << 16) + b"\r\n"),
         {"max_bytes": 3 << 20}, "too_large"),
        (endless(b"Content-Length: 99999999999\r\n\r\n", b"x", 0.1), {"max_bytes": 3 << 20}, "too_large"),
        (endless(b"Content-Length: 1000\r\n\r\n", b"x", 0.1), {"max_time_s": 0.5}, "timeout"),
        (endless(b"Transfer-Encoding: chunked\r\n\r\n", b"0", 0.1), {"max_time_s": 0.5}, "timeout"),
        (endless(b"", b"X: y\r\n", 0.1), {"max_time_s": 0.5}, "timeout"),
        (endless(b"Content-Length: 1000\r\n\r\n", b"", 5), {}, "timeout"),
        (lambda handler: handler.wfile.write(HEAD + b"Content-Length: 1000\r\n\r\nshort"), {}, "reset"),
    ],
    ids=["no-length", "chunks", "announced", "drip", "drip-of-a-chunk", "drip-of-the-head", "silence", "cut-off"],
)  # fmt: skip
def test_a_download_ends_at_its_limits_and_whole(answer, limits, failure):
    allowed = DownloadLimits(**limits)
    client = HttpClient(allowed.max_time_s, wait_s=1.0)
    began, target = time.monotonic(), io.BytesIO()
    with serving(answer) as (url, _), pytest.raises(NoAnswer) as caught:
        client.download(url, target, allowed)
    assert caught.value.failure == failure and time.monotonic() - began < 8
    assert len(target.getvalue()) <= allowed.max_bytes


def test_a_download_that_hardly_moves_is_given_up(monkeypatch):
    monkeypatch.setattr("benchhouse.http.client._WINDOW_S", 0.3)
    with serving(endless(b"Content-Length: 1000\r\n\r\n", b"x", 0.1)) as (url, _), pytest.raises(NoAnswer) as caught:
        HttpClient(30).download(url, io.BytesIO(), DownloadLimits())
    assert caught.value.failure == "timeout" and "per second" in caught.value.reason


def test_a_redirect_to_less_security_to_a_file_or_without_end_is_not_followed(tls):
    def to(target):
        return lambda handler: handler.wfile.write(
            b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + target.encode() + b"\r\n\r\n"
        )

    client = HttpClient(10, redirects=True, verify_tls=False)
    leads_down = pytest.raises(NoAnswer, match="from https to http")
    with serving(say(b"plain")) as (plain, _), serving(to(plain), tls) as (url, _), leads_down:
        client.download(url, io.BytesIO(), DownloadLimits())
    for target in ("file:///etc/passwd", "ftp://127.0.0.1/x"):
        with serving(to(target)) as (url, _):
            with contextlib.suppress(NoAnswer):
                assert client.get(url).status == 302
            with pytest.raises(NoAnswer):
                client.download(url, io.BytesIO(), DownloadLimits())
    with serving(to("/again")) as (url, requests), pytest.raises(NoAnswer):
        client.download(url, io.BytesIO(), DownloadLimits())
    assert 2 <= len(requests) <= 6


def test_a_full_disk_is_not_taken_for_a_failure_of_the_server():
    is_full = pytest.raises(OSError, match="No space left")
    with serving(say(bytes(1 << 20))) as (url, _), open("/dev/full", "wb", buffering=0) as target, is_full:
        CLIENT.download(url, target, DownloadLimits())


def test_json_that_is_nested_too_deep_is_no_answer():
    with serving(say(b"[" * 200_000)) as (url, _), pytest.raises(NoAnswer, match="answers no JSON"):
        CLIENT.get(url).json()


def test_a_password_with_a_slash_is_sent_and_never_told():
    with serving(say(b"in")) as (url, seen):
        at = url.replace("http://", "http://me:hun/ter2@")
        assert CLIENT.get(at).body == b"in"
    assert seen[0][2]["Authorization"] == "Basic " + base64.b64encode(b"me:hun/ter2").decode()
    with pytest.raises(NoAnswer) as caught:
        CLIENT.get(at)
    assert "ter2" not in str(caught.value)


@pytest.mark.parametrize("length", ["abc", "-1", "1_0", "²"])
def test_a_length_that_is_none_is_told_of_the_server(length):
    with serving(say(b"x", 200, **{"Content-Length": length})) as (url, _), pytest.raises(NoAnswer) as caught:
        CLIENT.get(url)
    assert caught.value.failure in ("malformed", "reset")
