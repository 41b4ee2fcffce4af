"""A process that was begun by a `start.py` begins others by it: they have our code by no other way."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import benchhouse
from benchhouse.processes.python_command import python_command
from benchhouse.processes.worker_copy import code_folder, copy_own_code

PRINT = """
import json
from benchhouse.processes.python_command import python_command
print(json.dumps(python_command()))
"""


def test_an_ordinary_python_is_named_and_looks_into_no_current_folder():
    assert python_command() == [sys.executable, "-P"]


@pytest.mark.parametrize("folders", [0, 1])
def test_what_a_start_file_began_begins_others_by_it(tmp_path, folders):
    copy_own_code(tmp_path)
    code, more = code_folder(tmp_path), tmp_path / "more"
    more.mkdir()
    (code / "print_own.py").write_text(PRINT)
    packages = [str(Path(path)) for path in sys.path if path.endswith("site-packages")]
    begun = [sys.executable, "-I", "-S", str(code / "start.py"), *packages, *[str(more)][:folders]]
    first = subprocess.run([*begun, "-m", "print_own"], capture_output=True, text=True, check=True)
    named = json.loads(first.stdout)
    assert named == begun
    again = subprocess.run([*named, "-m", "print_own"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(again.stdout) == named
    assert Path(benchhouse.__file__).parent != code / "benchhouse"


def test_what_is_lent_to_trainers_comes_along(tmp_path):
    copy_own_code(tmp_path)
    code = code_folder(tmp_path)
    for module in ("benchhouse_client", "benchhouse_training"):
        prints = f"import sys; sys.path.append({str(code)!r}); import {module} as lent; print(lent.__file__)"
        done = subprocess.run([sys.executable, "-I", "-S", "-c", prints], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(code / f"{module}.py")
