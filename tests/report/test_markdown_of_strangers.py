"""Text of a stranger stays text on GitHub: for the parser that GitHub uses, and for what GitHub links after it.

The parser is real (cmark-gfm). GitHub alone makes links to people, issues, and commits, so a fake models them.
"""

import json
import re
from html.parser import HTMLParser

import pytest
from services import on_demand
from tables import check_table

from benchhouse.report.gate_comment import GateCommentAnswer, gate_markdown
from benchhouse.report.markdown_text import code, folded, plain, table

SHA = "0123456789abcdef0123456789abcdef01234567"
HOSTILE = [
    "@torvalds", "mail me@example.com now", "@org/team", "x @a-b", "&#64;torvalds", "&commat;torvalds", "\\@torvalds",
    "#123", "see &#35;123", "GH-123", "gh-7", "owner/repo#1", "owner/repo@" + SHA, SHA, SHA[:7], SHA.upper(), "1234567",
    "http://evil.example/x", "HTTPS://evil.example", "ftp://evil.example", "www.evil.example", "WWW.evil.example",
    "(www.evil.example)", "mailto:me@example.com", "xmpp:me@example.com/x", "https://github.com/o/r/issues/1",
    "<https://evil.example>", "[click](https://evil.example)", "![x](https://evil.example/x.png)", "[x]: https://e.example",
    "<a href=//evil.example>x</a>", "<img src=x onerror=alert(1)>", "<!-- hidden", "</details>", "<script>x</script>",
    "a | b", "a \\| b", "a \\\\| b", "a\\", "`x`", "``", "`` `", "**x** _y_ ~~z~~", "__x__", "$x_y$", "$$x$$",
    "&lt;b&gt;", "# heading", "- item", "+ item", "* item", "1. item", "12) item", "1.", "-", "---", "- - -", "===",
    "> quote", "```", "~~~", "    code", "\tcode", "a\n\n# b", "a\r\n- b", "a\u2028b", "a\u0085b", "[^1]", "[^1]: note",
    "- [ ] task", "\\", "a  \nb",
]  # fmt: skip


class Rendered(HTMLParser):
    """The text that a reader sees, the part of it that GitHub searches for references, and the names of all tags."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text = self.searched = ""
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag):
        self._open.remove(tag)

    def handle_data(self, data):
        self.text += data
        self.searched += "\n" if {"a", "pre", "code", "tt"} & {*self._open} else data


def fake_references(text: str) -> list[str]:
    """What GitHub makes links of after rendering, by what its pages say."""
    return re.findall(
        r"(?<![\w/])@[a-z\d][a-z\d-]*|#\d+|\bgh-\d+|\b[0-9a-f]{7,40}\b|(?:https?|ftp)://|\bwww\.", text, re.IGNORECASE
    )


@pytest.fixture(scope="module")
def rendered():
    """Return a function that renders Markdown with cmark-gfm, without any filter of HTML."""
    cmark = on_demand.module("github-markdown", "cmarkgfm")
    options = on_demand.module("github-markdown", "cmarkgfm.cmark").Options.CMARK_OPT_UNSAFE
    return lambda text: Rendered(cmark.github_flavored_markdown_to_html(text, options))


def as_read(text: str) -> str:
    return " ".join(text.replace("\u200b", "").split())


def test_the_fake_finds_what_github_links():
    assert len(fake_references(f"@me #1 o/r#2 GH-3 {SHA} {SHA[:7]} http://x www.x")) == 8


@check_table("text", HOSTILE)
def test_a_paragraph_shows_the_text(rendered, text):
    shown = rendered(f"{plain(text)}\n")
    assert set(shown.tags) <= {"p", "span"} and as_read(shown.text) == as_read(text)
    assert not fake_references(shown.searched)


@check_table("text", HOSTILE)
def test_a_text_after_another_line_underlines_nothing_and_begins_nothing(rendered, text):
    shown = rendered(f"before\n{plain(text)}\nafter\n")
    assert set(shown.tags) <= {"p", "span"} and as_read(shown.text) == as_read(f"before {text} after")


@check_table("text", HOSTILE)
def test_a_table_keeps_its_cells_and_shows_the_text(rendered, text):
    shown = rendered(table(["a", "b", "c"], [[plain(text), code(text), "end"]]) + "\n")
    assert shown.tags.count("td") == 3
    assert {*shown.tags} <= {"table", "thead", "tbody", "tr", "th", "td", "span", "code"}
    assert as_read(shown.text).startswith(as_read(f"a b c {text}")) and as_read(shown.text).endswith("end")
    assert not fake_references(shown.searched)


@check_table("text", HOSTILE)
def test_a_folded_part_shows_its_summary(rendered, text):
    shown = rendered(folded(text, "inside") + "\n")
    assert shown.tags == ["details", "summary", "p"] and as_read(shown.text) == as_read(f"{text} inside")
    assert not fake_references(shown.searched)


def test_a_gate_of_a_fork_is_a_comment_without_any_link_of_its_own(rendered):
    row = {"judgement": "regression", "worse": 1.0, "low": 0.5, "high": 2.0, "visible": 0.1, "n_a": 3, "n_b": 3}
    rows = [{**row, "point": text, "metric": text, "stat": text} for text in HOSTILE]
    gate = {"judgement": "can't tell", "rows": rows, "missing": HOSTILE, "selftest": "; ".join(HOSTILE)[:500]}
    for message in ["", *HOSTILE]:
        answer = GateCommentAnswer.model_validate_json(json.dumps(gate | {"message": message}))
        shown = rendered(gate_markdown(answer, message, "https://ours.example/1", foreign=True))
        assert shown.tags.count("a") == 1 and "img" not in shown.tags
        assert shown.tags.count("h3") == 1 and not {"h1", "h2", "li", "blockquote"} & {*shown.tags}
        assert not fake_references(shown.searched), message
        gate |= {"rows": rows[:1], "missing": [], "selftest": ""}  # the others were looked at the first time
