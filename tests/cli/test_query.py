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


def test_a_number_that_json_does_not_know_is_null(bench):
    sql = "SELECT 'nan'::DOUBLE AS a, [1.5, 'inf'::DOUBLE] AS b"

    def refuse(name):
        raise ValueError(name)

    done = json.loads(bench("query", sql, "--json").out, parse_constant=refuse)
    assert done["rows"] == [{"a": None, "b": [1.5, None]}]


def test_no_cell_of_a_csv_is_a_formula(bench):
    done = bench("query", "--csv", "SELECT '=1+1' AS a, '@x' AS \"=b\", -1.5 AS c, '-2' AS d, '+a' AS e")
    assert done.out == "a,'=b,c,d,e\n'=1+1,'@x,-1.5,-2,'+a\n"


def test_escapes_in_the_data_do_not_reach_the_terminal(bench):
    done = bench("query", "SELECT 'a' || chr(27) || ']0;x' || chr(7) AS b")
    assert "a\u241b]0;x\u2407" in done.out
    done = bench("query", 'SELECT "a\x1b]0;x\x07"')
    assert done.code != 0 and "\x1b" not in done.out + done.err
