"""Experiment `command`: how long a program takes, what it costs, and the metrics that it prints."""

import dataclasses
import gc
import os
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from benchhouse.experiments.emitted_records import VARIABLE, Emitted, collect_emitted
from benchhouse.experiments.printed_metrics import SEARCHED_BYTES, PrintedMetric, PrintedValues
from benchhouse.experiments.processes import CannotStart, Finished, ProgramSpec, Streams, peak_rss_kib, run, run_small
from benchhouse.experiments.staging import WithData, fill_data, fill_variables, staged_data
from benchhouse.load.metrics import higher, lower
from benchhouse.schema.experiment import Context, experiment
from benchhouse.schema.input_paths import InputPath
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.telemetry import STEADY

_KEPT_BYTES = 64 * 1024  # of each output that becomes evidence
_KEPT_FAILURES = 100
_SHOWN_CHARACTERS = 200  # of a line in a message
_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"  # of a placeholder
_RSS_SLACK_KIB = 1024  # the kernel's memory counters lag by some pages per core

METRICS = (
    lower(
        "wall_ms",
        "ms",
        "from just before the program is spawned until it has been waited for; successful executions only",
        "latency",
        primary=True,
    ),
    lower("cpu_ms", "ms", "user_ms + system_ms"),
    lower("user_ms", "ms", "user CPU time of the program and the children it waited for (wait4)"),
    lower("system_ms", "ms", "system CPU time of the program and the children it waited for (wait4)"),
    lower(
        "peak_rss_mb",
        "MB",
        "one value a trial: the largest ru_maxrss of any process of any execution, 10^6 bytes. Measured executions "
        "can't show less than the launcher's own memory; below that it is taken from the warm-ups, which a small shell "
        "starts, and without warm-ups it is left out. Metadata `peak_rss_from` says which",
    ),
    higher(
        "executions_per_s",
        "1/s",
        "successful executions / summed wall time of all measured executions (prepare excluded)",
        "throughput",
    ),
    lower(
        "error_rate",
        "1",
        "measured executions that timed out or ended with an exit code that is not allowed / all of them; above 0 only "
        "with `tolerate_failures`, else the first one fails the trial",
        "error_rate",
    ),
    lower("timeouts", "1", "executions ended by the timeout", "timeouts"),
)
_DECLARED = frozenset(metric.name for metric in METRICS)


class CommandTarget(Model):
    """The program: `argv`, or `shell` if a shell is really needed."""

    argv: list[str] = Field(
        default_factory=empty_list, description="Program and arguments, without a shell; relative paths start in `cwd`."
    )
    shell: str = Field("", description="A line for `/bin/sh -c`; the shell's own time is measured with it.")
    name: str = Field("", description="Name in reports.")

    @model_validator(mode="after")
    def _one_form(self) -> "CommandTarget":
        if bool(self.argv) == bool(self.shell):
            raise ValueError("give exactly one of argv (a list) and shell (a line)")
        return self


class CommandWorkload(WithData):
    """How often and under which conditions the program runs."""

    executions: int = Field(10, ge=1, le=10_000_000, description="Measured executions.")
    warmup: int = Field(1, ge=0, le=100_000, description="Executions before them that are not measured.")
    cwd: InputPath = Field("", description="Folder to run in; `.` is that of the scenario, by default an empty one.")
    values: dict[str, str | int | float] = Field(
        default_factory=dict,
        description="What replaces `{name}` in argv, shell (there quoted for the shell), stdin and prepare.",
    )
    stdin: str = Field("", description="What the program reads; nothing by default.")
    environment: dict[str, str] = Field(default_factory=dict, description="Variables added for the program.")
    timeout: Seconds | None = Field(None, gt=0, description="Of one execution; it then counts as failed.")
    allowed_exit_codes: list[int] = Field(
        default_factory=lambda: [0], min_length=1, description="Exit codes that mean success."
    )
    tolerate_failures: bool = Field(False, description="Count failures in `error_rate` instead of failing the trial.")
    prepare: list[str] = Field(default_factory=empty_list, description="Program run before each execution, not timed.")
    json_lines: bool = Field(False, description="Numeric members of JSON objects on stdout become metrics.")
    metrics: list[PrintedMetric] = Field(
        default_factory=empty_list,
        description="Numbers to find in the output; with `json_lines` also units and directions of JSON members.",
    )

    @field_validator("values", mode="before")
    @classmethod
    def _printable(cls, values: Any) -> Any:
        for name, value in values.items() if isinstance(values, dict) else ():
            if not re.fullmatch(_NAME, str(name)):
                raise ValueError(f"{name!r} can't be a placeholder: letters, digits, _ and -")
            if isinstance(value, bool):
                raise ValueError(f"{name} is {value}: write in quotes the word that the program expects")
        return values

    @field_validator("metrics")
    @classmethod
    def _own_names(cls, metrics: list[PrintedMetric], info: ValidationInfo) -> list[PrintedMetric]:
        taken = set(_DECLARED)
        for metric in metrics:
            name = metric.name
            if name in taken:
                where = "by the experiment itself" if name in _DECLARED else "twice"
                other = f"choose another name (a JSON member {name} is called output.{name})"
                raise ValueError(f"{name} is measured {where}: {other}")
            if metric.pattern is None and not info.data.get("json_lines", True):
                cure = "give it one, or say json_lines: true to take the JSON member of that name"
                raise ValueError(f"{name} has no pattern: {cure}")
            taken.add(name)
        return metrics

    @property
    def needs_output(self) -> bool:
        return bool(self.metrics) or self.json_lines


@experiment("command", version="1.0", metrics=METRICS)
def _command(target: CommandTarget, workload: CommandWorkload, ctx: Context) -> None:
    """Run a program many times: wall and CPU time, peak memory, failures, and metrics that it prints."""
    target, workload = _fill(target, workload, ctx)
    with ExitStack() as stack:
        target, workload = _with_data(target, workload, stack.enter_context(staged_data(workload.data, ctx)))
        _enter(workload.cwd, stack, ctx)
        emitted = stack.enter_context(TemporaryDirectory(dir=ctx.artifacts, prefix="emitted-"))
        workload = workload.model_copy(update={"environment": {**workload.environment, VARIABLE: emitted}})
        streams = stack.enter_context(Streams(ctx.workdir, workload.stdin))
        argv = target.argv or ["/bin/sh", "-c", target.shell]
        program = _resolve(argv, workload, streams.actions(workload.needs_output), ctx)
        prepare = _resolve(workload.prepare, workload, streams.actions(True), ctx) if workload.prepare else None
        session = _CommandSession(program, prepare, streams, workload, ctx)
        stack.callback(session.outputs.close)
        try:
            with _no_collections():
                session.warm_up()
                session.measure()
        except CannotStart as error:
            ctx.fail("command_not_startable", f"{error}; is it a program for this machine, with a #! line if a script?")
        session.report()


# The metrics that a program prints are unknown at declaration.
command = dataclasses.replace(_command, strict_metrics=False)


def _fill(target: CommandTarget, workload: CommandWorkload, ctx: Context) -> tuple[CommandTarget, CommandWorkload]:
    """Replace placeholders in one pass: values are not searched for them, and the shell's own `${name}` stays."""
    if not workload.values:
        return target, workload
    placeholder = re.compile(rf"(?<!\$)\{{({'|'.join(map(re.escape, workload.values))})\}}")
    used: set[str] = set()

    def fill(text: str, quote: Callable[[str], str] = str) -> str:
        used.update(placeholder.findall(text))
        return placeholder.sub(lambda match: quote(str(workload.values[match[1]])), text)

    program = {"argv": list(map(fill, target.argv)), "shell": fill(target.shell, shlex.quote)}
    inputs = {"stdin": fill(workload.stdin), "prepare": list(map(fill, workload.prepare))}
    if unused := [f"{{{name}}}" for name in workload.values if name not in used]:
        ctx.fail("unused_value", f"neither argv, shell, stdin nor prepare has a place for {', '.join(unused)}")
    return target.model_copy(update=program), workload.model_copy(update=inputs)


def _with_data(target: CommandTarget, workload: CommandWorkload, folder: str) -> tuple[CommandTarget, CommandWorkload]:
    if not folder:
        return target, workload
    argv, prepare = ([fill_data(word, folder) for word in words] for words in (target.argv, workload.prepare))
    program = {"argv": argv, "shell": fill_data(target.shell, folder, shlex.quote)}
    environment = fill_variables(workload.environment, folder)
    inputs = {"stdin": fill_data(workload.stdin, folder), "prepare": prepare, "environment": environment}
    return target.model_copy(update=program), workload.model_copy(update=inputs)


def _enter(cwd: str, stack: ExitStack, ctx: Context) -> None:
    """Change the folder once for all executions: `posix_spawn` can't, and a launcher in between would be timed."""
    if cwd:
        before = Path.cwd()
        try:
            os.chdir(cwd)
        except OSError as error:
            ctx.fail("no_such_folder", f"can't run in {cwd}: {error.strerror}; workload.cwd is where the trial runs")
        stack.callback(os.chdir, before)


def _resolve(argv: list[str], workload: CommandWorkload, actions: list[tuple[Any, ...]], ctx: Context) -> ProgramSpec:
    """Look the program up once, so that no execution pays for the search."""
    environment = {**os.environ, **workload.environment}
    path = shutil.which(argv[0], path=environment.get("PATH", os.defpath))
    if path is None:
        where = " in PATH; give its full path, or install it where the trial runs"
        if "/" in argv[0]:
            where = f"; relative paths start in {workload.cwd or 'an empty folder: say where with workload.cwd'}"
        ctx.fail("command_not_found", f"no program {argv[0]!r}{where}")
    encoded = {os.fsencode(key): os.fsencode(value) for key, value in environment.items()}
    return ProgramSpec(path, argv, encoded, actions)


class _CommandSession:
    """The executions of one trial."""

    def __init__(
        self,
        program: ProgramSpec,
        prepare: ProgramSpec | None,
        streams: Streams,
        workload: CommandWorkload,
        ctx: Context,
    ) -> None:
        self.program, self.prepare, self.streams, self.workload, self.ctx = program, prepare, streams, workload, ctx
        self.finished: list[Finished] = []
        self.small_peaks_kib: list[int] = []
        self.failures = 0
        self.first_failure = ""
        self.stderr_checked = False  # whether stderr of a successful execution was checked
        self.emit_folder = Path(workload.environment[VARIABLE])
        self.emitted: list[Emitted] = []  # by the last execution
        self.outputs = PrintedValues(workload.metrics, workload.json_lines, _DECLARED)

    def warm_up(self) -> None:
        """Run executions that are not measured, but show the peak memory and what the program prints."""
        program = dataclasses.replace(self.program, streams=self.streams.actions(True))
        timeout_s = self.workload.timeout
        for number in range(1, self.workload.warmup + 1):
            self._prepare()
            small = run_small(program, timeout_s)
            done = small or run(program, timeout_s)
            if not self._succeeded(done):
                self._keep("warmup")
                self._stop_unless_tolerated(done, f"warm-up {number} of {self.workload.warmup}")
                continue
            if small:
                self.small_peaks_kib.append(small.maxrss_kib)
            self._check_stderr()
        if self.workload.warmup:
            self._keep("warmup")

    def measure(self) -> None:
        began = time.monotonic_ns()
        program, timeout_s = self.program, self.workload.timeout
        for number in range(1, self.workload.executions + 1):
            self._prepare()
            done = run(program, timeout_s)
            self.finished.append(done)
            self.emitted = collect_emitted(self.emit_folder, SEARCHED_BYTES)
            if not self._succeeded(done):
                self._count_failure(done, number)
                continue
            if not self.stderr_checked:
                self._check_stderr()
            if self.workload.needs_output or self.emitted:
                self.outputs.add(*self.streams.read(SEARCHED_BYTES), self.emitted)
        self.ctx.phase(STEADY, began, time.monotonic_ns())
        self._keep("last")

    def report(self) -> None:
        good = [done for done in self.finished if self._succeeded(done)]
        timeouts = sum(done.timed_out for done in self.finished)
        codes = Counter("timeout" if done.timed_out else str(done.exit_code) for done in self.finished)
        self.ctx.metadata(exit_codes=dict(codes), program=self.program.path)
        if not good:
            failed = f"all {len(self.finished)} executions failed"
            self.ctx.fail("command_failed", f"{failed}: the first {self.first_failure}")
        if self.failures:
            failed = f"{self.failures} of {len(self.finished)} executions failed"
            self.ctx.warn("executions_failed", f"{failed} and are in no latency: the first {self.first_failure}")
        emit = self.ctx.emit
        for done in good:
            emit("wall_ms", done.wall_ns / 1e6)
            emit("user_ms", done.user_s * 1e3)
            emit("system_ms", done.system_s * 1e3)
            emit("cpu_ms", (done.user_s + done.system_s) * 1e3)
        self._report_memory(max(done.maxrss_kib for done in good))
        emit("executions_per_s", len(good) / (sum(done.wall_ns for done in self.finished) / 1e9))
        emit("error_rate", self.failures / len(self.finished))
        emit("timeouts", timeouts)
        self.outputs.report(len(good), self.ctx)

    def _report_memory(self, peak_kib: int) -> None:
        floor_kib = peak_rss_kib() + _RSS_SLACK_KIB
        source = "measured executions"
        if peak_kib <= floor_kib:
            if not self.small_peaks_kib:
                cure = "no warm-up could show it" if self.workload.warmup else "workload.warmup of at least 1 shows it"
                floor = f"less memory than the {floor_kib * 1024 / 1e6:.0f} MB of the process that starts it"
                message = f"peak_rss_mb is left out: the program needs {floor}, which hide it; {cure}"
                self.ctx.warn("rss_floor", message)
                return
            source, peak_kib = "warm-up executions", max(self.small_peaks_kib)
        self.ctx.emit("peak_rss_mb", peak_kib * 1024 / 1e6)
        self.ctx.metadata(peak_rss_from=source)

    def _check_stderr(self) -> None:
        """Warn of output on stderr, once per trial: a program may complain and still exit successfully."""
        if not self.stderr_checked and (line := self.streams.first_complaint()):
            self.ctx.warn("stderr_output", line[:_SHOWN_CHARACTERS])
        self.stderr_checked = True

    def _count_failure(self, done: Finished, number: int) -> None:
        self.failures += 1
        if self.failures <= _KEPT_FAILURES:
            self._keep(f"failed-{number:05d}")
        self._stop_unless_tolerated(done, f"execution {number} of {self.workload.executions}")
        if self.failures == 1:
            self.first_failure = f"{_ending(done)}{self._last_line()}"

    def _stop_unless_tolerated(self, done: Finished, which: str) -> None:
        if not self.workload.tolerate_failures:
            cure = "to give it longer: workload.timeout"
            if not done.timed_out:
                cure = "if that is no failure: workload.allowed_exit_codes"
            cure += "; to count failures and go on: workload.tolerate_failures"
            self.ctx.fail("command_failed", f"{which} {_ending(done)}{self._last_line()} ({cure})")

    def _prepare(self) -> None:
        if self.prepare:
            self.streams.rewind()
            done = run(self.prepare)
            if done.exit_code != 0:
                self._keep("prepare")
                self.ctx.fail("prepare_failed", f"{self.prepare.argv} {_ending(done)}{self._last_line()}")
        self.streams.rewind()
        collect_emitted(self.emit_folder, 0)  # records of a warm-up or of `prepare`

    def _succeeded(self, done: Finished) -> bool:
        return not done.timed_out and done.exit_code in self.workload.allowed_exit_codes

    def _last_line(self) -> str:
        """Return the last line that the program printed, for a message."""
        stdout, stderr = self.streams.read(_KEPT_BYTES)
        lines = (stderr.strip() or stdout.strip()).decode(errors="replace").splitlines()
        return f": {lines[-1].strip()[:_SHOWN_CHARACTERS]}" if lines else " and said nothing"

    def _keep(self, name: str) -> None:
        for stream, content in zip(("stdout", "stderr"), self.streams.read(_KEPT_BYTES), strict=True):
            if content:
                (self.ctx.artifacts / f"{name}.{stream}").write_bytes(content)
        if records := b"".join(process.raw for process in self.emitted)[:_KEPT_BYTES]:
            (self.ctx.artifacts / f"{name}.emitted.jsonl").write_bytes(records)


def _ending(done: Finished) -> str:
    if done.timed_out:
        return f"was ended by the timeout after {done.wall_ns / 1e9:.1f} s"
    return f"ended by signal {-done.exit_code}" if done.exit_code < 0 else f"ended with exit code {done.exit_code}"


@contextmanager
def _no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
