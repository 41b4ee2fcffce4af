"""The API of a Kubernetes cluster: requests and watches. Credentials come from `kubeconfig`.

Implemented directly: the client libraries take a second of CPU to load, and a run makes a handful of requests
(docs/design/kubernetes.md). Objects are plain dicts, as in the manifests.
"""

import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from benchhouse.http.bounded import whole
from benchhouse.http.kubeconfig import ClusterAccess, run_credential_plugin, seconds_of, tls_context
from benchhouse.schema.errors import BenchError
from benchhouse.schema.json_text import read_json

Object = dict[str, Any]
_TIMEOUT_S = 30.0
_BUSY = (429, 500, 502, 503, 504)
_OUTAGE_S = 120.0  # time to wait for an API server that restarts
_MOST_BYTES = 128 << 20  # of one answer; 5,000 pods have about 50 MiB
_MOST_EVENT_BYTES = 16 << 20  # of one change in a watch; an object has at most 1.5 MiB
_EARLY_S = 60.0  # a token of an exec plugin is renewed this long before it expires


class KubernetesRefused(BenchError):  # noqa: N818 - what happened, in one word
    """An error answer of the API server. `reason` is the server's term: NotFound, Forbidden, ...

    `wait_s` is the delay before a retry that the server requests; 0 if it requests none.
    """

    def __init__(self, status: int, reason: str, message: str, wait_s: float = 0.0) -> None:
        hint = "bench site check says what this account may do" if status == 403 else ""
        super().__init__(f"Kubernetes refuses: {message}", hint)
        self.status, self.reason, self.wait_s = status, reason, wait_s


class Unreachable(BenchError):  # noqa: N818
    """No API server answered."""


class KubeClient:
    """A client of one cluster. Thread-safe: each thread has its own connection."""

    def __init__(self, access: ClusterAccess, *, outage_s: float = _OUTAGE_S, timeout_s: float = _TIMEOUT_S) -> None:
        """Set the server. Unanswered requests are retried for `outage_s`; each attempt may take `timeout_s`."""
        self.access, self._outage_s, self._timeout_s = access, outage_s, timeout_s
        self.requests = 0  # made so far, including watches
        parts = urlsplit(access.server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BenchError(f"the context {access.context!r} has no address of an API server: {access.server!r}")
        self._scheme, self._host, self._port = parts.scheme, parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._context = tls_context(access) if parts.scheme == "https" else None
        self._local, self._lock = threading.local(), threading.Lock()

    # -- requests ------------------------------------------------------------------------------------------------

    def get(self, path: str, **query: str) -> Object:
        return self.request("GET", path, query=query)

    def create(self, path: str, body: Object, **query: str) -> Object:
        return self.request("POST", path, body, query)

    def patch(self, path: str, body: Object) -> Object:
        """Apply a merge patch: null fields are removed, and fields that are not named stay."""
        return self.request("PATCH", path, body, kind="application/merge-patch+json")

    def delete(self, path: str, *, grace_s: int | None = None, **query: str) -> None:
        """Delete an object and what it owns, in the background. An object that is already gone is not an error."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            self.request("DELETE", path, body, query)
        except KubernetesRefused as error:
            if error.status != 404:
                raise

    def text(self, path: str, **query: str) -> str:
        """Return an answer that is not JSON, such as the log of a pod."""
        return self._ask("GET", path, None, query, "").decode("utf-8", "replace")

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        kind: str = "application/json",
    ) -> Object:
        """Return the object. Raise KubernetesRefused with the server's message; retry a busy or restarting server.

        Creating is safe to repeat because our objects have unique names: the retry after a lost answer gives
        AlreadyExists.
        """
        try:
            answer = read_json(self._ask(method, path, body, query or {}, kind) or b"{}")
        except ValueError as error:
            raise self._malformed(path) from error
        items = answer.get("items", []) if isinstance(answer, dict) else None
        if not isinstance(items, list | None) or not all(isinstance(item, dict) for item in items or ()):
            raise self._malformed(path)
        if not isinstance(answer, dict):
            raise self._malformed(path)
        return answer

    def _malformed(self, path: str) -> Unreachable:
        server = f"{self._scheme}://{self._host}" + (f":{self._port}" if self._port else "")
        hint = f"check that {server} is a Kubernetes API server: kubectl --context {self.access.context} version"
        return Unreachable(f"{server} does not answer {path} as a Kubernetes API server does", hint)

    def _ask(self, method: str, path: str, body: Object | None, query: Mapping[str, str], kind: str) -> bytes:
        deadline, wait_s = time.monotonic() + self._outage_s, 0.2
        while True:
            try:
                status, headers, data = self._exchange(method, path, body, query, kind)
            except (OSError, HTTPException) as error:
                if isinstance(error, ssl.SSLCertVerificationError) or time.monotonic() > deadline:
                    raise self._unreachable(error) from error
            else:
                if status < 300:
                    return data
                if status == 401 and self._renew():
                    continue
                if status not in _BUSY or time.monotonic() > deadline:
                    raise _refusal(status, data)
                wait_s = max(wait_s, _retry_after(headers))
            time.sleep(min(wait_s, max(0.0, deadline - time.monotonic())))
            wait_s = min(2 * wait_s, 10.0)

    def _exchange(
        self, method: str, path: str, body: Object | None, query: Mapping[str, str], kind: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request on this thread's connection, which is reopened if the server has closed it."""
        connection: HTTPConnection | None = getattr(self._local, "connection", None)
        fresh = connection is None
        connection = connection or self._connect(self._timeout_s)
        try:
            answer = self._send(connection, method, path, body, query, kind)
            data = whole(answer, f"Kubernetes at {self._host}", _MOST_BYTES, self._timeout_s)
        except (OSError, HTTPException):
            connection.close()
            self._local.connection = None
            if fresh:
                raise
            return self._exchange(method, path, body, query, kind)
        self._local.connection = connection
        return answer.status, answer.headers, data

    def _send(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, str],
        kind: str,
    ) -> Any:
        headers = {"Accept": "application/json", "User-Agent": "benchhouse"}
        if kind and body is not None:
            headers["Content-Type"] = kind
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        where = f"{self._prefix}{path}{f'?{urlencode(query)}' if query else ''}"
        self.requests += 1
        connection.request(method, where, json.dumps(body) if body is not None else None, headers)
        return connection.getresponse()

    # -- watches -------------------------------------------------------------------------------------------------

    def watch(self, path: str, version: str, seconds: int, **query: str) -> Iterator[tuple[str, Object]]:
        """Yield changes after `version` (ADDED, MODIFIED, DELETED, BOOKMARK and the object), for at most `seconds`.

        Raise KubernetesRefused with 410 if the server no longer knows that version: list again. Raise Unreachable if
        the connection breaks; a watch is not retried here.
        """
        query |= {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        connection = self._connect(seconds + 30.0)
        try:
            answer = self._send(connection, "GET", path, None, query, "")
            if answer.status != 200:
                raise _refusal(answer.status, answer.read(), _retry_after(answer.headers))
            while line := answer.readline(_MOST_EVENT_BYTES):
                event = read_json(line)
                kind, item = event["type"], event["object"]
                if kind == "ERROR":
                    raise KubernetesRefused(
                        int(item.get("code") or 500), item.get("reason", ""), item.get("message", "")
                    )
                if not isinstance(kind, str) or not isinstance(item, dict):
                    raise self._malformed(path)
                yield kind, item
        except (KeyError, TypeError, AttributeError) as error:
            raise self._malformed(path) from error
        except (OSError, HTTPException, ValueError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    # -- connections ---------------------------------------------------------------------------------------------

    def _connect(self, timeout_s: float) -> HTTPConnection:
        host, port = self._host, self._port or (443 if self._context else 80)
        proxy = urlsplit(self.access.proxy) if self.access.proxy else None
        at, on = (proxy.hostname or "", proxy.port or 80) if proxy else (host, port)
        if self._context is None:
            connection = HTTPConnection(at, on, timeout=timeout_s)
        else:
            connection = HTTPSConnection(at, on, timeout=timeout_s, context=self._context)
        if proxy:
            connection.set_tunnel(host, port)
        return connection

    def _token(self) -> str:
        access = self.access
        if access.token_file:
            return Path(access.token_file).read_text().strip()
        is_new = not access.token and not access.certificate[0]
        is_old = access.expires and time.time() > access.expires - _EARLY_S
        if access.plugin and (is_new or is_old):
            self._renew()
        return access.token

    def _renew(self) -> bool:
        """Renew the credentials with the program that the kubeconfig names. Return False if it names none."""
        access = self.access
        if not access.plugin:
            return False
        with self._lock:
            credential = run_credential_plugin(access.plugin)
        access.token = credential.get("token") or ""
        if credential.get("clientCertificateData"):
            access.certificate = (credential["clientCertificateData"], credential["clientKeyData"])
            self._context = tls_context(access)
        access.expires = seconds_of(credential.get("expirationTimestamp"))
        return True

    def _unreachable(self, error: Exception) -> Unreachable:
        why = getattr(error, "verify_message", "") or getattr(error, "strerror", "") or str(error) or "no answer"
        return Unreachable(
            f"the API server {self.access.server} of the context {self.access.context!r} can't be reached: {why}",
            "is the cluster up, and is this the right context? kubectl cluster-info",
        )


def _refusal(status: int, data: bytes, wait_s: float = 0.0) -> KubernetesRefused:
    try:
        said = read_json(data)
        return KubernetesRefused(status, str(said.get("reason") or ""), str(said.get("message") or said)[:1000], wait_s)
    except (ValueError, AttributeError):
        return KubernetesRefused(
            status, "", data.decode("utf-8", "replace").strip()[:300] or f"status {status}", wait_s
        )


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the delay in seconds; 0 for a date, which a proxy may send by a clock that differs from ours."""
    text = headers.get("Retry-After") or ""
    return float(text) if text.isdecimal() else 0.0


def path_of(api: str, namespace: str, plural: str, name: str = "", part: str = "") -> str:
    """Return a path: `path_of("batch/v1", "team", "jobs", "one")` is /apis/batch/v1/namespaces/team/jobs/one."""
    root = "/api/v1" if api == "v1" else f"/apis/{api}"
    words = [
        *(["namespaces", namespace] if namespace else []),
        plural,
        *([name] if name else []),
        *([part] if part else []),
    ]
    return "/".join([root, *(quote(word, safe="") for word in words)])


def selector(labels: Mapping[str, str] | Sequence[str]) -> str:
    """Return a label selector for `labelSelector=`."""
    return (
        ",".join(f"{key}={value}" for key, value in labels.items()) if isinstance(labels, Mapping) else ",".join(labels)
    )
