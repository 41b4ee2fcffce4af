"""Memory of this process and of a tree of others, against allocations of a known size."""

import subprocess
import sys

from benchhouse.experiments.vector.collection import anonymous_memory, tree_bytes

MB = 2**20
HOLD = "import sys; held = bytearray(b'x' * (30 << 20)); print('ready', flush=True); sys.stdin.read()"
HOLD_TWICE = (
    "import subprocess, sys\n"
    f"child = subprocess.Popen([sys.executable, '-c', {HOLD!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
    "child.stdout.readline()\n" + HOLD + "\nchild.stdin.close(); child.wait()"
)


def test_memory_of_this_process_grows_by_what_it_takes():
    before = anonymous_memory()
    held = bytearray(b"x" * (30 * MB))
    assert 29 * MB <= anonymous_memory() - before <= 34 * MB
    del held
    assert anonymous_memory() - before < 5 * MB, "what was given back no longer counts"


def test_memory_of_a_server_includes_what_it_started():
    command = [sys.executable, "-c", HOLD_TWICE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        found = tree_bytes(process.pid)
        process.stdin.close()
    assert 60 * MB <= found <= 100 * MB


def test_a_process_that_is_gone_takes_nothing():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert tree_bytes(process.pid) == 0
