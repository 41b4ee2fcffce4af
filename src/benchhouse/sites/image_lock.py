"""The lock of a workspace's images, `images.lock.yaml`: read to start servers, changed by `image_pins`."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.writing import write_text
from benchhouse.schema.errors import unwritable
from benchhouse.schema.image import ImageLock, Pin

_HEAD = "# What each image of a registry stands for here; written by `bench images pin`, made for version control.\n"


def read_lock(path: Path) -> ImageLock:
    """Return the lock, empty without a file. Raise every mistake with its place."""
    return validated(load_yaml(path), ImageLock) if path.is_file() else ImageLock.model_construct(images={})


@contextmanager
def changing(path: Path) -> Iterator[dict[str, Pin]]:
    """Yield the pins for changes by one process at a time; the file is written completely or not at all."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        before = read_lock(path).images
        pins = dict(before)
        yield pins
        if pins != before:
            images = {key: pins[key].model_dump() for key in sorted(pins)}
            write_text(path, _HEAD + dump_yaml({"schema_version": 1, "images": images}))
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        os.close(folder)
