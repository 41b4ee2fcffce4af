"""A training that is a function of an installed module: one rank, in the process of the trial."""

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import monotonic

from benchhouse.experiments.training.launch import RankProcess, Training
from benchhouse.experiments.training.launchers import Launch, RankSettings, free_port
from benchhouse.experiments.training.rank import node_of_rank
from benchhouse.schema.experiment import Context

_ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
_OF_PROCESSES = ("launcher", "max_restarts", "timeout", "affinity", "cwd", "hang_after", "patterns", "rank_environment")


def check_inside(ranks: RankSettings, ctx: Context) -> None:
    """Fail the trial if settings need ranks in separate processes."""
    given = [name for name in _OF_PROCESSES if name in ranks.model_fields_set]
    if (ranks.ranks_per_node or ranks.ranks) != 1 or len(ctx.nodes) != 1:
        ctx.fail("not_inside", "target.function is one rank, in the process of the trial; give target.argv for several")
    if given:
        ctx.fail("not_inside", f"{', '.join(given)}: of ranks that are processes (target.argv), not of target.function")


def run_inside(function: str, launch: Launch, ctx: Context) -> Training:
    """Call the function as `RANK` 0 of 1. Its output goes to the trial's log; its records are those it emits."""
    module, _, name = function.partition(":")
    try:
        call = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        ctx.fail("command_not_found", f"target.function {function}: {error}; write package.module:function")
    rank = RankProcess(0, launch.logs / "rank-0.attempt-0.log")
    rank.facts = {
        "rank": 0,
        "local_rank": 0,
        "node": node_of_rank(),
        "pid": os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)),
    }
    rank.exit_code = 0
    with _variables({**launch.environment, **_ALONE, "MASTER_PORT": str(free_port())}):
        try:
            call()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - of the user's function, whatever it is
            if not isinstance(error, SystemExit) or error.code:
                rank.exit_code = 1
                text = "".join(traceback.format_exception(error))
                Path(rank.log).write_text(text, encoding="utf-8")
                rank.lines = [(monotonic(), line) for line in text.splitlines()]
    rank.ended_s = monotonic()
    return Training([[rank]])


@contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set the environment variables for the duration of the block; emitted records go to the folder that they name."""
    before = dict(os.environ)
    os.environ.update(wanted)
    _reopen()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        _reopen()


def _reopen() -> None:
    """Reopen the loaded module through which the function emits, which may come from another environment."""
    if (client := sys.modules.get("benchhouse_client")) is not None:
        client.reopen()
