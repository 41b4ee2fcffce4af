"""Which numbers of a document need a claim, and which claims they may cite."""

import pytest
from claim_maker import NUMBER, STEADY, make, make_run_of

from benchhouse.claims.lint import lint_file
from benchhouse.schema.errors import BenchError


@pytest.fixture
def lint(workspace, tmp_path):
    def call(text, *, strict=False, broken=()):
        path = tmp_path / "page.md"
        path.write_text(text)
        return lint_file(workspace, path, lambda claim_id: list(broken), strict=strict)

    return call


def told(linted):
    return [(one.line, one.column, one.message) for one in linted.problems]


LEFT_ALONE = """---
version: 1.5
---
# 3.5 times faster

Heading of 4.5 ms
-----------------

On 2026-11-16 at 12:30, 3 March 2026 and in March 2026, with v1.2 and 1.26.4 of Python 3.11, on H100s at p99.
See [the 9.5 ms page](https://example.org/9.5), <https://example.org/1.5>, https://example.org/2.5 and [^1.5].
`7.5 ms` and ``8.5 ` ms`` are code, <!-- 6.5 ms --> a comment; section 4.2, Table 3.1; 3 servers, 16 cores.

1. first
2) second

```sh
sleep 1.5
```

    indented 2.5 ms
"""


def test_what_is_no_measured_number_is_left_alone(lint):
    found = lint(LEFT_ALONE.replace("[the 9.5 ms page]", "[the page]"))
    assert told(found) == []
    assert found.ignored == 2


def test_numbers_without_a_claim_are_found_at_their_place(lint):
    found = lint("First line.\n\nIt takes 12.5 ms, which is 3x, 99.9% or 12,345 req/s.\n| a | 0.5 |\n")
    assert [(line, column) for line, column, _ in told(found)] == [(3, 10), (3, 28), (3, 32), (3, 41), (4, 7)]
    assert "'12,345 req/s' cites no claim" in told(found)[3][2]
    assert found.problems[0].render().startswith(f"{found.path}:3:10: '12.5 ms' cites no claim")


def test_counts_need_a_claim_only_when_asked_for(lint):
    assert told(lint("We ran 16 cores in 2026.\n")) == []
    assert [one[:2] for one in told(lint("We ran 16 cores in 2026.\n", strict=True))] == [(1, 8)]
    found = lint("1899 1900 2100 2101 and 19000, -1950 or 5 ms\n", strict=True)
    assert [one[:2] for one in told(found)] == [(1, 1), (1, 16), (1, 25), (1, 41)]
    assert (found.ignored, found.cited) == (3, 0)


def test_a_remark_says_why_a_number_needs_none(lint):
    assert told(lint("A list price of 2.50 USD. <!-- no claim: the vendor's page -->\n")) == []
    assert len(told(lint("A list price of 2.50 USD. <!-- no claim: -->\n"))) == 1


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2.50 USD <!-- no claim: a price -->\nthen 3.50 USD\n", (2, 6)),
        ("3.50 USD\n2.50 USD <!-- no claim: a price -->", (1, 1)),
        ("3.50 USD\n2.50 USD <!-- no claim: a price -->\n", (1, 1)),
        ("<!-- no claim: a price --> 2.50 USD and\n4.50 USD", (2, 1)),
        ("a\n1.50 USD <!-- no claim: a price --> 2.50 USD\n\n3.50 USD\n", (4, 1)),
    ],
)
def test_a_remark_is_of_the_numbers_on_its_line_alone(lint, text, at):
    assert [one[:2] for one in told(lint(text))] == [at]


@pytest.mark.parametrize(
    "text",
    ["110.176/s", "110.18 /s", "110.2 qps", "110 1/s", "110.1760 qps", "1.1018e2 qps", "+110.2 qps"],
)
def test_a_number_that_is_rounded_rightly_passes(workspace, lint, text):
    claim = make(workspace)
    assert round(claim.value, 6) == 110.176
    found = lint(f"It does {text} [claim:{claim.id[:8]}].\n")
    assert (told(found), found.cited) == ([], 1)


@pytest.mark.parametrize(("text", "why"), [
    ("110.3 qps", "is not what claim"), ("111 qps", "is not what claim"), ("-110.2 qps", "is not what claim"),
    ("110.2 ms", "in another unit"), ("110.2%", "in another unit"), ("110.2", "in another unit"),
])  # fmt: skip
def test_a_wrong_value_or_unit_is_found(workspace, lint, text, why):
    (problem,) = lint(f"It does {text} [claim:{make(workspace).id}].\n").problems
    assert why in problem.message
    assert (problem.line, problem.column) == (1, 9)


def test_units_of_a_kind_are_converted(workspace, lint):
    claim = make(workspace, "run-s:name=hnsw:latency.p50")
    assert claim.unit == "ms"
    assert round(claim.value, 3) == 9.077
    for text in ("9.077 ms", "9077 µs", "9076620 ns", "0.00015128 min", "0.00908 s", "9.1 ms"):
        assert told(lint(f"{text} [claim:{claim.id}]\n")) == []
    assert len(told(lint(f"9.078 ms [claim:{claim.id}]\n"))) == 1


def test_a_change_may_be_told_without_its_sign(workspace, lint):
    claim = make(workspace, "run-s:name=flat:qps", "run-s:name=hnsw")
    assert round(claim.value, 2) == -9.09
    assert told(lint(f"9.1% slower [claim:{claim.id}]\n"))  # the citation stands right behind the number
    assert told(lint(f"It is slower by 9.1% [claim:{claim.id}], or −9.09% [claim:{claim.id}].\n")) == []
    assert len(told(lint(f"+9.1% [claim:{claim.id}]\n"))) == 1


def test_an_unsafe_claim_is_found(workspace, lint):
    number = make_run_of(workspace, "run-t", STEADY, meta={"git_dirty": True})
    claim = make(workspace, number, realism=True)
    (problem,) = lint(f"It does 100.16 qps [claim:{claim.id}].\n").problems
    assert "REALISM-GRADE (dirty_tree), and the paragraph does not say so" in problem.message
    assert "or a claim without this: run-t name=hnsw ef=16: the git tree had uncommitted changes" in problem.expected
    assert told(lint(f"It does 100.16 qps [claim:{claim.id}]\n(realism-grade).\n")) == []
    (problem,) = lint(f"Realism-grade: 100.16 qps [claim:{claim.id}].\n", broken=["step evidence"]).problems
    assert "does not hold any more: step evidence" in problem.message


def test_citations_that_lead_nowhere_are_found(workspace, lint):
    claim = make(workspace, NUMBER)
    found = lint(f"So [claim:{claim.id}] it is; 5.5 ms [claim:feedbeef], 5.5 ms [claim:../../x].\n")
    assert [message for _, _, message in told(found)] == [
        "a citation without a number before it",
        "there is no claim 'feedbeef' here",
        "there is no claim '../../x' here",
    ]


def test_a_file_that_is_no_text_is_refused(workspace, tmp_path):
    (tmp_path / "page.md").write_bytes(b"\xff\xfe")
    with pytest.raises(BenchError, match="no UTF-8"):
        lint_file(workspace, tmp_path / "page.md", lambda claim_id: [], strict=False)
    with pytest.raises(BenchError, match="can't be read"):
        lint_file(workspace, tmp_path, lambda claim_id: [], strict=False)
