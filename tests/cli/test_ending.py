import subprocess
import sys

import pytest

_LOOK = (
    "import atexit, gc, sys\n"
    "atexit.register(lambda: print('frozen' if gc.get_freeze_count() > 1000 else 'as ever', file=sys.stderr))\n"
    "from benchhouse.cli.ending import end_quickly\nend_quickly()\n"
)


@pytest.mark.parametrize(
    ("imported", "expected"), [("pydantic.main", "frozen"), ("pyarrow, yaml, sqlite3", "frozen"), ("duckdb", "as ever")]
)
def test_garbage_is_left_where_no_extension_counts_what_is_left(imported, expected):
    done = subprocess.run(
        [sys.executable, "-c", f"{_LOOK}import {imported}\nprint('done')"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr.split()) == ("done\n", expected.split()), "and nobody complains"
