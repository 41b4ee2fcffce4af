import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from benchhouse.schema.secrets import redact_keys
from benchhouse.worker import stream
from benchhouse.worker.output import Capture


def run(capture, program, *arguments, pump=True):
    """Runs a program with its output captured; returns its pid's exit status after both streams ended."""
    pid = os.fork()
    if pid == 0:
        capture.child_side()
        os.execv(sys.executable, [sys.executable, "-c", program, *arguments])
    capture.parent_side()
    while pump and capture.pump(5):
        pass
    return os.waitpid(pid, 0)[1]


def rows(folder):
    return [json.loads(line) for line in (folder / "logs" / "trial.jsonl").read_text().splitlines()]


def test_both_streams_reach_their_files_and_the_journal(tmp_path):
    capture = Capture.begin(tmp_path, "trial-1")
    assert (
        run(capture, "import sys; print('one\\ntwo'); print('oops', file=sys.stderr); sys.stdout.write('open end')")
        == 0
    )
    capture.close()
    assert (tmp_path / "logs/stdout.log").read_bytes() == b"one\ntwo\nopen end"
    assert (tmp_path / "logs/stderr.log").read_bytes() == b"oops\n"
    assert {row["line"] for row in rows(tmp_path) if row["stream"] == "stdout"} == {"one", "two", "open end"}
    error = next(row for row in rows(tmp_path) if row["stream"] == "stderr")
    assert list(error) == ["time", "trial_id", "component", "stream", "line"]
    assert error["trial_id"] == "trial-1" and error["component"] == "experiment" and error["line"] == "oops"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", error["time"])
    assert capture.trouble is None


def test_bytes_that_are_no_utf8_are_kept_raw_and_replaced_in_the_journal(tmp_path):
    capture = Capture.begin(tmp_path, "t")
    run(capture, "import os; os.write(1, b'caf\\xe9\\r\\nna\\xc3\\xafve\\n')")
    capture.close()
    assert (tmp_path / "logs/stdout.log").read_bytes() == b"caf\xe9\r\nna\xc3\xafve\n"
    assert [row["line"] for row in rows(tmp_path)] == ["caf\ufffd", "naïve"]


def test_beyond_the_cap_the_beginning_and_the_end_are_kept(tmp_path):
    capture = Capture.begin(tmp_path, "t", cap_bytes=1000)
    run(capture, "for i in range(20_000): print(f'line {i:07}')")
    capture.close()
    whole = b"".join(b"line %07d\n" % i for i in range(20_000))
    kept = (tmp_path / "logs/stdout.log").read_bytes()
    lost = len(whole) - 988 - stream.RING_BYTES
    end = whole[-stream.RING_BYTES :].partition(b"\n")[2]
    assert kept == whole[:988] + b"\n[... %d bytes not kept ...]\n" % lost + end
    *lines, last = rows(tmp_path)
    assert last["component"] == "worker" and last["lines_left_out"] == 20_000 - len(lines)
    assert (tmp_path / "logs/trial.jsonl").stat().st_size < 1000 + 400


def test_an_overflow_that_fits_the_ring_loses_nothing(tmp_path):
    capture = Capture.begin(tmp_path, "t", cap_bytes=1000)
    run(capture, "print('x' * 50_000)")
    capture.close()
    assert (tmp_path / "logs/stdout.log").read_bytes() == b"x" * 50_000 + b"\n"


def test_a_long_line_is_cut_in_the_journal_only(tmp_path):
    capture = Capture.begin(tmp_path, "t")
    run(capture, "print('x' * 3_000_000); print('next'); print('y' * 9000)")
    capture.close()
    assert [(len(row["line"]), row.get("cut", False)) for row in rows(tmp_path)] == [
        (8192, True),
        (4, False),
        (8192, True),
    ]
    assert (tmp_path / "logs/stdout.log").stat().st_size == 3_000_001 + 5 + 9001


WRITE = """if True:
    import sys
    line, size = sys.argv[1], int(sys.argv[2])
    block = (line + "\\n").encode() if line != "no newline" else b"x" * 65536
    block *= max(1, 65536 // len(block))
    for _ in range(size // len(block)):
        sys.stdout.buffer.write(block)
"""


SIZE = 1 << 27


def reading_alone_s(line):
    """Return the CPU seconds that this machine needs now to read SIZE bytes of lines from a pipe and to count them."""
    buffer, lines = bytearray(256 << 10), 0
    with subprocess.Popen([sys.executable, "-c", WRITE, line, str(SIZE)], stdout=subprocess.PIPE, bufsize=0) as writer:
        before = time.process_time()
        while size := os.readv(writer.stdout.fileno(), [buffer]):
            lines += buffer.count(b"\n", 0, size)
        return time.process_time() - before


@pytest.mark.parametrize(
    ("line", "redact"),
    [
        ("x" * 79, redact_keys),
        ("x" * 79, lambda text: text.replace("secret", "***")),
        ("x" * 100_000, redact_keys),
        ("", redact_keys),
        ("no newline", redact_keys),
    ],
    ids=["lines", "lines and a secret", "long lines", "empty lines", "no newline"],
)
def test_much_output_costs_little_cpu_and_constant_memory(tmp_path, redact, line):
    alone_s = reading_alone_s(line)
    capture = Capture.begin(tmp_path, "t", redact=redact)
    before, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert run(capture, WRITE, line, str(SIZE)) == 0
    cpu_s = time.process_time() - before
    capture.close()
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    print(f"{cpu_s:.2f} s of CPU, {cpu_s / alone_s:.2f} of reading it alone, {grown_kib} KiB more memory")
    assert cpu_s < max(0.5, 2.5 * alone_s)
    assert grown_kib < 64 << 10
    assert (tmp_path / "logs/stdout.log").stat().st_size < (8 << 20) + (65 << 10)
    assert (tmp_path / "logs/trial.jsonl").stat().st_size < (8 << 20) + 1000


def test_small_unbuffered_writes_keep_the_cost_per_byte_bounded(tmp_path):
    """In CPU time: a busy machine changes little of it."""
    capture = Capture.begin(tmp_path, "t", cap_bytes=1 << 16)
    before = time.process_time()
    run(capture, "import os\nfor _ in range(50_000): os.write(1, b'x' * 79 + b'\\n')")
    capture.close()
    assert time.process_time() - before < 0.75
    assert (tmp_path / "logs/stdout.log").stat().st_size > 1 << 17


def test_a_grandchild_that_holds_the_pipe_does_not_hang_the_pump(tmp_path):
    capture = Capture.begin(tmp_path, "t")
    program = """if True:
        import os, time
        print("started", flush=True)
        child = os.fork()
        if child == 0:
            time.sleep(600)
        print(child, flush=True)
        os._exit(0)
    """
    assert run(capture, program, pump=False) == 0
    began = time.monotonic()
    assert capture.pump(0.1) is True
    assert capture.drain(quiet_s=0.05) is False
    assert capture.pump(0.1) is True
    assert time.monotonic() - began < 300, "the grandchild sleeps for 600 s"
    assert len(capture.filenos()) == 2
    started, child = capture.tail("experiment", 2).split("\n")
    os.kill(int(child), 9)
    assert started == "started"
    assert capture.drain(quiet_s=2) is True
    assert capture.pump(1) is False
    capture.close()
    capture.close()


def test_an_endless_writer_lets_every_pump_return(tmp_path):
    capture = Capture.begin(tmp_path, "t")
    pid = os.fork()
    if pid == 0:
        capture.child_side()
        os.execvp("yes", ["yes"])
    capture.parent_side()
    took = []
    while sum(took) < 0.5:
        began_s = time.process_time()
        assert capture.pump(1)
        took.append(time.process_time() - began_s)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert max(took) < 0.4, "seconds of CPU: a busy machine may keep it waiting"
    assert capture.drain() is True
    capture.close()


def test_notes_of_the_worker_survive_a_full_journal(tmp_path):
    capture = Capture.begin(tmp_path, "t", cap_bytes=500)
    run(capture, "print('x\\n' * 1000)")
    capture.note("error", "wall limit reached", wall_s=3.5, odd=float("nan"), where=Path("/x"))
    capture.close()
    note = next(row for row in rows(tmp_path) if row.get("level") == "error")
    assert note["component"] == "worker" and note["message"] == "wall limit reached" and note["where"]
    assert rows(tmp_path)[-1]["lines_left_out"] > 900


def test_tail_shows_stderr_first_and_only_the_last_lines(tmp_path):
    capture = Capture.begin(tmp_path, "t", redact=lambda text: text.replace("hunter2", "***"))
    run(capture, "import sys; print('a\\nb\\nc'); print('x\\ny hunter2\\nz', file=sys.stderr)")
    assert capture.tail("experiment", 2) == "y ***\nz\nb\nc"
    assert capture.tail("experiment", 0) == ""
    capture.close()


@pytest.mark.parametrize("where", ["stdout.log", "trial.jsonl"])
def test_a_full_disk_is_remembered_and_the_child_still_runs_to_its_end(tmp_path, where):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / where).symlink_to("/dev/full")
    capture = Capture.begin(tmp_path, "t")
    assert run(capture, "print('x\\n' * 5_000_000); import sys; print('done', file=sys.stderr)") == 0
    capture.note("info", "still here")
    assert capture.tail("experiment", 1).startswith("done")
    capture.close()
    assert capture.trouble == f"{where}: No space left on device"
    assert (tmp_path / "logs/stderr.log").read_text() == "done\n"


def test_a_write_that_fails_half_way_leaves_no_torn_line(tmp_path):
    pid = os.fork()
    if pid == 0:
        # A file size limit behaves like a disk that fills up: a short write first, then an error.
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        capture = Capture.begin(tmp_path, "t")
        for _ in range(200):
            capture.note("info", "n" * 100)
        capture.close()
        os._exit(0 if capture.trouble == "trial.jsonl: File too large" else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert 9_000 < (tmp_path / "logs/trial.jsonl").stat().st_size <= 10_000
    assert all(row["message"] for row in rows(tmp_path))


def everything(folder):
    return b"".join(path.read_bytes() for path in (folder / "logs").iterdir())


@pytest.mark.parametrize("pad", [0, 8185, (1 << 20) - 10, (1 << 20) - 3, (1 << 20) + 5])
def test_a_secret_never_reaches_a_file_wherever_it_stands_in_its_line(tmp_path, pad):
    capture = Capture.begin(tmp_path, "t", cap_bytes=4 << 20, redact=lambda text: text.replace("hunter2", "***"))
    run(capture, f"print('.' * {pad} + 'hunter2 after'); print('next')")
    capture.note("info", "the word is hunter2", also="hunter2")
    capture.close()
    assert b"hunter2" not in everything(tmp_path) and b"hunt" not in everything(tmp_path)
    assert (tmp_path / "logs/stdout.log").read_bytes().endswith(b"\nnext\n")


def test_redaction_holds_across_writes_caps_and_the_kept_end(tmp_path):
    capture = Capture.begin(tmp_path, "t", cap_bytes=3000, redact=lambda text: text.replace("hunter2", "***"))
    program = """if True:
        import os
        for i in range(20_000):
            os.write(1, b"%d hun" % i)
            os.write(1, b"ter2\\xff\\n")
    """
    run(capture, program)
    capture.close()
    kept = (tmp_path / "logs/stdout.log").read_bytes()
    assert b"hun" not in everything(tmp_path) and b"ter2" not in everything(tmp_path)
    assert kept.startswith(b"0 ***\xff\n1 ***\xff\n") and kept.endswith(b"\n19999 ***\xff\n")
    assert b"bytes not kept ...]\n" in kept


def test_redaction_that_changes_nothing_gives_the_same_file(tmp_path):
    capture = Capture.begin(tmp_path, "t", cap_bytes=3000, redact=lambda text: text)
    run(capture, "for i in range(5_000): print(f'line {i}')\nprint('end', end='')")
    capture.close()
    assert (tmp_path / "logs/stdout.log").read_text() == "".join(f"line {i}\n" for i in range(5_000)) + "end"


def leads_to(but=()):
    """What the descriptors of this process lead to, each as often as it is open."""
    links = Counter()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one by which the folder was read
            links.update([os.readlink(path)] if path.name not in but else [])
    return links


def test_the_child_holds_none_of_the_workers_descriptors(tmp_path):
    """By what they lead to: a library in this process may open and close some of its own in every fork."""
    before = leads_to()
    capture = Capture.begin(tmp_path, "t")
    workers = set(leads_to() - before)
    assert len(workers) >= 4  # pipes, a socket, a file
    pid = os.fork()
    if pid == 0:
        capture.child_side()
        held = leads_to(but=("1", "2")).keys() & workers - {"anon_inode:[eventpoll]"}
        os.write(1, " ".join(sorted(held)).encode() + b"|\n")
        os._exit(0)
    capture.parent_side()
    while capture.pump(1):
        pass
    os.waitpid(pid, 0)
    assert capture.tail("experiment", 1) == "|"
    capture.close()
    assert not (leads_to() - before).keys() & workers
