"""AWS Signature Version 4 for S3: credentials, and the header lines that sign a request."""

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from benchhouse.schema.errors import BenchError
from benchhouse.schema.secrets import blanker

UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY = hashlib.sha256(b"").hexdigest()
VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@dataclass(frozen=True, repr=False)
class Credentials:
    """Credentials, kept in memory only; the `repr` shows none of them."""

    access_key: str
    secret: str
    token: str = ""
    expires: float | None = None  # seconds since 1970; None: never

    def blank(self, text: str) -> str:
        """Return `text` without the credentials, because a server may repeat them."""
        return blanker([value for value in (self.secret, self.token, self.access_key) if value])(text)


def credentials_of(environ: Mapping[str, str]) -> Credentials:
    """Return the credentials of the environment, or of the service that it names. Raise BenchError without any."""
    if not any(environ.get(name) for name in VARIABLES[:2]):
        from benchhouse.http.container_credentials import container_credentials

        if found := container_credentials(environ):
            return Credentials(*found)
    values = tuple(environ.get(name, "") for name in VARIABLES)
    for value, name in zip(values, VARIABLES[:2], strict=False):
        if not value:
            raise BenchError(f"no credentials: {name} is not set", f"Set {VARIABLES[0]} and {VARIABLES[1]}.")
    access_key, secret, token = values
    return Credentials(access_key, secret, token)


class Signer:
    """Signer of requests to one host. The key of a day and the timestamp of a second are computed once."""

    def __init__(self, credentials: Credentials, region: str, host: str) -> None:
        self._region, self._host = region, host
        self.use(credentials)

    def use(self, credentials: Credentials) -> None:
        """Use these credentials from now on."""
        self._credentials, token = credentials, credentials.token
        self._signed = "host;x-amz-content-sha256;x-amz-date" + (";x-amz-security-token" if token else "")
        self._token_canonical = f"x-amz-security-token:{token}\n" if token else ""
        self._token_line = f"x-amz-security-token: {token}\r\n" if token else ""
        self._second, self._stamp, self._day, self._key = -1, "", "", b""

    def lines(self, method: str, path: str, query: str = "", payload: str = UNSIGNED, now: float | None = None) -> str:
        """Return the header lines of a request, including `Host`. `path` and `query` are escaped, `query` sorted."""
        second = int(time.time() if now is None else now)
        if second != self._second:
            self._turn(second)
        canonical = (
            f"{method}\n{path}\n{query}\nhost:{self._host}\nx-amz-content-sha256:{payload}\n"
            f"x-amz-date:{self._stamp}\n{self._token_canonical}\n{self._signed}\n{payload}"
        )
        scope = f"{self._day}/{self._region}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{self._stamp}\n{scope}\n{digest}"
        signature = hmac.digest(self._key, text.encode(), "sha256").hex()
        return (
            f"Host: {self._host}\r\nx-amz-date: {self._stamp}\r\nx-amz-content-sha256: {payload}\r\n{self._token_line}"
            f"Authorization: AWS4-HMAC-SHA256 Credential={self._credentials.access_key}/{scope}, "
            f"SignedHeaders={self._signed}, Signature={signature}\r\n"
        )

    def _turn(self, second: int) -> None:
        self._second, self._stamp = second, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        if self._stamp[:8] != self._day:
            self._day = self._stamp[:8]
            key = b"AWS4" + self._credentials.secret.encode()
            for part in (self._day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key = key


def escape_path(text: str) -> str:
    return quote(text, safe="/-_.~")


def query_of(fields: Mapping[str, str]) -> str:
    return urlencode(sorted(fields.items()), quote_via=quote, safe="-_.~")
