"""An experiment on several nodes: each does the same work, a step ends with the slowest of them. One may be slowed.

Figures and tests install it as a package of its own (`install`).
"""

import subprocess
import sys
import time
from pathlib import Path

from benchhouse import Context

WORK = """
import sys, time
for line in sys.stdin:
    began, until = time.monotonic(), time.process_time() + float(line)
    while time.process_time() < until: pass
    print(time.monotonic() - began, flush=True)
"""
_HOG = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
print(1, flush=True)
while True: pass
"""
_NOT_OURS = ("env", "-u", "BENCHHOUSE_TRIAL")  # a process of somebody else


def lockstep(
    ctx: Context, seconds: float = 10.0, work_s: float = 0.02, every_s: float = 0.2, hog: int = -1, hog_file: str = ""
) -> None:
    """`hog`: beside node `hog`, somebody else's process uses all that the node has; `hog_file` holds that number, so
    that it is the same point with it and without."""
    hog = int(Path(hog_file).read_text()) if hog_file else hog
    ranks = [_start(ctx.on_node(node), WORK) for node in ctx.nodes]
    hogs = [_start([*ctx.on_node(ctx.nodes[hog]), *_NOT_OURS], _HOG)] if hog >= 0 else []
    try:
        for process in hogs:
            _line_of(process)
        _step(ranks, 0.0)
        begin_ns = time.monotonic_ns()
        while (time.monotonic_ns() - begin_ns) / 1e9 < seconds:
            began = time.monotonic()
            for node, took_s in zip(ctx.nodes, _step(ranks, work_s), strict=True):
                ctx.emit("node_step", took_s, "s", direction="lower", window=f"node:{node}")
            ctx.emit("step", time.monotonic() - began, "s", direction="lower")
            time.sleep(max(0.0, began + every_s - time.monotonic()))
        ctx.phase("steady", begin_ns, time.monotonic_ns())
    finally:
        for process in [*ranks, *hogs]:
            process.communicate()  # each ends with its input, so that nothing is left for the next trial
    ctx.metadata(nodes=ctx.nodes, slowed=ctx.nodes[hog] if hog >= 0 else None)


def _start(command: list[str], code: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*command, sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _step(ranks: "list[subprocess.Popen[str]]", work_s: float) -> list[float]:
    for rank in ranks:
        print(work_s, file=rank.stdin, flush=True)
    return [float(_line_of(rank)) for rank in ranks]


def _line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def install(site: Path) -> None:
    """As a package that is found where `site` is on the path."""
    info = site / "lockstep-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "lockstep.py").write_text(Path(__file__).read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lockstep\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[benchhouse.experiments]\nlockstep = lockstep:lockstep\n")
