"""Ids of requests, as a server sees them in its headers and as the records have them."""

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from pyarrow import parquet

from benchhouse.load.calls import CallTally
from benchhouse.load.engine import run_load
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.shape import Shape
from benchhouse.load.source import Planned, RequestPool
from benchhouse.load.traces import Traces

REQUEST = b"POST /ask HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi"
W3C = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Driver:
    transport = "http"

    def __init__(self, url):
        self.url = url

    def request(self, item):
        return REQUEST

    def read(self, exchange):
        return CallResult()


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            seen.append((self.headers["x-request-id"], self.headers["traceparent"], self.rfile.read(2)))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.seen = seen
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def load(server, records, **more):
    driver = Driver(f"http://127.0.0.1:{server.server_address[1]}")
    shape = Shape(concurrency=2, requests=20, warmup=0, records=records is not None, **more)
    return run_load(lambda: driver, RequestPool([Planned(None, REQUEST)], 1), shape, CallTally, records=records)


@pytest.mark.parametrize("processes", [1, 2])
def test_the_server_sees_the_ids_that_the_records_have(server, tmp_path, processes):
    load(server, tmp_path / "requests.parquet", processes=processes)
    rows = parquet.read_table(tmp_path / "requests.parquet").to_pylist()
    assert len(rows) == len({row["trace_id"] for row in rows}) == 20
    assert {(row["request_id"], row["trace_id"]) for row in rows} == {
        (request, trace.split("-")[1]) for request, trace, _ in server.seen
    }
    assert all(W3C.fullmatch(trace) and body == b"hi" for _, trace, body in server.seen)


def test_without_records_nothing_is_added(server):
    load(server, None)
    assert {(request, trace) for request, trace, _ in server.seen} == {(None, None)}


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nTraceParent: 00-mine\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nX-Request-ID: mine\r\n\r\n",
        b"no request at all",
    ],
)
def test_ids_of_the_user_s_own_stay(request_):
    assert Traces("a" * 16).put(request_, 7) == request_


def test_what_a_body_says_is_no_header():
    body = b"\r\n\r\n\r\ntraceparent: x"
    made = Traces("a" * 16).put(b"POST / HTTP/1.1\r\nhost: x" + body, 7)
    assert made.startswith(b"POST / HTTP/1.1\r\nx-request-id: aaaaaaaaaaaaaaaa-7\r\ntraceparent: 00-" + b"a" * 16)
    assert made.endswith(b"host: x" + body)
