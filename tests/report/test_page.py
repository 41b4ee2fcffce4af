"""The page in a real browser: it draws, answers and asks the network for nothing."""

from pathlib import Path

import made_up
import pytest
from asking import resize

from benchhouse.report import html
from benchhouse.report.data import make_spreads
from benchhouse.results.content import Point, RefusedFigure
from benchhouse.results.load_certificates import LoadFacts
from benchhouse.results.machine import MachineFacts, Panel, PhaseSummary, SeriesLine
from benchhouse.schema.telemetry import Phase

pytestmark = pytest.mark.browser
CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip("no Chromium here")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Open a report; afterwards, whatever was done with it, no error and no request may have happened."""
    trouble, pages = [], []

    def open_page(data, width=1400, scheme="light"):
        path = tmp_path / "index.html"
        path.write_text(html.render(data), encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: None if request.url == path.as_uri() else trouble.append(request.url))
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert trouble == []


def test_charts_of_a_sweep_are_drawn_and_follow_the_selectors(visit, sweep):
    page = visit(sweep)
    for chart in ("sweep", "scatter", "drift"):
        assert page.locator(f"#{chart} svg path").count() > 3
    assert page.locator("#sweep-legend button").all_inner_texts() == ["hnsw", "ivf", "flat"]

    assert "qps against recall" in page.locator("#scatter svg").get_attribute("aria-label")

    page.select_option("#metric", label="latency p99 (ms)")
    assert "latency p99 (ms)" in page.locator("#sweep svg").text_content()
    page.select_option("#x-axis", label="index")
    assert "hnsw" in page.locator("#sweep svg").text_content()
    page.select_option("#x-axis", label="each point")
    assert page.locator("#sweep svg text.name").count() == 15
    page.select_option("#scatter-x", label="latency mean (ms)")
    assert "latency mean (ms)" in page.locator("#scatter svg").text_content()
    before = page.locator("#sweep").inner_html()
    page.check("#log")
    assert page.locator("#sweep").inner_html() != before


def test_points_without_a_valid_number_are_told_below_each_chart(visit, sweep):
    first, odd, *others = sweep.points
    qps = odd.numbers[0]
    refused = RefusedFigure(metric=qps.metric, stat=qps.stat, unit=qps.cell.unit, primary=True)
    kept = {name: getattr(odd, name) for name in Point.model_fields}  # a copy would keep what it has looked up
    odd = Point(**kept | {"numbers": odd.numbers[1:], "refused": [refused]})
    gaps = {"points": [first, odd, *others], "without_number": ["pq (failed)"], "rankings": []}
    page = visit(sweep.model_copy(update=gaps))
    told = f"Not drawn, without a valid number: {odd.label} (INVALID), pq (failed)."
    for chart in ("sweep", "scatter"):
        assert told in page.locator(f"#{chart}-note").inner_text()
    page.select_option("#metric", label="latency p99 (ms)")
    assert "Not drawn, without a valid number: pq (failed)." in page.locator("#sweep-note").inner_text()


def test_keyboard_and_pointer_reach_the_marks_and_the_legend_hides_a_series(visit, sweep):
    page = visit(sweep)
    page.focus("#sweep svg")
    page.keyboard.press("ArrowRight")
    told = page.locator("#sweep .tip").inner_text()
    for word in ("qps", "95% interval", "n = 5", "stdev", "trace"):
        assert word in told
    page.keyboard.press("Enter")
    assert page.locator("#lineage-dialog").is_visible()
    page.keyboard.press("Escape")

    page.click("#sweep-legend button:has-text('hnsw')")
    assert page.locator("#sweep-legend button").first.get_attribute("aria-pressed") == "false"


def test_pointer_finds_the_nearest_mark(visit, sweep):
    page = visit(sweep)
    page.focus("#scatter svg")
    page.keyboard.press("ArrowRight")
    ring = page.locator("#scatter svg circle")
    spot = (float(ring.get_attribute("cx")), float(ring.get_attribute("cy")))
    page.locator("#scatter svg").blur()
    page.locator("#scatter svg").hover(position={"x": spot[0] + 3, "y": spot[1] + 3})
    assert page.locator("#scatter .tip").is_visible()


def test_click_on_a_number_shows_its_lineage(visit, sweep):
    page = visit(sweep)
    page.locator("#points button.num").first.click()
    dialog = page.locator("#lineage-dialog")
    cell = sweep.points[0].numbers[0].cell
    for text in (f"bench trace {cell.ref}", str(cell.value), cell.query, sweep.points[0].instance_digest, made_up.RUN):
        assert text in dialog.inner_text()
    for trial in cell.trials:
        assert f"results/vector-search/{trial}" in dialog.inner_text()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.locator("#comparison button.num").first.click()
    assert dialog.is_visible()


def column(page, at):
    return page.locator(f"#points tbody tr > :nth-child({at})").all_inner_texts()


def test_the_table_is_filtered_sorted_and_widened(visit, sweep):
    page = visit(sweep)
    page.fill("#filter", "hnsw ef_search=64")
    assert page.locator("#points tbody tr").count() == 1
    page.fill("#filter", "ef_search=16")
    assert column(page, 1) == ["hnsw", "ivf", "flat"]
    page.fill("#filter", "")

    exact = [item.cell.value for point in sweep.points for item in point.numbers[:1]]
    page.click("#points th:has-text('qps') button")
    first = page.locator("#points tbody tr").first.locator("button.num").first.get_attribute("title")
    assert first.startswith(f"{min(exact)}")
    page.click("#points th:has-text('qps') button")
    assert page.locator("#points th:has-text('qps')").get_attribute("aria-sort") == "descending"
    first = page.locator("#points tbody tr").first.locator("button.num").first.get_attribute("title")
    assert first.startswith(f"{max(exact)}")

    assert page.locator("#points th:has-text('latency max')").count() == 0
    page.check("#all-stats")
    assert page.locator("#points th:has-text('latency max')").count() == 1


def test_page_fits_its_window(visit, sweep):
    for scheme in ("light", "dark"):
        page = visit(sweep, 1600, scheme)
        for width in (1600, 820, 400):
            assert resize(page, width) <= width, (width, scheme)


def test_verdicts_of_long_names_are_in_sight_without_scrolling(visit, sweep):
    points = [
        point.model_copy(update={"label": f"{point.label} consistency=eventual compression=zstd replicas=3"})
        for point in sweep.points
    ]
    page = visit(made_up.assemble(points, sweep.trials), 1200)
    hidden = "e => e.scrollWidth - e.clientWidth"
    assert page.locator("#comparison .scroll").first.evaluate(hidden) <= 0


def test_two_thousand_points_are_paged_and_stay_usable(visit):
    page = visit(made_up.large())
    assert page.locator("#points tbody tr").count() == 50
    page.click("#page-on")
    assert "page 2 of 40" in page.locator("#page-note").inner_text()
    page.fill("#filter", "model=m3 threads=7")
    assert page.locator("#points tbody tr").count() == 10


def test_a_large_sweep_is_drawn_summed_up_and_a_value_of_the_axis_opens_its_points(visit):
    data = made_up.large()
    page = visit(data.model_copy(update={"spreads": make_spreads(data.points, data.columns(), several_runs=False)}))
    assert "median of the points there" in page.locator("#sweep-note").inner_text()
    assert page.locator("#sweep svg path").count() < 200, "an element for each point would make it slow"
    page.focus("#sweep svg")
    page.keyboard.press("ArrowRight")
    assert "middle half" in page.locator("#sweep .tip").inner_text()
    page.keyboard.press("Enter")
    assert "=" in page.input_value("#filter")
    assert "2000 points" in page.locator("#page-note").inner_text()
    assert 0 < page.locator("#points tbody tr").count() <= 50
    for axis in page.locator("#x-axis option").all_inner_texts():
        page.select_option("#x-axis", label=axis)
        assert page.locator("#sweep svg path").count() > 3


def test_hostile_text_runs_nothing(visit):
    page = visit(made_up.hostile())
    assert page.locator("img").count() == 0
    page.locator("#points button.num").first.click()
    assert page.locator("#lineage-dialog").is_visible()


@pytest.mark.parametrize("points", [0, 1])
def test_page_with_hardly_anything_has_no_error(visit, sweep, points):
    visit(made_up.assemble(sweep.points[:points], sweep.trials))


def test_page_prints_all_points_and_opens_what_is_folded(visit, sweep):
    page = visit(sweep)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0


def with_curves(sweep, level):
    from benchhouse.results.series import members_of_points
    from benchhouse.results.tradeoff import make_tradeoff

    members = members_of_points(sweep.points, {})
    return sweep.model_copy(update={"tradeoff": make_tradeoff(members, ("recall", "value"), ("qps", "value"), level)})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_the_level_and_where_they_meet_are_drawn(visit, sweep, scheme):
    page = visit(with_curves(sweep, 0.95), scheme=scheme)
    assert page.locator("#scatter path.curve").count() == 2  # all points of flat are in one place
    assert page.locator("#scatter line.level").count() == 1
    assert page.locator("#scatter path.met").count() == 2  # flat is better everywhere
    assert "recall 0.95" in page.locator("#scatter svg").text_content()
    assert "Ringed: the 11 points" in page.locator("#scatter-note").inner_text()
    level = float(page.locator("#scatter line.level").get_attribute("x1"))
    left, right = (page.locator("#scatter path.curve").first.evaluate(f"p => p.getPointAtLength({at}).x")
                   for at in (0, 10_000))  # fmt: skip
    assert left < level < right
    page.select_option("#scatter-x", label="latency mean (ms)")
    assert page.locator("#scatter path.curve").count() == 0  # they belong to recall and qps


def test_hiding_a_series_hides_its_curve(visit, sweep):
    page = visit(with_curves(sweep, 0.95))
    page.click("#sweep-legend button:has-text('hnsw')")
    assert page.locator("#scatter path.curve").count() == 1


def test_curves_without_a_level_have_no_line(visit, sweep):
    page = visit(with_curves(sweep, None))
    assert page.locator("#scatter path.curve").count() == 2  # all points of flat are in one place
    assert page.locator("#scatter line.level").count() == 0


def test_the_seconds_of_a_load_are_drawn_within_their_frame(visit, sweep):
    facts = {"point": "p", "run_id": made_up.RUN, "trial_id": "t", "repetition": 1, "outcome": "succeeded"}
    numbers = {"loop": "open", "asked": 50, "offered": 150, "delivered": 150, "in_flight": 4, "cpu_share": 0.1}
    load = LoadFacts(**facts, **numbers, problems=[], lag_ms=0.1, wake_ms=0.2, rates=[50, 40, 60], errors=[0, 10, 0])
    page = visit(sweep.model_copy(update={"loads": [load]}))
    chart = page.locator("#load .seconds svg")
    frame, lines = chart.bounding_box(), chart.locator("path")
    assert frame["width"] > 300 and lines.count() == 2
    for line in (lines.nth(0).bounding_box(), lines.nth(1).bounding_box()):
        assert frame["y"] <= line["y"] and line["y"] + line["height"] <= frame["y"] + frame["height"]
    assert lines.nth(0).bounding_box()["y"] < lines.nth(1).bounding_box()["y"]  # answers above failures
    assert "holds" in page.locator("#load table").inner_text()


@pytest.mark.parametrize("width", [1400, 390])
def test_the_machine_is_drawn_over_its_phases_and_folded_after_a_few_points(visit, sweep, width):
    phases = [Phase(name="warmup", begin_s=0, end_s=4), Phase(name="steady", begin_s=4, end_s=10)]
    facts = {"run_id": made_up.RUN, "trial_id": "t", "repetition": 1, "chosen": "the only trial", "folder": "results/t"}
    facts["outcome"] = "succeeded"
    kept = {"file": "telemetry/node.parquet", "sha256": "ab" * 32, "samples": 3}
    cpu = SeriesLine(scope="node", series="cpu_busy", label="node", **kept, times_s=[1, 5, 9], values=[0, 2, 1])
    figure = PhaseSummary(label="node CPU", scope="node", series="cpu_busy", unit="cores", phase="steady", n=3, avg=1)
    machines = [
        MachineFacts(point=f"p{at}", **facts, duration_s=10, interval_s=1, ticks_missed=0, energy_j=None, phases=phases,
                     panels=[Panel(title="CPU", unit="cores", lines=[cpu])], figures=[figure], summary_sha256="cd" * 32)
        for at in range(5)
    ]  # fmt: skip
    page = visit(sweep.model_copy(update={"machines": machines}), width=width)
    shown = [item.is_visible() for item in page.locator("#machine svg").all()]
    assert shown == [True, True, True, False, False]
    chart = page.locator("#machine svg").first
    bands = [chart.locator(f".{name}").bounding_box() for name in ("warmup", "steady")]
    line = chart.locator("path").bounding_box()
    assert bands[0]["width"] / bands[1]["width"] == pytest.approx(4 / 6, abs=0.02)
    assert line["x"] == pytest.approx(bands[0]["x"] + bands[0]["width"] / 4, abs=2)
    assert bands[0]["y"] - 1 <= line["y"] and line["y"] + line["height"] <= bands[0]["y"] + bands[0]["height"] + 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#machine summary").nth(4).click()
    assert page.locator("#machine svg").nth(4).is_visible()
