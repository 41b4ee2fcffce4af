import os
import signal
import subprocess
import sys
import time
import traceback

import pytest

from benchhouse.processes import tree


def start(program, **options):
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, **options)


def forked(body):
    """Runs `body` in a fork that is a subreaper, as a worker is; returns what it wrote."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            tree.become_subreaper()
            os.write(writer, str(body()).encode())
            code = 0
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    assert os.waitpid(pid, 0)[1] == 0, said
    return said


def wait_until(true, seconds=5.0):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "did not happen in time"
        time.sleep(0.005)


def gone(pid):
    return not tree.alive(pid, None)


def test_start_time_names_a_process_and_a_reused_pid_is_recognised():
    start = tree.start_time(os.getpid())
    assert start is not None and start > 0
    assert tree.alive(os.getpid(), start)
    assert tree.alive(os.getpid(), None)
    assert not tree.alive(os.getpid(), start - 1)
    assert tree.start_time(2**22 + 1) is None
    assert not tree.alive(2**22 + 1, None)


def test_a_name_with_spaces_and_parentheses_does_not_confuse_the_fields(tmp_path):
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([odd, "30"])
    wait_until(lambda: tree.command_name(child.pid) == "a) R 1 (b")
    assert tree.alive(child.pid, tree.start_time(child.pid))
    assert child.pid in tree.descendants(os.getpid())
    child.kill()
    child.wait()


def test_a_zombie_counts_as_dead():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    began = tree.start_time(pid)
    wait_until(lambda: not tree.alive(pid, began))
    assert tree.start_time(pid) == began
    assert tree.reap(pid) == [pid]
    assert tree.reap(pid) == []


@pytest.mark.parametrize("kernel_lists_children", [True, False])
def test_descendants_come_parents_first(monkeypatch, kernel_lists_children):
    if not kernel_lists_children:
        monkeypatch.setattr(tree, "kernel_lists_children", lambda: False)
    program = """if True:
        import os, subprocess, sys
        subprocess.run([sys.executable, "-c", "import os; print(os.getppid(), os.getpid(), flush=True); input()"])
    """
    child = start(program, stdin=subprocess.PIPE)
    middle, inner = map(int, child.stdout.readline().split())
    assert middle == child.pid
    assert tree.descendants(child.pid) == [inner]
    found = tree.descendants(os.getpid())
    assert found.index(child.pid) < found.index(inner)
    child.communicate("\n")
    assert tree.descendants(2**22 + 1) == []


def test_a_child_dies_with_its_parent():
    program = """if True:
        import os, signal, sys, time
        from benchhouse.processes.tree import die_with_parent
        worker = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with_parent(signal.SIGKILL, worker)
            print(os.getpid(), flush=True)
            time.sleep(60)
        time.sleep(60)
    """
    parent = start(program)
    child = int(parent.stdout.readline())
    assert tree.alive(child, None)
    parent.kill()
    parent.wait()
    wait_until(lambda: gone(child))


def test_a_parent_that_died_before_the_call_is_noticed():
    pid = os.fork()
    if pid == 0:
        tree.die_with_parent(signal.SIGKILL, parent_pid=2**22 + 1)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"


def test_kill_tree_takes_the_polite_and_the_stubborn_with_all_below_them():
    program = f"""if True:
        import subprocess, sys, time
        inner = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE)
        inner.stdout.readline()
        print(inner.pid, flush=True)
        time.sleep(60)
    """
    child = start(program)
    inner = int(child.stdout.readline())
    began = time.monotonic()
    assert tree.kill_tree([child.pid], grace_s=0.2) == []
    assert time.monotonic() - began >= 0.2
    assert gone(inner) and gone(child.pid)


def test_kill_tree_does_not_wait_out_the_grace_for_those_that_obey():
    child = start("import time; print(1, flush=True); time.sleep(600)")
    child.stdout.readline()
    began = time.monotonic()
    assert tree.kill_tree([child.pid, 2**22 + 1], grace_s=200) == []
    assert time.monotonic() - began < 100


def test_kill_tree_and_send_never_touch_the_caller_or_init():
    assert not tree.send(os.getpid(), None, signal.SIGKILL)
    assert not tree.send(1, None, signal.SIGKILL)
    assert not tree.send(0, None, signal.SIGKILL)
    other = subprocess.Popen(["sleep", "30"])
    assert not tree.send(other.pid, 1, signal.SIGKILL), "the start time belongs to another process"
    assert tree.alive(other.pid, None)
    other.kill()
    other.wait()


def test_kill_descendants_reports_nothing_when_there_is_nobody():
    assert forked(lambda: tree.kill_descendants(grace_s=5)) == "[]"


def test_a_daemon_that_forked_twice_and_ignores_sigterm_is_found_and_killed(tmp_path):
    note = tmp_path / "pid"
    program = f"""if True:
        import os, signal, time
        if os.fork(): os._exit(0)
        os.setsid()
        if os.fork(): os._exit(0)
        signal.signal(15, signal.SIG_IGN)
        open({str(note)!r} + "x", "w").write(str(os.getpid()))
        os.rename({str(note)!r} + "x", {str(note)!r})
        time.sleep(60)
    """

    def body():
        subprocess.run([sys.executable, "-c", program], check=True)
        # Those in between may still be on their way out when the daemon has said its pid.
        wait_until(lambda: note.exists() and (tree.reap(), len(tree.descendants(os.getpid())))[1] == 1)
        names = tree.kill_descendants(grace_s=0.2)
        assert len(names) == 1 and names[0].startswith("python"), names
        assert tree.descendants(os.getpid()) == []
        return "swept"

    assert forked(body) == "swept"
    assert gone(int(note.read_text()))


@pytest.mark.parametrize(
    "shape",
    [
        "while True:\n  if os.fork() == 0: time.sleep(60)\n  time.sleep(0.001)",  # a parent that keeps forking
        "while True:\n  if os.fork(): os._exit(0)",  # a comet: each process forks the next one and exits
    ],
    ids=["forks in a loop", "comet"],
)
def test_those_who_fork_while_they_are_killed_do_not_escape(shape):
    def body():
        child = subprocess.Popen(
            [sys.executable, "-c", "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nos.setsid()\n" + shape],
            env=os.environ | {"BENCHHOUSE_TRIAL": f"fork-test-{os.getpid()}"},
        )
        time.sleep(0.3)
        assert child.pid
        names = tree.kill_descendants(grace_s=0.05)
        assert names
        assert tree.descendants(os.getpid()) == []
        time.sleep(0.1)
        assert tree.tagged_processes("BENCHHOUSE_TRIAL", f"fork-test-{os.getpid()}") == []
        return "swept"

    assert forked(body) == "swept"


def test_tagged_processes_are_found_by_value():
    value = f"tag-test-{os.getpid()}"
    child = subprocess.Popen(["sleep", "30"], env={"BENCHHOUSE_TRIAL": value + "-1"})
    other = subprocess.Popen(
        ["sleep", "30"], env={"NOT_BENCHHOUSE_TRIAL": value + "-1", "BENCHHOUSE_TRIAL": "elsewhere"}
    )
    wait_until(lambda: tree.tagged_processes("BENCHHOUSE_TRIAL", value + "-1") == [child.pid])
    assert tree.tagged_processes("BENCHHOUSE_TRIAL", value) == []
    for one in (child, other):
        one.kill()
        one.wait()


def test_usage_of_the_tree_counts_running_and_reaped_processes():
    burn = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\n"

    def body():
        before = tree.tree_cpu_s()
        child = start(burn + "print(1, flush=True); input()", stdin=subprocess.PIPE)
        child.stdout.readline()
        running = tree.tree_cpu_s() - before
        assert tree.tree_usage()["cpu_user_s"] < 0.2, "not reaped yet"
        child.communicate("\n")
        used = tree.tree_usage()
        assert running > 0.35, running
        assert used["cpu_user_s"] + used["cpu_system_s"] > 0.4
        assert 4 << 20 < used["max_rss_bytes"] < 1 << 30
        return "counted"

    assert forked(body) == "counted"


def test_the_worker_modules_import_nothing_heavy():
    program = """if True:
        import sys
        import benchhouse.processes.cgroups, benchhouse.worker.output, benchhouse.processes.tree
        assert not {"asyncio", "subprocess", "ctypes", "pydantic"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", program], check=True)
