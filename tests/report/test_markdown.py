import re

from benchhouse.report.markdown import render
from benchhouse.report.markdown_text import block, code, plain, table


def test_special_characters_are_shown_not_obeyed():
    assert plain("a|b <b> *x* `y` 5 # 6") == r"a\|b &lt;b\> \*x\* \`y\` 5 \# 6"
    assert plain("ef_search _x_\nnext") == r"ef_search \_x\_ next"


def test_code_with_backticks_gets_a_longer_fence():
    assert code("a`b") == "`` a`b ``"
    assert code("plain") == "`plain`"
    assert block("x\n```\ny").startswith("````\n")


def test_a_pipe_never_splits_a_cell():
    assert table(["a"], [["`x|y`"], [r"p\|q"]]).splitlines()[2:] == [r"| `x\|y` |", r"| p\|q |"]


def test_every_table_row_has_as_many_cells_as_its_head(sweep):
    width = None
    for line in render(sweep).splitlines():
        if not line.startswith("|"):
            width = None
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        width = width or cells
        assert cells == width, line


def test_report_tells_verdict_doubt_failure_and_lineage(sweep):
    text = render(sweep)
    assert text.startswith("# vector-search\n")
    assert f"**{sweep.headline[0]}**" in text
    assert "\\~ p99 from 40 samples; 100 are needed." in text
    assert sweep.failures[0].rerun in text
    assert sweep.queries[0].digest() in text
    assert "| 1 | index=hnsw ef_search=16 **best** |" in text
