"""How an experiment's process gets logs from its supervisor."""

import os
import subprocess
import threading

import pytest

from benchhouse.worker.output import Capture


@pytest.fixture
def in_child(tmp_path):
    """Runs a function in a forked process, with its ServerLogs; what it returns is the last line of its stdout."""

    def run(work):
        capture = Capture.begin(tmp_path, "t")
        pid = os.fork()
        if pid == 0:
            try:
                words = capture.child_side()
                os.write(1, f"\n{work(words)}".encode())
            finally:
                os._exit(0)
        capture.parent_side()
        while capture.pump(5):
            pass
        os.waitpid(pid, 0)
        said = capture.tail("experiment", 1)
        capture.close()
        return said

    return run


def test_a_server_of_the_child_is_logged_by_the_supervisor(in_child, tmp_path):
    def work(words):
        pipe = words.open("server")
        subprocess.run(["sh", "-c", "echo up; echo down >&2"], stdout=pipe, stderr=pipe, check=True)
        os.close(pipe)
        return words.tail("server", 1)

    assert in_child(work) == "down"
    assert (tmp_path / "logs" / "server.log").read_text() == "up\ndown\n"


def test_more_than_a_pipe_holds_goes_through(in_child, tmp_path):
    def work(words):
        pipe = words.open("server")
        subprocess.run(["seq", "500000"], stdout=pipe, check=True)
        return words.tail("server", 2).replace("\n", "+")

    assert in_child(work) == "499999+500000"
    assert (tmp_path / "logs" / "server.log").stat().st_size == 3_388_895


def test_a_bad_name_is_refused_and_the_next_question_is_answered(in_child, tmp_path):
    def work(words):
        with pytest.raises(ValueError, match=r"'../x' can't name a log"):
            words.open("../x")
        return os.isatty(words.open("good"))

    assert in_child(work) == "False"
    assert not (tmp_path / "x.log").exists()


def test_the_pipe_is_not_inherited_by_whatever_the_child_starts(in_child):
    def work(words):
        pipe = words.open("server")
        return subprocess.run(["test", "-e", f"/proc/self/fd/{pipe}"], close_fds=False, check=False).returncode

    assert in_child(work) == "1"


def test_an_endless_last_line_is_told_in_part(in_child):
    def work(words):
        pipe = words.open("server")
        os.write(pipe, b"\x01" * 60_000)
        return len(words.tail("server", 5)) > 1000

    assert in_child(work) == "True"


def test_threads_get_the_answers_to_their_own_questions(in_child):
    def work(words):
        wrong = []

        def ask(name):
            for number in range(30):
                pipe = words.open(name)
                os.write(pipe, f"{name} {number}\n".encode())
                os.close(pipe)
                if words.tail(name, 1) != f"{name} {number}":
                    wrong.append(name)

        threads = [threading.Thread(target=ask, args=(f"s{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return wrong

    assert in_child(work) == "[]"


def test_a_question_that_was_interrupted_does_not_answer_the_next(in_child):
    def work(words):
        words._line.send(b'{"ask": "open", "component": "lost", "number": 99}')
        pipe = words.open("server")
        os.write(pipe, b"mine\n")
        return words.tail("server", 1)

    assert in_child(work) == "mine"


def test_nonsense_is_answered_and_nobody_hangs(in_child):
    def work(words):
        for nonsense in (b"{", b"[]", b'{"number": 1}', b'{"ask": "tail", "number": 2, "component": [], "lines": "x"}'):
            words._line.send(nonsense)
        return words.tail("server", 1) == ""

    assert in_child(work) == "True"


def test_without_a_supervisor_there_is_no_log(tmp_path):
    capture = Capture.begin(tmp_path, "t")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        words = capture.child_side()
        try:
            words.open("server")
        except OSError as error:
            os.write(writer, type(error).__name__.encode())
        os._exit(0)
    capture.close()
    os.close(writer)
    assert os.read(reader, 100) in (b"ConnectionError", b"ConnectionResetError", b"BrokenPipeError")
    os.waitpid(pid, 0)
    os.close(reader)
