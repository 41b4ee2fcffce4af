"""Logs of the servers of a trial, beside those of the experiment."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from itertools import product

import pytest

from benchhouse.worker import output, stream
from benchhouse.worker.output import Capture

KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEAx7Vd0Tq3\n" * 20 + "Zm9v\n-----END RSA PRIVATE KEY-----"


@pytest.fixture
def capture(tmp_path):
    made = Capture.begin(tmp_path, "trial-1", streams=())
    yield made
    made.close()


def say(capture, component, *pieces):
    """Each piece is read before the next is written."""
    pipe = capture.open(component)
    for piece in pieces:
        os.write(pipe, piece)
        capture.pump(1)
    os.close(pipe)
    capture.pump(1)


def rows(folder):
    return [json.loads(line) for line in (folder / "logs" / "trial.jsonl").read_text().splitlines()]


def kept(folder, component):
    return (folder / "logs" / f"{component}.log").read_text()


def test_a_component_has_a_log_of_its_own_and_lines_in_the_journal(capture, tmp_path):
    say(capture, "postgres", b"ready\nlistening\n")
    say(capture, "postgres-1", b"another")
    capture.close()
    assert kept(tmp_path, "postgres") == "ready\nlistening\n" and kept(tmp_path, "postgres-1") == "another"
    first, second, third = rows(tmp_path)
    assert list(first) == ["time", "trial_id", "component", "stream", "line"]
    assert (first["trial_id"], first["component"], first["stream"]) == ("trial-1", "postgres", "output")
    assert [first["line"], second["line"], third["line"]] == ["ready", "listening", "another"]
    assert first["time"] <= second["time"] <= third["time"]


def test_what_can_not_be_the_name_of_a_log_is_refused(capture, tmp_path):
    names = [
        "../x",
        "",
        ".",
        "..",
        "a/b",
        "/etc/x",
        "-x",
        ".hidden",
        "a b",
        "é",
        "x\n",
        "x" * 65,
        "stdout",
        "Worker",
        7,
    ]
    for name in names:
        with pytest.raises(ValueError, match="can't name a log"):
            capture.open(name)
    assert [path.name for path in tmp_path.rglob("*")] == ["logs", "trial.jsonl"]


def test_a_component_that_is_opened_again_goes_on_in_the_same_log(capture, tmp_path):
    say(capture, "server", b"first life\n")
    say(capture, "server", b"second life\n")
    assert kept(tmp_path, "server") == "first life\nsecond life\n"


def test_there_is_an_end_to_how_many_are_open_at_once(capture):
    pipes = [capture.open(f"s{number}") for number in range(output.MOST_PIPES)]
    with pytest.raises(OSError, match="more than 100 logs"):
        capture.open("one-more")
    for pipe in pipes:
        os.close(pipe)
    capture.pump(1)
    os.close(capture.open("one-more"))


def test_the_tail_has_what_is_still_in_the_pipe(capture):
    pipe = capture.open("server")
    os.write(pipe, b"starting\nout of memory\n")
    assert capture.tail("server", 1) == "out of memory"
    assert capture.tail("server", 9) == "starting\nout of memory"
    assert capture.tail("nobody", 9) == ""
    os.close(pipe)


def test_a_chatty_component_costs_little_memory_and_silences_no_other(tmp_path):
    capture = Capture.begin(tmp_path, "t", 64 << 10, streams=())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe = capture.open("chatty")
    program = (
        "import os\nfor n in range(50): os.write(1, b'%7d all is well\\n' % n * 50_000)\nos.write(1, b'the end\\n')"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=pipe)
    os.close(pipe)
    while capture.pump(5):
        pass
    assert process.wait() == 0
    say(capture, "quiet", b"I was here\n")
    capture.note("info", "so was I")
    capture.close()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 16 << 10
    log = kept(tmp_path, "chatty")
    assert len(log) < (64 << 10) + stream.RING_BYTES + 100
    assert log.startswith("      0 all is well\n") and log.endswith("     49 all is well\nthe end\n")
    assert "bytes not kept ...]" in log
    *_, quiet, note, counted = rows(tmp_path)
    assert quiet["line"] == "I was here" and note["message"] == "so was I"
    told = sum(row["component"] == "chatty" for row in rows(tmp_path))
    assert counted["of"] == "chatty" and counted["lines_left_out"] == 2_500_001 - told
    assert (tmp_path / "logs" / "trial.jsonl").stat().st_size < 70 << 10


@pytest.mark.parametrize(
    "pieces",
    [
        (b"login sk-proj_0123456", b"789012345678901234 ok\n"),
        (b"login AKIA", b"IOSFODNN7EXAMPLE ok\n"),
        (b"login ghp_", b"0" * 20, b"1" * 20, b" ok\n"),
    ],
)
def test_a_key_is_blanked_though_nobody_declared_it_and_it_came_in_pieces(capture, tmp_path, pieces):
    say(capture, "server", *pieces)
    capture.close()
    assert kept(tmp_path, "server") == "login [redacted] ok\n"
    assert rows(tmp_path)[0]["line"] == "login [redacted] ok"


def test_a_declared_secret_is_blanked_in_every_component(tmp_path):
    capture = Capture.begin(tmp_path, "t", redact=lambda text: text.replace("hunter2", "***"), streams=())
    say(capture, "server", b"the word is hun", b"ter2\n")
    say(capture, "other", b"hunter", b"2")
    assert capture.tail("server", 1) == "the word is ***"
    capture.close()
    assert kept(tmp_path, "server") == "the word is ***\n" and kept(tmp_path, "other") == "***"


@pytest.mark.parametrize("size", [7, 33, 100, 5000])
def test_a_private_key_is_blanked_with_its_body_however_it_was_written(capture, tmp_path, size):
    text = f"before\n{KEY}\nafter\n".encode()
    say(capture, "server", *(text[at : at + size] for at in range(0, len(text), size)))
    capture.close()
    assert kept(tmp_path, "server") == "before\n[redacted]\nafter\n"
    assert [row["line"] for row in rows(tmp_path)] == ["before", "[redacted]", "after"]


def test_no_part_of_a_private_key_is_left_where_a_log_is_cut(tmp_path):
    leaks = []
    for cap, shift in product((1, 50, 300, 2000), range(0, 600, 45)):
        folder = tmp_path / f"{cap}-{shift}"
        capture = Capture.begin(folder, "t", cap, streams=())
        end = b"x" * 63 + b"\n"
        say(capture, "server", f"begin\n{KEY}\n".encode(), end * ((stream.RING_BYTES - shift) // len(end)))
        capture.close()
        if "MIIE" in kept(folder, "server") + capture.tail("server", 2000):
            leaks.append((cap, shift))
    assert not leaks


def test_a_long_line_is_kept_whole_and_its_secrets_are_not(tmp_path):
    capture = Capture.begin(tmp_path, "t", redact=lambda text: text.replace("hunter2", "*" * 7), streams=())
    line = b"".join(b"%06d hunter2 " % number for number in range(100_000))
    with capture.pumping():
        pipe = capture.open("server")
        for at in range(0, len(line), 50_001):
            os.write(pipe, line[at : at + 50_001])
        os.write(pipe, b"\nnext\n")
        os.close(pipe)
    capture.close()
    assert kept(tmp_path, "server").encode() == line.replace(b"hunter2", b"*" * 7) + b"\nnext\n"
    assert [(len(row["line"]), row.get("cut", False)) for row in rows(tmp_path)] == [(8192, True), (4, False)]


def test_a_thread_pumps_while_another_starts_servers(capture, tmp_path):
    def server(name):
        pipe = capture.open(name)
        subprocess.run(["seq", "200000"], stdout=pipe, check=True)  # more than a pipe holds
        os.close(pipe)

    with capture.pumping():
        threads = [threading.Thread(target=server, args=(f"s{number}",)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert capture.tail("s1", 1) == "200000"
    whole = "".join(f"{number}\n" for number in range(1, 200_001))
    assert [kept(tmp_path, f"s{number}") == whole for number in range(3)] == [True] * 3


def test_kill_9_of_the_worker_leaves_readable_lines(tmp_path):
    pid = os.fork()
    if pid == 0:
        capture = Capture.begin(tmp_path, "t", streams=())
        pipe = capture.open("server")
        number = 0
        while True:
            os.write(pipe, b"".join(b"line %d\n" % at for at in range(number, number + 100)) + b"half a li")
            capture.pump(1)
            os.write(pipe, b"ne\n")
            number += 100
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    told = [row["line"] for row in rows(tmp_path) if row["line"] != "half a line"]
    assert told == [f"line {number}" for number in range(len(told))]
    assert len(told) >= 100 and kept(tmp_path, "server").endswith("\n")
