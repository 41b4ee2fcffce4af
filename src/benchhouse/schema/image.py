"""Container images: their names in registries, and the two records that pin them.

`images.lock.yaml` of a workspace has the digest of each NAME:TAG; `images.json`, next to the .sif files of a site, has
the digest from which each file was built.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from benchhouse.schema.errors import BenchError
from benchhouse.schema.model import Model

RECORD = "images.json"
HUB = "docker.io"
_HUBS = ("index.docker.io", "registry-1.docker.io")
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_HOST = re.compile(r"[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*(?::[0-9]{1,5})?")
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_PATH = re.compile(
    rf"(?P<path>{_PART}(?:/{_PART})*)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True)
class ImageReference:
    """NAME[:TAG][@sha256:...] of an image, with its registry; Docker Hub if it names none."""

    host: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        return f"{self.host}/{self.path}"

    @property
    def tagged(self) -> str:
        """NAME:TAG, the key in a lock."""
        return f"{self.name}:{self.tag}"

    def at(self, digest: str) -> "ImageReference":
        return replace(self, digest=digest)

    def __str__(self) -> str:
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def parse_reference(text: str) -> ImageReference:
    """Parse an image name by the rules of Docker and OCI; raise ValueError for other text, such as a path."""
    first, slash, rest = text.partition("/")
    names_host = slash and ("." in first or ":" in first or first == "localhost")
    host, named = (first, rest) if names_host else (HUB, text)
    match = _PATH.fullmatch(named)
    if match is None or not _HOST.fullmatch(host):
        raise ValueError(f"{text!r} does not name an image: NAME:TAG or NAME:TAG@sha256:..., in lower case")
    host = HUB if host in _HUBS else host
    path = f"library/{match['path']}" if host == HUB and "/" not in match["path"] else match["path"]
    return ImageReference(host, path, match["tag"] or "", match["digest"] or "")


def tagged(text: str) -> ImageReference:
    """Parse an image name that has a tag; raise ValueError if it has none."""
    reference = parse_reference(text)
    if not reference.tag:
        raise ValueError(f"{text!r} names no version: write NAME:TAG")
    return reference


def _key(text: str) -> str:
    if "@" in text:
        raise ValueError(f"{text!r} has a digest, which stands in `digest`: write NAME:TAG")
    return str(tagged(text))


class Image(Model):
    """A pinned image file: its source and its digests."""

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


class ImageList(Model):
    """images.json: the images of a folder, by file name."""

    schema_version: Literal[1] = 1
    images: dict[str, Image] = Field(default_factory=dict)


Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class Pin(Model):
    """The digest that a NAME:TAG stands for in this workspace."""

    digest: Digest = Field(description="sha256:... of its manifest, for all architectures where it has several.")
    source: str = Field(description="Registry that said so; `given`: whoever pinned it.")
    pinned: str = Field(description="When, UTC.")


class ImageLock(Model):
    """images.lock.yaml: the digests of images in registries, by NAME:TAG."""

    schema_version: Literal[1] = 1
    images: dict[Annotated[str, AfterValidator(_key)], Pin] = Field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        return {name: pin.digest for name, pin in self.images.items()}


def with_digest(published: str, digests: Mapping[str, str]) -> str:
    """Return `NAME:TAG` with its digest in a lock, which replaces its own; unchanged if the lock has none."""
    if not published:
        return ""
    reference = parse_reference(published)
    digest = digests.get(reference.tagged)
    return str(reference.at(digest)) if digest else published


def read_images(folder: Path) -> ImageList:
    """Return the record of a folder; empty if there is none."""
    path = folder / RECORD
    try:
        return ImageList.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return ImageList()
    except (OSError, ValidationError) as error:
        raise BenchError(
            f"{path} can't be read: {error}", "restore it, or pin the images again: bench images add FILE.sif"
        ) from error


def pinned(path: Path) -> Image | None:
    """Return the record of a .sif file; None if it has none."""
    return read_images(path.parent).images.get(path.name)


def find_pinned(folder: Path, reference: str) -> tuple[Path, Image] | None:
    """Return the image in `folder` that was made from `NAME@sha256:...`; None if there is none."""
    name, _, wanted = reference.removeprefix("docker://").partition("@")
    pins = read_images(folder).images.items()
    same = [(folder / file, image) for file, image in pins if wanted and image.source_digest == wanted]
    name = re.sub(r":[^/:]*$", "", name)  # a tag in addition to the digest
    named = [item for item in same if item[1].source.removeprefix("docker://").partition("@")[0] == name]
    return next(iter(named or same), None)  # another name for the same digest, such as a mirror's, is the same image


def is_unchanged(path: Path, image: Image) -> bool:
    """Return whether a file has the recorded size and time, or else the recorded bytes: copying may change size or
    time.
    """
    from benchhouse.schema.digests import file_digest

    stat = path.stat()
    return stat.st_size == image.size and (int(stat.st_mtime) == image.mtime or file_digest(path) == image.sha256)
