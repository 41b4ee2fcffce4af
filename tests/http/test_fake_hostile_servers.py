"""Object stores and Kubernetes API servers that lie: every answer ends in an error soon, and in little memory."""

import itertools
import json
import threading
import time
import tracemalloc
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tables import check_rows

from benchhouse.evidence.store import check, pointers, pull
from benchhouse.http.kubeconfig import ClusterAccess
from benchhouse.http.kubernetes import KubeClient
from benchhouse.http.s3_bucket import Bucket, S3Refused, place_of
from benchhouse.http.s3_sign import Credentials, Signer
from benchhouse.runs.s3_object_store import S3Shelf
from benchhouse.schema.errors import BenchError

TIMEOUT_S = 1.0
LISTED = "<Contents><Key>{}</Key><Size>{}</Size></Contents>"
DIGEST = "ab" * 32


class FakeServer(ThreadingHTTPServer):
    """Answers each request with the pieces of `body`; `body` may have no end."""

    daemon_threads = True
    body = staticmethod(lambda path: iter([b""]))


class FakeHandler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        try:
            for piece in self.server.body(self.path):
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:
            pass  # the client has read enough

    def log_message(self, *_):
        pass


@pytest.fixture
def fake_server():
    with FakeServer(("127.0.0.1", 0), FakeHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def bucket(fake_server):
    credentials = Credentials("key", "secret", "")
    host, path, url = place_of(f"http://127.0.0.1:{fake_server.server_port}", "b")
    with closing(Bucket(url, path, Signer(credentials, "r", host), credentials, TIMEOUT_S, verify_tls=True)) as made:
        yield made


def drip(_):
    for _ in range(200):
        time.sleep(0.05)
        yield b"<"


def endless(_):
    return itertools.repeat(bytes(1 << 20), 300)


def page(*items, token=""):
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return lambda _: iter([f"<ListBucketResult>{''.join(items)}{more}</ListBucketResult>".encode()])


def soon_and_small(call, error, *, most_s=20.0):
    """Call, and check that it raises this error within the time and 200 MiB."""
    tracemalloc.start()
    began = time.monotonic()
    try:
        with pytest.raises(error) as raised:
            call()
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began < most_s
    assert raised.value.message
    return raised.value


def test_a_fake_bucket_that_lies_is_named_in_an_error(fake_server, bucket):
    rows = [
        ("a list that drips", drip),
        ("a list without end", endless),
        ("no size", page("<Contents><Key>trials/a</Key></Contents>")),
        ("a size that is a word", page(LISTED.format("trials/a", "many"))),
        ("a negative size", page(LISTED.format("trials/a", "-1"))),
        ("a key outside of the prefix", page(LISTED.format("../../etc/passwd", "1"))),
        ("the same page for ever", page(LISTED.format("trials/a", "1"), token="again")),
    ]

    def check_row(_, body):
        fake_server.body = body
        error = soon_and_small(lambda: list(bucket.sizes("trials/")), S3Refused)
        assert error.kind == "malformed" and "127.0.0.1" in error.message

    check_rows(check_row, rows)


def test_a_fake_bucket_whose_objects_drip_or_have_no_end_is_given_up(fake_server, bucket):
    fake_server.body = drip
    assert soon_and_small(lambda: list(bucket.read("x")), S3Refused).kind == "malformed"


def test_names_in_a_fake_store_that_lead_elsewhere_are_not_looked_at(fake_server, bucket, tmp_path):
    bad = ["..", ".", "a/b", "a\x00b", "a\nb", "/etc", "a b", "%2e%2e"]
    listed = [LISTED.format(f"trials/{name}/s/t/{DIGEST}", 65) for name in bad]
    listed += [LISTED.format(f"trials/r/s/{name}/{DIGEST}", 65) for name in bad]
    fake_server.body = page(*listed)
    assert pointers(S3Shelf(bucket, "fake", "")) == []


def test_a_fake_store_with_an_object_without_end_is_refused(fake_server, bucket, tmp_path):
    """The list is sound; the manifest has no end, or is garbage."""
    shelf = S3Shelf(bucket, "fake", "")
    listing = page(LISTED.format(f"trials/r/s/t/{DIGEST}", 65))
    rows = [("without end", endless), ("garbage", lambda _: iter([b"{" * 100_000])), ("drips", drip)]

    def check_row(_, body):
        fake_server.body = lambda path: (listing if "list-type" in path else body)(path)
        began = time.monotonic()
        (carried,) = list(pull(shelf, tmp_path / "results", pointers(shelf)))
        assert carried.what == "refused" and carried.reason
        ((_, _, damage),) = list(check(shelf, pointers(shelf)))
        assert damage
        assert time.monotonic() - began < 60
        assert not (tmp_path / "results").exists() or not any((tmp_path / "results").rglob("*.json"))

    check_rows(check_row, rows)


def test_a_fake_kubernetes_that_answers_garbage_is_named_in_an_error(fake_server):
    access = ClusterAccess(context="fake", server=f"http://127.0.0.1:{fake_server.server_port}")
    client = KubeClient(access, outage_s=1.0, timeout_s=TIMEOUT_S)
    rows = [
        ("no JSON", lambda _: iter([b"<html>welcome</html>"])),
        ("half a JSON", lambda _: iter([b'{"items": ['])),
        ("a list", lambda _: iter([b"[1, 2]"])),
        ("a number", lambda _: iter([b"7"])),
        ("items that are none", lambda _: iter([b'{"items": 5}'])),
        ("an item that is none", lambda _: iter([b'{"items": [null]}'])),
        ("nested without end", lambda _: iter([b"[" * 1_000_000])),
        ("drips", drip),
        ("without end", endless),
    ]

    def check_row(_, body):
        fake_server.body = body
        error = soon_and_small(lambda: client.get("/api/v1/pods"), BenchError)
        assert "127.0.0.1" in error.message and error.hint

    check_rows(check_row, rows)
    events = [b"7", b"[]", b"{}", b'{"type": 1, "object": {}}', b'{"type": "ERROR", "object": 3}', b"x" * 100]
    events.append(json.dumps({"type": "ADDED", "object": []}).encode())

    def check_event(event):
        fake_server.body = lambda _: iter([event + b"\n"])
        error = soon_and_small(lambda: list(client.watch("/api/v1/pods", "1", 5)), BenchError)
        assert "127.0.0.1" in error.message

    check_rows(check_event, [(event,) for event in events])
