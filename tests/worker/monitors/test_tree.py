"""The process tree shows what processes really used, also those that have ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan

import pytest

from benchhouse.worker.monitors.series_catalog import all_series
from benchhouse.worker.monitors.tree import ProcessTree

MB = 1_000_000
BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"


@contextmanager
def program(code: str, *, until: str = "ready") -> Iterator[subprocess.Popen]:
    """Python that runs `code`, which prints `ready` and then waits for a line."""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert until in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def sample(tree: ProcessTree) -> dict[str, float]:
    return dict(zip([one.name for one in tree.series], tree.sample(), strict=True))


def reschedule_all(tree: ProcessTree) -> dict[str, float]:
    """A sample that reads everything, and looks for new members."""
    tree.refresh()
    return sample(tree)


def test_a_process_that_burns_cpu_shows_what_the_kernel_charged_it():
    code = "import sys, time\nprint('ready', flush=True)\nsys.stdin.readline()\n" + BURN.format(seconds=1.0)
    with program(code + "print('done', flush=True)\nsys.stdin.readline()\n") as process:
        tree = ProcessTree("service:burn", process.pid)
        before = sample(tree)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        after = sample(tree)
    assert after["cpu"] - before["cpu"] == pytest.approx(1.0, rel=0.1)


def test_a_process_that_holds_memory_shows_it():
    code = "import sys\ndata = bytearray(b'x') * 200_000_000\nprint('ready', flush=True)\nsys.stdin.readline()\n"
    with program(code) as process:
        seen = sample(ProcessTree("service:big", process.pid))
    assert 200 * MB < seen["rss"] < 230 * MB
    assert seen["processes"] == seen["threads"] == 1


def test_bytes_written_are_counted_to_the_byte(tmp_path):
    code = (
        "import os, sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        f"handle = os.open({str(tmp_path / 'file')!r}, os.O_WRONLY | os.O_CREAT)\n"
        "for _ in range(10): os.write(handle, bytes(300_000))\n"
        "os.fsync(handle)\nos.write(1, b'done\\n')\nsys.stdin.readline()\n"
    )
    with program(code) as process:
        tree = ProcessTree("service:writer", process.pid)
        before = reschedule_all(tree)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        after = reschedule_all(tree)
    assert after["io_written"] - before["io_written"] == 3_000_000 + len("done\n")
    assert after["disk_written"] - before["disk_written"] == pytest.approx(3_000_000, rel=0.05)


def parent_of(children: str) -> str:
    """A program that does `children` at each line it is given, and says so."""
    return (
        "import os, subprocess, signal, sys, time\nprint('ready', flush=True)\n"
        f"for line in sys.stdin:\n    {children}\n    print('done', flush=True)\n"
    )


def tell(process: subprocess.Popen) -> None:
    process.stdin.write("\n")
    process.stdin.flush()
    assert "done" in process.stdout.readline()


BURNING_CHILD = f"subprocess.run([sys.executable, '-c', {BURN.format(seconds=0.4)!r}])"


def test_a_child_that_was_never_seen_is_counted_when_its_parent_waits_for_it():
    with program(parent_of(BURNING_CHILD)) as process:
        tree = ProcessTree("service:parent", process.pid)
        before = sample(tree)
        tell(process)
        assert sample(tree)["cpu"] - before["cpu"] == pytest.approx(0.4, abs=0.15)


@pytest.mark.parametrize("waited_for", [True, False])
def test_a_child_that_ended_stays_counted_whether_or_not_anybody_waits_for_it(waited_for):
    """Of a parent that ignores SIGCHLD the kernel adds nothing up: what was last seen is kept."""
    code = "import os, signal, sys, time\n"
    code += "" if waited_for else "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    code += (
        "child = os.fork()\n"
        "if child == 0:\n"
        "    while time.process_time() < 0.4: pass\n"
        "    os.write(1, b'ready\\n')\n"
        "    time.sleep(60)\n"
        "sys.stdin.readline()\nos.kill(child, 9)\n"
    )
    code += "os.waitpid(child, 0)\n" if waited_for else "time.sleep(0.1)\n"
    code += "print('done', flush=True)\nsys.stdin.readline()\n"
    with program(code) as process:
        tree = ProcessTree("service:parent", process.pid)
        before = reschedule_all(tree)
        assert before["processes"] == 2
        assert before["cpu"] > 0.35
        tell(process)
        after = reschedule_all(tree)
        assert after["processes"] == 1
        assert before["cpu"] <= after["cpu"] < before["cpu"] + 0.2
        assert before["io_written"] <= after["io_written"]


def test_counters_never_go_back_while_children_come_and_go():
    code = (
        "import os, sys, time\nprint('ready', flush=True)\n"
        "while True:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        end = time.process_time() + 0.005\n"
        "        while time.process_time() < end: pass\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    time.sleep(0.01)\n"
    )
    with program(code) as process:
        tree = ProcessTree("service:forks", process.pid)
        seen, end_s = [reschedule_all(tree)], time.monotonic() + 120
        while len(seen) < 60 or (seen[-1]["cpu"] < seen[0]["cpu"] + 0.1 and time.monotonic() < end_s):
            time.sleep(0.02)
            seen.append(reschedule_all(tree))
    for one in tree.series:
        values = [row[one.name] for row in seen if not isnan(row[one.name])]
        assert one.kind == "gauge" or values == sorted(values), one.name
    assert seen[-1]["cpu"] >= seen[0]["cpu"] + 0.1


def test_an_orphan_that_was_known_stays_in_the_tree():
    code = (
        "import os, sys, time\n"
        "middle = os.fork()\n"
        "if middle == 0:\n"
        "    if os.fork() == 0:\n"
        "        os.write(1, b'ready\\n')\n"
        "        time.sleep(60)\n"
        "    time.sleep(60)\n"
        "sys.stdin.readline()\nos.kill(middle, 9)\nos.waitpid(middle, 0)\nprint('done', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with program(code) as process:
        tree = ProcessTree("service:family", process.pid)
        assert reschedule_all(tree)["processes"] == 3
        orphan = list(tree._members)[-1]
        try:
            tell(process)
            assert sample(tree)["processes"] == 2
        finally:
            os.kill(orphan, signal.SIGKILL)


def test_another_process_with_the_same_pid_is_not_taken_for_the_root():
    with program("print('ready', flush=True)\ninput()\n") as process:
        stranger = ProcessTree("service:gone", process.pid, start=1)
        assert sample(stranger)["processes"] == 0


def test_a_pid_that_is_used_again_is_another_process():
    """The kept descriptor is of the process, not of its number: the next one with that number reads as gone."""
    with program("print('ready', flush=True)\ninput()\n") as process:
        tree = ProcessTree("service:short", process.pid)
        before = sample(tree)
        process.kill()
        process.wait()
        after = sample(tree)
        assert list(tree._members) == []
        tree._enter([os.getpid()])  # as if this number had been given again
        assert sample(tree)["cpu"] >= before["cpu"] == after["cpu"]


def test_what_is_below_the_caller_leaves_the_caller_out():
    tree = ProcessTree("trial", os.getpid(), below=True)
    before = reschedule_all(tree)
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert sample(tree)["cpu"] - before["cpu"] < 0.05
    subprocess.run([sys.executable, "-c", BURN.format(seconds=0.3)], check=True)
    assert sample(tree)["cpu"] - before["cpu"] == pytest.approx(0.3, abs=0.15)


def test_more_members_than_descriptors_are_kept_for_are_all_counted(monkeypatch):
    monkeypatch.setattr("benchhouse.worker.monitors.tree._KEPT", 2)
    code = (
        "import os, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0: time.sleep(60)\n"
        "print('ready', flush=True)\ninput()\n"
    )
    with program(code) as process:
        tree = ProcessTree("service:many", process.pid)
        try:
            assert reschedule_all(tree)["processes"] == sample(tree)["processes"] == 5
        finally:
            for pid in list(tree._members)[1:]:
                os.kill(pid, signal.SIGKILL)


def test_context_switches_and_waiting_are_summed_over_all_threads():
    code = (
        "import threading, time\n"
        "def naps():\n"
        "    for _ in range(50): time.sleep(0.001)\n"
        "threads = [threading.Thread(target=naps) for _ in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "while any(thread.is_alive() for thread in threads): time.sleep(0.01)\n"
        "keep = threading.Thread(target=time.sleep, args=(60,), daemon=True)\nkeep.start()\n"
        "print('ready', flush=True)\ninput()\n"
    )
    with program(code) as process:
        seen = reschedule_all(ProcessTree("service:threads", process.pid))
        assert seen["threads"] == 2
        assert seen["context_switches"] > 2
        assert seen["cpu_wait"] >= 0


def test_no_series_in_bytes_is_called_a_count():
    counts = ("_calls", "reads", "writes", "_count", "s_done")
    assert [item.name for item in all_series() if item.unit.startswith("B") and item.name.endswith(counts)] == []
