"""Cells that a spreadsheet would take for a formula."""

from tables import check_table

from benchhouse.schema.csv_text import csv_cells, csv_values


@check_table("text", ["=1+1", "+cmd|'/C calc'!A0", "-2+3+cmd", "@SUM(A1)", "\t=1", "\r=1", "-"])
def test_a_formula_is_written_as_text_and_read_back(text):
    assert csv_cells([text]) == ["'" + text]
    assert csv_values({"a": "'" + text}) == {"a": text}


@check_table("cell", [-1.5, "-1.5", "+3", "-1e-9", "-inf", "a=b", "'quoted", "", None, 3])
def test_numbers_and_other_text_stay(cell):
    assert csv_cells([cell]) == [cell]
    if isinstance(cell, str):
        assert csv_values({"a": cell}) == {"a": cell}
