"""The Python packages that a nexus package needs: names of an index, URLs, or folders of the nexus itself."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchhouse.catalog.nexus import Package
from benchhouse.documents.document import Document, Loc
from benchhouse.documents.problems import Problem
from benchhouse.schema.quoting import quote

_NAMED = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[A-Za-z0-9._,\s-]*\])?\s*(.*)")
_SPECIFIER = re.compile(r"\(?\s*(?:[<>=!~]{1,3}\s*[A-Za-z0-9.*+!_-]+\s*,?\s*)*\)?(?:;.*)?")
_SCHEMES = ("git+", "http://", "https://", "file://", "ssh://")


@dataclass(frozen=True)
class Requirement:
    """One `requirement_specifier`; `text` is a line for an installer."""

    kind: Literal["index", "url", "path"]
    text: str
    name: str  # of the distribution; empty if only its source states it
    document: Document
    loc: Loc
    project: Path | None = None  # the pyproject.toml of a folder

    @property
    def number(self) -> int:
        """Its number among the package's requirements, from 0."""
        return int(self.loc[2])

    @property
    def place(self) -> str:
        """`file:line` in the nexus.yaml that requests it."""
        return f"{self.document.path}:{self.document.position(self.loc)[0]}"

    def wants(self, distribution: str) -> tuple[str, str] | None:
        """Return its requirement for another distribution with `file:line`; None if its own files state none."""
        if normal_name(self.name) == distribution and self.kind == "index":
            return self.text, self.place
        for number, line in enumerate(self.project.read_text().splitlines() if self.project else (), 1):
            for text in re.findall(r"[\"']([^\"']+)[\"']", line):
                match = _NAMED.fullmatch(text)
                if match and normal_name(match[1]) == distribution and not line.lstrip().startswith("name"):
                    return text, f"{self.project}:{number}"
        return None


def normal_name(name: str) -> str:
    """Return a name in the form in which indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def index_name(text: str) -> str:
    """Return the normalized name of a requirement; empty if it states none."""
    match = _NAMED.fullmatch(text.partition(" @ ")[0].strip())
    return normal_name(match[1]) if match and not text.startswith((".", "/", *_SCHEMES)) else ""


def requirements(package: Package, root: Path) -> tuple[list[Requirement], list[Problem]]:
    """Return a package's valid requirements, and what is wrong with others: options and paths out of the nexus."""
    good, problems = list[Requirement](), list[Problem]()
    for index, item in enumerate(package.entry.benchmark_packages):
        loc: Loc = ("package", "benchmark_packages", index, "requirement_specifier")
        try:
            good.append(_read(item.requirement_specifier.strip(), package.document, loc, root))
        except ValueError as error:
            expected = "a name of an index, a git or other URL, or a path from the nexus' root: ./packages/..."
            problems.append(package.document.problem(loc, str(error), expected))
    names: dict[str, Requirement] = {}
    for requirement in good:
        first = names.setdefault(normal_name(requirement.name or requirement.text), requirement)
        if first is not requirement and first.text == requirement.text:
            problems.append(package.document.problem(requirement.loc, f"{quote(requirement.text)} is asked for twice"))
    return good, problems


def _read(text: str, document: Document, loc: Loc, root: Path) -> Requirement:
    if text.startswith("-") or any(not char.isprintable() for char in text):
        raise ValueError(f"{quote(text)} is no requirement")
    name, at, url = text.partition(" @ ")
    if at or text.startswith(_SCHEMES):
        source = url.strip() if at else text
        if not source.startswith(_SCHEMES) or (at and not _NAMED.fullmatch(name.strip())):
            raise ValueError(f"{quote(text)} has no URL that could be fetched")
        return Requirement("url", text, name.strip() if at else "", document, loc)
    if text.startswith((".", "/", "~")) or (root / text).is_dir():
        return _of_folder(text, document, loc, root)
    match = _NAMED.fullmatch(text)
    if not match or not _SPECIFIER.fullmatch(match[2]):
        raise ValueError(f"{quote(text)} is no requirement")
    return Requirement("index", text, match[1], document, loc)


def _of_folder(text: str, document: Document, loc: Loc, root: Path) -> Requirement:
    folder, home = (root / text).resolve(), root.resolve()
    if text.startswith(("/", "~")) or not folder.is_relative_to(home):
        raise ValueError(f"{quote(text)} is outside of the nexus: others would not have it")
    if not folder.is_dir():
        raise ValueError(f"{quote(text)} is no folder of the nexus {root}")
    project = folder / "pyproject.toml"
    if not project.resolve().is_relative_to(home) or not project.is_file():
        raise ValueError(f"{quote(text)} has no pyproject.toml")
    try:
        name = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("name", "")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise ValueError(f"{quote(text)}: pyproject.toml can't be read: {error}") from error
    return Requirement("path", str(folder), str(name), document, loc, root / text / "pyproject.toml")
