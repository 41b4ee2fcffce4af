"""Real LLM servers with the tiny model: llama.cpp's for every test run, vLLM's where its environment has been made.

Both are context managers: they answer on `url` when entered, and their processes are gone when left.

    with RealLLM() as server:
        post(server.url + "/v1/completions", {"model": server.model, "prompt": "Hello", "max_tokens": 8})

    def test_it(real_llm)     # or the fixture: one server a test process, skipped where it can't be had
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar

import pytest
from services import tiny_model
from services.kin import end_with_parent

HERE = Path(__file__).parent
INSTALL = HERE.parents[1] / "scripts" / "install-llm-server.sh"
ENVIRON = dict(os.environ)  # as the tests were started: each test clears its own BENCH_ variables
READY_S = 60.0


def cache() -> Path:
    return Path(ENVIRON.get("BENCH_TEST_CACHE") or Path.home() / ".cache" / "benchhouse-tests")


def model_path(suffix: str = "") -> Path:
    """Where the tiny model is kept. The name changes with the code that makes it, so that an old one is never used."""
    digest = hashlib.sha256(Path(tiny_model.__file__).read_bytes()).hexdigest()[:8]
    return cache() / "models" / f"{tiny_model.NAME}-{digest}{suffix}"


def tiny_gguf(python: Path) -> Path:
    """Return the tiny model as a file for llama.cpp, which is made the first time by the Python of its environment."""
    model = model_path(".gguf")
    if not model.exists():
        model.parent.mkdir(parents=True, exist_ok=True)
        unfinished = model.with_suffix(f".{os.getpid()}")
        subprocess.run([python, HERE / "tiny_model.py", unfinished], check=True, capture_output=True, text=True)
        unfinished.replace(model)
    return model


class NoServerError(Exception):
    """The server can't be installed or doesn't start here; the message says why, for `pytest.skip`."""


class _Server:
    """A process in a group of its own that answers HTTP, and how it is started, awaited and stopped."""

    kind: ClassVar[str]
    ready_s: ClassVar[float] = READY_S
    model = tiny_model.NAME
    url: str
    started_s: float

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def log(self) -> str:
        """What the server has written so far."""
        assert self._log is not None, "the server was never started"
        return Path(self._log.name).read_text(errors="replace")

    def _start(self, command: list[str], environment: dict[str, str], reads_output: bool = False) -> None:
        self._log = tempfile.NamedTemporaryFile("w", prefix=f"{self.kind}-", suffix=".log")  # noqa: SIM115  (closed in __exit__)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if reads_output else self._log,
            stderr=self._log,
            env=ENVIRON | environment,
            text=True,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )

    def _wait_until(self, address: str) -> None:
        until = time.monotonic() + self.ready_s
        while not answers(address):
            if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                self._fail(f"did not answer {address} within {self.ready_s:.0f} s")
            time.sleep(0.1)

    def _fail(self, what: str) -> None:
        tail = "\n".join(self.log().splitlines()[-15:])
        self.__exit__(None, None, None)
        raise NoServerError(f"{self.kind} server {what}; its last words:\n{tail}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            stop(self._process)
            self._process = None
        if self._log is not None:
            self._log.close()


class RealLLM(_Server):
    """llama.cpp's server. `slots` requests run at once, each with room for `context` tokens; more wait in its queue."""

    kind = "llama"

    def __init__(self, slots: int = 8, context: int = 1024, prefix_cache: bool = True, api_key: str = "") -> None:
        super().__init__()
        self._options = {"slots": slots, "context": context, "prefix_cache": prefix_cache, "api_key": api_key}

    def __enter__(self) -> RealLLM:
        began = time.monotonic()
        python = installed("llama", cache() / "llm", wait_s=180)
        model = tiny_gguf(python)
        options = json.dumps({"path": str(model), "name": self.model, **self._options})
        self._start([str(python), str(HERE / "llama_host.py"), options], {}, reads_output=True)
        self.url = self._printed_line()
        self._wait_until(self.url + "/health")
        self.started_s = time.monotonic() - began
        return self

    def _printed_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if selector.select(self.ready_s) else ""
        if not line:
            self._fail("did not say where it listens")
        return line.strip()


class RealVLLM(_Server):
    """vLLM on the CPU. Its environment is large: it is used where it has been made, and made only when asked to."""

    kind = "vllm"
    ready_s = 180.0

    def __init__(self, streams: int = 64, install: bool = False, options: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._streams = streams
        self._install = install
        self._options = options

    def __enter__(self) -> RealVLLM:
        began = time.monotonic()
        python = installed("vllm", cache() / "vllm", wait_s=900 if self._install else 0)
        folder = tiny_model.write_checkpoint(model_path())
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [str(python.parent / "vllm"), "serve", str(folder), "--served-model-name", self.model]
        command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
        command += ["--max-model-len", "2048", "--max-num-seqs", str(self._streams), *self._options]
        search_path = os.pathsep.join([str(python.parent), ENVIRON.get("PATH", os.defpath)])
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        self._start(command, {"PATH": search_path, "VLLM_CPU_KVCACHE_SPACE": "1", **offline})
        self._wait_until(self.url + "/health")
        self.started_s = time.monotonic() - began
        return self


def installed(kind: str, folder: Path, wait_s: float) -> Path:
    """The Python of the server's environment, which is made when it isn't there and `wait_s` allows for it."""
    python = folder / "bin" / "python"
    if wait_s == 0:
        if not (folder / ".made").exists():
            raise NoServerError(f"no {kind} server in {folder}; to have it: scripts/install-llm-server.sh {kind}")
        return python
    try:
        done = subprocess.run([INSTALL, kind], env=ENVIRON, capture_output=True, text=True, timeout=wait_s, check=False)
    except subprocess.TimeoutExpired:
        raise NoServerError(f"scripts/install-llm-server.sh {kind} took more than {wait_s:.0f} s") from None
    if done.returncode:
        raise NoServerError(f"scripts/install-llm-server.sh {kind} failed: {done.stderr.strip()[-800:]}")
    return python


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def stop(process: subprocess.Popen[str]) -> None:
    """Ask the process and its children to end, insist after ten seconds, and collect it."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    for number, patience_s in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience_s)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
        break
    process.wait(1)


def post(url: str, body: dict[str, Any], api_key: str = "") -> list[dict[str, Any]]:
    """The server's answer as events: those of the stream without `[DONE]`, or the one object of a plain answer."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    if not body.get("stream"):
        return [json.loads(text)]
    data = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    assert data[-1] == "[DONE]", f"the stream ended with {data[-1]!r}"
    return [json.loads(line) for line in data[:-1]]


@pytest.fixture(scope="session")
def real_llm() -> Iterator[RealLLM]:
    try:
        with RealLLM() as server:
            yield server
    except NoServerError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def real_vllm() -> Iterator[RealVLLM]:
    try:
        with RealVLLM() as server:
            yield server
    except NoServerError as reason:
        pytest.skip(str(reason))
