"""Every documented way in, everything that leaves the processes, every encoding."""

import sys
from pathlib import Path

import pytest
from laboratory import warm_bench

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from secrets_everywhere import call_bench, search_everywhere


def call(words, folder, environ):
    """Only a server that is to stay needs a real start: the other commands need no new interpreter."""
    if words[:2] == ("servers", "start"):
        return call_bench(words, folder, environ)
    return warm_bench().call(words, folder, environ, 120)


@pytest.mark.slow("it runs every verb that writes text, and searches all that was written")
def test_no_secret_leaves_by_any_way_in_any_encoding(tmp_path):
    result = search_everywhere(tmp_path / "house", call)
    assert result["found"] == []
    assert result["not_arrived"] == []
    assert result["ways_in"] >= 40
    assert result["ways_out"] >= 500
