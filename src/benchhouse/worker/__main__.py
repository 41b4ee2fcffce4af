"""`python -m benchhouse.worker FOLDER` runs one trial; `--host` runs many, each in a process forked from this one.

`--host --own` is the same if the orchestrator is on another node; `--task FOLDER` runs the trials of one task of a
batch system; `--keep FOLDER` supervises a service; `--monitor FOLDER` is a free-standing monitor; `--sample` samples a
node for a trial whose worker is on another one; `--agent` starts the commands of such a trial.
"""

import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchhouse.processes.process_identity import OWNER, identity


def main(arguments: list[str]) -> int:
    gc.disable()  # no garbage is created during the imports
    try:
        run = _find(arguments)
    finally:
        gc.freeze()  # imported objects stay
        gc.enable()
    return run()


def _find(arguments: list[str]) -> Callable[[], int]:
    """Return the function to call, with all of its imports done."""
    if arguments == ["--host", "--own"]:  # before most imports, because they are repeated
        os.environ[OWNER] = identity()  # exec keeps it: everything that is started below names this process
        os.execv(sys.executable, sys.orig_argv[:-1])  # noqa: S606 - the same call, flags of Python included
    from benchhouse.schema.container import ENTERED

    if ENTERED in os.environ:
        from benchhouse.worker import node

        node.enter_s()  # measured before anything else takes time
    if arguments == ["--host"]:
        from benchhouse.worker.host import serve

        return serve
    if arguments == ["--agent"]:
        from benchhouse.worker.node_agent import serve as serve_calls

        return serve_calls
    if arguments == ["--sample"]:
        from benchhouse.worker.monitors.node_step import run as sample

        return sample
    run: Callable[[Path], int]
    match arguments:
        case ["--keep", _]:
            from benchhouse.worker.service_supervisor import keep as run
        case ["--task", _]:
            from benchhouse.worker.task import run_task as run
        case ["--monitor", _]:
            from benchhouse.worker.monitors.standing_monitor import run
        case [folder] if not folder.startswith("-"):
            from benchhouse.worker.supervise import run_trial as run
        case _:
            known = "FOLDER | --host | --task FOLDER | --keep FOLDER | --monitor FOLDER | --sample | --agent"
            print(f"usage: python -m benchhouse.worker {known}", file=sys.stderr)
            return lambda: 2
    return partial(run, Path(arguments[-1]).absolute())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
