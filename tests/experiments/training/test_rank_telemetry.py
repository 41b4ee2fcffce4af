"""What single ranks of one machine used, by the monitors: no batch system tells who they are."""

import contextlib
import json
import os
import subprocess
import sys

from experiments.training.test_faults import planted

WORKS = """
held = bytearray(rank == 0 and 200 << 20)
core = min(os.sched_getaffinity(0))
if rank == 1:
    os.sched_setaffinity(0, {core})
    os.nice(10)  # whoever else is on that core comes first
def strike(step): pass
wait = barrier
def barrier(*which):
    until = time.process_time() + 0.02
    while time.process_time() < until: pass
    wait(*which)
"""


@contextlib.contextmanager
def neighbour(core):
    """Has the core for itself, as far as it can."""
    spins = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-S", "-c", spins]) as process:
        try:
            yield
        finally:
            process.kill()


def test_each_rank_has_its_series_and_the_one_whose_core_others_use_waits_for_it(lab, tmp_path):
    target, workload = planted(tmp_path, WORKS, steps=300, warmup=1)  # waits for a core are read once a second
    with neighbour(min(os.sched_getaffinity(0))):
        lab.run("training.run", code=None, target=target, workload=workload, monitors={"interval": 0.2})
    sql = "SELECT rank_id, series, max, growth FROM telemetry_slice_fact WHERE phase = 'trial'"
    rows = json.loads(lab.bench("query", sql, "--json").stdout)["rows"]
    of = {(row["rank_id"], row["series"]): row for row in rows if row["rank_id"] is not None}
    assert of[0, "rss"]["max"] > 200e6 > of[1, "rss"]["max"] > 0
    assert of[0, "cpu"]["growth"] > 0 < of[1, "cpu"]["growth"]
    assert of[1, "cpu_wait"]["growth"] > of[1, "cpu"]["growth"] / 2
