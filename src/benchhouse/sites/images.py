"""Container images: pulled or built on a login node, pinned in a record next to them, and verified later."""

import fcntl
import getpass
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchhouse.evidence.writing import now, write_model
from benchhouse.http.registry import fetch_digest, is_plain
from benchhouse.processes.durable import make_folders, put_in_place, sync
from benchhouse.schema.digests import file_digest
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.image import RECORD, Image, ImageList, ImageLock, ImageReference, parse_reference, read_images
from benchhouse.schema.site import Site
from benchhouse.sites import places

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_OFFLINE = "where there is no network, bring the .sif by other means: bench images add FILE.sif"
_LICENCES = ("org.opencontainers.image.licenses", "org.label-schema.license", "license", "licence")


@dataclass(frozen=True)
class PinnedImage:
    """One image of a folder, with its record."""

    path: Path
    image: Image
    state: str = "recorded"
    """unchanged, changed, gone; recorded: its bytes were not read."""

    def to_dict(self) -> dict[str, object]:
        return {"path": str(self.path), "state": self.state, **self.image.model_dump()}


def pull(
    site: Site,
    source: str,
    name: str = "",
    licence: str = "",
    lock: ImageLock = ImageLock(),  # noqa: B008 - frozen
    note: Callable[[str], None] = print,
) -> PinnedImage:
    """Pull an image from a registry by digest; a tag means the digest of the lock, otherwise its current one."""
    _refuse_in_job("pulled")
    if "://" in source.removeprefix("docker://"):
        raise BenchError(f"{source!r} is not docker://NAME", "other sources: bench images add FILE.sif")
    reference = _exact(source.removeprefix("docker://"), lock, note)
    exact, digest = f"docker://{reference.name}@{reference.digest}", reference.digest
    name = name or f"{reference.path.rpartition('/')[2]}-{digest.removeprefix('sha256:')[:12]}.sif"
    plain = ["--no-https"] if is_plain(reference.host) else []
    return _make(places.images(site), name, exact, digest, licence, ["pull", *plain])


def build(site: Site, definition: Path, name: str = "", licence: str = "") -> PinnedImage:
    """Build an image from a definition file."""
    _refuse_in_job("built")
    if not definition.is_file():
        raise BenchError(f"there is no definition file {definition}", "see: https://apptainer.org/docs/user/main/")
    digest = f"sha256:{file_digest(definition)}"
    name = name or f"{definition.stem}.sif"
    return _make(places.images(site), name, str(definition.absolute()), digest, licence, ["build"])


def add(path: Path, licence: str = "") -> PinnedImage:
    """Pin an existing .sif file in its place, in its current state."""
    path = path.absolute()
    if path.suffix != ".sif" or not path.is_file():
        raise BenchError(f"there is no .sif file {path}", "give the path of an existing Apptainer image")
    with path.open("rb") as file:
        if b"SIF_MAGIC" not in file.read(64):
            raise BenchError(f"{path} is not an Apptainer image, although its name ends with .sif")
    _checked_name(path.name)
    program = shutil.which("apptainer") or shutil.which("singularity")
    with _record(path.parent) as record:
        before = record.get(path.name)
        image = _described(path, str(path), "", licence, program)
        if before and before.sha256 == image.sha256:  # its origin is still correct
            origin = {"source": before.source, "source_digest": before.source_digest}
            image = image.model_copy(update={**origin, "licence": image.licence or before.licence})
        record[path.name] = image
    return PinnedImage(path, image)


def images(site: Site) -> list[PinnedImage]:
    """Return the images in the record of the site's folder, by name."""
    folder = places.images(site)
    pinned = [PinnedImage(folder / name, image) for name, image in sorted(read_images(folder).images.items())]
    return [item if item.path.is_file() else replace(item, state="gone") for item in pinned]


def verify(site: Site) -> list[PinnedImage]:
    """Return the images after reading every byte of every image again."""
    pinned = images(site)
    for number, item in enumerate(pinned):
        if item.state != "gone":
            same = file_digest(item.path) == item.image.sha256
            pinned[number] = replace(item, state="unchanged" if same else "changed")
    return pinned


def _refuse_in_job(what: str) -> None:
    if job := os.environ.get("SLURM_JOB_ID"):
        raise BenchError(
            f"this is Slurm job {job}: images are {what} on login nodes only",
            "run this on a login node: a job that changes an image changes what other jobs measure",
        )


def _make(folder: Path, name: str, source: str, digest: str, licence: str, verb: list[str]) -> PinnedImage:
    """Let Apptainer write the file under a temporary name. Rename and record it when it is complete."""
    name = _checked_name(name if name.endswith(".sif") else f"{name}.sif")
    program = shutil.which("apptainer") or shutil.which("singularity")
    if program is None:
        hint = "on a cluster: module load Apptainer; for tests: scripts/get-apptainer.sh"
        raise BenchError("apptainer is not on PATH", hint)
    path = folder / name
    made = folder / f".{name}.{os.getpid()}.new"
    try:
        make_folders(folder)
        command, *options = verb
        arguments = [program, command, "--force", *options, str(made), source]
        completed = subprocess.run(arguments, check=False, stdin=subprocess.DEVNULL, stdout=2)
        if completed.returncode or not made.is_file():
            message = f"apptainer {command} of {source} failed with exit code {completed.returncode}"
            raise BenchError(message, "its output is above", Exit.TRIAL_FAILED)
        with _record(folder) as record:
            image = _described(made, source, digest, licence, program)
            sync(made)
            put_in_place(made, path)
            record[name] = image
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        made.unlink(missing_ok=True)
    return PinnedImage(path, image)


def _described(path: Path, source: str, digest: str, licence: str, program: str | None) -> Image:
    there, (own_licence, version) = path.stat(), _inspect(program, path)
    return Image(
        source=source,
        source_digest=digest,
        sha256=file_digest(path),
        size=there.st_size,
        mtime=int(there.st_mtime),
        licence=licence or own_licence,
        apptainer=version,
        machine=platform.machine(),
        created=now(),
        by=f"{getpass.getuser()}@{os.uname().nodename}",
    )


def _inspect(program: str | None, path: Path) -> tuple[str, str]:
    """Return the license from the image's own labels, and the version of Apptainer."""
    if program is None:
        return "", ""
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    inspected = subprocess.run([program, "inspect", "--json", "--labels", str(path)], capture_output=True, check=False)
    try:
        labels = json.loads(inspected.stdout)["data"]["attributes"]["labels"] or {}
    except (ValueError, KeyError, TypeError):
        labels = {}
    licence = next((str(labels[key]) for key in _LICENCES if labels.get(key)), "")
    return licence, version.strip().rpartition(" ")[2]


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BenchError(f"{name!r} is not a valid image name", "use letters, digits and . _ + -, with .sif at the end")
    return name


@contextmanager
def _record(folder: Path) -> Iterator[dict[str, Image]]:
    """Yield the record of a folder for changes by one process at a time; it is written completely or not at all."""
    try:
        with (folder / f".{RECORD}.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            record = dict(read_images(folder).images)
            yield record
            write_model(folder / RECORD, ImageList(images=record))
    except OSError as error:
        raise unwritable(folder / RECORD, error) from error


def _exact(source: str, lock: ImageLock, note: Callable[[str], None]) -> ImageReference:
    """Return the reference with its digest."""
    try:
        reference = parse_reference(source)
    except ValueError as error:
        raise BenchError(str(error), "for example docker://docker.io/library/python:3.12-slim") from error
    if reference.digest:
        return reference
    if pin := lock.images.get(reference.tagged):
        note(f"{reference} is pinned to {pin.digest}")
        return reference.at(pin.digest)
    digest = fetch_digest(reference, _OFFLINE)
    note(f"{reference} is {digest}")
    return reference.at(digest)
