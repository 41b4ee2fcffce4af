"""What is installed, read from the folders of metadata themselves.

To import importlib.metadata takes 20 ms, and parsing all metadata as e-mail, as it does, far longer.
"""

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

_HEAD, _ALL = 1024, 1 << 26
UNNAMED = "?"
"""The name of a distribution whose metadata is damaged."""


class Distribution(NamedTuple):
    """One installed distribution."""

    place: str  # its folder of metadata
    read: Callable[[str, int], str]
    """The beginning of a file of its metadata; empty where there is none."""

    def name_and_version(self) -> tuple[str, str]:
        """From the first lines of METADATA, before a description of a hundred pages; an old one has but one file."""
        for size in (_HEAD, _ALL):
            text = self.read("METADATA", size) or self.read("PKG-INFO", size) or self.read("", size)
            lines = text.partition("\n\n")[0].splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n") or size == _ALL]
            fields = dict(line.split(": ", 1) for line in whole if line.startswith(("Name: ", "Version: ")))
            if len(fields) == 2:
                break
        return fields.get("Name", UNNAMED).strip(), fields.get("Version", "0").strip()

    def entry_points(self) -> Iterator[tuple[str, str, str]]:
        """Group, name and value of each."""
        group = ""
        for line in map(str.strip, self.read("entry_points.txt", _ALL).splitlines()):
            if line.startswith("[") and line.endswith("]"):
                group = line[1:-1].strip()
            elif line and not line.startswith(("#", ";")):
                name, _, value = line.partition("=")
                yield group, name.strip(), value.strip()


def distributions() -> Iterator[Distribution]:
    """All on the path, those first that come first when they are imported."""
    for folder in dict.fromkeys(entry or "." for entry in sys.path):
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names, not paths
        except NotADirectoryError:
            yield from _in_archive(folder)
            continue
        except OSError:
            continue
        for name in names:
            low = name.lower()
            if low.endswith((".dist-info", ".egg-info")) or (low == "egg-info" and folder.lower().endswith(".egg")):
                place = f"{folder}/{name}"
                yield Distribution(place, partial(_read, place))


def version_of(name: str) -> str:
    """Of the distribution that is imported; empty where there is none."""
    start = f"/{name.replace('-', '_').lower()}-"
    for item in distributions():
        if start in item.place.lower() and (found := item.name_and_version())[0].lower() == name:
            return found[1]
    return ""


def _read(place: str, name: str, size: int) -> str:
    try:
        with open(f"{place}/{name}" if name else place, "rb", buffering=0) as file:  # noqa: PTH123
            return file.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def _in_archive(path: str) -> Iterator[Distribution]:
    from importlib.metadata import distributions as found_by_python

    for item in found_by_python(path=[path]):
        yield Distribution(str(getattr(item, "_path", item)), partial(_read_archived, item))


def _read_archived(item: Any, name: str, size: int) -> str:
    return (item.read_text(name) or "")[:size]
