"""An isolated virtual environment: resolved once into a lock, built once per lock, identified by the lock's digest."""

import fcntl
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from benchhouse.processes.durable import make_folders, sync_tree, write_whole
from benchhouse.processes.packages import OURS, find_uv, run_installer, write_own_metadata
from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.errors import BenchError
from benchhouse.schema.local_packages import SourceBuilds, rebuilt
from benchhouse.schema.own_wheel import NAME, write_own_wheel
from benchhouse.schema.protocols import RuntimeContainer, RuntimeContext
from benchhouse.schema.resources import RuntimeSettings

_NO_BUILD = "--no-build"
# Imports of `benchhouse.worker` and its monitors; the rest of the core stays outside.
_WORKER_NEEDS = ("pydantic", "PyYAML", "nvidia-ml-py", "prometheus-client")


class VenvRuntime:
    """Virtual environments below `venvs/`: by lock digest, with `locks/` by request, and `by-request/` links between
    them, so that the command is known before anything is resolved. Our own package is linked in: worker and
    orchestrator have one version, whatever the venv contains."""

    def prepare(self, spec: RuntimeSettings, place: RuntimeContext) -> None:
        request = _VenvRequest(spec, place.cache)
        if request.ready():
            return
        with _locked(request.link):
            if not request.lock.exists():
                make_folders(request.lock.parent)
                write_whole(request.lock, _resolved(spec, request.local, place.builds))
            folder = request.folder()
            with _locked(folder):
                if not (folder / "ready").exists():
                    _build(spec, request.lock, folder, place.builds)
            request.point_to(folder)

    def unpack(self, spec: RuntimeSettings, place: RuntimeContext, folder: Path) -> Path:
        request = _VenvRequest(spec, place.cache)
        if request.ready():
            return _site_of(request.link)
        with _locked(request.link):
            if not request.lock.exists():
                make_folders(request.lock.parent)
                write_whole(request.lock, _resolved(spec, request.local, None))
        _unpack(spec, request.lock, folder)
        return folder

    def python(self, spec: RuntimeSettings, place: RuntimeContext) -> tuple[str, ...]:
        return (
            str(_VenvRequest(spec, place.cache).link / "bin" / "python"),
            "-I",
        )  # not even PYTHONPATH affects it

    def identity(self, spec: RuntimeSettings, place: RuntimeContext) -> str | None:
        request = _VenvRequest(spec, place.cache)
        return request.folder().name if request.ready() else ""

    def packages(self, spec: RuntimeSettings, place: RuntimeContext) -> str:
        request = _VenvRequest(spec, place.cache)
        requirements = ", ".join(spec.requirements) or "nothing but the worker"
        if request.lock.exists():
            state = "made before" if request.ready() else "to be made"
            return f"isolated venv ({state}): {requirements}; as resolved in {request.lock}"
        return f"isolated venv (to be resolved and made): {requirements}"

    def container(self, spec: RuntimeSettings, place: RuntimeContext) -> RuntimeContainer | None:
        return None


class _VenvRequest:
    """The requirements of a scenario, and the files that are created for them."""

    def __init__(self, spec: RuntimeSettings, cache: Path) -> None:
        self.local = {item: _content(path) for item in sorted(spec.requirements) if (path := _local(item)).exists()}
        self._base = {
            "python": spec.python or [sys.executable, sys.version],
            "local": self.local,
            "benchhouse": [str(OURS), version("benchhouse"), *_WORKER_NEEDS],
        }
        self._venvs = cache / "venvs"
        name = digest(self._base | {"requirements": sorted(spec.requirements)})[:16]
        self.lock = self._venvs / "locks" / f"{name}.txt"
        self.link = self._venvs / "by-request" / name

    def ready(self) -> bool:
        """Whether the environment is built: the link is valid only while the lock is the one it was built from."""
        return self.lock.exists() and (self.link / "ready").exists() and self.link.resolve() == self.folder().resolve()

    def folder(self) -> Path:
        return self._venvs / digest(self._base | {"lock": self.lock.read_text(encoding="utf-8")})[:16]

    def point_to(self, folder: Path) -> None:
        made = self.link.with_suffix(".new")
        made.unlink(missing_ok=True)
        made.symlink_to(Path("..") / folder.name, target_is_directory=True)
        made.replace(self.link)


def _resolved(spec: RuntimeSettings, local: dict[str, str], builds: SourceBuilds | None) -> str:
    """Return all distributions with exact versions and hashes, in a text that does not depend on the time.

    Packages that are not wheels are built only if `builds` allows it, because that runs their code before their
    requirements are known. None: use uv, and only wheels, because nothing of the environment may run yet.
    """
    if builds is not None:
        builds.check(spec.requirements)
    wanted = [str(Path(item).absolute()) if item in local else item for item in spec.requirements]
    python = spec.python or sys.executable
    with TemporaryDirectory() as scratch:
        ours = f"{NAME} @ {write_own_wheel(Path(scratch), with_dependencies=False).as_uri()}"
        wanted = [*_WORKER_NEEDS, ours, *wanted]
        if uv := _uv_to_look() if builds is None else find_uv():
            inputs = Path(scratch) / "requirements.in"
            inputs.write_text("\n".join(wanted) + "\n", encoding="utf-8")
            plain = ["--no-header", "--no-annotate", "--generate-hashes", "--quiet"]
            compile_them = [uv, "pip", "compile", "--python", python, *plain, *rebuilt(wanted), str(inputs)]
            if builds is None:
                return _without_ourselves(_looked([*compile_them, _NO_BUILD]))
            return _without_ourselves(_ran([*compile_them, *builds.options(spec.requirements)], "resolved"))
        own = Path(scratch) / "venv"
        _ran([python, "-m", "venv", str(own)], "made")
        quiet = ["--disable-pip-version-check", "--quiet"]
        dry_run = [str(own / "bin" / "python"), "-m", "pip", "install", *quiet, "--dry-run", "--ignore-installed"]
        only = builds.options(spec.requirements) if builds is not None else []
        report = json.loads(_ran([*dry_run, *only, "--report", "-", *wanted], "resolved"))
        others = [item for item in report["install"] if item["metadata"]["name"].lower() != NAME]
        return "".join(sorted(_pinned(item) for item in others))


def _unpack(spec: RuntimeSettings, lock: Path, folder: Path) -> None:
    """Unpack the wheels of a lock; no interpreter starts with them on its path."""
    install = [_uv_to_look(), "pip", "install", "--quiet", "--python", spec.python or sys.executable, _NO_BUILD]
    _looked([*install, "--no-deps", "--target", str(folder), "-r", str(lock)])


def _uv_to_look() -> str:
    if uv := find_uv():
        return uv
    raise BenchError("without uv nothing can be looked at before it is built", "pip install 'benchhouse[packages]'")


def _looked(command: list[str]) -> str:
    failure = "the isolated environment can't be looked at before something of it is built and run"
    hint = "give wheels:  uv build --wheel   then  requirements: [./dist/NAME.whl]   in the scenario"
    return run_installer(command, failure, hint)


def _without_ourselves(lock: str) -> str:
    """Return the lock without the lines of our own package, which is linked in, not installed."""
    kept, ours = list[str](), False
    for line in lock.splitlines(keepends=True):
        if not line[:1].isspace():
            ours = line.lower().startswith((f"{NAME} ", f"{NAME}=", f"{NAME}["))
        kept += [] if ours else [line]
    return "".join(kept)


def _pinned(item: dict[str, dict[str, dict[str, dict[str, str]]]]) -> str:
    """Return one line of a lock from pip's installation report: the source, and the hash of its bytes."""
    source = item["download_info"]
    sha256 = source.get("archive_info", {}).get("hashes", {}).get("sha256")
    return f"{item['metadata']['name']} @ {source['url']}{f'#sha256={sha256}' if sha256 else ''}\n"


def _build(spec: RuntimeSettings, lock: Path, folder: Path, builds: SourceBuilds) -> None:
    """Build in place (a venv can't be moved); `ready` is written last, and a build that fails leaves nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    python, interpreter = spec.python or sys.executable, str(folder / "bin" / "python")
    try:
        if uv := find_uv():
            _ran([uv, "venv", "--quiet", "--python", python, str(folder)], "made")
            install = [uv, "pip", "install", "--quiet", "--python", interpreter, "--compile-bytecode"]
            install += rebuilt(lock.read_text(encoding="utf-8").splitlines())
        else:
            _ran([python, "-m", "venv", str(folder)], "made")
            install = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _ran([*install, *builds.options(spec.requirements), "--no-deps", "-r", str(lock)], "made")
        site = _site_of(folder)
        if not (site / "benchhouse").exists():
            (site / "benchhouse").symlink_to(OURS, target_is_directory=True)
            write_own_metadata(site)
        shutil.copyfile(lock, folder / "requirements.lock")
        sync_tree(folder)
        write_whole(folder / "ready", "")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _site_of(folder: Path) -> Path:
    return next((folder / "lib").glob("python*/site-packages"))


def _ran(command: list[str], what: str) -> str:
    failure = f"the isolated environment could not be {what}"
    hint = (
        "check runtime.requirements and that the package index can be reached; packages without a wheel are built if "
        "workspace.yaml allows it: build_from_source: [NAME]"
    )
    return run_installer(command, failure, hint)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock for `path`, so that only one process creates it."""
    make_folders(path.parent)
    with path.with_name(f"{path.name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _local(requirement: str) -> Path:
    """Return the path of a requirement, without its extras."""
    return Path(requirement.partition("[")[0].strip())


def _content(path: Path) -> str:
    """Return a digest that changes when a local package does."""
    if path.is_file():
        return file_digest(path)
    skipped = (".git", "__pycache__", "build", ".venv")
    files = (item for item in path.rglob("*") if not any(part in skipped for part in item.relative_to(path).parts))
    return digest({str(item.relative_to(path)): file_digest(item) for item in sorted(files) if item.is_file()})
