"""The file system of a folder, and the remaining room there: free space, quotas of its owner, quotas of the profile."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template

from benchhouse.schema.site import Site
from benchhouse.sites.commands import ask

_SHARED = {
    "lustre", "gpfs", "nfs", "nfs4", "beegfs", "ceph", "cifs", "panfs", "pvfs2", "orangefs", "wekafs", "afs",
    "glusterfs", "fuse.glusterfs", "fuse.ceph", "fuse.sshfs", "fuse.juicefs",
}  # fmt: skip
_OCTAL = re.compile(r"\\([0-7]{3})")
_FIGURES = 8  # columns of a row of a quota: used, soft, hard, grace; the same for files


@dataclass(frozen=True)
class Mount:
    """A file system and its mount point."""

    point: Path
    kind: str
    source: str

    @property
    def shared(self) -> bool:
        """Whether other nodes see it too, judged by its kind."""
        return self.kind in _SHARED


@dataclass(frozen=True)
class Room:
    """The remaining room of a place; None means that no limit is known."""

    size: int | None
    files: int | None
    basis: str


def mounts() -> list[Mount]:
    """Return all file systems that this process sees; a later one hides an earlier one at the same mount point."""
    mounted = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        point, (kind, source) = left.split()[4], right.split()[:2]
        mounted.append(Mount(Path(_plain(point)), kind, _plain(source)))
    return mounted


def mount_of(path: Path, known: list[Mount] | None = None) -> Mount:
    """Return the mount of `path`, or of its nearest existing ancestor."""
    place = existing(path).resolve()
    under = [item for item in known or mounts() if item.point == place or item.point in place.parents]
    longest = max(len(item.point.parts) for item in under)
    return [item for item in under if len(item.point.parts) == longest][-1]


def existing(path: Path) -> Path:
    """Return the path, or its nearest existing ancestor."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def rooms(path: Path, site: Site) -> list[Room]:
    """Return every limit of what may be stored below `path`."""
    place, mount = existing(path), mount_of(path)
    return [free(place), *_quotas(place, mount), *_of_site(path, site)]


def free(place: Path) -> Room:
    """Return what the file system itself has left for a user who is not root."""
    state = os.statvfs(place)
    counted = state.f_files > 0  # some file systems create inodes as needed
    files = state.f_favail if counted else None
    return Room(state.f_bavail * state.f_frsize, files, f"free on {mount_of(place).point}")


def _quotas(place: Path, mount: Mount) -> Iterator[Room]:
    """Yield quotas from the command for this kind of file system."""
    user, group = str(os.getuid()), str(place.stat().st_gid)
    if mount.kind == "lustre":
        owners = [("-u", user, "of this user"), ("-g", group, f"of group {group}")]
        if project := re.match(r"\s*(\d+)", ask(["lfs", "project", "-d", str(place)]) or ""):
            owners += [("-p", project[1], f"of project {project[1]}")] if project[1] != "0" else []
        for flag, owner, whose in owners:
            if text := ask(["lfs", "quota", "-q", flag, owner, str(place)]):
                yield from _row(text.split()[1:], f"quota {whose} on {mount.point}")
        return
    # -w: one line each; -p: grace times as numbers, so that no column is ever empty. Exit code 1: a quota is exceeded.
    for line in (ask(["quota", "-w", "-p"], good=(0, 1)) or "").splitlines():
        source, *figures = line.split() or [""]
        if source == mount.source:
            yield from _row(figures, f"quota of this user on {mount.point}")


def _row(figures: list[str], basis: str) -> Iterator[Room]:
    """Yield the room of a row of `lfs quota` or `quota`: used kB, soft, hard, grace; the same for files. 0:
    no limit."""
    plain = [item.strip("*[]") for item in figures[:_FIGURES]]
    if len(plain) < _FIGURES or not all(plain[at].isdecimal() for at in (0, 1, 2, 4, 5, 6)):
        return
    used_k, soft_k, hard_k, files, soft, hard = (int(plain[at]) for at in (0, 1, 2, 4, 5, 6))
    limit_k, limit = hard_k or soft_k, hard or soft
    if limit_k or limit:
        size = max(0, limit_k - used_k) * 1024 if limit_k else None
        yield Room(size, max(0, limit - files) if limit else None, basis)


def _of_site(path: Path, site: Site) -> Iterator[Room]:
    given = {name: value for name, value in os.environ.items() if value}
    for folder, quota in site.quotas.items():
        # relative, and so without effect, if its variable is not set
        home = Path(Template(folder).safe_substitute(given))
        if home in (path.absolute(), *path.absolute().parents):
            yield Room(quota.size, quota.files, f"quota of {home} by site '{site.site}'")
