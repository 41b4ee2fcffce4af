"""Hold one operation of ado: `python -m benchhouse.executors.ado_operation ado create operation ...`.

Ray starts processes that leave their parents. This process is a subreaper, so all of them return to it, and it ends
them with the operation or when standard input closes, which means that the caller is gone.
"""

import os
import select
import signal
import subprocess
import sys

from benchhouse.processes import tree

_GRACE_S = 5.0


def hold(command: list[str]) -> int:
    tree.become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            ready, _, _ = select.select([0], [], [], 0.2)
            if ready and not os.read(0, 1024):
                return 130
        return process.returncode
    finally:
        tree.kill_descendants(grace_s=_GRACE_S)


if __name__ == "__main__":
    sys.exit(hold(sys.argv[1:]))
