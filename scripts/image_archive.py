"""Container images of one folder, as an archive that `ctr images import` and `docker load` read.

python scripts/image_archive.py ROOT ARCHIVE NAME=COMMAND...: each is localhost/NAME, and they share one layer.
"""

import hashlib
import io
import json
import platform
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory


def owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def write(root: Path, archive: Path, commands: dict[str, list[str]]) -> None:
    with TemporaryDirectory(dir=archive.parent) as scratch:
        layer = Path(scratch) / "layer.tar"
        with tarfile.open(layer, "w") as content:
            content.add(root, ".", filter=owned_by_root)
        with layer.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with tarfile.open(archive, "w") as images:
            images.add(layer, "layer.tar")
            manifest = []
            for number, (name, command) in enumerate(commands.items()):
                add(images, f"{number}.json", config(digest, command))
                tag = f"localhost/{name}"
                manifest.append({"Config": f"{number}.json", "RepoTags": [tag], "Layers": ["layer.tar"]})
            add(images, "manifest.json", manifest)


def config(digest: str, command: list[str]) -> dict[str, object]:
    return {
        "os": "linux",
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "config": {"Cmd": command, "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"]},
    }


def add(images: tarfile.TarFile, name: str, document: object) -> None:
    data = json.dumps(document).encode()
    member = tarfile.TarInfo(name)
    member.size = len(data)
    images.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    root, archive, *named = sys.argv[1:]
    write(Path(root), Path(archive), {name: text.split() for name, _, text in (item.partition("=") for item in named)})
