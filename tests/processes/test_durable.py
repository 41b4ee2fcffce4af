"""Files and folders after a power cut, by a recorder of every change (benchmarks/disk_recorder.py)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from disk_recorder import Disk, Recorder, unseen, why_not  # noqa: E402

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

PROGRAM = """
import sys
from pathlib import Path
from benchhouse.evidence import journals
from benchhouse.evidence.writing import replacing, write_text
from benchhouse.processes.durable import link_in_place, make_folders, put_in_place, sync, sync_tree, write_whole
from benchhouse.runs.approval_files import _put_first
from benchhouse.schema.telemetry import Phase

root = Path(sys.argv[1])
write_text(root / "text", "1")
write_text(root / "text", "2")
make_folders(root / "a" / "b" / "c")
write_whole(root / "a" / "b" / "c" / "bytes", b"3")
write_whole(root / "cache", "4", durable=False)
with replacing(root / "replaced") as temporary:
    temporary.write_text("5")
made = root / "made"
(made / "inner").mkdir(parents=True)
(made / "inner" / "file").write_text("6")
sync_tree(made)
put_in_place(made, root / "a" / "whole")
assert _put_first(root / "a" / "first", "7") and not _put_first(root / "a" / "first", "8")
journals.append(root / "logs" / "journal", Phase(name="p", begin_s=0, end_s=1), "bench x")
(root / "plain").write_text("lost")
(root / "text").write_text("lost")
"""


def files_below(folder):
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def recorder(tmp_path):
    (tmp_path / "disk").mkdir()
    return Recorder(tmp_path / "disk", tmp_path / "recorder")


def record(recorder, program, **options):
    environment = os.environ | recorder.environment(**options)
    command = [sys.executable, "-c", program, str(recorder.folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_what_was_put_in_place_is_there_after_a_power_cut_and_the_rest_is_as_it_was(recorder):
    disk = Disk(recorder.folder)
    done = record(recorder, PROGRAM)
    assert not done.returncode, done.stderr
    calls = recorder.calls()
    assert unseen(disk, calls, recorder.folder) == []
    assert "plain" in files_below(recorder.folder)
    disk.restore(calls)
    left = {name: path.read_text() for name, path in files_below(recorder.folder).items()}
    assert json.loads(left.pop("logs/journal"))["name"] == "p"
    assert left.pop("cache") == "", "its name came to disk with another file's, its content did not"
    assert {name: text for name, text in left.items() if not name.startswith("a/.first.")} == {
        "text": "2", "a/b/c/bytes": "3", "replaced": "5", "a/whole/inner/file": "6", "a/first": "7",
    }  # fmt: skip


def test_a_power_cut_in_the_middle_of_a_change_leaves_the_file_as_it_was_before_or_after(recorder):
    disk = Disk(recorder.folder)
    program = "import sys; from pathlib import Path; from benchhouse.evidence.writing import write_text\n"
    program += "for text in ('1', '2', '3'): write_text(Path(sys.argv[1]) / 'x', text)"
    assert not record(recorder, program).returncode
    calls, seen = recorder.calls(), []
    for cut in range(len(calls) + 1):
        disk.restore(calls[:cut])
        seen.append(files_below(recorder.folder).get("x"))
        seen[-1] = seen[-1] and seen[-1].read_text()
    assert [text for text, earlier in zip(seen, [0, *seen], strict=False) if text != earlier] == [None, "1", "2", "3"]


def test_a_call_that_the_recorder_lets_fail_fails_in_the_program(recorder):
    done = record(recorder, PROGRAM, fail_at=1, error=28)
    assert "No space left on device" in done.stderr and files_below(recorder.folder) == {}
