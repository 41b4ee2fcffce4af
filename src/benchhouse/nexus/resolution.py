"""Whether requirements can be installed together: a real resolver is asked, and its answer put in plain words."""

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

from benchhouse.catalog.nexus_requirements import Requirement, normal_name
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.own_wheel import write_own_wheel

TIMEOUT_S = 120.0
_DEPENDS = re.compile(r"(?:^|\s)([A-Za-z0-9][\w.-]*)(?:[=<>!~]=?\S*)? depends on ([A-Za-z0-9][\w.-]*)([=<>!~]\S*)")
_REQUIRED = re.compile(r"you require ([A-Za-z0-9][\w.-]*)([=<>!~][^\s]*)(?: and ([A-Za-z0-9][\w.-]*)([=<>!~]\S*))?")
_OURS = "benchhouse"


class UnresolvedError(BenchError):
    """The requirements can't be installed together, or nobody could tell in time; `of`: the only one at fault."""

    of: Requirement | None = None


@dataclass(frozen=True)
class Demand:
    """Who asks for which versions of a distribution, and where that is written."""

    by: str
    of: str
    specifier: str

    def words(self, known: Sequence[Requirement]) -> str:
        whose = next((item for item in known if normal_name(item.name) == normal_name(self.by)), None)
        if not self.by:
            whose = next((item for item in known if item.text.replace(" ", "").endswith(self.specifier)), None)
        place = ""
        if whose:
            said = whose.wants(normal_name(self.of))
            place = f" ({said[1]})" if said else f" ({whose.place})"
        return f"{self.by or 'nexus.yaml'} needs {self.of}{self.specifier}{place}"


def resolve_together(asked: Sequence[Requirement], timeout_s: float = TIMEOUT_S) -> str:
    """The lock of all of them beside this Benchhouse, which is not in it; raises UnresolvedError."""
    uv = find_uv()
    with TemporaryDirectory(prefix="bench-resolve-") as scratch:
        folder = Path(scratch)
        ours = f"{_OURS} @ {write_own_wheel(folder).as_uri()}"
        text = "".join(f"{line}\n" for line in (ours, *(item.text for item in asked)))
        (folder / "requirements.in").write_text(text, encoding="utf-8")
        command = [uv, "pip", "compile", "--python", sys.executable, "--no-header", "--no-annotate", "--quiet"]
        command.append(str(folder / "requirements.in"))
        code, out, said = run_bounded(command, folder, timeout_s)
    if code is None:
        remote = ", ".join(f"{item.text} ({item.place})" for item in asked if item.kind == "url") or "the package index"
        raise UnresolvedError(f"no answer within {timeout_s:g} s from {remote}", "check the address and the network")
    if code:
        raise explain(said, asked)
    return "".join(line for line in out.splitlines(keepends=True) if not line.startswith(f"{_OURS} "))


def explain(said: str, asked: Sequence[Requirement]) -> UnresolvedError:
    """The resolver's refusal: who asks for what, and in which file; its own words below."""
    flat = " ".join(said.split())
    own = "\n".join(f"    {line}" for line in said.strip().splitlines()[:20])
    for item in asked:
        if item.kind == "url" and _address(item) in flat and "No solution found" not in flat:
            reason = re.findall(r"fatal: (.*?)(?:$| fatal:)|(?:error|cause): ([^:]*?)$", flat)
            short = next((part for pair in reason for part in pair if part), "").strip() or "it can't be fetched"
            error = UnresolvedError(f"{item.place}: {item.text} can't be had: {short}\n{own}", "check the address")
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
            lines.append(f"  {name}: {'; '.join(item.words(asked) for item in several)}")
    if lines:
        message = "these can't be installed together:\n" + "\n".join(lines)
        return UnresolvedError(f"{message}\n  the resolver says:\n{own}", "change one of these requirements")
    missing = re.findall(
        r"Because (\S+) was not found in the (package registry|cache|provided package locations)", flat
    )
    if missing:
        name = normal_name(missing[0][0])
        wanted = [found for item in asked if (found := item.wants(name))]
        where = f"{wanted[0][1]}: " if wanted else ""
        return UnresolvedError(f"{where}no package '{name}' is to be had\n{own}", "check the name, or the index")
    return UnresolvedError(f"the requirements can't be resolved:\n{own}", "see the resolver's words")


def _address(item: Requirement) -> str:
    """Of a URL, as git and downloaders write it: without the name before it, the scheme's `git+` and the revision."""
    source = (item.text.partition(" @ ")[2] or item.text).removeprefix("git+").partition("#")[0]
    head, at, last = source.rpartition("@")
    return head if at and "/" not in last else source


def find_uv() -> str:
    found = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if found is None:
        raise UnresolvedError(
            "resolving requirements needs the program uv, and there is none on PATH",
            "pip install 'benchhouse[packages]'",
            Exit.TRIAL_FAILED,
        )
    return found


def run_bounded(
    command: list[str], folder: Path, timeout_s: float, environ: Mapping[str, str] = os.environ
) -> tuple[int | None, str, str]:
    """Exit code (None: it took too long and was ended with all that it started), output, and what it said."""
    clean = {key: value for key, value in environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    clean |= {"GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1", "GIT_ASKPASS": "true", "SSH_ASKPASS": "true"}
    out, err = folder / "out", folder / "err"
    with out.open("wb") as printed, err.open("wb") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=said,
            env=clean,
            cwd=folder,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return code, _whole(out), _whole(err)


def _whole(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
