"""An Apptainer container: the same worker inside a pinned image, as the same user, with nothing else of the host.

In `containers/` of the cache: `enter` scripts by request, the inspection of each image (`looks/`), and worker layers
(`layers/`): the few packages that the worker needs, for one version of Python, shared by its images.
"""

import os
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from pydantic import Field

from benchhouse.processes.durable import make_folders, write_whole
from benchhouse.processes.packages import OURS
from benchhouse.processes.worker_layer import WorkerLayer
from benchhouse.schema.container import Bind, ContainerEntry, explain_exit, parse_bind
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.image import Image, is_unchanged, pinned
from benchhouse.schema.model import Model
from benchhouse.schema.protocols import RuntimeContainer, RuntimeContext
from benchhouse.schema.resources import RuntimeSettings

_LOOK_S = 120.0


class ImageInspection(Model):
    """The contents of an image that matter to the worker."""

    schema_version: Literal[1] = 1
    python: str = Field("", description="The interpreter, by its path inside; empty where there is none that will do.")
    version: str = Field("", description="Its version, e.g. 3.11; of the newest one where none will do.")
    machine: str = ""
    libc: str = Field("", description="glibc with its version, or musl.")
    pydantic: str = Field("", description="The image's own version, where it has one.")


class ApptainerRuntime:
    def prepare(self, spec: RuntimeSettings, place: RuntimeContext) -> None:
        if spec.requirements or spec.environments:
            raise BenchError(
                "the packages of a container are in its image: runtime.requirements has no effect",
                "put them into the image (bench images build FILE.def), or write runtime: {kind: venv, ...}",
            )
        request = _ApptainerRequest(spec, place)
        path, image = request.image()
        if not is_unchanged(path, image):
            raise BenchError(
                f"the image {path} is not the one that was pinned",
                f"bench images verify tells more; to pin it as it is now: bench images add {path}",
                Exit.TRIAL_FAILED,
            )
        request.refuse_missing_binds()
        look = request.look(image)
        if not look.python:
            has = f"has Python {look.version}" if look.version else "has no Python"
            raise BenchError(
                f"the image {path} {has}, and the worker needs 3.11 or newer (and pydantic 2.8, if it has one)",
                "run the trial outside and the server inside: runtime: {kind: process}, and a service whose recipe "
                "names this image; or name another interpreter of the image: runtime: {python: /path/inside}",
            )
        layer = request.layer(look)
        layer.make(lambda made: request.compile(image, look, made))
        script = request.script(image, look, layer)
        enter = request.enter
        if not enter.exists() or enter.read_text(encoding="utf-8") != script:
            make_folders(enter.parent)
            write_whole(enter, script, 0o755)

    def python(self, spec: RuntimeSettings, place: RuntimeContext) -> tuple[str, ...]:
        return (str(_ApptainerRequest(spec, place).enter),)

    def identity(self, spec: RuntimeSettings, place: RuntimeContext) -> str | None:
        return None

    def packages(self, spec: RuntimeSettings, place: RuntimeContext) -> str:
        request = _ApptainerRequest(spec, place)
        try:
            _, image = request.image()
        except BenchError as error:
            return f"apptainer: {error.message}"
        look = request.cached_inspection(image)
        inside = f", Python {look.version} inside" if look else ""
        return f"apptainer: {place.image} (sha256 {image.sha256[:12]}{inside})"

    def container(self, spec: RuntimeSettings, place: RuntimeContext) -> RuntimeContainer | None:
        request = _ApptainerRequest(spec, place)
        _, image = request.image()
        look = request.cached_inspection(image) or ImageInspection(python=spec.python or "python3", version="?")
        return RuntimeContainer(image.sha256, request.script(image, look, request.layer(look)))


class _ApptainerRequest:
    """The container settings of a scenario, and the files that are created for them."""

    def __init__(self, spec: RuntimeSettings, place: RuntimeContext) -> None:
        self.spec, self.place = spec, place
        self.home = place.cache / "containers"

    @property
    def enter(self) -> Path:
        """The path of the enter script, known before any inspection: `python` and `--dry-run` need the name."""
        place = self.place
        try:
            sha256 = self.image()[1].sha256
        except BenchError:
            sha256 = ""
        request = {
            "image": [place.image, sha256],
            "python": self.spec.python,
            "binds": [place.binds, [str(folder) for folder in place.folders]],
            "variables": place.variables,
            "gpus": bool(place.gpus),
            "modules": place.site.modules,
            "environment": sorted(place.site.environment),
            "benchhouse": [str(OURS), version("benchhouse")],
        }
        return self.home / digest(request)[:16] / "enter"

    def image(self) -> tuple[Path, Image]:
        """Return the .sif file and its record. Raises BenchError if it is missing or not pinned."""
        name = self.place.image
        if not name:
            raise BenchError(
                "the runtime 'apptainer' needs an image",
                "write runtime: {kind: apptainer, image: /path/to/image.sif}, or artifacts: {container: ...}",
            )
        path = Path(name)
        if not path.is_absolute() or path.suffix != ".sif":
            pull = f"bench images pull {name}" if ":" in name or "@" in name else "bench images list"
            raise BenchError(f"the image {name!r} is not the absolute path of a .sif file", f"see: {pull}")
        if not path.is_file():
            raise BenchError(
                f"the image {path} is not there",
                f"make it on a login node: bench images pull docker://NAME --name {path.name}, or bench images build "
                f"FILE.def --name {path.name}; or copy it there, then: bench images add {path}",
            )
        image = pinned(path)
        if image is None:
            raise BenchError(f"the image {path} is not pinned", f"pin it as it is now: bench images add {path}")
        return path, image

    def binds(self) -> list[Bind]:
        """Return our binds, then those of the scenario, so that the latter may replace something inside a folder of
        ours."""
        ours = [Bind(str(folder), str(folder)) for folder in dict.fromkeys(self.place.folders)]
        return [*ours, *(parse_bind(item) for item in self.place.binds)]

    def refuse_missing_binds(self) -> None:
        missing = [bind.source for bind in self.binds() if not Path(bind.source).exists()]
        if missing:
            raise BenchError(
                f"folders to bind into the container do not exist: {', '.join(missing)}",
                "create these folders, or correct `binds`",
            )

    def cached_inspection(self, image: Image) -> ImageInspection | None:
        try:
            return ImageInspection.model_validate_json(self._inspection_file(image).read_bytes())
        except (OSError, ValueError):
            return None

    def _inspection_file(self, image: Image) -> Path:
        chosen = f"-{digest(self.spec.python)[:8]}" if self.spec.python else ""
        return self.home / "looks" / f"{image.sha256}{chosen}.json"

    def look(self, image: Image) -> ImageInspection:
        """Inspect the image, once."""
        if known := self.cached_inspection(image):
            return known
        names = [self.spec.python] if self.spec.python else _NAMES
        look = _best(self._enter(image, ("/bin/sh", "-c", _FIND, "sh", *names)))
        make_folders(self._inspection_file(image).parent)
        write_whole(self._inspection_file(image), look.model_dump_json(indent=2) + "\n")
        return look

    def compile(self, image: Image, look: ImageInspection, made: Path) -> None:
        """Compile the layer's packages, and our own if writable: this Python may differ from the one outside."""
        folders = [made, OURS] if os.access(OURS, os.W_OK) else [made]
        command = (look.python, "-I", "-m", "compileall", "-q", *map(str, folders))
        self._enter(image, command, [Bind(str(folder), str(folder)) for folder in folders])

    def _enter(self, image: Image, command: Sequence[str], binds: Sequence[Bind] = ()) -> str:
        entry = ContainerEntry(self.place.image, image, binds, modules=self.place.site.modules)
        try:
            completed = subprocess.run(
                ["bash", "-c", entry.script(command), "enter"],
                capture_output=True, text=True, timeout=_LOOK_S, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BenchError(f"the image {self.place.image} could not be inspected: {error}") from error
        if completed.returncode:
            output = " ".join((completed.stderr or completed.stdout).split())[-500:]
            why = explain_exit(completed.returncode)
            raise BenchError(
                f"the image {self.place.image} could not be entered{f' ({why})' if why else ''}: {output}",
                "try: apptainer exec IMAGE true; on a cluster, load its module or name it in the site's `modules`",
                Exit.TRIAL_FAILED,
            )
        return completed.stdout

    def layer(self, look: ImageInspection) -> WorkerLayer:
        return WorkerLayer(self.home / "layers", look.version, look.machine, look.libc)

    def script(self, image: Image, look: ImageInspection, layer: WorkerLayer) -> str:
        place = self.place
        entry = ContainerEntry(
            path=place.image,
            image=image,
            binds=[*self.binds(), Bind(str(layer.folder), str(layer.folder), True), layer.bind()],
            workdir=str(place.folders[0]) if place.folders else "/",
            gpus=bool(place.gpus),
            modules=place.site.modules,
            variables=(*place.variables, *place.site.environment),
        )
        # Not PYTHONPATH: it would affect every Python that an experiment starts, with our packages before its own.
        return entry.script((look.python, "-I", str(layer.start)), f"{image.source}, Python {look.version} inside")


def _best(printed: str) -> ImageInspection:
    """Return the newest suitable interpreter of those that answered; otherwise the newest one, without its path."""
    looks = []
    for line in printed.splitlines():
        try:
            looks.append(ImageInspection.model_validate_json(line))
        except ValueError:
            continue  # output of an image's start-up
    for look in looks:
        if _numbers(look.version) >= (3, 11) and (not look.pydantic or _numbers(look.pydantic) >= (2, 8)):
            return look
    newest = max(looks, key=lambda look: _numbers(look.version), default=ImageInspection())
    return newest.model_copy(update={"python": ""})


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


_NAMES = ["python3", "python", *(f"python3.{minor}" for minor in (13, 12, 11))]
_NAMES += ["/opt/conda/bin/python", "/usr/local/bin/python3"]
_TELL = """
import json, platform, sys
try:
    from importlib.metadata import version
    pydantic = version("pydantic")
except Exception:
    pydantic = ""
libc = "glibc " + platform.libc_ver()[1] if platform.libc_ver()[0] == "glibc" else "musl"
print(json.dumps({"python": sys.executable, "version": "%d.%d" % sys.version_info[:2], "machine": platform.machine(),
    "libc": libc, "pydantic": pydantic}))
"""
_FIND = f"""for name in "$@"; do command -v "$name" >/dev/null && "$name" -I -c '{_TELL}'; done; true"""
