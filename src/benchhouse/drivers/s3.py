"""S3 and compatible servers: the requests of a load are signed here and sent by the engine."""

import os
import re
from collections.abc import Mapping
from html import unescape
from typing import Any, ClassVar, Literal
from xml.sax.saxutils import escape as xml

from benchhouse.drivers.refusals import excerpt, refusal
from benchhouse.drivers.s3_credentials import find_credentials
from benchhouse.http.s3_bucket import Bucket, error_text, place_of
from benchhouse.http.s3_sign import EMPTY, UNSIGNED, Credentials, Signer, escape_path, query_of
from benchhouse.load.protocols.calls import CallResult, Exchange
from benchhouse.load.protocols.s3 import ListingPage, S3Item, S3Target
from benchhouse.schema.errors import BenchError

_ETAG = re.compile(rb'\r\netag[ \t]*:[ \t]*"?([^"\r\n]*)', re.IGNORECASE)
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_NEXT = re.compile(rb"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_UPLOAD = re.compile(rb"<UploadId>([^<]*)</UploadId>")
_ROOT = re.compile(rb"(?:<\?xml[^>]*\?>)?\s*<(\w+)")


class S3:
    """One bucket. `head` makes a request without its content, `read` interprets an answer by its content."""

    transport: ClassVar[Literal["http"]] = "http"

    def __init__(self, target: S3Target, endpoint: str, credentials: Credentials, *, bucket: str, region: str) -> None:
        self.host, self.path, self.url = place_of(endpoint, bucket, virtual=target.style == "virtual")
        self.credentials = credentials
        self.signer = Signer(credentials, region, self.host)
        self._sign_payload, self._verify_tls = target.sign_payload, target.verify_tls

    @classmethod
    def for_target(cls, target: S3Target, endpoint: str, bucket: str, environ: Mapping[str, str] = os.environ) -> "S3":
        """Create the driver. `endpoint` is the target's, or that of a server that was started for the trial."""
        region = target.region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        credentials = find_credentials(target, endpoint, environ)
        return cls(target, endpoint, credentials, bucket=bucket, region=region)

    def bucket(self, timeout_s: float = 60.0) -> Bucket:
        """Return the bucket for the work before and after a load."""
        return Bucket(self.url, self.path, self.signer, self.credentials, timeout_s, verify_tls=self._verify_tls)

    def request(self, item: Any) -> bytes:
        content = item.content.pieces() if item.kind in ("put", "part") else ()
        return self.head(item) + b"".join(content)

    def head(self, item: S3Item) -> bytes:
        """Return the request up to the start of the content of `put` and `part`."""
        method, query, body = _request_line(item)
        path = self.path if item.kind == "list" else self.path + escape_path(item.key)
        payload, length = EMPTY, len(body)
        if item.kind in ("put", "part"):
            assert item.content is not None
            payload, length = item.content.sha256 if self._sign_payload else UNSIGNED, item.content.size
        elif body:
            payload = UNSIGNED
        lines = self.signer.lines(method, path, query, payload)
        size = f"Content-Length: {length}\r\n" if method in ("PUT", "POST") else ""
        return f"{method} {path}{f'?{query}' if query else ''} HTTP/1.1\r\n{lines}{size}\r\n".encode() + body

    def read(self, exchange: Exchange) -> CallResult:
        """Read an answer: a get has a sink, a put has an ETag, others are XML, identified by the root element."""
        if not 200 <= exchange.status < 300:
            return refusal(exchange, self.credentials.blank(error_text(exchange.body)))
        if exchange.sink is not None:
            first, floor = exchange.marks[1:3] or (exchange.ended_ns, exchange.ended_ns)
            return CallResult(size=exchange.size, token_ns=(first,), unsure_ns=(first - floor,), value=exchange.sink)
        if not exchange.body:
            etag = _ETAG.search(exchange.head)
            return CallResult(value=etag[1].decode("latin-1") if etag else "")
        return self._read_xml(exchange.body)

    def _read_xml(self, body: bytes) -> CallResult:
        root = start[1] if (start := _ROOT.match(body)) else b""
        if root == b"ListBucketResult":
            keys = tuple(unescape(key.decode()) for key in _KEY.findall(body))
            after = _NEXT.search(body)
            return CallResult(value=ListingPage(keys, unescape(after[1].decode()) if after else ""))
        if root == b"InitiateMultipartUploadResult" and (upload := _UPLOAD.search(body)):
            return CallResult(value=unescape(upload[1].decode()))
        if root == b"CompleteMultipartUploadResult":
            return CallResult()
        if root == b"Error":  # an upload may be answered with 200 before it fails
            return CallResult(error="server_error", detail=self.credentials.blank(error_text(body)))
        return CallResult(error="malformed", detail=f"not an answer of S3: {self.credentials.blank(excerpt(body))}")


def _request_line(item: S3Item) -> tuple[str, str, bytes]:
    """Return the method, query, and XML body of a request."""
    match item.kind:
        case "get" | "put" | "delete":
            return item.kind.upper(), "", b""
        case "list":
            after = {"continuation-token": item.after} if item.after else {}
            fields = {"list-type": "2", "max-keys": str(item.page_size), "prefix": item.key} | after
            return "GET", query_of(fields), b""
        case "create":
            return "POST", "uploads=", b""
        case "part":
            return "PUT", query_of({"partNumber": str(item.part), "uploadId": item.upload_id}), b""
        case "complete":
            parts = "".join(
                f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{xml(etag)}&quot;</ETag></Part>"
                for number, etag in enumerate(item.etags, 1)
            )
            body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
            return "POST", query_of({"uploadId": item.upload_id}), body
        case "abort":
            return "DELETE", query_of({"uploadId": item.upload_id}), b""
    raise BenchError(f"S3 knows no {item.kind!r}")
