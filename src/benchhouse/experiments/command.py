"""Experiment `command`: how long a program takes, what it costs, and what it says of itself."""

import dataclasses
import gc
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from pydantic import Field, field_validator, model_validator

from benchhouse.experiments.printed import SEARCHED_BYTES, OutputMetric, PrintedValues
from benchhouse.experiments.processes import CannotStart, Finished, Program, own_peak_kib, run, run_small
from benchhouse.schema.experiment import Context, Metric, experiment
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds

_KEPT_BYTES = 64 * 1024  # of each output that becomes evidence
_KEPT_FAILURES = 100
_RSS_SLACK_KIB = 1024  # the kernel's memory counters lag by some pages a core

METRICS = (
    Metric(
        name="wall_ms",
        unit="ms",
        direction="lower",
        role="latency",
        formula="from just before the program is spawned until it has been waited for; successful executions only",
    ),
    Metric(name="cpu_ms", unit="ms", direction="lower", formula="user_ms + system_ms"),
    Metric(
        name="user_ms",
        unit="ms",
        direction="lower",
        formula="user CPU time of the program and the children it waited for (wait4)",
    ),
    Metric(
        name="system_ms",
        unit="ms",
        direction="lower",
        formula="system CPU time of the program and the children it waited for (wait4)",
    ),
    Metric(
        name="peak_rss_mb",
        unit="MB",
        direction="lower",
        formula="ru_maxrss of the largest process, 10^6 bytes. Measured executions can't show less than the launcher's "
        "own memory; below that it is taken from the warm-ups, which a small shell starts. Metadata `peak_rss_from` "
        "says which; `floor` means an upper bound",
    ),
    Metric(
        name="executions_per_s",
        unit="1/s",
        direction="higher",
        role="throughput",
        formula="successful executions / summed wall time of all measured executions (prepare excluded)",
    ),
    Metric(
        name="error_rate",
        unit="1",
        direction="lower",
        role="error_rate",
        formula="measured executions that timed out or ended with an exit code that is not allowed / all of them",
    ),
    Metric(name="timeouts", unit="1", direction="lower", role="timeouts", formula="executions ended by the timeout"),
)
_DECLARED = frozenset(metric.name for metric in METRICS)


class CommandTarget(Model):
    """The program: `argv`, or `shell` where a shell is really wanted."""

    argv: list[str] = Field(default_factory=list, description="Program and arguments; no shell is involved.")
    shell: str = Field("", description="A line for `/bin/sh -c`; the shell's own time is measured with it.")
    name: str = Field("", description="Name in reports.")

    @model_validator(mode="after")
    def _one_form(self) -> "CommandTarget":
        if bool(self.argv) == bool(self.shell):
            raise ValueError("give exactly one of argv (a list) and shell (a line)")
        return self

    @property
    def arguments(self) -> list[str]:
        return self.argv or ["/bin/sh", "-c", self.shell]


class CommandWorkload(Model):
    """How often and under which conditions the program runs."""

    executions: int = Field(10, ge=1, le=10_000_000, description="Measured executions.")
    warmup: int = Field(1, ge=0, le=100_000, description="Executions before them that are not measured.")
    stdin: str = Field("", description="What the program reads; nothing by default.")
    environment: dict[str, str] = Field(default_factory=dict, description="Variables added for the program.")
    timeout: Seconds | None = Field(None, gt=0, description="Of one execution; it then counts as failed.")
    allowed_exit_codes: list[int] = Field(default=[0], min_length=1, description="Exit codes that mean success.")
    prepare: list[str] = Field(default_factory=list, description="Program run before each execution, not timed.")
    metrics: list[OutputMetric] = Field(default_factory=list, description="Numbers to find in the output.")
    json_lines: bool = Field(False, description="Numeric members of JSON objects on stdout become metrics.")

    @field_validator("metrics")
    @classmethod
    def _own_names(cls, metrics: list[OutputMetric]) -> list[OutputMetric]:
        taken = set(_DECLARED)
        for metric in metrics:
            if metric.name in taken:
                where = "by the experiment itself" if metric.name in _DECLARED else "twice"
                raise ValueError(f"{metric.name} is measured {where}: choose another name")
            taken.add(metric.name)
        return metrics

    @property
    def needs_output(self) -> bool:
        return bool(self.metrics) or self.json_lines


@experiment("command", version="1.0", metrics=METRICS)
def _command(target: CommandTarget, workload: CommandWorkload, ctx: Context) -> None:
    """Run a program many times: wall and CPU time, peak memory, failures, and metrics that it prints."""
    with ExitStack() as stack:
        streams = _Streams(workload, stack, ctx)
        program = _resolve(target.arguments, workload, streams.actions(workload.needs_output), ctx)
        prepare = _resolve(workload.prepare, workload, streams.actions(True), ctx) if workload.prepare else None
        session = _Session(program, prepare, streams, workload, ctx)
        try:
            with _no_collections():
                session.warm_up()
                session.measure()
        except CannotStart as error:
            ctx.fail("command_not_startable", f"{error}; is it a program for this machine, with a #! line if a script?")
        session.report()


# What a program prints can't be known at declaration.
command = dataclasses.replace(_command, strict_metrics=False)


def _resolve(argv: list[str], workload: CommandWorkload, actions: list[tuple[Any, ...]], ctx: Context) -> Program:
    """Look the program up once, so that no execution pays for the search."""
    environment = {**os.environ, **workload.environment}
    path = shutil.which(argv[0], path=environment.get("PATH", os.defpath))
    if path is None:
        ctx.fail(
            "command_not_found",
            f"no program {argv[0]!r} in PATH; give its full path, or install it where the trial runs",
        )
    encoded = {os.fsencode(key): os.fsencode(value) for key, value in environment.items()}
    return Program(path, argv, encoded, actions)


class _Streams:
    """Files behind the program's stdin, stdout and stderr: opened once, rewound for every execution."""

    def __init__(self, workload: CommandWorkload, stack: ExitStack, ctx: Context) -> None:
        def scratch() -> IO[bytes]:
            return stack.enter_context(tempfile.TemporaryFile(dir=ctx.workdir, buffering=0))

        self.null = os.open(os.devnull, os.O_RDWR)
        stack.callback(os.close, self.null)
        self.stdout, self.stderr = scratch(), scratch()
        self.stdin = scratch() if workload.stdin else None
        if self.stdin:
            self.stdin.write(workload.stdin.encode())

    def actions(self, keep_stdout: bool) -> list[tuple[Any, ...]]:
        stdin = self.stdin.fileno() if self.stdin else self.null
        stdout = self.stdout.fileno() if keep_stdout else self.null
        sources = (stdin, stdout, self.stderr.fileno())
        return [(os.POSIX_SPAWN_DUP2, source, descriptor) for descriptor, source in enumerate(sources)]

    def rewind(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream.seek(0, os.SEEK_END):
                stream.seek(0)
                stream.truncate()
        if self.stdin:
            self.stdin.seek(0)

    def read(self, limit: int) -> tuple[bytes, bytes]:
        """The last `limit` bytes of stdout and of stderr."""
        return _tail(self.stdout, limit), _tail(self.stderr, limit)


class _Session:
    """The executions of one trial."""

    def __init__(
        self, program: Program, prepare: Program | None, streams: _Streams, workload: CommandWorkload, ctx: Context
    ) -> None:
        self.program, self.prepare, self.streams, self.workload, self.ctx = program, prepare, streams, workload, ctx
        self.finished: list[Finished] = []
        self.small_peaks_kib: list[int] = []
        self.failures = 0
        self.outputs = PrintedValues(workload.metrics, workload.json_lines, _DECLARED)

    def warm_up(self) -> None:
        """Executions that are not measured, but tell the peak memory and what the program prints."""
        program = dataclasses.replace(self.program, streams=self.streams.actions(True))
        for _ in range(self.workload.warmup):
            self._prepare()
            done = run_small(program, self.workload.timeout) or run(program, self.workload.timeout)
            if self._succeeded(done):
                self.small_peaks_kib.append(done.maxrss_kib)
        if self.workload.warmup:
            self._keep("warmup", *self.streams.read(_KEPT_BYTES))

    def measure(self) -> None:
        program, timeout_s, streams = self.program, self.workload.timeout, self.streams
        for number in range(1, self.workload.executions + 1):
            self._prepare()
            done = run(program, timeout_s)
            self.finished.append(done)
            if not self._succeeded(done):
                self.failures += 1
                if self.failures <= _KEPT_FAILURES:
                    self._keep(f"failed-{number:05d}", *streams.read(_KEPT_BYTES))
            elif self.workload.needs_output:
                self.outputs.add(*streams.read(SEARCHED_BYTES))
        self._keep("last", *streams.read(_KEPT_BYTES))

    def report(self) -> None:
        good = [done for done in self.finished if self._succeeded(done)]
        timeouts = sum(done.timed_out for done in self.finished)
        codes = Counter("timeout" if done.timed_out else str(done.exit_code) for done in self.finished)
        self.ctx.metadata(exit_codes=dict(codes), program=self.program.path)
        if not good:
            self._fail_all()
        emit = self.ctx.emit
        for done in good:
            emit("wall_ms", done.wall_ns / 1e6)
            emit("user_ms", done.user_s * 1e3)
            emit("system_ms", done.system_s * 1e3)
            emit("cpu_ms", (done.user_s + done.system_s) * 1e3)
        self._report_memory([done.maxrss_kib for done in good])
        emit("executions_per_s", len(good) / (sum(done.wall_ns for done in self.finished) / 1e9))
        emit("error_rate", 1 - len(good) / len(self.finished))
        emit("timeouts", timeouts)
        self.outputs.report(len(good), self.ctx)

    def _report_memory(self, peaks_kib: list[int]) -> None:
        floor = own_peak_kib() + _RSS_SLACK_KIB
        source = "measured executions"
        if min(peaks_kib) <= floor and self.small_peaks_kib:
            source, peaks_kib = "warm-up executions", self.small_peaks_kib
        elif min(peaks_kib) <= floor:
            source = "floor"
            self.ctx.warn(
                "rss_floor",
                f"peak_rss_mb is an upper bound: the program needs less than the {floor * 1024 / 1e6:.0f} MB of the "
                "process that starts it; with workload.warmup of at least 1 it is measured",
            )
        for peak in peaks_kib:
            self.ctx.emit("peak_rss_mb", peak * 1024 / 1e6)
        self.ctx.metadata(peak_rss_from=source)

    def _prepare(self) -> None:
        if self.prepare:
            self.streams.rewind()
            done = run(self.prepare)
            if done.exit_code != 0:
                said = _words(*self.streams.read(_KEPT_BYTES))
                self.ctx.fail("prepare_failed", f"{self.prepare.argv} {_ending(done)}{said}")
        self.streams.rewind()

    def _succeeded(self, done: Finished) -> bool:
        return not done.timed_out and done.exit_code in self.workload.allowed_exit_codes

    def _fail_all(self) -> None:
        last = self.finished[-1]
        said = _words(*self.streams.read(_KEPT_BYTES))
        self.ctx.fail(
            "command_failed", f"all {len(self.finished)} executions failed: the last one {_ending(last)}{said}"
        )

    def _keep(self, name: str, stdout: bytes, stderr: bytes) -> None:
        for stream, content in (("stdout", stdout), ("stderr", stderr)):
            if content:
                (self.ctx.artifacts / f"{name}.{stream}").write_bytes(content)


def _tail(stream: IO[bytes], limit: int) -> bytes:
    size = stream.seek(0, os.SEEK_END)
    return os.pread(stream.fileno(), limit, max(0, size - limit)) if size else b""


def _ending(done: Finished) -> str:
    if done.timed_out:
        return f"was ended by the timeout after {done.wall_ns / 1e9:.1f} s"
    return f"ended by signal {-done.exit_code}" if done.exit_code < 0 else f"ended with exit code {done.exit_code}"


def _words(stdout: bytes, stderr: bytes) -> str:
    """The last lines a program said, for a message."""
    lines = (stderr.strip() or stdout.strip()).decode(errors="replace").splitlines()[-10:]
    return "; it said:\n" + "\n".join(lines) if lines else " and said nothing"


@contextmanager
def _no_collections() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
