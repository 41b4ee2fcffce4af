"""The S3 driver: signatures with published answers, requests as bytes, and what is read from answers."""

from array import array

import pytest

from benchhouse.drivers.s3 import S3
from benchhouse.drivers.s3_credentials import find_credentials
from benchhouse.http.s3_bucket import error_text
from benchhouse.http.s3_sign import EMPTY, Credentials, Signer, query_of
from benchhouse.load.protocols.calls import Exchange, discard
from benchhouse.load.protocols.s3 import ListingPage, S3Item, S3Target
from benchhouse.schema.errors import BenchError

# The credentials and the signatures of the examples in the Amazon S3 API reference, "Signature Calculations".
EXAMPLE = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
MAY_24_2013 = 1369353600
ENDPOINT = "http://key:secret-word@127.0.0.1:9000"


def test_signatures_are_those_that_amazon_publishes():
    for query, signature in [
        ("lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ]:
        signer = Signer(EXAMPLE, "us-east-1", "examplebucket.s3.amazonaws.com")
        lines = signer.lines("GET", "/", query, EMPTY, now=MAY_24_2013)
        assert f"Signature={signature}\r\n" in lines
        assert "x-amz-date: 20130524T000000Z\r\n" in lines
        assert "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request" in lines


def test_a_new_day_has_a_new_key():
    signer, other = Signer(EXAMPLE, "r", "h"), Signer(EXAMPLE, "r", "h")
    signer.lines("GET", "/", now=MAY_24_2013)
    assert signer.lines("GET", "/", now=MAY_24_2013 + 86400) == other.lines("GET", "/", now=MAY_24_2013 + 86400)


def test_a_session_token_is_signed():
    lines = Signer(Credentials("a", "s", "token"), "r", "h").lines("GET", "/")
    assert "x-amz-security-token: token\r\n" in lines
    assert "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token," in lines


def test_a_query_is_sorted_and_escaped():
    assert query_of({"prefix": "a/b c", "list-type": "2"}) == "list-type=2&prefix=a%2Fb%20c"


class Text:
    size, sha256 = 5, "digest"

    def pieces(self):
        return [memoryview(b"hel"), memoryview(b"lo")]


def driver(endpoint=ENDPOINT, bucket="house", **target):
    return S3.for_target(S3Target(**target), endpoint, bucket, {})


def test_requests_are_what_s3_expects():
    for item, line, end in [
        (S3Item("get", "a/ü b"), "GET /house/a/%C3%BC%20b HTTP/1.1", b"\r\n\r\n"),
        (S3Item("put", "k", Text()), "PUT /house/k HTTP/1.1", b"Content-Length: 5\r\n\r\nhello"),
        (S3Item("delete", "k"), "DELETE /house/k HTTP/1.1", b"\r\n\r\n"),
        (S3Item("list", "p/"), "GET /house/?list-type=2&max-keys=1000&prefix=p%2F HTTP/1.1", b"\r\n\r\n"),
        (
            S3Item("list", "p", after="t+/="),
            "GET /house/?continuation-token=t%2B%2F%3D&list-type=2&max-keys=1000&prefix=p HTTP/1.1",
            b"\r\n\r\n",
        ),
        (S3Item("create", "k"), "POST /house/k?uploads= HTTP/1.1", b"Content-Length: 0\r\n\r\n"),
        (S3Item("part", "k", Text(), "u/1", 3), "PUT /house/k?partNumber=3&uploadId=u%2F1 HTTP/1.1", b"\r\n\r\nhello"),
        (
            S3Item("complete", "k", upload_id="u", etags=["e<1>"]),
            "POST /house/k?uploadId=u HTTP/1.1",
            b"<PartNumber>1</PartNumber><ETag>&quot;e&lt;1&gt;&quot;</ETag></Part></CompleteMultipartUpload>",
        ),
        (S3Item("abort", "k", upload_id="u"), "DELETE /house/k?uploadId=u HTTP/1.1", b"\r\n\r\n"),
    ]:
        request = driver().request(item)
        assert request.startswith(line.encode() + b"\r\nHost: 127.0.0.1:9000\r\n")
        assert request.endswith(end)


def test_the_secret_is_in_no_request():
    assert b"secret-word" not in driver().request(S3Item("put", "k", Text()))


def test_a_payload_is_signed_where_that_is_asked():
    assert b"x-amz-content-sha256: digest\r\n" in driver(sign_payload=True).request(S3Item("put", "k", Text()))
    assert b"x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n" in driver().request(S3Item("put", "k", Text()))


def test_the_bucket_stands_before_the_host_in_virtual_style():
    asked = driver("http://k:s@localhost:9000", style="virtual")
    assert asked.request(S3Item("get", "a")).startswith(b"GET /a HTTP/1.1\r\nHost: house.localhost:9000\r\n")
    assert asked.url in ("http://localhost:9000", "http://house.localhost:9000")


def test_a_port_that_goes_without_saying_is_not_said():
    for endpoint, host in [("https://k:s@h:443", "h"), ("http://k:s@h:80", "h"), ("http://k:s@[::1]:1", "[::1]:1")]:
        assert driver(endpoint).host == host


def test_the_region_is_the_targets_or_the_environments():
    for target, variables, region in [
        ({"region": "a"}, {"AWS_REGION": "b"}, "a"),
        ({}, {"AWS_DEFAULT_REGION": "c"}, "c"),
        ({}, {}, "us-east-1"),
    ]:
        asked = S3.for_target(S3Target(**target), ENDPOINT, "b", variables)
        assert f"/{region}/s3/aws4_request".encode() in asked.request(S3Item("get", "k"))


HEAD = b'HTTP/1.1 200 OK\r\nServer: x\r\nETag: "abc"\r\nContent-Length: 0'
PAGE = (
    b"<?xml version='1.0'?>\n<ListBucketResult><Contents><Key>a&amp;b</Key></Contents><Contents><Key>c</Key></Contents>"
)


def test_good_answers_are_understood():
    for status, body, expected in [
        (200, b"", "abc"),
        (204, b"", "abc"),
        (200, PAGE + b"<NextContinuationToken>t&#43;</NextContinuationToken>", ListingPage(("a&b", "c"), "t+")),
        (200, PAGE + b"</ListBucketResult>", ListingPage(("a&b", "c"), "")),
        (200, b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>", "u1"),
        (200, b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>", None),
    ]:
        reply = driver().read(Exchange(0, status, HEAD, body))
        assert (reply.error, reply.value) == (None, expected)


@pytest.mark.parametrize(
    ("status", "body", "error", "detail"),
    [
        (403, b"<Error><Code>AccessDenied</Code><Message>It&#39;s not yours</Message></Error>", "http_403",
         "AccessDenied: It's not yours"),
        (503, b"busy", "http_503", "busy"),
        (500, b"", "http_500", ""),
        (301, b"<Error><Code>PermanentRedirect</Code></Error>", "redirect", "status 301: PermanentRedirect"),
        (200, b"<Error><Code>InternalError</Code></Error>", "server_error", "InternalError"),
        (200, b"<html>hello", "malformed", "not an answer of S3: <html>hello"),
        (200, b"<InitiateMultipartUploadResult>", "malformed", "not an answer of S3: <InitiateMultipartUploadResult>"),
        (403, b"key signed with secret-word", "http_403", "[redacted] signed with [redacted]"),
    ],
)  # fmt: skip
def test_bad_answers_are_named_in_the_servers_words(status, body, error, detail):
    reply = driver().read(Exchange(0, status, HEAD, body))
    assert (reply.error, reply.detail) == (error, detail)


def test_a_get_tells_its_size_and_first_byte():
    exchange = Exchange(0, 200, HEAD, b"", array("q", (0, 11, 9, 500, 12, 11)), 12, 500, discard)
    reply = driver().read(exchange)
    assert (reply.size, list(reply.token_ns), reply.value) == (500, [11], discard)


def test_what_is_said_is_cut_short():
    assert len(error_text(b"x" * 10_000)) == 300


def test_credentials_are_found_where_they_are_kept(tmp_path):
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b%c\n[other]\naws_access_key_id = d\n")
    there = S3Target(credentials_file=str(file))
    assert find_credentials(there, "http://h", {}) == Credentials("a", "b%c")
    named = S3Target(access_key="x", secret_access_key="y")
    assert find_credentials(named, "http://h", {"AWS_ACCESS_KEY_ID": "no"}) == Credentials("x", "y")
    environ = {"AWS_ACCESS_KEY_ID": "e", "AWS_SECRET_ACCESS_KEY": "f", "AWS_SESSION_TOKEN": "g"}
    assert find_credentials(S3Target(), "http://h", environ) == Credentials("e", "f", "g")
    assert "b%c" not in repr(find_credentials(there, "http://h", {}))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({}, "AWS_ACCESS_KEY_ID is not set"),
        ({"access_key": "x", "secret_access_key": "$MINE"}, "MINE is not set"),
        ({"credentials_file": "/nowhere"}, "can't be read"),
        ({"credentials_file": "FILE", "profile": "none"}, "has no 'none'"),
        ({"credentials_file": "FILE", "profile": "half"}, "has no 'aws_secret_access_key'"),
        ({"credentials_file": "BROKEN"}, "not a credentials file"),
    ],
)
def test_missing_credentials_are_told_without_showing_any(tmp_path, target, words):
    (tmp_path / "FILE").write_text("[half]\naws_access_key_id = a\n")
    (tmp_path / "BROKEN").write_text("the secret is out\n")
    if file := target.get("credentials_file"):
        target = target | {"credentials_file": file if file.startswith("/") else str(tmp_path / file)}
    with pytest.raises(BenchError, match=words) as told:
        find_credentials(S3Target(**target), "http://h", {})
    assert "secret is out" not in told.value.message


def test_an_impossible_endpoint_is_refused():
    for endpoint, words in [
        ("ftp://h", "write http"),
        ("h:9000", "write http"),
        ("http://h/bucket", "no path"),
        ("http://h:x", "not an address"),
    ]:
        with pytest.raises(ValueError, match=words):
            S3Target(endpoint=endpoint)
