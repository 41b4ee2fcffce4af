"""The interface between the S3 experiment and its driver: the bucket's address, a request, and its result."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model
from benchhouse.schema.service import is_mention

Kind = Literal["get", "put", "delete", "list", "create", "part", "complete", "abort"]


class S3Target(Model):
    """The bucket under test, its address, and the credentials."""

    endpoint: str = Field("", description="http(s)://host:port of an S3 server; empty: SeaweedFS is started.")
    bucket: str = Field("", description="Bucket to work in, below a prefix of the trial's own.")
    create_bucket: bool = Field(False, description="Create the bucket if it is not there, and remove it afterwards.")
    region: str = Field("", description="Region to sign for; AWS_REGION, else us-east-1, where empty.")
    style: Literal["path", "virtual"] = Field("path", description="Bucket in the path, or before the host name.")
    sign_payload: bool = Field(False, description="Sign the content too, for servers that refuse UNSIGNED-PAYLOAD.")
    access_key: str | None = Field(None, description="Reference to a variable; AWS_ACCESS_KEY_ID by default.")
    secret_access_key: str | None = Field(None, description="Same; AWS_SECRET_ACCESS_KEY by default.")
    session_token: str | None = Field(None, description="Same; AWS_SESSION_TOKEN by default.")
    credentials_file: InputPath = Field("", description="Instead: a file in the format of ~/.aws/credentials.")
    profile: str = Field("default", description="Section of that file.")
    verify_tls: bool = Field(True, description="Whether the server's certificate is checked.")
    driver: str = Field("s3", description="Driver that makes the requests.")
    name: str = Field("", description="Name in reports.")

    @field_validator("endpoint")
    @classmethod
    def _is_an_address(cls, endpoint: str) -> str:
        if not endpoint or is_mention(endpoint):
            return endpoint
        try:
            parts = urlsplit(endpoint)
            _ = parts.port
        except ValueError as error:
            raise ValueError(f"not an address: {error}") from error
        if "@" in parts.netloc and not (parts.username and parts.password):  # the endpoint of a service contains both
            raise ValueError(
                "credentials don't belong into an address: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the "
                "environment, or name other variables in access_key and secret_access_key"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("write http://host:port or https://host")
        if parts.path.strip("/") or parts.query:
            raise ValueError("an endpoint has no path: the bucket goes into `bucket`")
        return endpoint


class ObjectContent(Protocol):
    """The bytes of an object or of a part."""

    @property
    def size(self) -> int: ...

    @property
    def sha256(self) -> str: ...

    def pieces(self) -> Sequence[memoryview]: ...


@dataclass(slots=True, eq=False)
class S3Item:
    """One request of a load."""

    kind: Kind
    key: str  # of an object; for a listing, the prefix
    content: ObjectContent | None = None  # content to send, or expected content of the answer
    upload_id: str = ""
    part: int = 0
    etags: Sequence[str] = ()  # of all parts, to complete an upload
    after: str = ""  # for a listing: the token of its next page
    page_size: int = 1000
    operation: object = None  # the operation that it belongs to, for the tally


@dataclass(frozen=True, slots=True)
class ListingPage:
    """One page of a listing."""

    keys: tuple[str, ...]
    after: str  # token of the next page; empty on the last one


class S3Bucket(Protocol):
    """Housekeeping outside of the measured time, one request after the other. All methods raise S3Refused."""

    def make_sure(self, create: bool) -> bool:
        """Check that the bucket exists and is readable, or create it. Return whether it was created."""

    def keys(self, prefix: str) -> Iterator[str]: ...

    def folders(self, prefix: str) -> list[str]:
        """Return the folders below `prefix`, up to the next slash; at most the first thousand."""

    def read(self, key: str) -> Iterator[bytes]: ...

    def remove(self, keys: Sequence[str]) -> list[str]:
        """Remove objects. Return those that could not be removed, with the reasons."""

    def abort_uploads(self, prefix: str) -> int: ...

    def remove_bucket(self) -> None: ...

    def close(self) -> None: ...
