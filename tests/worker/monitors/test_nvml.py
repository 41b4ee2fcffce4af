"""GPUs by NVML, in processes of their own: with a fake of the library, with none, and with what is no NVML."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from benchhouse.worker.monitors import nvml

CASES = Path(__file__).parent / "cases_nvml.py"
ASK = """
import json, sys
from benchhouse.worker.topology import read_gpus
from benchhouse.worker.monitors import nvml
try:
    reason = str(read_gpus())
except nvml.NoNvml as error:
    reason = str(error)
print(json.dumps([nvml.open_gpus(), reason, "pynvml" in sys.modules]))
"""


def test_gpus_of_a_fake_driver(library, python_with):
    done = python_with(library.parent, "-m", "pytest", "-v", "-p", "no:cacheprovider", str(CASES))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "14 passed" in done.stdout


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has the library")
def test_no_nvml_is_no_source_no_noise_and_no_import_of_its_binding(tmp_path, python_with):
    done = python_with(tmp_path, "-c", ASK)
    reason = "NVML, the library of NVIDIA's driver, is not here (libnvidia-ml.so.1)"
    assert (json.loads(done.stdout), done.stderr) == ([[], reason, False], "")


def test_a_file_that_is_no_library_is_no_source(tmp_path, python_with):
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    done = python_with(tmp_path, "-c", ASK)
    assert (json.loads(done.stdout)[0], done.stderr) == ([], "")


def test_a_missing_binding_is_a_reason_that_says_how_to_install_it(library, python_with):
    done = python_with(library.parent, "-c", f"import sys; sys.modules['pynvml'] = None{ASK}")
    reason = "NVML is here, but not its Python binding: pip install nvidia-ml-py"
    assert json.loads(done.stdout)[:2] == [[], reason], done.stderr


def test_a_library_without_its_functions_is_no_source_and_a_reason(tmp_path, python_with):
    empty = tmp_path / "empty.c"
    empty.write_text("int nothing;\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", empty], check=True)
    done = python_with(tmp_path, "-c", ASK)
    assert json.loads(done.stdout)[:2] == [[], "NVML does not start: Function Not Found (13)"], done.stderr


def test_every_series_is_declared_once():
    names = [item.name for item in nvml.SERIES]
    assert len(set(names)) == len(names) == 29
    assert {item.family for item in nvml.SERIES} == {"gpu", "pcie", "nvlink", "energy"}
