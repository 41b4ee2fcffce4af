"""Every documented way in, everything that leaves the processes, every encoding."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "secrets_everywhere.py"


def test_no_secret_leaves_by_any_way_in_any_encoding():
    done = subprocess.run([sys.executable, SCRIPT, "--json"], capture_output=True, text=True, timeout=900)
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    assert result["found"] == []
    assert result["not_arrived"] == []
    assert done.returncode == 0
    assert result["ways_in"] >= 40
    assert result["ways_out"] >= 500
