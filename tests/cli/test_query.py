"""`bench query`."""

import json

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
