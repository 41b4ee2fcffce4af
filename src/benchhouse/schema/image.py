"""Images of containers and the record that pins them: `images.json`, beside the files it tells of."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model

RECORD = "images.json"
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Image(Model):
    """One pinned image: what it was made from, and what its bytes are."""

    source: str = Field(description="docker://NAME@sha256:..., the .def file, or the .sif file that was added.")
    source_digest: str = Field("", description="sha256:... of the OCI manifest or .def file; empty if added.")
    sha256: Sha256 = Field(description="Of the .sif file.")
    size: int = Field(ge=0, description="Its bytes.")
    mtime: int = Field(description="When it was last changed, in seconds since 1970.")
    licence: str = Field("", description="Licence of what is in it, as its labels or the user say.")
    apptainer: str = Field("", description="Version of the Apptainer that made it.")
    machine: str = Field("", description="x86_64, aarch64: of the machine that it was made on.")
    created: str = Field(description="When it was pinned.")
    by: str = Field(description="Who pinned it: user@host.")


class Images(Model):
    """images.json: the images of a folder, by file name."""

    schema_version: Literal[1] = 1
    images: dict[str, Image] = Field(default_factory=dict)


def read_images(folder: Path) -> Images:
    """The record of a folder; an empty one where there is none."""
    path = folder / RECORD
    try:
        return Images.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return Images()
    except (OSError, ValidationError) as error:
        raise BenchError(
            f"{path} can't be read: {error}", "restore it, or pin the images again: bench images add FILE.sif"
        ) from error


def pinned(path: Path) -> Image | None:
    """What is recorded of a .sif file."""
    return read_images(path.parent).images.get(path.name)


def find_pinned(folder: Path, reference: str) -> tuple[Path, Image] | None:
    """The image in `folder` that was made from `NAME@sha256:...`."""
    name, _, wanted = reference.removeprefix("docker://").partition("@")
    pins = read_images(folder).images.items()
    same = [(folder / file, image) for file, image in pins if wanted and image.source_digest == wanted]
    named = [item for item in same if item[1].source.removeprefix("docker://").partition("@")[0] == name]
    return next(iter(named or same), None)  # another mirror's name for the same digest is the same image


def is_unchanged(path: Path, image: Image) -> bool:
    """By size and time; where these differ, by its bytes: a copy to another filesystem may keep neither."""
    from benchhouse.schema.digests import file_digest

    stat = path.stat()
    return stat.st_size == image.size and (int(stat.st_mtime) == image.mtime or file_digest(path) == image.sha256)
