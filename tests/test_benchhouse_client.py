import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import benchhouse_client
from benchhouse.experiments.emitted_records import Emitted, collect_emitted, read_emitted

CLIENT = Path(benchhouse_client.__file__).parent
MOST = 2**26


@pytest.fixture
def program(tmp_path):
    """Runs code that begins with the import; gives what it emitted."""
    folder = tmp_path / "emitted"
    folder.mkdir()

    def run(code: str, emit: str | None = str(folder), signal: int = 0, **variables: str) -> list[Emitted]:
        named = {"BENCHHOUSE_EMIT": emit} if emit is not None else {}
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CLIENT), **named, **variables}
        line = [sys.executable, "-S", "-c", f"from benchhouse_client import emit\nimport os\n{code}"]
        run.done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
        assert run.done.returncode == -signal, run.done.stderr
        return collect_emitted(folder, MOST)

    return run


def test_a_record_has_its_time_and_the_file_says_who_wrote_it(program):
    before = time.time()
    (process,) = program("emit({'loss': 0.5, 'step': 3})", RANK="2", WORLD_SIZE="4", TORCHELASTIC_RESTART_COUNT="1")
    (record,) = process.records
    assert (record["loss"], record["step"]) == (0.5, 3)
    writer = process.writer
    assert (writer["rank"], writer["world"], writer["attempt"], writer["host"]) == (2, 4, 1, os.uname().nodename)
    assert before < writer["utc"] + record["t"] - writer["mono"] < time.time()
    assert list(process.figures) == [{"loss": 0.5}]


def test_slurms_variables_name_the_rank_where_torchrun_does_not(program):
    (process,) = program("emit({'a': 1})", SLURM_PROCID="3", SLURM_NTASKS="8", RANK="")
    assert (process.writer["rank"], process.writer["world"]) == (3, 8)


def test_outside_of_a_trial_nothing_happens_and_stderr_shows_it_where_asked(program):
    assert program("emit({'a': 1})", emit=None) == [] and program.done.stderr == ""
    assert program("emit({'a': 1})", emit="-") == []
    assert json.loads(program.done.stderr)["a"] == 1


def test_a_folder_that_is_not_there_is_told_once_and_the_program_goes_on(program, tmp_path):
    assert program("emit({'a': 1}); emit({'a': 2})", emit=str(tmp_path / "none")) == []
    assert program.done.stderr.count("no record can be written") == 1


def test_lines_of_forks_and_threads_are_whole(program):
    code = """
import threading
def many(): [emit({"i": i, "text": "x" * 500}) for i in range(500)]
emit({"i": -1})
for _ in range(3):
    if os.fork() == 0:
        many(); os._exit(0)
threads = [threading.Thread(target=many) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
[os.wait() for _ in range(3)]
"""
    processes = program(code)
    assert sorted(len(process.records) for process in processes) == [500, 500, 500, 2001]
    assert len({process.writer["pid"] for process in processes}) == 4
    assert not any(process.lost for process in processes)


def test_a_signal_handler_may_emit_also_while_threads_do(program):
    code = """
import signal, threading
handled, stop = [], threading.Event()
told = [0, 0]
def tell(own):
    while not stop.is_set():
        emit({"thread": own}); told[own] += 1
threads = [threading.Thread(target=tell, args=(own,)) for own in range(2)]
[thread.start() for thread in threads]
signal.signal(signal.SIGALRM, lambda *_: (handled.append(1), emit({"handled": len(handled)})))
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
count = 0
while len(handled) < 200:
    emit({"i": count}); count += 1
signal.setitimer(signal.ITIMER_REAL, 0)
stop.set()
[thread.join() for thread in threads]
print(count + sum(told), len(handled))
"""
    processes = program(code)
    count, handled = map(int, program.done.stdout.split())
    records = [record for process in processes for record in process.records]
    assert len(records) == count + handled
    assert not any(process.lost for process in processes)


def test_a_killed_program_loses_no_record_whose_call_returned(program):
    code = "for i in range(10**9):\n    emit({'i': i})\n    if i == 777: os.kill(os.getpid(), 9)"
    (process,) = program(code, signal=9)
    assert [record["i"] for record in process.records] == list(range(778))


def test_a_full_disk_costs_records_and_is_counted_and_the_next_line_is_whole(program):
    code = """
import resource
emit({"i": 0})
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))  # EFBIG, and a line that is cut
for i in range(1, 101): emit({"i": i})
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for i in range(101, 111): emit({"i": i})
"""
    (process,) = program(code)
    numbers = [record["i"] for record in process.records]
    assert numbers[-10:] == list(range(101, 111))
    assert len(numbers) + process.lost == 111 and process.lost > 50


@pytest.mark.parametrize(
    "record", ["{'x': 'y' * 10**7}", "dict.fromkeys(map(str, range(2000)), 1)", "[1, 2]", "{}", "None", "loop"]
)
def test_what_is_no_record_or_too_large_is_counted_and_harms_nothing(program, record):
    (process,) = program(f"loop = {{}}; loop['a'] = loop\nemit({record}); emit({{'a': 1}})")
    assert [item["a"] for item in process.records] == [1] and process.lost == 1


def test_numbers_of_other_libraries_are_numbers_and_nan_stays_nan(program):
    code = "from fractions import Fraction\nemit({'half': Fraction(1, 2), 'nan': float('nan'), 'other': object})"
    (process,) = program(code)
    (record,) = process.records
    assert record["half"] == 0.5 and record["nan"] != record["nan"] and record["other"] == "<class 'object'>"


def test_lines_that_a_shell_wrote_are_records_and_what_is_cut_or_broken_is_lost(tmp_path):
    path = tmp_path / "shell.jsonl"
    path.write_text('{"loss": 1}\nno json\n[1]\n\n{"loss": 2}\n{"los')
    emitted = read_emitted(path, MOST)
    assert emitted.records == [{"loss": 1}, {"loss": 2}] and emitted.lost == 3 and emitted.writer == {}
    assert read_emitted(path, 12).lost == 1


def snippet(language):
    page = (CLIENT.parent / "docs" / "how-to" / "emit-numbers.md").read_text()
    return page.partition(f"```{language}\n")[2].partition("```")[0]


def test_the_documented_lines_of_shell_and_c_emit_records_and_do_nothing_outside_a_trial(tmp_path):
    (tmp_path / "in").mkdir()
    code = snippet("c") + "int main(void) { double t = now(); emit_step(3, t, now(), 0.5); emit_step(4, t, t, 2); }"
    (tmp_path / "main.c").write_text(code)
    subprocess.run(["cc", "-Wall", "-Werror", "-o", tmp_path / "program", tmp_path / "main.c"], check=True)
    inside = {"PATH": os.environ["PATH"], "BENCHHOUSE_EMIT": str(tmp_path / "in"), "RANK": "2"}
    outside = {"PATH": os.environ["PATH"]}
    for environment in (inside, outside):
        subprocess.run([tmp_path / "program"], env=environment, cwd=tmp_path, check=True)
        subprocess.run(["sh", "-c", snippet("bash")], env=environment, cwd=tmp_path, check=True)
    processes = collect_emitted(tmp_path / "in", MOST)
    records = sorted((record for process in processes for record in process.records), key=len)
    assert records[0] == {"items_per_s": 812.5} and sum(process.lost for process in processes) == 0
    assert [(record["rank"], record["step"], record["loss"]) for record in records[1:]] == [(2, 3, 0.5), (2, 4, 2)]
    assert records[1]["t_end"] >= records[1]["t_start"] > 0
