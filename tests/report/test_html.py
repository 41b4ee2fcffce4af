import json
import re
from html.parser import HTMLParser

import made_up
import pytest

from benchhouse.report import html, markdown
from benchhouse.report.files import report_json
from benchhouse.results.content import TrialFacts


class Reader(HTMLParser):
    """Collects elements, attributes and the text of script elements."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.inside = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        self.inside = False


@pytest.fixture(scope="module")
def page(sweep):
    return html.render(sweep)


def test_page_makes_no_request(page):
    read = Reader(page)
    assert not re.search(r"\bhttps?://(?!www\.w3\.org/2000/svg)", page)
    assert not [tag for tag, _ in read.elements if tag in ("link", "img", "iframe", "object", "embed", "base", "form")]
    assert not [attrs for _, attrs in read.elements if "src" in attrs or "srcset" in attrs]
    assert "@import" not in page
    assert "url(" not in page


def test_page_forbids_requests_by_policy(page):
    policy = dict(Reader(page).elements[3][1])
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert policy["content"] == (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    )


def test_page_has_every_section(page):
    sections = [attrs["id"] for tag, attrs in Reader(page).elements if tag == "section"]
    assert sections == [
        "charts", "comparison", "points-section", "failures", "warnings", "configuration", "environment", "lineage",
    ]  # fmt: skip


def test_page_shows_rerun_line_folder_log_and_digests(page, sweep):
    for text in (sweep.failures[0].rerun, sweep.failures[0].folder, "Killed", sweep.runs[0].plan_digest):
        assert text in page
    assert sweep.queries[0].digest() in page
    assert "p99 from 40 samples; 100 are needed" in page


def test_embedded_data_holds_every_number_in_full(page, sweep):
    data = json.loads(Reader(page).scripts[0])
    numbers = {
        ref: value for column in data["numbers"] for ref, value in zip(column["ref"], column["value"], strict=True)
    }
    assert numbers == {item.cell.ref: item.cell.value for point in sweep.points for item in point.numbers}
    assert [axis["name"] for axis in data["axes"]] == ["index", "ef_search"]


def test_words_not_only_colours_say_best_median_and_worst(page):
    for word in ("best", "median", "worst"):
        assert re.search(rf'<span class="place {word}">{word}</span>', page)


def test_a_change_without_a_relative_interval_shows_the_difference():
    numbers = [
        made_up.number("wait", "value", "ms", "lower", values, ["a", "b", "c"], {"at": at})
        for at, values in enumerate([[0.0, 1.0, 0.5], [20.0, 21.0, 22.0]])
    ]
    data = made_up.assemble([made_up.point(at, {"p": at}, [found]) for at, found in enumerate(numbers)], [])
    told, interval = data.rankings[0].standings[1].gap_texts("ms")
    assert told == "+20.50\u2009ms"
    assert f'<td class="n">{told}</td><td class="n">{interval}</td>' in html.render(data)
    assert f"| {told} ({interval}) |" in markdown.render(data)


def test_text_from_files_never_becomes_markup():
    data = made_up.hostile()
    page = html.render(data)
    read = Reader(page)
    assert len(read.scripts) == 2
    assert not [tag for tag, _ in read.elements if tag == "img"]
    assert not [attrs for _, attrs in read.elements if any(name.startswith("on") for name in attrs)]
    assert "<script>alert" not in page
    assert json.loads(read.scripts[0])["points"]["label"][0] == made_up.EVIL
    assert "<" not in read.scripts[0]


def test_markdown_of_hostile_text_has_no_html_and_whole_tables():
    text = markdown.render(made_up.hostile())
    outside = re.sub(r"(?ms)^ *(`{3,}).*?^ *\1$", "", text.replace("\\`", ""))
    outside = re.sub(r"(`+) ?.*? ?\1(?!`)", "", outside)
    assert "<script" not in outside
    assert "<img" not in outside


def test_report_json_is_what_a_trace_reads(sweep):
    whole = json.loads(report_json(sweep))
    refs = {cell["ref"] for cell in whole["cells"]}
    assert {number["ref"] for point in whole["report"]["points"] for number in point["numbers"]} == refs
    assert {cell["query"] for cell in whole["cells"]} == set(whole["queries"])


def test_report_without_any_number_still_renders():
    data = made_up.assemble([], [TrialFacts(trial_id="t", run_id="r", outcome="error")])
    page, text = html.render(data), markdown.render(data)
    assert "No trial produced a number." in page
    assert "No trial produced a number." in text
    assert 'id="sweep"' not in page


def test_two_thousand_points_stay_a_few_megabytes():
    assert len(html.render(made_up.large())) < 6_000_000


def test_no_escape_of_a_terminal_reaches_a_page(monkeypatch):
    monkeypatch.setattr(made_up, "EVIL", "a\x1b]0;title\x07b\x9b31mc\u202ed\x7f")
    data = made_up.hostile()
    for text in (html.render(data), markdown.render(data)):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert "a\u241b]0;title\u2407b\ufffd31mc\ufffdd\ufffd" in markdown.render(data).replace("\\", "")
