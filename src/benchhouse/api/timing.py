"""Commands timed against each other: a scenario of the experiment `command`, made in memory and run like any other."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.analysis.compare import Pair, compare_many
from benchhouse.api import execution
from benchhouse.api.execution import QUIET, RunListener
from benchhouse.api.run import Run
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.results.numbers import mean_interval
from benchhouse.runs.preparation import Where, prepare_text
from benchhouse.runs.records import open_run
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace

SCENARIO = "time"
_FILE = "bench-time.yaml"  # the name of the scenario in messages; there is no such file
_MOST_ROUNDS = 10
_METRIC = "wall_ms"
_SEED = 20_240_229


@dataclass(frozen=True)
class TimingRequest:
    """Which commands are run, and how many times each."""

    commands: tuple[str, ...]
    names: tuple[str, ...] = ()
    runs: int = 10
    warmup: int = 1
    shell: bool = True
    prepare: str = ""

    @property
    def rounds(self) -> int:
        """Number of rounds. In a round, each command runs one trial."""
        return min(self.runs, _MOST_ROUNDS)

    @property
    def executions(self) -> int:
        """Number of executions of a command per round."""
        return -(-self.runs // self.rounds)


@dataclass(frozen=True)
class TimedCommand:
    """One command: the wall time of an execution, as the mean over rounds with its 95% interval."""

    name: str
    command: str
    runs: int
    mean_ms: float
    low_ms: float | None
    high_ms: float | None
    stdev_ms: float | None
    min_ms: float
    max_ms: float


@dataclass(frozen=True)
class Speedup:
    """How many times longer `other` takes than `fastest`, with a 95% interval."""

    fastest: str
    other: str
    ratio: float
    low: float | None
    high: float | None
    certain: bool
    """Whether the interval excludes that they are equally fast."""


@dataclass(frozen=True)
class Timing:
    """The result of `bench time`. Each of `speedups` compares another command with the fastest one."""

    run_id: str
    commands: tuple[TimedCommand, ...]
    speedups: tuple[Speedup, ...]


def run_timing(
    workspace: "Workspace", request: TimingRequest, folder: Path, listener: RunListener = QUIET
) -> "tuple[Run, Timing]":
    """Run the commands in `folder`, always as a new run: earlier runs had other conditions."""
    names = _names(request)
    targets = [_target(name, command, request.shell) for name, command in zip(names, request.commands, strict=True)]
    workload: dict[str, Any] = {"executions": request.executions, "warmup": 0, "cwd": "."}
    if request.prepare:
        workload["prepare"] = ["/bin/sh", "-c", _escaped(request.prepare)]
    scenario = {
        "scenario": SCENARIO,
        "experiment": "command",
        "targets": targets,
        "workload": workload,
        "repetitions": request.rounds,
        "warmup": request.warmup,
    }
    prepared = prepare_text(workspace.folder, dump_yaml(scenario), _FILE, folder, Where())
    ledger = open_run(workspace.folder, prepared, folder / _FILE, listener.note, new=True)
    summary = execution.carry_out(workspace.folder, ledger, prepared, listener=listener)
    run = Run(workspace, ledger.folder.run_id, summary)
    return run, timing(run, request)


def timing(run: Run, request: TimingRequest) -> Timing:
    """Return the commands that succeeded, in their order, and each of the others compared with the fastest."""
    points = [point for point in run.points() if point.metric == _METRIC]
    commands, values = list[TimedCommand](), dict[str, Sequence[float]]()
    for name, command in zip(_names(request), request.commands, strict=True):
        stats = {point.stat: point for point in points if point.target_name == name}
        if "mean" not in stats:
            continue
        mean = stats["mean"]
        low, high = mean_interval(mean.mean, mean.stdev, mean.n, mean.min) or (None, None)
        values[name] = mean.values
        commands.append(
            TimedCommand(
                name, command, mean.samples, mean.mean, low, high, mean.stdev,
                stats["min"].min if "min" in stats else mean.min,
                stats["max"].max if "max" in stats else mean.max,
            )
        )  # fmt: skip
    return Timing(run.id, tuple(commands), tuple(_speedups(commands, values)))


def _speedups(commands: Sequence[TimedCommand], values: dict[str, Sequence[float]]) -> list[Speedup]:
    ordered = sorted(commands, key=lambda item: item.mean_ms)
    if len(ordered) < 2:
        return []
    fastest = ordered[0]
    pairs = [Pair(values[fastest.name], values[other.name], "lower") for other in ordered[1:]]
    speedups = []
    for other, compared in zip(ordered[1:], compare_many(pairs, confidence=0.95, seed=_SEED), strict=True):
        interval = compared.change_interval
        low, high = (1.0 + interval.lo, 1.0 + interval.hi) if interval else (None, None)
        ratio = other.mean_ms / fastest.mean_ms
        speedups.append(Speedup(fastest.name, other.name, ratio, low, high, compared.verdict == "worse"))
    return speedups


def _names(request: TimingRequest) -> list[str]:
    if request.names and len(request.names) != len(request.commands):
        raise BenchError(
            f"{len(request.names)} names for {len(request.commands)} commands", "give --name once for each command"
        )
    names = list[str]()
    for name in request.names or request.commands:
        count = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(f"{name} #{count + 1}" if count else name)
    return names


def _target(name: str, command: str, shell: bool) -> dict[str, Any]:
    if not command.strip():
        raise BenchError("an empty command can't be timed", "bench time 'sleep 0.1' 'sleep 0.2'")
    if shell:
        return {"name": _escaped(name), "shell": _escaped(command)}
    try:
        return {"name": _escaped(name), "argv": [_escaped(part) for part in shlex.split(command)]}
    except ValueError as error:
        raise BenchError(f"{command!r} can't be split into words: {error}") from error


def _escaped(text: str) -> str:
    """Escape each `$`, which is for the shell and not for the scenario."""
    return text.replace("$", "$$")
