import contextlib
import errno
import os
import resource
import signal
import sys
import time

import pytest

from benchhouse.processes import cgroups, tree
from benchhouse.processes.cgroups import Cage, CgroupFS, sweep_cages
from benchhouse.processes.tree import kill_tree
from benchhouse.schema.resources import Limits

MIB = 1 << 20
NOWHERE = CgroupFS()


def only_v1():
    return CgroupFS(CgroupFS.detect().v1, None)


PLACES = {"as found": CgroupFS.detect, "v1 only": only_v1, "no cgroups": lambda: NOWHERE}


@pytest.fixture(params=list(PLACES))
def place(request):
    return PLACES[request.param]()


@contextlib.contextmanager
def caged(limits, fs):
    cage = Cage.build("Test of limits!", limits, fs)
    try:
        yield cage
    finally:
        cage.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        folders = list(cage.folders.values())
        cage.remove()
        cage.remove()
        assert not any(folder.exists() for folder in folders)


def members(cage):
    """Who is in the cage now; empty as well where there is no cgroup."""
    return {pid for folder in cage.folders.values() for pid in cgroups._members(folder)}


def run_inside(cage, program, wait=True):
    pid = os.fork()
    if pid == 0:
        try:
            cage.enter()
            os.execv(sys.executable, [sys.executable, "-c", program])
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if wait else pid


def wait_until(true, seconds=5.0):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "did not happen in time"
        time.sleep(0.005)


def test_nothing_asked_is_nothing_enforced(place):
    with caged(Limits(), place) as cage:
        assert cage.enforced == {}
        assert run_inside(cage, "import resource; assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)") == 0


def test_each_limit_asked_for_is_accounted_for(place):
    with caged(Limits(wall=9, cpu=9, memory=512 * MIB, cpus=1, processes=50), place) as cage:
        assert set(cage.enforced) == {"wall", "cpu_s", "memory", "cpus", "pids"}
        assert cage.enforced["wall"] == "worker timer"
        assert run_inside(cage, "pass") == 0


def test_too_much_memory_ends_the_experiment(place):
    program = "try:\n  data = [b'x' * (1 << 20) for _ in range(1000)]\nexcept MemoryError:\n  raise SystemExit(7)"
    with caged(Limits(memory=200 * MIB), place) as cage:
        code = run_inside(cage, program)
        used = cage.usage()
        if cage.enforced["memory"].startswith("cgroup"):
            assert code == -signal.SIGKILL
            assert used["oom_kills"] > 0
            assert 190 * MIB <= used["peak_memory_bytes"] <= 200 * MIB
        else:
            assert cage.enforced["memory"].startswith("RLIMIT_AS")
            assert code == 7 and used["oom_kills"] is None and used["peak_memory_bytes"] is None


def test_a_cgroup_holds_the_memory_of_all_processes_together(place):
    program = """if True:
        import os, time
        reader, writer = os.pipe()
        pids = []
        for _ in range(3):
            pids.append(os.fork())
            if pids[-1] == 0:
                data = b"x" * (100 << 20)
                os.write(writer, b"1")
                time.sleep(60)
                os._exit(0)
        os.set_blocking(reader, False)
        ready = 0
        while ready < 3:  # until one is killed, or all hold their memory at the same time
            if os.waitpid(-1, os.WNOHANG)[0]:
                raise SystemExit(5)
            try:
                ready += len(os.read(reader, 3))
            except BlockingIOError:
                time.sleep(0.01)
        for pid in pids:
            os.kill(pid, 9)
    """
    with caged(Limits(memory=250 * MIB), place) as cage:
        code = run_inside(cage, program)
        if cage.enforced["memory"].startswith("cgroup"):
            assert code in (5, -signal.SIGKILL) and cage.usage()["oom_kills"] > 0
        else:
            assert "each process by itself" in cage.enforced["memory"] and code == 0


BUSY_2_CORES = """if True:
    import os, time
    child = os.fork()
    end = time.monotonic() + 1
    while time.monotonic() < end: pass
    os._exit(0) if child == 0 else os.wait()
"""


def cpu_s_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_half_a_core_is_half_a_core(place):
    before_s = cpu_s_of_children()
    with caged(Limits(cpus=0.5), place) as cage:
        assert run_inside(cage, BUSY_2_CORES) == 0
        cpu_s = cpu_s_of_children() - before_s
        used = cage.usage()
        if cage.enforced["cpus"].startswith("cgroup"):
            assert cpu_s < 0.8
            assert used["throttled_s"] > 0.05 or cpu_s < 0.4, "neighbours may leave it less than half a core"
        else:
            assert cage.enforced["cpus"].startswith("sched_setaffinity to cores ")
            assert cpu_s < 1.3, "two busy processes on one core"
        if used["cpu_s"] is not None:
            assert used["cpu_s"] == pytest.approx(cpu_s, abs=0.15)


def test_a_fork_bomb_stays_within_its_number_of_processes(place):
    program = """if True:
        import os, time
        made = []
        for _ in range(60):
            try:
                made.append(os.fork())
            except BlockingIOError:
                raise SystemExit(len(made))
            if made[-1] == 0:
                time.sleep(30)
                os._exit(0)
        for pid in made:
            os.kill(pid, 9)
        raise SystemExit(99)
    """
    with caged(Limits(processes=20), place) as cage:
        code = run_inside(cage, program)
        if cage.enforced["pids"].startswith("cgroup"):
            assert code == 19
            assert len(members(cage)) == 19
            assert cage.kill() is True
            wait_until(lambda: not members(cage))
        else:
            assert cage.enforced["pids"].startswith("none (") and code == 99


def test_cpu_seconds_of_one_process_end_it():
    """By the limit of the process, with or without cgroups."""
    with caged(Limits(cpu=1), NOWHERE) as cage:
        before_s = cpu_s_of_children()
        assert run_inside(cage, "while True: pass") == -signal.SIGXCPU
        assert 0.8 < cpu_s_of_children() - before_s < 2.5
        assert cage.enforced["cpu_s"].startswith("RLIMIT_CPU + tree accounting (")


def test_cpu_seconds_are_counted_over_the_tree_while_it_runs(place):
    with caged(Limits(cpu=30), place) as cage:
        pid = run_inside(cage, "import os\nfor _ in range(3): os.fork()\nwhile True: pass", wait=False)
        assert not cage.over_cpu(30)
        wait_until(lambda: cage.over_cpu(1.0), 120)
        assert kill_tree([pid], grace_s=0) == []
        assert not members(cage)


def test_kill_ends_those_who_ignore_signals_daemonise_and_keep_forking(place):
    program = """if True:
        import os, signal, time
        signal.signal(15, signal.SIG_IGN)
        if os.fork(): os._exit(0)
        os.setsid()
        while True:
            if os.fork(): os._exit(0)
    """
    with caged(Limits(), place) as cage:
        if not cage.folders:
            assert members(cage) == set() and cage.kill() is True
            return
        assert run_inside(cage, program) == 0
        time.sleep(0.2)
        assert cage.kill() is True
        time.sleep(0.1)
        assert members(cage) == set()


def test_the_name_is_made_safe_and_carries_its_owner(place):
    with caged(Limits(), place) as cage:
        for folder in cage.folders.values():
            assert folder.name.startswith(f"test-of-limits-p{os.getpid()}-s")
            assert set(folder.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_two_cages_of_one_name_do_not_meet(place):
    with caged(Limits(), place) as one, caged(Limits(), place) as two:
        assert not set(one.folders.values()) & set(two.folders.values())


def test_a_sweep_takes_the_cages_of_the_dead_and_leaves_those_of_the_living(place):
    prefix = f"sweep-test-{os.getpid()}-"
    reader, writer = os.pipe()
    worker = os.fork()
    if worker == 0:
        cage = Cage.build(prefix + "dead", Limits(memory=100 * MIB, processes=9), place)
        cage.folders or tree.become_subreaper()
        child = os.fork()
        if child == 0:
            cage.folders or tree.die_with_parent(signal.SIGKILL, os.getppid())
            cage.enter()
            os.write(writer, str(os.getpid()).encode())
        time.sleep(60)
    child = int(os.read(reader, 20))
    os.close(reader)
    os.close(writer)
    mine = Cage.build(prefix + "mine", Limits(), place)
    homes = {folder.parent for folder in mine.folders.values()}
    sweep_cages(prefix, place)
    assert all(list(home.glob(prefix + "dead-*")) for home in homes), "its worker is alive"
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    assert not mine.folders or tree.alive(child, None)
    sweep_cages(prefix, place)
    wait_until(lambda: not tree.alive(child, None))
    assert all(folder.exists() for folder in mine.folders.values())
    assert not any(list(home.glob(prefix + "dead-*")) for home in homes)
    mine.remove()


# The kernel here may offer only one layout; the others are played by folders of plain files.


class FakeKernel(CgroupFS):
    """A v2 hierarchy of plain files: makes the control files of a new cgroup as the kernel would."""

    def make(self, folder):
        super().make(folder)
        files = {
            "cgroup.procs": "",
            "cgroup.kill": "",
            "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
        }
        enabled = (folder.parent / "cgroup.subtree_control").read_text()
        if "memory" in enabled:
            files |= {
                "memory.max": "max",
                "memory.swap.max": "max",
                "memory.peak": "4096\n",
                "memory.events": "oom 2\noom_kill 1\n",
            }
        if "cpu" in enabled:
            files |= {"cpu.max": "max 100000", "cpu.stat": files["cpu.stat"] + "throttled_usec 250000\n"}
        if "pids" in enabled:
            files |= {"pids.max": "max", "pids.events": "max 3\n"}
        for name, text in files.items():
            (folder / name).write_text(text)


def fake_v2(folder, enabled="cpu memory pids", offered="cpu memory pids"):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"cgroup.procs": "", "cgroup.controllers": offered, "cgroup.subtree_control": enabled}.items():
        (folder / name).write_text(text)
    return FakeKernel({}, folder)


def text_of(folder, name):
    return (folder / name).read_text()


def test_fake_v2_limits_are_written_to_the_v2_files(tmp_path):
    cage = Cage.build("t", Limits(cpu=2, memory=100 * MIB, cpus=1.5, processes=7), fake_v2(tmp_path))
    folder = cage.folders["v2"]
    assert cage.enforced == {
        "cpu_s": "RLIMIT_CPU + tree accounting (cgroup v2 cpu.stat)",
        "memory": "cgroup v2 memory.max (swap included)",
        "cpus": "cgroup v2 cpu.max",
        "pids": "cgroup v2 pids.max",
    }
    assert text_of(folder, "memory.max").startswith(str(100 * MIB)) and text_of(folder, "memory.swap.max").startswith(
        "0"
    )
    assert text_of(folder, "cpu.max") == "150000 100000" and text_of(folder, "pids.max").startswith("7")
    assert cage.usage() == {
        "peak_memory_bytes": 4096,
        "oom_kills": 1,
        "cpu_s": 2.5,
        "throttled_s": 0.25,
    }
    assert cage.over_cpu(2) and not cage.over_cpu(3)
    pid = run_inside(cage, "pass", wait=False)
    os.waitpid(pid, 0)
    assert text_of(folder, "cgroup.procs") == str(pid)


def test_fake_v2_without_a_controller_falls_back_for_that_one_alone(tmp_path):
    cage = Cage.build("t", Limits(memory=MIB, cpus=1, processes=7), fake_v2(tmp_path, "memory", "memory"))
    assert cage.enforced["memory"] == "cgroup v2 memory.max (swap included)"
    assert cage.enforced["cpus"].startswith("sched_setaffinity to cores ")
    assert cage.enforced["pids"] == "none (no pids cgroup here)"
    assert cage.not_enforced == ["processes: 7 (no pids cgroup here)"]


def test_fake_v2_in_use_by_others_says_so(tmp_path, monkeypatch):
    fs = fake_v2(tmp_path, enabled="")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    refuse_while_occupied(monkeypatch, tmp_path)
    cage = Cage.build("t", Limits(processes=7), fs)
    assert "other processes live in it" in cage.enforced["pids"]
    assert not (tmp_path / "benchhouse-worker").exists()


def test_fake_v2_with_the_worker_alone_makes_room_by_moving_it_to_a_leaf(tmp_path, monkeypatch):
    fs = fake_v2(tmp_path, enabled="")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (tmp_path / "benchhouse-worker").mkdir()
    (tmp_path / "benchhouse-worker" / "cgroup.procs").write_text("")
    refuse_while_occupied(monkeypatch, tmp_path)
    cage = Cage.build("t", Limits(processes=7), fs)
    assert cage.folders["v2"].parent == tmp_path
    assert text_of(tmp_path / "benchhouse-worker", "cgroup.procs") == str(os.getpid())
    assert FakeKernel({}, tmp_path / "benchhouse-worker").v2_home == tmp_path, "the next cage goes beside the leaf"


def refuse_while_occupied(monkeypatch, home):
    """The kernel's rule: a v2 cgroup with processes gives its children no controllers."""
    write = cgroups._write

    def rule(path, text):
        if path == f"{home}/cgroup.subtree_control" and (home / "cgroup.procs").read_text():
            raise OSError(errno.EBUSY, "Device or resource busy")
        write(path, text)
        if path == f"{home}/benchhouse-worker/cgroup.procs":
            (home / "cgroup.procs").write_text("")

    monkeypatch.setattr(cgroups, "_write", rule)


def fake_proc(folder, mountinfo, cgroup):
    (folder / "self").mkdir(parents=True)
    (folder / "self" / "mountinfo").write_text(mountinfo)
    (folder / "self" / "cgroup").write_text(cgroup)
    return folder


def test_fake_mounts_are_read_with_spaces_containers_and_joined_controllers(tmp_path):
    root = tmp_path / "a b"
    for path in ("cpu,cpuacct/job", "memory", "unified/user/me"):
        (root / path).mkdir(parents=True)
    point = str(root).replace(" ", "\\040")
    mountinfo = (
        f"31 23 0:28 / {point} rw - tmpfs tmpfs rw,mode=755\n"
        f"32 31 0:29 / {point}/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        f"33 31 0:30 /docker/abc {point}/memory rw - cgroup cgroup rw,memory\n"
        f"34 31 0:31 / {point}/unified rw - cgroup2 cgroup2 rw\n"
        f"35 31 0:32 /docker/abc {point}/pids rw - cgroup cgroup rw,pids\n"
    )
    cgroup = "5:pids:/elsewhere\n4:memory:/docker/abc\n3:cpuacct,cpu:/job\n2:name=systemd:/x\n0::/user/me\n"
    found = CgroupFS.detect(fake_proc(tmp_path / "proc", mountinfo, cgroup))
    assert found.v2 == root / "unified/user/me"
    assert found.v1 == {"cpu": root / "cpu,cpuacct/job", "cpuacct": root / "cpu,cpuacct/job", "memory": root / "memory"}


def test_fake_cgroup_root_that_is_an_empty_folder_leaves_rlimits(tmp_path):
    (tmp_path / "empty").mkdir()
    proc = fake_proc(tmp_path / "proc", f"34 31 0:31 / {tmp_path}/empty rw - cgroup2 cgroup2 rw\n", "0::/\n")
    cage = Cage.build("t", Limits(memory=300 * MIB, processes=3), CgroupFS.detect(proc))
    assert cage.enforced["memory"].startswith("RLIMIT_AS") and "not delegated" in cage.enforced["memory"]
    assert cage.enforced["pids"].startswith("none (")
    program = "import resource; raise SystemExit(resource.getrlimit(resource.RLIMIT_AS)[0] >> 20 != 300)"
    assert run_inside(cage, program) == 0
    assert not list((tmp_path / "empty").iterdir())


def test_a_lower_hard_limit_that_is_already_there_is_kept():
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (50, 60))
        Cage.build("t", Limits(cpu=100), NOWHERE).enter()
        os._exit(0 if resource.getrlimit(resource.RLIMIT_CPU) == (60, 60) else 1)
    assert os.waitpid(pid, 0)[1] == 0
