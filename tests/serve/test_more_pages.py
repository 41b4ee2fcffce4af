"""Pages to compare, watch, publish, look up and build, over HTTP and in a real browser."""

import random
import re
import sys
from html import unescape
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from laboratory import Lab

from benchhouse.schema.layout import WorkspaceFolder

sys.path.insert(0, str(Path(__file__).parents[1] / "warehouse"))
CHROMIUM = Path("/usr/bin/chromium")
HOSTILE = "<script>alert(1)</script>\u202e"
CASE = "demo/name=hnsw ef=16"
PAGES = (
    "/compare", "/compare?a={0}&b={1}", "/compare?a=nope", "/history", f"/history/{quote(CASE)}", "/leaderboards",
    "/claims", "/claims/documents", "/contracts", "/contracts/{2}", "/catalogue", "/catalogue/once", "/servers", "/new",
    "/new?experiment=once&workload.n=1,2&repetitions=x", "/views?run={1}&audience=product",
    "/views?run={1}&audience=partner", "/views/release", "/runs/{1}/contract",
)  # fmt: skip


def day(number):
    return f"202603{number + 1:02d}-120000-aaaaaaa"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """12 daily runs of three trials, of which the last four are 20% lower; and a server on them."""
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    lab = Lab(tmp_path_factory.mktemp("lab"))
    folder, draw = WorkspaceFolder(lab.workspace), random.Random(5)
    for number in range(12):
        level = 100.0 if number < 8 else 80.0
        trials = [
            make_trial(folder, day(number), at + 1, value=level * draw.gauss(1, 0.01), minute=60 * number)
            for at in range(3)
        ]
        collect(folder, day(number), trials)
    lab.scenario("once", name="odd", description=HOSTILE)
    (lab.workspace / "README.md").write_text(f"It takes 12.5 ms {HOSTILE}\n")
    process = lab.fork("serve", "--port", "0", "--allow", "approve")
    assert process.stdout
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found
    yield found.group().rstrip("/")
    process.terminate()
    process.wait()


def read(url):
    try:
        with urlopen(url) as answer:
            return answer.status, unescape(answer.read().decode())
    except HTTPError as error:
        return error.code, unescape(error.read().decode())


def paths(base):
    contract = re.search(r'href="/contracts/([^"]+)"', read(f"{base}/contracts")[1])
    assert contract
    return [path.format(day(2), day(10), contract[1]) for path in PAGES]


def test_compare_judges_any_two_sides_by_an_address(base):
    status, page = read(f"{base}/compare?a={day(2)}&b={day(10)}")
    assert status == 200 and 'class="bad">worse' in page and "Gate: " in page and ">regression<" in page
    assert "<svg" in page and "style=" not in page
    assert "B against A: 1 worse" in page or " worse" in page
    status, page = read(f"{base}/compare?a={day(2)}&b=nothing")
    assert status == 400 and "no run 'nothing'" in page and f'value="{day(2)}"' in page


def test_looking_at_a_gate_records_nothing(base, tmp_path_factory):
    read(f"{base}/compare?a={day(2)}&b={day(10)}")
    root = next(tmp_path_factory.getbasetemp().glob("lab*/ws"))
    assert not (root / ".bench" / "regressions.jsonl").exists()


def test_history_lists_cases_and_shows_where_a_level_changed(base):
    assert CASE in read(f"{base}/history")[1]
    status, page = read(f"{base}/history/{quote(CASE)}")
    assert status == 200 and "1 change of level in 12 runs" in page
    assert f"/compare?a={day(7)}&b={day(8)}" in page and "No baseline is accepted" in page
    assert read(f"{base}/history/nope")[0] == 404


def test_a_form_is_made_from_the_schema_and_says_what_is_wrong_at_the_field(base):
    status, page = read(f"{base}/new?experiment=once&workload.n=1,%202&repetitions=3")
    assert status == 200 and "6 trials of once" in page and "repetitions: 3" in page and "Plan digest" in page
    assert "not known: give price_per_hour" in page and sys.prefix not in page
    page = read(f"{base}/new?experiment=vector.search&price_per_hour=7.2&executor=local")[1]
    assert "price_per_hour: 7.2" in page and "executor: local" in page
    (cost,) = re.findall(r"<dt>Cost</dt><dd>([^<]+)</dd>", page)
    assert float(cost) == pytest.approx(5 * 2.0 / 3600 * 7.2, rel=0.05), "five trials of two seconds"
    assert "expected a number" in read(f"{base}/new?experiment=once&price_per_hour=much")[1]
    page = read(f"{base}/new?experiment=once&workload.n=many")[1]
    (fault,) = re.findall(r'id="workload.n-fault" class="bad fault">([^<]+)<', page)
    assert "whole number" in fault and "Plan digest" not in page
    file = read(f"{base}/new/scenario.yaml?experiment=once&workload.n=1,2&repetitions=3")[1]
    assert "experiment: once" in file and "n:\n" in file


def test_a_form_does_not_read_the_environment_of_the_server(base):
    page = read(f"{base}/new?experiment=certified&workload.n=$PATH")[1]
    assert "$PATH is not read here" in page and "/usr/bin" not in page


def test_a_partner_sees_publishable_numbers_only(base):
    pages = {
        audience: re.sub(r"<[^>]+>", " ", read(f"{base}/views?run={day(10)}&audience={audience}")[1])
        for audience in ("engineering", "product", "partner")
    }
    assert [bool(re.search(r"\b80\b", page)) for page in pages.values()] == [True, True, False]
    assert "No number of this run is claimed" in pages["partner"] and "What users notice" in pages["product"]


def test_names_that_would_be_markup_are_harmless(base):
    odd = quote(HOSTILE + "x" * 10_000)
    for path in (f"/compare?a={odd}", f"/history?q={odd}", f"/catalogue?q={odd}", f"/history/{odd[:900]}",
                 f"/new?experiment=once&scenario={odd}&text=1&path=2", f"/leaderboards/{odd[:900]}",
                 f"/claims/{odd[:60]}", f"/views/release?from={odd}&to=b", "/claims/documents"):  # fmt: skip
        try:
            with urlopen(f"{base}{path}") as answer:
                raw = answer.read().decode()
        except HTTPError as error:
            raw = error.read().decode()
            assert error.code in (400, 404), path
        assert "<script>alert" not in raw and "\u202e" not in raw, path


@pytest.mark.browser
@pytest.mark.timeout(900)  # axe looks at each page twice
def test_every_page_is_accessible_and_fits_its_window(base, visit, check_windows):
    page, found = visit(f"{base}/compare"), {}
    for path in paths(base):
        if "nope" not in path:
            page.goto(f"{base}{path}")
            found[path] = check_windows(page)
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


@pytest.mark.browser
def test_a_form_follows_who_types_and_a_level_is_accepted_by_a_button(base, visit):
    page = visit(f"{base}/new?experiment=once", width=390)
    page.fill("[id='workload.n']", "1, 2, 3")
    page.get_by_text("15 trials of once").wait_for()
    assert page.get_by_role("button", name="Start this run").count() == 1
    page.fill("[id='workload.n']", "many")
    page.locator("[id='workload.n-fault']", has_text="whole number").wait_for()
    assert "workload.n=many" in page.url
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
    page.goto(f"{base}/history/{quote(CASE)}")
    page.get_by_label("Why").fill("as planned")
    page.get_by_role("button", name="Accept the level of now").click()
    page.get_by_text("the level of now fits it").wait_for()
    page.goto(f"{base}/new?experiment=once&repetitions=1&scenario=by_form")
    page.get_by_role("button", name="Start this run").click()
    page.locator("#live", has_text="finished").wait_for(timeout=120_000)
    assert page.locator("h1").inner_text() == "by_form"
