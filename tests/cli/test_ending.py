"""The end of the command line's process: quick, and nothing is lost by it."""

import os
import subprocess
import sys

import pytest

_BEGIN = "import atexit, sys\nfrom benchhouse.cli.ending import leave_after\n"
_WATCH = "class Watch:\n    def __del__(self): print('taken apart', flush=True)\nwatch = Watch()\n"


def run(code, stdout=subprocess.PIPE):
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", _BEGIN + code]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=buffered)


def test_what_was_printed_and_what_is_for_atexit_is_done_and_nothing_is_taken_apart():
    done = run(
        _WATCH + "atexit.register(lambda: print('at exit'))\n"
        "def main():\n    print('out'); print('err', file=sys.stderr); sys.exit(3)\nleave_after(main)\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\nat exit\n", "err\n")


@pytest.mark.parametrize("imported", ["duckdb", "pyarrow, yaml, sqlite3"])
def test_no_extension_complains(imported):
    done = run(f"import {imported}\nleave_after(lambda: sys.exit(0))\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_where_a_thread_runs_python_ends_as_ever():
    done = run(
        _WATCH + "import threading\n"
        "def work():\n    threading.main_thread().join(); print('worked')\n"
        "def main():\n    threading.Thread(target=work).start(); sys.exit(4)\nleave_after(main)\n"
    )
    assert (done.returncode, done.stdout) == (4, "worked\ntaken apart\n")


def test_an_error_that_nobody_expected_shows_its_traceback():
    done = run("def main():\n    raise RuntimeError('a defect')\nleave_after(main)\n")
    assert done.returncode == 1
    assert "RuntimeError: a defect" in done.stderr


def test_what_can_not_be_written_is_told_by_the_exit_code():
    with open("/dev/full", "w") as full:
        done = run("def main():\n    print('out'); sys.exit(0)\nleave_after(main)\n", stdout=full)
    assert done.returncode == 120
    assert "No space left" in done.stderr


def test_the_installed_commands_and_the_module_end_alike():
    for command in (["-m", "benchhouse"], ["-c", "from benchhouse.cli import start; start()"]):
        done = subprocess.run([sys.executable, *command, "--version"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(("benchhouse ", "bench"))
    done = subprocess.run([sys.executable, "-m", "benchhouse", "no-such"], capture_output=True, text=True)
    assert done.returncode == 2
