"""Wheels, keys and checkouts for tests of signatures: real ones, made small."""

import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from benchhouse.processes.packages import find_uv

CODE = """
from benchhouse import Metric, experiment

@experiment("zip.time", version="1.0", metrics=[Metric(name="ms", unit="ms", direction="lower")])
def run(model: str = "a"):
    "Time it."
    return {"ms": 1.0}
"""


def make_wheel(folder: Path, version: str = "1.0", *, more: dict[str, str] | None = None) -> Path:
    """`zip-time`, which offers the experiment zip.time; RECORD as an installer checks it."""
    folder.mkdir(exist_ok=True)
    info = f"zip_time-{version}.dist-info"
    files = {
        "zip_time/__init__.py": CODE,
        "zip_time/data.txt": "one\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: zip-time\nVersion: {version}\nLicense-Expression: MIT\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[benchhouse.experiments]\nzip.time = zip_time:run\n",
    } | (more or {})
    lines = [f"{name},sha256={_hash(text)},{len(text.encode())}\n" for name, text in files.items()]
    wheel = folder / f"zip_time-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (files | {f"{info}/RECORD": "".join(lines) + f"{info}/RECORD,,\n"}).items():
            archive.writestr(name, text)
    return wheel


def _hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def install(wheel: Path, site: Path) -> None:
    command = [find_uv() or "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--reinstall"]
    subprocess.run([*command, "--python", sys.executable, "--target", str(site), str(wheel)], check=True)


def make_keys(folder: Path, *names: str) -> dict[str, str]:
    """The public halves by name; the private ones lie in the folder."""
    for name in names:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return {name: (folder / f"{name}.pub").read_text().strip() for name in names}


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(folder: Path, key: Path | None, *words: str) -> str:
    """Everything in the folder, signed by a key, or by nobody."""
    git(folder, "add", "-A")
    signing = ["-c", "gpg.format=ssh", "-c", f"user.signingkey={key}"] if key else []
    git(folder, *signing, "commit", "-q", "--allow-empty", *(["-S"] if key else []), "-m", "x", *words)
    return git(folder, "rev-parse", "HEAD")
