"""A user's file whose bytes are stored instead of random ones: they compress and repeat like the user's data."""

from pathlib import Path

from pydantic import Field, model_validator

from benchhouse.schema.digests import file_digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model


class Given(Model):
    """Content to store: the bytes of a file, repeated from its beginning if more are needed."""

    file: InputPath = Field(min_length=1, description="A file that is not empty.")
    sha256: str = Field("", pattern="^([0-9a-f]{64})?$", description="Of `file`; another file is then refused.")

    @model_validator(mode="after")
    def _is_there(self) -> "Given":
        path = Path(self.file)
        if not path.is_file() or not path.stat().st_size:
            raise ValueError(f"{path} is no file, or an empty one")
        return self

    def checked(self) -> Path:
        """Return the file. Raise BenchError if it is not the file that was planned."""
        path = Path(self.file)
        if self.sha256 and (sha256 := file_digest(path)) != self.sha256:
            raise BenchError(f"{path} has sha256 {sha256}, and content.sha256 is {self.sha256}", "plan it again")
        return path
