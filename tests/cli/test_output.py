"""Output that can't be written: a reader that left is no error, a full disk is one, and neither shows a traceback."""

import errno
import os
import subprocess
import sys

import click
import pytest

from benchhouse import cli
from benchhouse.schema.errors import Exit

VERBS = [
    ["query", "SELECT * FROM measurement_fact"],
    ["query", "--csv", "SELECT * FROM measurement_fact"],
    ["status"],
    ["verify"],
    ["--help"],
]
SCENARIO = """
scenario: quick
experiment: command
targets: [{name: one, argv: ["true"]}]
workload: {executions: 1}
repetitions: 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("output")
    (folder / "quick.yaml").write_text(SCENARIO)
    with start(folder, ["run", "quick.yaml"], stdout=subprocess.DEVNULL) as process:
        pass
    assert process.returncode == 0
    return folder


def start(folder, args, **streams):
    return subprocess.Popen([sys.executable, "-m", "benchhouse", *args], cwd=folder, **streams)


@pytest.mark.parametrize(("verb", "unbuffered"), [*((verb, "") for verb in VERBS), (["status"], "1")])
def test_a_reader_that_left_ends_it_without_a_word(folder, verb, unbuffered):
    reader, writer = os.pipe()
    os.close(reader)
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with start(folder, verb, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment) as process:
        os.close(writer)
        _, notes = process.communicate()
    assert process.returncode == 141
    assert "Traceback" not in notes and "error" not in notes.lower()


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_full_disk_is_told_in_one_line(folder, verb):
    with open("/dev/full", "w") as full:
        process = start(folder, verb, stdout=full, stderr=subprocess.PIPE, text=True)
        _, notes = process.communicate()
    assert process.returncode == 1
    assert "error: can't write the output: No space left on device\n" in notes
    assert "Traceback" not in notes


@pytest.mark.parametrize("verb", [["status"], ["query", "SELECT nothing"], ["no-such-verb"]], ids=" ".join)
def test_where_output_and_errors_go_into_one_closed_pipe_it_ends_the_same_way(folder, verb):
    reader, writer = os.pipe()
    os.close(reader)
    with start(folder, verb, stdout=writer, stderr=writer) as process:
        os.close(writer)
    assert process.returncode == 141


def test_a_closed_standard_output_is_nobody_who_reads(folder):
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m benchhouse status >&-"], cwd=folder, capture_output=True)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


@pytest.mark.parametrize("wrong", [errno.EIO, errno.EACCES, errno.ENOSPC])
def test_what_the_system_refuses_is_told_in_a_line(monkeypatch, capsys, wrong):
    @click.command()
    def fails():
        raise OSError(wrong, os.strerror(wrong), "/data/runs/x")

    monkeypatch.setattr("sys.argv", ["bench"])
    assert cli._exit_code(fails, "bench") == Exit.TRIAL_FAILED
    told = capsys.readouterr().err
    assert f"/data/runs/x: {os.strerror(wrong)}" in told and "Traceback" not in told
