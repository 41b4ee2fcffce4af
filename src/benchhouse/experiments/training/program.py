"""Start one of our programs under the user's Python, which has torch, its build, and its drivers.

In: one of `programs/` and its arguments. Out: the JSON lines of each rank; a program that fails ends the trial with its
last lines.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from benchhouse.experiments.training.launch import NotLaunched, RankProcess, run_here, run_training
from benchhouse.experiments.training.launchers import RankSettings, prepare
from benchhouse.experiments.training.placement import record_placement
from benchhouse.schema.experiment import Context

_PROGRAMS = Path(__file__).parent / "programs"
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_ERROR = re.compile(r"(\[rank\d+\]: )?[\w.]+(Error|Exception|Interrupt)\b")  # the last line of a traceback
_SHOWN = 300  # characters of a rank's output in a message


@dataclass(frozen=True)
class TrainingProgram:
    """A program to start, and its settings."""

    name: str
    """Name of a file in `programs/`."""
    python: str
    settings: Mapping[str, Any]
    """Its one argument, as JSON; secrets go into the environment."""
    ranks: RankSettings | None = None
    """Ranks on all nodes of the trial; None means one process on this node."""
    environment: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    """Pattern on the output of the rank, by failure code. The first that matches is the failure of the trial."""


def run_program(program: TrainingProgram, ctx: Context) -> list[list[dict[str, Any]]]:
    """Return the records of each rank, and store the logs as artifacts. Fail the trial if the program fails."""
    argv = [program.python, str(_PROGRAMS / f"{program.name}.py"), json.dumps(program.settings)]
    try:
        ranks = _start(argv, program, program.ranks, ctx) if program.ranks else _start_here(argv, program, ctx)
    except (NotLaunched, OSError) as error:
        ctx.fail("not_launched", str(error))
    if any(rank.exit_code for rank in ranks):
        _record_failure(program, ranks, ctx)
    return [_records(rank) for rank in ranks]


def world_of(ranks: RankSettings, ctx: Context) -> int:
    return ranks.ranks_per_node * len(ctx.nodes) if ranks.ranks_per_node else ranks.ranks


def _start(argv: Sequence[str], program: TrainingProgram, ranks: RankSettings, ctx: Context) -> list[RankProcess]:
    ranks = ranks.model_copy(update={"environment": {**ranks.environment, **program.environment}})
    with TemporaryDirectory(dir=ctx.artifacts.resolve(), prefix="ranks-") as folder:
        launch, launcher = prepare(argv, "", ranks, Path(folder) / "ranks", ctx)
        training = run_training(launch, launcher, ranks.max_restarts, ranks.timeout)
    record_placement(training, launch, ranks, ctx)
    return training.last


def _start_here(argv: Sequence[str], program: TrainingProgram, ctx: Context) -> list[RankProcess]:
    logs = ctx.artifacts / program.name
    logs.mkdir(exist_ok=True)
    return run_here(argv, 1, {**os.environ, **program.environment}, logs, None)


def _records(rank: RankProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in rank.lines if line.startswith("{")]


def _record_failure(program: TrainingProgram, ranks: Sequence[RankProcess], ctx: Context) -> NoReturn:
    """Fail the trial with the rank that failed first on its own."""
    own = sorted((rank for rank in ranks if rank.failed), key=lambda rank: rank.ended_s or 0.0)
    if not own:
        ctx.fail("timeout", "the program was ended by workload.timeout")
    rank = own[0]
    text = "\n".join(line for _, line in rank.lines)
    if missing := _NO_MODULE.search(text):
        cure = "install it there, or name the Python that has it as target.python"
        ctx.fail("module_missing", f"{program.python} has no {missing[1]}: {cure}")
    for code, pattern in program.failures.items():
        if match := re.search(pattern, text):
            ctx.fail(code, match[0][:_SHOWN])
    ended = rank.exit_code or 0
    how = f"signal {-ended}" if ended < 0 else f"exit code {ended}"
    errors = [line for _, line in rank.lines if _ERROR.match(line)]
    ctx.fail("rank_failed", f"rank {rank.number} ended with {how}: {(errors or [rank.last_lines()])[-1][:_SHOWN]}")
