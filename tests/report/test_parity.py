"""The Markdown report has what the page has: every section, text, table and figure; figures are files beside it."""

import re
import xml.etree.ElementTree as ElementTree
from html import unescape
from html.parser import HTMLParser

import made_up
import pytest

from benchhouse.report import html, markdown
from benchhouse.report.figures import figure_files
from benchhouse.results.content import WarningGroup
from benchhouse.results.load_certificates import LoadFacts
from benchhouse.results.machine import MachineFacts, Panel, PhaseSummary, SeriesLine
from benchhouse.results.ranks import RankFacts
from benchhouse.results.scaling import automatic
from benchhouse.results.series import members_of_points
from benchhouse.results.tradeoff import automatic as automatic_tradeoff
from benchhouse.schema.ranks import RankRow, RankTimes
from benchhouse.schema.telemetry import Phase

UNREAD = ("script", "style", "svg", "select", "noscript", "label", "nav", "footer", "dialog")
BLOCKS = ("h1", "h2", "h3", "p", "th", "td", "dt", "dd", "pre", "figcaption", "summary", "small", "span", "button")
ONLY_ON_THE_PAGE = (  # said about what one can click
    "A click on a number", "Mark: mean over trials.", "The same metric, trial by trial", "One metric against another",
    "Value along the axis", "Back", "Next", "All ", "Log tail",
)  # fmt: skip


class Texts(HTMLParser):
    """What a reader sees of the page without its scripts, block by block."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.blocks, self.unread = [""], 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.unread += tag in UNREAD
        if tag in BLOCKS:
            self.blocks.append("")

    def handle_endtag(self, tag):
        self.unread -= tag in UNREAD
        if tag in BLOCKS:
            self.blocks.append("")

    def handle_data(self, data):
        if not self.unread:
            self.blocks[-1] += data


def flat(text):
    return re.sub(r"[\s\u2009]+", " ", text).strip()


def seen(text):
    """Return Markdown as a reader sees it, without the zero-width spaces that keep GitHub from making links."""
    text = unescape(text).replace("\u200b", "")
    return flat(re.sub(r"\\([\\`*\[\]<>#|~@_])", r"\1", text).replace("**", "").replace("`", ""))


@pytest.fixture(scope="module")
def full(sweep):
    """A report with every section and every kind of figure."""
    members = members_of_points(sweep.points, {})
    facts = {"run_id": made_up.RUN, "trial_id": "t", "repetition": 1, "outcome": "succeeded"}
    numbers = {"loop": "open", "asked": 50, "offered": 150, "delivered": 150, "in_flight": 4, "cpu_share": 0.1}
    numbers |= {"problems": [], "lag_ms": 0.1, "wake_ms": 0.2, "rates": [50, 40, 60], "errors": [0, 10, 0]}
    kept = {"file": "telemetry/node.parquet", "sha256": "ab" * 32, "samples": 3}
    cpu = SeriesLine(scope="node", series="cpu_busy", label="node", **kept, times_s=[1, 5, 9], values=[0, 2, 1])
    figure = PhaseSummary(label="node CPU", scope="node", series="cpu_busy", unit="cores", phase="steady", n=3, avg=1)
    machine = MachineFacts(
        point="p", **facts, chosen="the only trial", folder="results/t", duration_s=10, interval_s=1, ticks_missed=2,
        energy_j=120.0, phases=[Phase(name="steady", begin_s=4, end_s=10)],
        panels=[Panel(title="CPU", unit="cores", lines=[cpu]), Panel(title="CPU again", unit="cores", lines=[cpu])],
        figures=[figure], summary_sha256="cd" * 32,
    )  # fmt: skip
    rows = [RankRow(rank=at, node="n1", times_ms=[10, 11 + 9 * at]) for at in range(3)]
    times = RankTimes(quantity="own_step_time", first_steps=[0, 5], ranks=rows, straggler="rank 2 is slow")
    ranks = RankFacts(
        point="p",
        trial_id="t",
        repetition=1,
        chosen="the only trial",
        folder="results/t",
        sha256="ef" * 32,
        times=times,
    )
    scaled = [
        member
        for at, member in enumerate(members[:4])
        if not member.given.update({"resources.nodes": 2**at, "ef_search": 1})
    ]
    scalings = automatic(scaled, ("qps", "value"), None, kind="strong")
    assert [item.along for item in scalings] == ["resources.nodes"]
    fresh = members_of_points(sweep.points, {})
    return sweep.model_copy(
        update={
            "loads": [LoadFacts(point="p", **facts, **numbers)],
            "machines": [machine],
            "ranks": [
                ranks,
                ranks.model_copy(update={"times": ranks.times.model_copy(update={"quantity": "step_time"})}),
            ],
            "scalings": scalings,
            "tradeoff": automatic_tradeoff(fresh, ("qps", "value"), 0.95),
            "invalid": sweep.failures,
            "warnings": [WarningGroup(code="late", count=2, messages=["40 ms late"])],
        }
    )


def test_every_text_of_the_page_is_in_the_markdown(full):
    text = seen(markdown.render(full, figure_files(full)))
    texts = [flat(block) for block in Texts(html.render(full).partition("<body>")[2]).blocks]
    shown = [block for block in texts if not block.startswith(ONLY_ON_THE_PAGE[1:])]
    pieces = [piece.removesuffix(":") for block in shown for piece in re.split(r"(?<=[.;:]) | · ", block)]
    pieces = [piece for piece in pieces if piece and not piece.startswith(ONLY_ON_THE_PAGE[0])]
    assert len(pieces) > 150
    missing = [piece for piece in pieces if seen(piece) not in text]
    assert missing == [], "\n".join(missing)


def test_sections_come_in_the_same_order(full):
    page = re.findall(r"<h2>(.*?)</h2>", html.render(full))
    text = markdown.render(full, figure_files(full))
    assert page == re.findall(r"^## (.*)$", text, re.MULTILINE)


def test_every_figure_is_a_file_that_the_markdown_shows(full):
    page, figures = html.render(full), figure_files(full)
    text = markdown.render(full, figures)
    drawn = page.count("<figure")
    by_section = [figure.section for figure in figures.values()]
    # The page draws one metric at a time in `Value along the axis`; the files are one for each that leads.
    assert drawn == 1 + sum(section != "charts" for section in by_section) + 2
    assert {
        "trade-off.svg",
        "drift.svg",
        "scaling-nodes.svg",
        "load-p.svg",
        "ranks-p.svg",
        "machine-p-CPU.svg",
    } <= figures.keys()
    for name, figure in figures.items():
        assert f"](charts/{name})" in text
        tree = ElementTree.fromstring(figure.svg)
        assert tree.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in figure.svg
    assert text.count("![") == len(figures)


def test_every_number_is_in_the_markdown(full):
    text = markdown.render(full)
    assert [item.cell.ref for point in full.points for item in point.numbers if item.cell.ref not in text] == []


def test_names_of_figures_are_safe_and_differ():
    data = made_up.hostile()
    names = list(figure_files(data))
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*\.svg", name) for name in names), names
    for figure in figure_files(data).values():
        ElementTree.fromstring(figure.svg)
