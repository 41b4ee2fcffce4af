"""An S3 bucket outside the measured load: check that it exists, list, put, read, and remove objects."""

import base64
import hashlib
import http.client
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import copy
from functools import partial
from html import unescape
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import escape as xml

from benchhouse.http.bounded import Unbounded, pieces, whole
from benchhouse.http.s3_sign import UNSIGNED, VARIABLES, Credentials, Signer, credentials_of, escape_path, query_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.secrets import split_userinfo

_AT_ONCE = 200  # keys per delete request; S3 takes a thousand, and servers process them one by one
_REMOVERS = 8
_EARLY_S = 300.0  # credentials are renewed this long before they expire
_MOST_ANSWER_BYTES = 64 << 20  # limit for any answer except an object; a page of a thousand keys has less than 2 MiB
_MOST_KEYS = 10_000_000
_MOST_OBJECT_BYTES = 5 * 10**12  # the limit of S3 itself
_DETAIL_CHARACTERS = 300
_FIELD = re.compile(
    r"<(Code|Message|Key|Size|UploadId|NextContinuationToken|NextKeyMarker|NextUploadIdMarker)>([^<]*)<"
)
_FOLDER = re.compile(r"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>")
_CONTENTS = re.compile(r"<Contents>(.*?)</Contents>", re.DOTALL)
_UPLOAD = re.compile(r"<Upload>(.*?)</Upload>", re.DOTALL)
_ERROR = re.compile(r"<Error>(.*?)</Error>", re.DOTALL)


class S3Refused(BenchError):  # noqa: N818 - what the server did
    """The server refused a request; `kind` is `http_<status>`, or without an answer dns, timeout, refused, or reset.

    An answer that is not S3's, does not end, or arrives too slowly has the kind `malformed`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Bucket:
    """A bucket whose requests are sent one after another on one connection, which is reopened after a failure."""

    def __init__(
        self, url: str, path: str, signer: Signer, credentials: Credentials, timeout_s: float, *, verify_tls: bool
    ) -> None:
        self._url, self._path, self._signer, self._credentials = urlsplit(url), path, signer, credentials
        self._timeout_s, self._verify_tls = timeout_s, verify_tls
        self._connection: http.client.HTTPConnection | None = None
        self.renew: Callable[[], Credentials] | None = None  # returns new credentials if they expire

    @property
    def where(self) -> str:
        """The bucket for messages: `NAME at http://host:port`."""
        return f"{unquote(self._path.strip('/'))} at {self._url.scheme}://{self._url.netloc}"

    def make_sure(self, create: bool) -> bool:
        try:
            self._ask("GET", query={"list-type": "2", "max-keys": "1"})
            return False
        except S3Refused as refused:
            if refused.kind != "http_404" or not create:
                raise
        self._ask("PUT")
        return True

    def keys(self, prefix: str) -> Iterator[str]:
        return (key for key, _ in self.sizes(prefix))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield all keys below a prefix with the bytes of their objects, a page at a time."""
        after: dict[str, str] = {}
        listed = 0
        while True:
            query = {"list-type": "2", "max-keys": "1000", "prefix": prefix} | after
            page = self._ask("GET", query=query).decode("utf-8", "replace")
            for item in map(_fields, _CONTENTS.findall(page)):
                key, size = item.get("Key", ""), item.get("Size", "")
                if not (size.isascii() and size.isdigit() and len(size) < 19) or not key.startswith(prefix):
                    raise self._malformed(f"lists {key[:100]!r} with the size {size[:20]!r} below {prefix!r}")
                if (listed := listed + 1) > _MOST_KEYS:
                    raise self._malformed(f"lists more than {_MOST_KEYS:,} objects below {prefix!r}")
                yield key, int(size)
            if not (token := _fields(page).get("NextContinuationToken")):
                return
            if token == after.get("continuation-token"):
                raise self._malformed("gives the same page of a list again")
            after = {"continuation-token": token}

    def folders(self, prefix: str) -> list[str]:
        """Return the folders directly below `prefix`, up to the next slash; at most a thousand."""
        page = self._ask("GET", query={"list-type": "2", "prefix": prefix, "delimiter": "/"}).decode()
        return [unescape(name) for name in _FOLDER.findall(page)]

    def read(self, key: str) -> Iterator[bytes]:
        """Yield the content of an object in pieces. Raise S3Refused."""
        answer = self._send("GET", key, {})
        try:
            if answer.status != 200:
                raise self._refused(answer.status, self._body(answer))
            yield from pieces(answer, self.where, _MOST_OBJECT_BYTES, self._timeout_s)
            if answer.length:  # http.client takes a truncated body for a complete one
                raise S3Refused("reset", f"the connection ended {answer.length:,} bytes before the end of {key!r}")
        except (OSError, http.client.HTTPException) as error:
            raise S3Refused("reset", f"{type(error).__name__} while {key!r} was read: {error}") from error
        except Unbounded as error:
            raise S3Refused("malformed", error.message) from error
        finally:
            if not answer.isclosed():
                self.close()

    def read_if_changed(self, key: str, etag: str) -> tuple[str, bytes] | None:
        """Return a small object and its tag; None if it still has this tag."""
        answer = self._send("GET", key, {}, headers={"If-None-Match": etag} if etag else {})
        data = self._body(answer)
        if answer.status == 304:
            return None
        if answer.status != 200:
            raise self._refused(answer.status, data)
        return answer.headers.get("ETag", ""), data

    def put(self, key: str, source: Path | bytes, sha256: str) -> None:
        """Write an object in one request, with its digest in the signature; S3 takes up to 5 GB that way."""
        if isinstance(source, bytes):
            self._ask("PUT", key, body=source, payload=sha256)
            return
        with source.open("rb") as file:
            size = str(source.stat().st_size)
            self._ask("PUT", key, body=file, headers={"Content-Length": size}, payload=sha256)

    def remove(self, keys: Sequence[str]) -> list[str]:
        """Remove objects in large, concurrent requests. Return what could not be removed, with the reason."""
        batches = [keys[at : at + _AT_ONCE] for at in range(0, len(keys), _AT_ONCE)]
        if len(batches) < 2:
            return [problem for batch in batches for problem in self._remove(batch)]
        with ThreadPoolExecutor(_REMOVERS) as crew:
            return [problem for problems in crew.map(self._remove_apart, batches) for problem in problems]

    def another(self) -> "Bucket":
        """Return the same bucket with its own connection, for another thread."""
        other = copy(self)
        other._signer, other._connection = copy(self._signer), None
        return other

    def _remove_apart(self, keys: Sequence[str]) -> list[str]:
        with closing(self.another()) as other:
            return other._remove(keys)

    def _remove(self, keys: Sequence[str]) -> list[str]:
        objects = "".join(f"<Object><Key>{xml(key)}</Key></Object>" for key in keys)
        body = f"<Delete><Quiet>true</Quiet>{objects}</Delete>".encode()
        digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        answer = self._ask("POST", query={"delete": ""}, body=body, headers={"Content-MD5": digest}).decode()
        errors = [_fields(error) for error in _ERROR.findall(answer)]
        return [f"{item.get('Key', '?')}: {item.get('Code', '')} {item.get('Message', '')}".rstrip() for item in errors]

    def abort_uploads(self, prefix: str) -> int:
        """Abort uploads below `prefix` that were never completed. Return their number."""
        aborted: set[str] = set()
        while True:
            page = self._ask("GET", query={"uploads": "", "prefix": prefix}).decode()
            uploads = [_fields(upload) for upload in _UPLOAD.findall(page)]
            ours = [item for item in uploads if item["Key"].startswith(prefix) and item["UploadId"] not in aborted]
            for upload in ours:
                self._ask("DELETE", upload["Key"], {"uploadId": upload["UploadId"]})
                aborted.add(upload["UploadId"])
            if not ours:
                return len(aborted)

    def remove_bucket(self) -> None:
        self._ask("DELETE")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, key: str = "", query: Mapping[str, str] = MappingProxyType({}), **more: Any) -> bytes:
        """Return the body of a successful answer; `more` as in `_send`."""
        answer = self._send(method, key, query, **more)
        data = self._body(answer)
        if not 200 <= answer.status < 300:
            raise self._refused(answer.status, data)
        return data

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            return whole(answer, self.where, _MOST_ANSWER_BYTES, self._timeout_s)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise S3Refused("reset", f"{type(error).__name__}: {error}") from error
        except Unbounded as error:
            self.close()
            raise S3Refused("malformed", error.message) from error

    def _malformed(self, reason: str) -> S3Refused:
        self.close()
        return S3Refused("malformed", f"{self.where} does not answer as S3 does: it {reason}")

    def _send(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        body: bytes | BinaryIO = b"",
        headers: Mapping[str, str] = MappingProxyType({}),
        payload: str = UNSIGNED,
    ) -> http.client.HTTPResponse:
        path = self._path + escape_path(key) if key else self._path.rstrip("/") or "/"
        text = query_of(query)
        self._renew()
        for last in (False, True):  # a kept connection may have been closed in the meantime
            if not isinstance(body, bytes):
                body.seek(0)
            lines = self._signer.lines(method, path, text, payload).split("\r\n")
            signed = dict(line.split(": ", 1) for line in lines if line)
            kept = self._connection is not None
            try:
                connection = self._connected()
                connection.request(method, f"{path}?{text}" if text else path, body or None, signed | dict(headers))
                return connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if last or not kept:
                    why = getattr(error, "strerror", None) or str(error)
                    raise S3Refused(_kind(error), f"{method} to {self._url.netloc}: {why}") from error
        raise AssertionError

    def _renew(self) -> None:
        expires = self._credentials.expires
        if self.renew and expires and time.time() > expires - _EARLY_S:
            try:
                self._credentials = self.renew()
            except BenchError as error:
                if time.time() < expires:  # they are still valid for a while
                    return
                raise S3Refused("timeout", error.message) from error
            self._signer.use(self._credentials)

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            host, port = self._url.hostname or "", self._url.port
            if self._url.scheme == "http":
                self._connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
            else:
                context = ssl.create_default_context()
                if not self._verify_tls:
                    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                self._connection = http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)
        return self._connection

    def _refused(self, status: int, body: bytes) -> S3Refused:
        return S3Refused(f"http_{status}", self._credentials.blank(error_text(body)) or f"status {status}")


def _kind(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "dns"
    if isinstance(error, TimeoutError):
        return "timeout"
    return "refused" if isinstance(error, ConnectionRefusedError) else "reset"


def _fields(xml_text: str) -> dict[str, str]:
    return {name: unescape(value) for name, value in _FIELD.findall(xml_text)}


def error_text(body: bytes) -> str:
    """Return the code and message of an error, or otherwise the beginning of the answer."""
    text = body[: 1 << 16].decode("utf-8", "backslashreplace")
    fields = _fields(text)
    parts = [fields[name] for name in ("Code", "Message") if fields.get(name)]
    return (": ".join(parts) or text.strip())[:_DETAIL_CHARACTERS]


def place_of(endpoint: str, bucket: str, *, virtual: bool = False) -> tuple[str, str, str]:
    """Return the host that requests name, the path of the bucket, and the address to connect to."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port and parts.port != {"http": 80, "https": 443}[parts.scheme] else ""
    named = f"[{host}]" if ":" in host else host
    if not virtual:
        return f"{named}{port}", f"/{escape_path(bucket)}/", f"{parts.scheme}://{named}{port}"
    return f"{bucket}.{named}{port}", "/", f"{parts.scheme}://{_connects_to(f'{bucket}.{host}', named)}{port}"


def open_bucket(address: str, endpoint: str, environ: Mapping[str, str], timeout_s: float = 60.0) -> tuple[Bucket, str]:
    """Return the bucket of `s3://BUCKET/PREFIX`, and the prefix; AWS_* variables give the server and the credentials.

    Raise BenchError if the address is wrong or there are no credentials. No request is sent yet.
    """
    scheme, _, rest = address.partition("://")
    name, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if scheme != "s3" or not name or (prefix and not {"", ".", ".."}.isdisjoint(prefix.split("/"))):
        raise BenchError(f"{address}: not the address of a bucket", "s3://bucket/prefix")
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    where = endpoint_of(endpoint, region, environ)
    credentials = credentials_of(environ)
    host, path, url = place_of(where, name)
    bucket = Bucket(url, path, Signer(credentials, region, host), credentials, timeout_s, verify_tls=True)
    bucket.renew = partial(credentials_of, environ)
    return bucket, prefix


def endpoint_of(endpoint: str, region: str, environ: Mapping[str, str]) -> str:
    """Return the server: as given, as in AWS_ENDPOINT_URL_S3, or Amazon's. Raise BenchError for a wrong address."""
    given = endpoint or environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    where = given or f"https://s3.{region}.amazonaws.com"
    if split_userinfo(where)[1]:
        raise BenchError(
            "credentials don't belong into an address: everyone on this machine sees it",
            f"Set {VARIABLES[0]} and {VARIABLES[1]}.",
        )
    try:
        parts = urlsplit(where)
        is_server = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        is_server = False
    if not is_server or parts.path.strip("/") or parts.query:
        raise BenchError(f"{where}: not the address of a server", "http://host:port or https://host")
    return where


def _connects_to(bucket_host: str, host: str) -> str:
    """Return the bucket's own host if it resolves; a server on this machine usually has none."""
    try:
        socket.getaddrinfo(bucket_host, None, type=socket.SOCK_STREAM)
    except OSError:
        return host
    return bucket_host
