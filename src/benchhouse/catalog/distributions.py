"""What is installed, read from the folders of metadata themselves: importing importlib.metadata takes 20 ms, and parsing
all metadata as e-mail, as it does, far longer."""

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

UNNAMED = "?"
"""The name of a distribution whose metadata is damaged."""


class Distribution(NamedTuple):
    """One installed distribution."""

    place: str  # its folder of metadata
    read: Callable[[str], str | None]
    """A file of its metadata; empty or None where there is none."""

    def name_and_version(self) -> tuple[str, str]:
        """From the first lines of METADATA; an old one has but one file, or PKG-INFO."""
        head = (self.read("METADATA") or self.read("PKG-INFO") or self.read("") or "").partition("\n\n")[0]
        fields = dict(line.split(": ", 1) for line in head.splitlines() if line.startswith(("Name: ", "Version: ")))
        return fields.get("Name", UNNAMED).strip(), fields.get("Version", "0").strip()

    def entry_points(self) -> Iterator[tuple[str, str, str]]:
        """Group, name and value of each."""
        group = ""
        for line in map(str.strip, (self.read("entry_points.txt") or "").splitlines()):
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


def _read(place: str, name: str) -> str:
    try:
        with open(os.path.join(place, name) if name else place, encoding="utf-8", errors="replace") as file:  # noqa: PTH118, PTH123
            return file.read()
    except OSError:
        return ""


def _in_archive(path: str) -> Iterator[Distribution]:
    from importlib.metadata import distributions as found_by_python

    for item in found_by_python(path=[path]):
        yield Distribution(str(getattr(item, "_path", item)), item.read_text)
