"""A real Triton server with the models of `triton_models/`, on free ports of the loopback device.

    def test_it(triton)     # the fixture of tests/conftest.py; all tests that use it run in one process

`Triton.start()` installs what is missing (`scripts/install-triton.sh`). Where it can't be had, the tests are skipped
and the reason says so.
"""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from services.kin import end_with_parent

from benchhouse.drivers.triton_model import between
from benchhouse.load.protocols.calls import Exchange

HERE = Path(__file__).parent
INSTALL = HERE.parent.parent / "scripts" / "install-triton.sh"
ENVIRON = dict(os.environ)  # as the tests were started: each test clears its own BENCH_ variables
READY_WITHIN_S = 240


class CannotInstallError(Exception):
    """The server can't be had on this machine; the message says why."""


@dataclass
class Triton:
    """A running server. `stop` ends it and removes its model repository."""

    home: Path  # where the server and its Python live
    folder: Path  # its model repository and log
    http_port: int
    grpc_port: int
    process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, models: Sequence[str] = (), cached: str = "") -> "Triton":
        """Start a server with the named models, or all of them, and return when every model that can be ready is.

        The server keeps the answers of the model `cached` in a response cache.
        """
        home = install()
        folder = Path(tempfile.mkdtemp(prefix="triton-"))
        for source in sorted((HERE / "triton_models").iterdir()):
            if source.is_dir() and (not models or source.name in models):
                shutil.copytree(source, folder / "models" / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        http_port, grpc_port = free_ports(2)
        cache: list[str] = []
        if cached:
            with (folder / "models" / cached / "config.pbtxt").open("a") as config:
                config.write("response_cache { enable: true }\n")
            caches = next(home.glob("lib/python*/site-packages/pytriton/tritonserver/caches"))
            cache = ["--cache-config=local,size=1048576", f"--cache-directory={caches}"]
        with (folder / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [*command(home, folder, http_port, grpc_port), *cache],
                env=environment(home),
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        server = cls(home, folder, http_port, grpc_port, process)
        try:
            server.wait_until_ready()
        except BaseException:
            server.stop()
            raise
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def grpc_url(self) -> str:
        return f"grpc://127.0.0.1:{self.grpc_port}"

    @property
    def python(self) -> Path:
        """An interpreter with tritonclient, the vendor's own client."""
        return self.home / "bin" / "python"

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/v2/health/ready", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log = (self.folder / "server.log").read_text(errors="replace")
                    raise RuntimeError(f"the server did not become ready:\n{log[-3000:]}") from None
                time.sleep(0.05)

    def get(self, path: str) -> dict:
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            return json.load(answer)

    def stop(self) -> None:
        """Ends the server and what it started; waits for it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(ProcessLookupError):  # a model's own process may outlive the server
            os.killpg(self.process.pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def install() -> Path:
    """The folder of the installed server; installs it the first time, which takes a minute or so."""
    done = subprocess.run([INSTALL], capture_output=True, text=True, env=ENVIRON, timeout=280, check=False)
    if done.returncode:
        raise CannotInstallError(
            done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "install-triton.sh failed"
        )
    return Path(done.stdout.strip().splitlines()[-1])


def command(home: Path, folder: Path, http_port: int, grpc_port: int) -> list[str]:
    packages = next((home / "lib").glob("python*")) / "site-packages"
    return [
        str(packages / "pytriton" / "tritonserver" / "bin" / "tritonserver"),
        f"--model-repository={folder / 'models'}",
        f"--backend-directory={home / 'backends'}",
        f"--backend-config=python,shm-region-prefix-name=t{http_port}_",  # servers side by side
        f"--http-port={http_port}",
        f"--grpc-port={grpc_port}",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--allow-metrics=false",
        "--disable-auto-complete-config",
        "--exit-on-error=false",  # one of the models is meant to fail
        "--strict-readiness=false",
        "--exit-timeout-secs=3",
    ]


def environment(home: Path) -> dict[str, str]:
    """The stub that runs the models takes the first Python on PATH, and links that Python's library."""
    packages = next((home / "lib").glob("python*")) / "site-packages"
    library = sysconfig.get_config_var("LIBDIR")
    return ENVIRON | {
        "PATH": f"{home / 'bin'}:{ENVIRON.get('PATH', '')}",
        "LD_LIBRARY_PATH": f"{packages / 'nvidia_pytriton.libs'}:{library}",
    }


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _running(*args: Any) -> Iterator[Triton]:
    try:
        server = Triton.start(*args)
    except CannotInstallError as reason:
        pytest.skip(f"no Triton server: {reason}")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def triton() -> Iterator[Triton]:
    yield from _running()


@pytest.fixture(scope="session")
def second_triton() -> Iterator[Triton]:
    """A server that answers the model `slow` from its response cache, and has `identity_fp32` too."""
    yield from _running(["identity_fp32", "slow"], "slow")


def counted(driver: Any, before: Mapping[str, float], requests: int) -> dict[str, float]:
    """What the server says it did since `before`; it counts a request a moment after its answer is here."""
    deadline = time.monotonic() + 5
    while True:
        found = between(before, driver.statistics())
        if found["requests"] >= requests or time.monotonic() > deadline:
            return found
        time.sleep(0.01)


def exchange(request: bytes, url: str) -> Exchange:
    """One request over a plain blocking socket, with a stamp for each read, as the engine would hand it to a driver."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=10) as connection:
        done = Exchange(sent_ns=time.monotonic_ns())
        connection.sendall(request)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        done.status = answer.status
        done.head = f"HTTP/1.1 {answer.status}\r\n{answer.headers}".replace("\r\n", "\n").replace("\n", "\r\n").encode()
        while piece := answer.read1():
            done.body += piece
            now = time.monotonic_ns()
            done.marks.extend((len(done.body), now, now))
        done.ended_ns = time.monotonic_ns()
    return done
