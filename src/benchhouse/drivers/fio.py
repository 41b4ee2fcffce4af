"""Driver `fio`: the same transfers made by fio, for storage that is faster than Python can drive."""

import errno
import json
import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from benchhouse.load.protocols.files import FileJob, MovedBytes
from benchhouse.schema.errors import BenchError
from benchhouse.schema.histogram import Histogram

_SECTOR = 512


class Fio:
    """Runs fio 3 once per transfer. Latencies come from fio's own buckets, which are up to 1.6% wide.

    fio writes its own bytes, so the content of the file is not checked. It ends at the first error.
    """

    known_content: ClassVar[bool] = False

    def transfer(self, job: FileJob) -> MovedBytes:
        program = shutil.which("fio")
        if program is None:
            raise BenchError("engine: fio needs the program fio, and it is not on PATH", "apt install fio")
        command = [program, *arguments(job)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "fio.json"
            completed = subprocess.run(
                [*command, f"--output={output}"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            report = output.read_text() if output.exists() else ""
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        moved = _understand(report, completed)
        measured = job.duration_s / (job.duration_s + job.warmup_s) if job.duration_s else 1.0
        # assumed to be evenly spread, for lack of better data
        moved.user_s = (after.ru_utime - before.ru_utime) * measured
        moved.cpu_s = moved.user_s + (after.ru_stime - before.ru_stime) * measured
        if not job.warmup_s:  # otherwise the share of the warm-up is unknown
            moved.fetched_bytes = (after.ru_inblock - before.ru_inblock) * _SECTOR
        return moved


def arguments(job: FileJob) -> list[str]:
    """Return fio's arguments. With psync, each operation in flight is a job; other engines have a real queue."""
    jobs = job.workers if job.ioengine == "psync" else job.streams
    if job.ioengine == "psync" and job.depth > 1 and not job.random:
        raise BenchError(
            "fio's psync has no sequential stream with several operations in flight",
            "choose target.ioengine libaio or io_uring, or threads instead of depth",
        )
    part = job.size if job.random and job.duration_s is not None else job.size // jobs
    if part % job.block:
        raise BenchError(
            f"fio divides the file evenly, and {job.blocks} blocks are not divisible by {jobs} jobs",
            "choose another file_size, or for a random pattern give a duration",
        )
    options: dict[str, Any] = {
        "name": "benchhouse",
        "filename": str(job.path).replace(":", "\\:"),  # a colon would separate two files
        "rw": job.pattern,
        "rwmixread": round(job.mix * 100),
        "bs": job.block,
        "size": part,
        "numjobs": jobs,
        "ioengine": job.ioengine,
        "iodepth": 1 if job.ioengine == "psync" else job.depth,
        "direct": int(job.direct),
        "randseed": job.seed,
        "fdatasync": job.sync_every,
        "end_fsync": int(job.sync_end),
        "fallocate": "none",
        "invalidate": 0,  # dropping the cache was decided before
        "fadvise_hint": 0,  # the kernel gets no more hints than from our own engine
        "output-format": "json+",
        "eta": "never",
    }
    if part != job.size:
        options["offset_increment"] = part
    if job.duration_s is not None:
        options |= {"runtime": f"{job.duration_s * 1e3:.0f}ms", "ramp_time": f"{job.warmup_s * 1e3:.0f}ms"}
    flags = ["--thread", "--group_reporting", *(["--time_based"] if job.duration_s is not None else [])]
    return [*(f"--{name}={value}" for name, value in options.items()), *flags]


def _understand(text: str, completed: "subprocess.CompletedProcess[str]") -> MovedBytes:
    """Convert fio's JSON. A job's error is part of the result; unreadable output raises BenchError."""
    try:
        report = json.loads(text[text.index("{") :])
        (job,) = report["jobs"]
        moved = MovedBytes(version=str(report["fio version"]))
        reads, writes = job["read"], job["write"]
        moved.read_bytes, moved.written_bytes = int(reads["io_bytes"]), int(writes["io_bytes"])
        moved.reads, moved.writes = _latencies(reads["clat_ns"]), _latencies(writes["clat_ns"])
        moved.syncs = _latencies(job["sync"]["lat_ns"])
        moved.seconds = max(int(reads["runtime"]), int(writes["runtime"])) / 1e3
        code = int(job["error"])
    except (ValueError, KeyError, TypeError) as problem:
        last = (completed.stderr.strip() or text.strip() or "it printed nothing").splitlines()[-1]
        raise BenchError(f"fio ended with {completed.returncode} and without a result: {last}") from problem
    if code:
        moved.fatal = code
        moved.errors[errno.errorcode.get(code, str(code))] += 1
        moved.first_errors.append((completed.stderr.strip() or os.strerror(code)).splitlines()[0])
    return moved


def _latencies(latency: dict[str, Any]) -> Histogram:
    histogram = Histogram()
    for nanoseconds, count in (latency.get("bins") or {}).items():
        if count:
            histogram.add(int(nanoseconds), int(count))
    return histogram
