"""Verify the signer of a folder in a git checkout: git checks the key, and each file is compared with the commit."""

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchhouse.schema.errors import BenchError

_TIMEOUT_S = 60.0
_LINK, _MODULE = "120000", "160000"
# Files that tools leave next to code; none of them is imported or displayed as a part of the folder.
_LEFT_BEHIND = ("__pycache__", ".git", ".venv", "build", "dist", ".pytest_cache", ".mypy_cache", ".ruff_cache")
# Only SSH keys count: git would look up other signatures among the keys of the current user.
_ONLY_SSH = ("gpg.format=ssh", "gpg.ssh.program=ssh-keygen", "gpg.program=false", "gpg.openpgp.program=false",
             "gpg.x509.program=false")  # fmt: skip
Tree = Mapping[str, tuple[str, str]]
"""Mode and object id of each file, by its path."""


@dataclass(frozen=True)
class CommitSignature:
    """The signature of the commit that gave a folder its contents."""

    commit: str
    signer: str
    """Owner of the key; empty if the signature does not count."""
    why: str
    """Why it does not count; empty if it does."""
    fingerprint: str = ""
    """Fingerprint of an unknown key."""


def commit_signature(folder: Path, keys: Mapping[str, Sequence[str]]) -> CommitSignature:
    """Return the signature of HEAD, or of the last commit that changed the folder if its contents are still the same.

    A merge made by a server is signed by the server: then the commit that it merged counts. `keys` are those that
    count, by the names of their owners.
    """
    head = _git(folder, "rev-parse", "HEAD").strip()
    last = _git(folder, "log", "-1", "--format=%H", "HEAD", "--", ".").strip()
    found = [_signature(folder, head, keys)]
    if last and last != head and tree_of(folder, last) == tree_of(folder, head):
        found.append(_signature(folder, last, keys))
    return next((item for item in found if item.signer), found[-1])


def changed_since_commit(folder: Path, commit: str) -> list[str]:
    """Return files of the folder that differ from the commit, are missing, or are not in it."""
    return changed_files(folder, tree_of(folder, commit))


def tree_of(folder: Path, commit: str) -> Tree:
    """Return all files below the folder, as the commit has them."""
    lines = (line.partition("\t") for line in _git(folder, "ls-tree", "-r", "-z", commit).split("\0") if line)
    return {path: (about.split()[0], about.split()[2]) for about, _, path in lines}


def changed_files(folder: Path, tree: Tree) -> list[str]:
    """Return files that differ from `tree`, by their own bytes: git's index may be set to ignore changes."""
    lines = [f"{name} is not as in the commit" for name, item in tree.items() if not _is_same(folder / name, *item)]
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_BEHIND and not name.endswith(".egg-info")]
        paths = [Path(here, name) for name in names if name != ".git"]
        paths += [path for name in folders if (path := Path(here, name)).is_symlink()]
        others = [path.relative_to(folder).as_posix() for path in paths]
        lines += [f"{name} is not in the commit" for name in sorted(others) if name not in tree]
    return lines


def _is_same(path: Path, mode: str, wanted: str) -> bool:
    try:
        if mode == _MODULE:
            return False  # the commit does not record the contents of another repository
        if (mode == _LINK) != path.is_symlink():
            return False
        target = os.readlink(path) if mode == _LINK else ""  # noqa: PTH115 - a Path would spell it anew
        content = os.fsencode(target) if mode == _LINK else path.read_bytes()
    except OSError:
        return False
    kind = hashlib.sha1 if len(wanted) == 40 else hashlib.sha256  # the hash of the repository's object ids
    return kind(b"blob %d\0%b" % (len(content), content)).hexdigest() == wanted


def _signature(folder: Path, commit: str, keys: Mapping[str, Sequence[str]]) -> CommitSignature:
    with TemporaryDirectory(prefix="bench-signers-") as scratch:
        signers = Path(scratch, "signers")
        lines = [f'{name} namespaces="git" {" ".join(key.split()[:2])}\n' for name in keys for key in keys[name]]
        signers.write_text("".join(lines), encoding="utf-8")
        options = [f"gpg.ssh.allowedSignersFile={signers}", *_ONLY_SSH]
        settings = [word for option in options for word in ("-c", option)]
        verified = _run(folder, *settings, "verify-commit", commit).returncode == 0
        told = _run(folder, *settings, "log", "-1", "--no-show-signature", "--format=%G?%n%GS%n%GF", commit)
    state, signer, fingerprint = (*told.stdout.decode(errors="replace").splitlines(), "", "", "")[:3]
    if verified and state == "G" and signer in keys:
        return CommitSignature(commit, signer, "")
    if state in ("N", ""):
        return CommitSignature(commit, "", "is not signed")
    if fingerprint.startswith("SHA256:"):
        return CommitSignature(commit, "", "is signed by a key that nobody has in trusted.yaml", fingerprint)
    return CommitSignature(commit, "", "has a signature that is wrong, or not one of an SSH key")


def _git(folder: Path, *arguments: str) -> str:
    done = _run(folder, *arguments)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise BenchError(f"{folder} can't be held to a commit: {reason}", "git clone the repository that has it")
    return os.fsdecode(done.stdout)


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C"}
    try:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, env=environ)
    except FileNotFoundError as error:
        raise BenchError("git is not installed", "install git, 2.34 or newer") from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"git {arguments[0]} did not end within {_TIMEOUT_S:g} s", "try it by hand") from error
