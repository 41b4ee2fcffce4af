"""Resolve requirements together with a real resolver, explain conflicts in plain words, and inspect the result."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchhouse.catalog.nexus_requirements import Requirement, normal_name
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.local_packages import rebuilt
from benchhouse.schema.own_wheel import write_own_wheel

TIMEOUT_S = 120.0
INSTALL_S = 900.0
_DEPENDS = re.compile(r"(?:^|\s)([A-Za-z0-9][\w.-]*)(?:[=<>!~]=?\S*)? depends on ([A-Za-z0-9][\w.-]*)([=<>!~]\S*)")
_REQUIRED = re.compile(r"you require ([A-Za-z0-9][\w.-]*)([=<>!~][^\s]*)(?: and ([A-Za-z0-9][\w.-]*)([=<>!~]\S*))?")
_OURS = "benchhouse"


class UnresolvedError(BenchError):
    """The requirements can't be installed together, or there was no answer in time; `of`: the only one at fault."""

    of: Requirement | None = None


class NoAnswerError(UnresolvedError):
    """There was no answer in time: nothing is known about the requirements."""


@dataclass(frozen=True)
class Demand:
    """The versions of a distribution that one requirement needs, and its source."""

    by: str
    of: str
    specifier: str

    def sentence(self, known: Sequence[Requirement]) -> str:
        source = next((item for item in known if normal_name(item.name) == normal_name(self.by)), None)
        if not self.by:
            source = next((item for item in known if item.text.replace(" ", "").endswith(self.specifier)), None)
        place = ""
        if source:
            wanted = source.wants(normal_name(self.of))
            place = f" ({wanted[1] if wanted else source.place})"
        return f"{self.by or 'nexus.yaml'} needs {self.of}{self.specifier}{place}"


def resolve_together(asked: Sequence[Requirement], timeout_s: float = TIMEOUT_S) -> str:
    """Return the lock of all requirements with this Benchhouse, which is left out of it. Raise UnresolvedError."""
    uv = find_uv()
    with TemporaryDirectory(prefix="bench-resolve-") as scratch:
        folder = Path(scratch)
        ours = f"{_OURS} @ {write_own_wheel(folder).as_uri()}"
        text = "".join(f"{line}\n" for line in (ours, *(item.text for item in asked)))
        (folder / "requirements.in").write_text(text, encoding="utf-8")
        command = [uv, "pip", "compile", "--python", sys.executable, "--no-header", "--no-annotate", "--quiet"]
        command += [*rebuilt(item.text for item in asked), str(folder / "requirements.in")]
        code, out, errors = run_bounded(command, folder, timeout_s)
    if code is None:
        remote = ", ".join(f"{item.text} ({item.place})" for item in asked if item.kind == "url") or "the package index"
        raise NoAnswerError(f"no answer within {timeout_s:g} s from {remote}", "check the address and the network")
    if code:
        raise explain(errors, asked)
    return "".join(line for line in out.splitlines(keepends=True) if not line.startswith(f"{_OURS} "))


def explain(refusal: str, asked: Sequence[Requirement]) -> UnresolvedError:
    """Return the resolver's refusal as demands with their files, followed by its own text."""
    flat = " ".join(refusal.split())
    own = "\n".join(f"    {line}" for line in refusal.strip().splitlines()[:20])
    for item in asked:
        if item.kind == "url" and _address(item) in flat and "No solution found" not in flat:
            reason = re.findall(r"fatal: (.*?)(?:$| fatal:)|(?:error|cause): ([^:]*?)$", flat)
            short = next((part for pair in reason for part in pair if part), "").strip() or "no reason was given"
            error = UnresolvedError(f"{item.place}: {item.text} can't be fetched: {short}\n{own}", "check the address")
            error.of = item
            return error
    demands = {Demand(normal_name(by), normal_name(of), spec.rstrip(",.")) for by, of, spec in _DEPENDS.findall(flat)}
    for first, spec, second, other in _REQUIRED.findall(flat):
        demands.add(Demand("", normal_name(first), spec.rstrip(",.")))
        demands |= {Demand("", normal_name(second), other.rstrip(",."))} if second else set()
    disputed = {item.of for item in demands}
    for item in asked:
        spec = item.text.removeprefix(item.name).strip()
        if item.kind == "index" and normal_name(item.name) in disputed and spec[:1] in "=<>!~":
            demands.add(Demand("", normal_name(item.name), spec))
    lines = []
    for name in sorted({item.of for item in demands}):
        several = sorted((item for item in demands if item.of == name), key=lambda item: (item.by, item.specifier))
        if len({item.specifier for item in several}) > 1:
            lines.append(f"  {name}: {'; '.join(item.sentence(asked) for item in several)}")
    if lines:
        message = "these can't be installed together:\n" + "\n".join(lines)
        return UnresolvedError(f"{message}\n  the resolver says:\n{own}", "change one of these requirements")
    missing = re.findall(
        r"Because (\S+) was not found in the (package registry|cache|provided package locations)", flat
    )
    if missing:
        name = normal_name(missing[0][0])
        wanted = [place for item in asked if (place := item.wants(name))]
        where = f"{wanted[0][1]}: " if wanted else ""
        return UnresolvedError(f"{where}there is no package '{name}'\n{own}", "check the name, or the index")
    return UnresolvedError(f"the requirements can't be resolved:\n{own}", "see the resolver's message")


def _address(item: Requirement) -> str:
    """Return a URL as git and downloaders print it: without the name, the scheme's `git+`, and the revision."""
    source = (item.text.partition(" @ ")[2] or item.text).removeprefix("git+").partition("#")[0]
    head, at, last = source.rpartition("@")
    return head if at and "/" not in last else source


def validate_static(package: str, nexus: Path, lock: str, timeout_s: float = INSTALL_S) -> dict[str, Any]:
    """Return the result of `bench packages validate PACKAGE --static` with that lock. Raise UnresolvedError."""
    with TemporaryDirectory(prefix="bench-packages-") as name:
        folder = Path(name)
        python = _build(folder, lock, timeout_s)
        command = [str(python), "-I", "-m", "benchhouse", "-C", str(nexus.absolute()), "packages", "validate", package]
        environ = os.environ | {"BENCH_CACHE_DIR": str(folder / "cache")}
        command += ["--static", "--json", "--nexus", str(nexus.absolute())]
        code, out, errors = run_bounded(command, folder, timeout_s, environ)
        if code is None or not out.strip():
            raise UnresolvedError(f"'{package}' could not be examined where it is installed: {errors[-500:]}")
        answer: dict[str, Any] = json.loads(out)
        if "findings" not in answer:
            raise BenchError(str(answer.get("error", errors)), str(answer.get("hint", "")))
        return answer


def _build(folder: Path, lock: str, timeout_s: float) -> Path:
    """Make an environment with exactly the contents of the lock, and link this Benchhouse into it."""
    venv, locked = folder / "venv", folder / "requirements.txt"
    locked.write_text(f"{lock}{write_own_wheel(folder)}\n", encoding="utf-8")
    uv, python = find_uv(), venv / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--python", str(python), "--no-deps", *rebuilt(lock.splitlines())]
    for command in ([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], [*install, "-r", str(locked)]):
        code, _, errors = run_bounded(command, folder, timeout_s)
        if code != 0:
            what = f"took longer than {timeout_s:g} s" if code is None else "failed"
            message = f"the installation {what}:\n" + "\n".join(f"    {line}" for line in errors.splitlines()[-15:])
            raise UnresolvedError(message, "each package alone:  uv pip install SPECIFIER", Exit.BAD_INPUT)
    site = next((venv / "lib").glob("python*/site-packages"))
    (site / "benchhouse").symlink_to(Path(__file__).resolve().parents[1], target_is_directory=True)
    return python


def find_uv() -> str:
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        raise UnresolvedError(
            "resolving requirements needs the program uv, and there is none on PATH",
            "pip install 'benchhouse[packages]'",
            Exit.TRIAL_FAILED,
        )
    return uv


def run_bounded(
    command: list[str], folder: Path, timeout_s: float, environ: Mapping[str, str] = os.environ
) -> tuple[int | None, str, str]:
    """Return exit code, output, and error output. The code is None after a timeout, which kills all processes."""
    clean = {key: value for key, value in environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    clean |= {"GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1", "GIT_ASKPASS": "true", "SSH_ASKPASS": "true"}
    out, err = folder / "out", folder / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=clean,
            cwd=folder,
            start_new_session=True,
        )  # fmt: skip
        try:
            code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    output, errors = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
    return code, output, errors
