"""AWS credentials of the container that this process runs in, from the service that EKS Pod Identity or ECS names."""

import json
from collections.abc import Mapping
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from benchhouse.schema.errors import BenchError

_FULL, _RELATIVE = "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
_TOKEN, _TOKEN_FILE = "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
_ECS = "169.254.170.2"
_PLAIN = {_ECS, "169.254.170.23", "fd00:ec2::23", "localhost"}  # hosts allowed without TLS; otherwise only loopback
_TIMEOUT_S = 5.0


def container_credentials(environ: Mapping[str, str]) -> tuple[str, str, str, float | None] | None:
    """Return access key, secret, session token, and their expiry; None if no service is named. Raise BenchError.

    The token that authorizes the request is read from its file each time, because the file is replaced during the run.
    """
    relative = environ.get(_RELATIVE)
    url = f"http://{_ECS}{relative}" if relative else environ.get(_FULL)
    if not url:
        return None
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host or (parts.scheme == "http" and not _may_be_plain(host)):
        raise BenchError(f"{_FULL} names {url}, which may not be asked for credentials", "https://, or this machine")
    try:
        token = Path(file).read_text().strip() if (file := environ.get(_TOKEN_FILE)) else environ.get(_TOKEN, "")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(host, parts.port, timeout=_TIMEOUT_S)
        try:
            where = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
            connection.request("GET", where, headers={"Authorization": token} if token else {})
            answer = connection.getresponse()
            if answer.status != 200:
                raise BenchError(f"no credentials: {url} answers {answer.status}", "is a role bound to this account?")
            found = json.loads(answer.read())
            expires = found.get("Expiration")
            end = datetime.fromisoformat(expires).timestamp() if expires else None
            return found["AccessKeyId"], found["SecretAccessKey"], found.get("Token") or "", end
        finally:
            connection.close()
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BenchError(f"no credentials: {url} can't be asked: {type(error).__name__}: {error}") from error


def _may_be_plain(host: str) -> bool:
    try:
        return host in _PLAIN or ip_address(host).is_loopback
    except ValueError:
        return False
