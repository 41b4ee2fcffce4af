"""The process that reads the team's store repeatedly, outside the server process, so that pages stay fast."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchhouse.api.workspace import Workspace
from benchhouse.processes.tree import die_with_parent

LOG = logging.getLogger("benchhouse.serve")
_PAUSE_S = 5.0  # before a process that ended is started again
_NICENESS = 5  # pages have priority


def follow(root: Path, every_s: float) -> None:
    """Keep a follower process running as long as this process lives; it ends with this process, even after a kill."""
    command = [sys.executable, "-m", __name__, str(root), str(every_s), str(os.getpid())]

    def keep() -> None:
        while True:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True, errors="replace", start_new_session=True,
            )  # fmt: skip
            said = process.communicate()[1].strip().splitlines() or ["without a word"]
            LOG.warning("the process that follows the team's store ended (%d): %s", process.returncode, said[-1])
            time.sleep(_PAUSE_S)

    # The kernel notifies the process when the thread that started it, this one, ends.
    threading.Thread(target=keep, daemon=True, name="follow").start()


def main(root: str, every_s: float, server_pid: int) -> None:
    die_with_parent(signal.SIGTERM, server_pid)
    os.nice(_NICENESS)
    workspace = Workspace(root)
    while True:
        workspace.warehouse.look(every_s)
        time.sleep(every_s)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
