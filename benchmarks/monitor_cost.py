"""What one sample of the node and a service's process tree costs, ours beside psutil, in rounds that take turns.

python benchmarks/monitor_cost.py [--json]

The service is a process with three children, one of which starts 50 short-lived processes a second. Two figures:
`sample`, everything back to back, as the CPU time of a sample (the fast decile of all rounds: neighbours only ever add
to it); and `live`, the share of a core that the sampler's own thread used at an interval of 0.1 s, when caches have
gone cold between two samples. Two rows show how low that can be here: `live_us_to_wake_up`, a thread that wakes up and
reads nothing; and `live_us_to_read`, one that reads what every tick reads, and makes nothing of it. psutil reads the
same things as ours: CPU, memory, disks, network, load of the node; CPU, memory, I/O, threads and context switches of
the tree. Exits 1 when ours is above 100 us a sample or above 0.1% of a core.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchhouse.processes.tree import children
from benchhouse.schema.telemetry import SeriesSource
from benchhouse.worker.monitors.machine import besides_processors, node
from benchhouse.worker.monitors.procfs import Joined, OpenFile, Processors
from benchhouse.worker.monitors.sampler import Sampler
from benchhouse.worker.monitors.tree import ProcessTree

BAR_US, BAR_SHARE = 100.0, 0.001
SERVICE = """
import os, time
for _ in range(2):
    if os.fork() == 0: time.sleep(3600)
if os.fork() == 0:
    while True:
        if (child := os.fork()) == 0: os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.02)
print("ready", flush=True)
time.sleep(3600)
"""


@contextmanager
def service() -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def with_psutil(pid: int) -> Callable[[], object]:
    """As people write it: the objects are kept, the children asked for each time."""
    root = psutil.Process(pid)

    def sample() -> object:
        seen: list[object] = [
            psutil.cpu_times(), psutil.cpu_stats(), psutil.virtual_memory(), psutil.swap_memory(),
            psutil.disk_io_counters(), psutil.net_io_counters(pernic=True), psutil.getloadavg(),
        ]  # fmt: skip
        for process in [root, *root.children(recursive=True)]:
            try:
                with process.oneshot():
                    seen += [
                        process.cpu_times(), process.memory_info(), process.io_counters(), process.num_threads(),
                        process.num_ctx_switches(),
                    ]  # fmt: skip
            except psutil.NoSuchProcess:
                continue
        return seen

    return sample


def cost_us(sample: Callable[[], object], times: int) -> list[float]:
    found = []
    for _ in range(times):
        began = time.thread_time_ns()
        sample()
        found.append((time.thread_time_ns() - began) / 1000)
    return found


class Nothing:
    """A source without series: what is left is what a thread costs that only wakes up."""

    name = "nothing"
    series = ()

    def sample(self) -> tuple[float, ...]:
        return ()

    def close(self) -> None: ...


class Unparsed(Nothing):
    """The files that are read at every tick, as bytes."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._files = [OpenFile("/proc/stat"), *(OpenFile(f"/proc/{pid}/stat") for pid in pids)]

    def sample(self) -> tuple[float, ...]:
        for file in self._files:
            file.read()
        return ()

    def close(self) -> None:
        for file in self._files:
            file.close()


def live(sources: list[SeriesSource], seconds: float = 2.0) -> tuple[float, float]:
    """Share of a core, and CPU microseconds a sample, of a sampler at 0.1 s."""
    sampler = Sampler(sources, 0.1)
    began = time.monotonic()
    sampler.start()
    time.sleep(seconds)
    taken = sampler.stop()
    return taken.cpu_s / (time.monotonic() - began), taken.cpu_s / taken.samples * 1e6


def live_psutil(sample: Callable[[], object], seconds: float) -> float:
    began, used = time.monotonic(), time.thread_time()
    while (now := time.monotonic()) < began + seconds:
        sample()
        time.sleep(max(0.0, 0.1 - (time.monotonic() - now)))
    return (time.thread_time() - used) / (time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--live-rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    ours_us: list[float] = []
    theirs_us: list[float] = []
    with service() as pid:
        tree, psutils = ProcessTree("service:it", pid), with_psutil(pid)
        machine = Joined("node", [Processors(), *besides_processors()])

        def ours() -> object:
            return machine.sample(), tree.sample()

        for _ in range(given.rounds):
            for _ in range(5):
                tree.refresh()  # all of it, not only what is read at every tick
                ours_us += cost_us(ours, 1)
            theirs_us += cost_us(psutils, 5)
        shares, idle, reading = [], [], []
        for _ in range(given.live_rounds):
            shares.append(live([node(), ProcessTree("service:it", pid)]))
            idle.append(live([Nothing()]))
            reading.append(live([Unparsed([pid, *children(pid)])]))
        their_shares = [live_psutil(psutils, 2.0) for _ in range(max(1, given.live_rounds // 3))]
    ours_us.sort()
    theirs_us.sort()
    share, live_us = min(shares)
    figures: dict[str, Any] = {
        "sample_us": ours_us[len(ours_us) // 10],
        "sample_us_mean": sum(ours_us) / len(ours_us),
        "psutil_us": theirs_us[len(theirs_us) // 10],
        "psutil_us_mean": sum(theirs_us) / len(theirs_us),
        "live_share_of_a_core": share,
        "live_share_median": sorted(shares)[len(shares) // 2][0],
        "live_us_a_sample": live_us,
        "live_us_to_wake_up": min(idle)[1],
        "live_us_to_read": min(reading)[1],
        "psutil_live_share": min(their_shares),
    }
    figures["psutil_to_ours"] = figures["psutil_us"] / figures["sample_us"]
    passed = figures["sample_us"] <= BAR_US and share <= BAR_SHARE
    if given.json:
        print(json.dumps(figures | {"passed": passed}, indent=2))
    else:
        for key, value in figures.items():
            print(f"{key:24} {value:.4g}")
        floor, bar_us = figures["live_us_to_read"], BAR_SHARE * 0.1 * 1e6
        if floor > bar_us:
            print(f"here reading alone takes {floor:.0f} us of the {bar_us:.0f} that {BAR_SHARE:.1%} of a core are")
        print(f"{'passed' if passed else 'missed'}: at most {BAR_US:g} us a sample and {BAR_SHARE:.1%} of a core")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
