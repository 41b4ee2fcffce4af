"""The files of a distribution by their digests, which are equal for its wheel and the installed files."""

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import all_suffixes
from importlib.metadata import Distribution, PathDistribution, distributions
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from benchhouse.catalog.entries import ADO
from benchhouse.catalog.nexus_requirements import normal_name
from benchhouse.schema.digests import file_digest
from benchhouse.schema.errors import BenchError

_OURS = "benchhouse"
_TOLD = 3
# Written by an installer, or signatures of the file list: these differ from the files of a wheel.
_INSTALLERS = {"RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}


@dataclass(frozen=True)
class DistributionFiles:
    """The files of a wheel: sha256 by path in site-packages."""

    package: str
    version: str
    files: dict[str, str]


def find_distribution(name: str) -> Distribution:
    """Return the distribution of this name that gets imported. Raise BenchError if it is not installed."""
    wanted = normal_name(name)
    for item in distributions():
        if normal_name(item.metadata["Name"] or "") == wanted:
            return item
    raise BenchError(f"{name} is not installed here", f"uv pip install {name}")


def bringing_experiments(site: Path) -> list[Distribution]:
    """Return the distributions in `site-packages`, except benchhouse, with our or ado's entry points; import none."""
    found = {normal_name(item.metadata["Name"]): item for item in distributions(path=[str(site)])}
    return [
        item
        for name, item in sorted(found.items())
        if name != _OURS
        and any(point.group.startswith("benchhouse.") or point.group in ADO for point in item.entry_points)
    ]


def wheel_files(path: Path) -> DistributionFiles:
    """Return the files of a wheel, which is read but not unpacked."""
    hint = "build one:  uv build --wheel   or sign what is installed:  bench packages sign NAME"
    try:
        with zipfile.ZipFile(path) as archive:
            names = [item for item in archive.namelist() if not item.endswith("/")]
            info = {name.partition("/")[0] for name in names if name.partition("/")[0].endswith(".dist-info")}
            if len(info) != 1 or len(set(names)) != len(names):
                raise BenchError(f"{path} is no wheel: it has {len(info)} folders *.dist-info", hint)
            if moved := [name for name in names if name.partition("/")[0].endswith(".data")]:
                message = f"{moved[0]} in {path} is changed when it is installed: what is then there can't be compared"
                raise BenchError(message, "install it, look at it, then:  bench packages sign NAME")
            about = PathDistribution(zipfile.Path(archive, f"{info.pop()}/"))
            files = {name: _sha256(archive, name) for name in names if not _is_written_here(PurePosixPath(name))}
            return DistributionFiles(normal_name(about.metadata["Name"]), about.version, files)
    except (OSError, zipfile.BadZipFile, KeyError, TypeError) as error:
        raise BenchError(f"{path} is no wheel that can be read: {error}", hint) from error


def installed_files(distribution: Distribution) -> DistributionFiles:
    """Return the installed files by their current bytes, regardless of the digests in RECORD."""
    name, version = distribution.metadata["Name"], distribution.version
    if distribution.read_text("RECORD") is None:
        raise BenchError(f"{name} has no RECORD: nobody can say which files are its", f"install it anew: {name}")
    scripts = {item.name for item in distribution.entry_points if item.group in ("console_scripts", "gui_scripts")}
    files = {}
    for item in distribution.files or ():
        path = PurePosixPath(item.as_posix())
        made = len(path.parts) > 1 and path.parts[-2] in ("bin", "Scripts") and path.stem in scripts
        if not made and not _is_written_here(path) and (place := Path(str(item.locate()))).is_file():
            files[path.as_posix()] = file_digest(place)
    return DistributionFiles(normal_name(name), version, files)


def editable_source(distribution: Distribution) -> Path | None:
    """Return the source folder of an editable installation; None for others."""
    try:
        record = json.loads(distribution.read_text("direct_url.json") or "{}")
        if record["dir_info"]["editable"] and record["url"].startswith("file://"):
            return Path(unquote(record["url"].removeprefix("file://")))
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def entry_modules(distribution: Distribution) -> set[str]:
    """Return the top-level modules of a distribution's entry points for Benchhouse."""
    groups = (point for point in distribution.entry_points if point.group.startswith("benchhouse."))
    others = (point for point in distribution.entry_points if point.group in ADO)
    return {point.value.partition(":")[0].partition(".")[0] for point in (*groups, *others)}


def planted(distribution: Distribution, recorded: Mapping[str, str]) -> Iterator[str]:
    """Yield files that would be imported as parts of a distribution, or in place of one, but do not belong to it."""
    site = Path(str(distribution.locate_file("")))
    own = [PurePosixPath(name) for name in recorded if ".dist-info/" not in name]
    packages = {path.parent for path in own if path.name == "__init__.py"}
    tops, names = {path.parts[0].partition(".")[0] for path in own}, {path.parts[0] for path in own}
    places = [site / path for path in packages if not packages.intersection(path.parents)]
    places += [item for item in site.iterdir() if item.name.partition(".")[0] in tops and item.name not in names]
    for place in sorted(places):
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            name = file.relative_to(site).as_posix()
            imported = (file.is_symlink() and file.is_dir()) or (file.is_file() and is_importable(file))
            if name not in recorded and imported and "__pycache__" not in file.parts:
                yield name


def is_importable(path: Path) -> bool:
    return path.name.endswith(tuple(all_suffixes()))


def differences(signed: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Return the differences from the signed files, the first ones by name; empty if there are none."""
    lines = [f"{name} is not as it was signed" for name in signed if there.get(name, signed[name]) != signed[name]]
    lines += [f"{name}, which was signed, is missing" for name in signed if name not in there]
    lines += [f"{name} was not signed" for name in there if name not in signed]
    return in_short(lines)


def in_short(lines: list[str]) -> str:
    """Return the first lines, and how many more there are."""
    more = f" and {len(lines) - _TOLD} more" if len(lines) > _TOLD else ""
    return "; ".join(lines[:_TOLD]) + more


def _is_written_here(path: PurePosixPath) -> bool:
    in_info = len(path.parts) == 2 and path.parts[0].endswith(".dist-info")
    return (in_info and path.name in _INSTALLERS) or "__pycache__" in path.parts


def _sha256(archive: zipfile.ZipFile, name: str) -> str:
    hashed = hashlib.sha256()
    with archive.open(name) as stream:
        while block := stream.read(1 << 20):
            hashed.update(block)
    return hashed.hexdigest()
