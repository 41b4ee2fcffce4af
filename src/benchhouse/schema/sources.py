"""Data sources: files that a workload reads, fetched before the measurement."""

from pathlib import PurePosixPath
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Bytes, Seconds

DATA = "data"
"""Name of the placeholder `{data}`: the folder with all sources of a trial."""


class DataSource(Model):
    """A file, or the objects below an s3:// address; fetched once, checked, and cached."""

    url: str = Field("", description="http://, https:// or s3:// address.")
    file: InputPath = Field("", description="Instead: a file or folder of this machine, beside the scenario.")
    path: str = Field(min_length=1, description="Where it lies below {data}.")
    md5: str = Field("", pattern=r"^([0-9a-f]{32})?$", description="Of the file.")
    sha256: str = Field("", pattern=r"^([0-9a-f]{64})?$", description="Of the file.")
    unpack: bool = Field(False, description="Whether it is a tar archive, whose files lie at `path`.")
    max_size: Bytes = Field(100 * 10**9, gt=0, description="Most bytes to fetch, and most that an archive may hold.")
    max_time: Seconds = Field(6 * 3600.0, gt=0, description="Longest time to fetch it.")

    @field_validator("url")
    @classmethod
    def _is_fetched(cls, url: str) -> str:
        if url and urlsplit(url).scheme not in ("http", "https", "s3"):
            raise ValueError(f"{url!r} can't be fetched: http://, https:// or s3://, or `file` for one of this machine")
        return url

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{path!r} is not below {{data}}: a relative path without ..")
        return path

    @model_validator(mode="after")
    def _one_origin(self) -> "DataSource":
        if bool(self.url) == bool(self.file):
            raise ValueError("give either url or file")
        return self
