"""Builds, starts and questions the mock LLM server (`mock_llm.c`): `with MockLLM(ttft_ms=50, itl_ms=10) as server: ...`

By hand: `python -m tests.mocks.llm --ttft-ms 50 --itl-ms 10`; `--help` lists every law and flaw that can be planted.
"""

import functools
import hashlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SOURCE = Path(__file__).with_name("mock_llm.c")
COMPILE = ["-std=gnu11", "-O2"]


class MockError(RuntimeError):
    """The mock server could not be built or started."""


@dataclass(frozen=True, slots=True)
class Truth:
    """One request as the server saw it, in nanoseconds of `time.monotonic_ns`; 0 where it did not come to that.

    A stamp of an event is taken just before the write that carries it.
    """

    request: int  # number since the server started; also at the end of the answer's id
    received_ns: int  # by the server's kernel, the last part of the request
    arrival_ns: int  # the server had read it; its law counts from here
    start_ns: int  # a server was free for it, in the law's planned time
    due_ns: int  # the law's time for the first event: start and service time
    first_ns: int  # first event with output
    last_ns: int  # last event with output
    end_ns: int
    late_ns: int  # the latest of its events against the law: the mock's own error
    min_gap_ns: int
    max_gap_ns: int
    status: int
    prompt_tokens: int
    cached_tokens: int
    asked_tokens: int
    output_tokens: int
    events: int
    held: int  # writes that TCP did not send at once, as too much was not acknowledged: they left after their stamps
    outcome: str  # running, length, stop, refused, reset, cut, error, gone (the client left)
    event_ns: tuple[int, ...]  # each event with output; empty once the server has kept four million stamps

    @property
    def felt_ttft_ns(self) -> int:
        """With the time that the server took to get round to reading: what a client feels."""
        return self.first_ns - self.received_ns

    @property
    def ttft_ns(self) -> int:
        return self.first_ns - self.arrival_ns

    @property
    def wait_ns(self) -> int:
        return self.start_ns - self.arrival_ns

    @property
    def mean_gap_ns(self) -> float:
        return (self.last_ns - self.first_ns) / (self.events - 1) if self.events > 1 else 0.0


def _cache_folder() -> Path:
    folder = Path(os.environ.get("BENCH_MOCK_CACHE") or Path.home() / ".cache" / "benchhouse-mocks")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="benchhouse-mocks-"))


@functools.cache
def build() -> Path:
    """The program, compiled when this version of its source has not been compiled before."""
    digest = hashlib.sha256(repr(COMPILE).encode())
    for source in sorted(SOURCE.parent.glob("mock_llm*.[ch]")):
        digest.update(source.read_bytes())
    program = _cache_folder() / f"mock_llm-{os.uname().machine}-{digest.hexdigest()[:16]}"
    if not program.exists():
        compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
        if compiler is None:
            raise MockError("the mock LLM server needs a C compiler: cc, gcc or clang on PATH, or its path in CC")
        unfinished = program.with_suffix(f".{os.getpid()}")
        done = subprocess.run([compiler, *COMPILE, "-o", unfinished, SOURCE, "-lm"], capture_output=True, text=True)
        if done.returncode:
            raise MockError(f"{compiler} could not compile {SOURCE}:\n{done.stderr}")
        unfinished.replace(program)
    return program


def _flags(options: dict[str, Any]) -> list[str]:
    return [
        word
        for name, value in options.items()
        for word in (f"--{name.replace('_', '-')}", str(int(value) if isinstance(value, bool) else value))
    ]


class MockLLM:
    """The server in a process of its own on a free port of 127.0.0.1; it also ends when this process does.

    Options are the flags of the program with underscores: `MockLLM(servers=1, service_exp_ms=2, seed=7, close=True)`.
    """

    def __init__(self, **options: float | str) -> None:
        self.options = options
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> Self:
        process = subprocess.Popen(
            [build(), "--until-eof", *_flags(self.options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line:
            raise MockError(process.stderr.read().strip() or f"the mock LLM server ended with {process.wait()}")
        self._process, self.port = process, int(line)
        return self

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def stats(self) -> dict[str, Any]:
        """Counters since the start or the last reset: requests, max_concurrent, max_connections, cpu_s, ..."""
        return dict(json.loads(self._ask("GET", "/mock/stats")))

    def truth(self) -> list[Truth]:
        """The last million requests since the start or the last reset, in order of arrival."""
        lines = self._ask("GET", "/mock/truth").splitlines()
        assert lines[0].split(",") == [field.name for field in fields(Truth)]
        return [_truth(line) for line in lines[1:]]

    def metrics(self) -> str:
        return self._ask("GET", "/metrics")

    def set(self, **options: float | str) -> dict[str, float]:
        """Plants from now on; gives back all options as they are now."""
        return dict(json.loads(self._ask("POST", "/mock/set", json.dumps(options))))

    def reset(self) -> None:
        """Forgets counters, truth and prefix cache, draws from the seed again; the next request is the first."""
        self._ask("POST", "/mock/reset")

    def _ask(self, method: str, path: str, body: str | None = None) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(f"{method} {path} {body or ''}: {answer.status} {text}")
        return text


def _truth(line: str) -> Truth:
    *numbers, outcome, events = line.split(",")
    cells: list[Any] = [*map(int, numbers), outcome, tuple(map(int, events.split(";") if events else ()))]
    return Truth(*cells)


def main() -> None:
    """Runs in the foreground with the flags of the command line; the first line is the URL."""
    if "--help" in sys.argv:
        raise SystemExit(subprocess.call([build(), "--help"]))
    # The pipe is never written to: its end tells the server that this process is gone, however it went.
    command = [str(build()), "--until-eof", *sys.argv[1:]]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if port := process.stdout.readline().strip():
        print(f"http://127.0.0.1:{port}", flush=True)
    try:
        raise SystemExit(process.wait())
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
