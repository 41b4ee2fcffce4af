"""`bench query`."""

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize("sql", ["-- why\nSELECT 1 AS one", "--\nSELECT 1 AS one;", "--json is data\nSELECT 1 AS one"])
def test_sql_may_begin_with_a_comment(bench, sql):
    assert json.loads(bench("query", sql, "--json").out)["rows"] == [{"one": 1}]
    assert bench("query", "--csv", sql).out == "one\n1\n"
    assert bench("query", "--csv", "--", sql).out == "one\n1\n"


def test_an_option_that_is_not_there_is_still_one(bench):
    done = bench("query", "SELECT 1", "--cvs")
    assert done.code == 2
    assert "Did you mean '--csv'?" in done.err


def test_a_process_that_asked_ends_without_a_word_of_the_engine(tmp_path):
    command = [sys.executable, "-m", "benchhouse", "query", "--csv", "SELECT 1 AS one"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("one\n1\n", "")
