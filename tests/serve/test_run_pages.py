"""The pages of runs in a real browser: in both widths, with and without JavaScript, whatever a name is."""

import json
import re
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from laboratory import Lab

pytestmark = pytest.mark.browser
HOSTILE = "<script>document.title='taken'</script>\u202eevil" + "x" * 10_000


PRINTING = """
import os, sys, time
from pathlib import Path
from benchhouse import Context, Metric, experiment


@experiment("printing", version="1.0", metrics=[Metric(name="x", unit="s")])
def printing(ctx: Context, wait: bool = False):
    print("a line", flush=True)
    print("<b>trouble</b>", file=sys.stderr, flush=True)
    while wait and not Path(os.environ["LAB"], "gate").exists():
        time.sleep(0.05)
    ctx.emit("x", 1)
"""


def command(lab, name, *targets, **more):
    given = {"workload": {"executions": 1, "warmup": 0}, "repetitions": 2, "targets": list(targets)} | more
    return lab.scenario("command", name, **given)


@pytest.fixture(scope="module")
def site(tmp_path_factory, show):
    """Good runs, one with failures and hostile names."""
    lab = Lab(tmp_path_factory.mktemp("site"))
    lab.install("printing", "1.0", PRINTING, "[benchhouse.experiments]\nprinting = printing:printing\n")
    lab.bench("run", lab.scenario("printing", "talks"))
    lab.bench("run", command(lab, "good", {"name": "short", "argv": ["true"]}, {"name": "long", "argv": ["true"]}))
    bad = [{"name": HOSTILE, "argv": ["true"]}, {"name": "bad", "argv": ["false"]}]
    lab.bench("run", command(lab, "bad", *bad, description=HOSTILE), code=1)
    return show(lab, "--allow", "run")


def run_id(site, scenario):
    runs = json.loads(urlopen(f"{site.base}/api/runs").read())["runs"]
    return next(run["run_id"] for run in runs if run["scenario"] == scenario)


def first_trial(site, run):
    page = urlopen(f"{site.base}/runs/{run}/evidence").read().decode()
    return re.search(r"evidence/([0-9a-f-]+)\"", page)[1]


def pages(site):
    good, bad = run_id(site, "good"), run_id(site, "bad")
    trial = f"/runs/{good}/evidence/{first_trial(site, good)}"
    return {
        "front": "/",
        "runs": "/runs",
        "a run": f"/runs/{good}",
        "a run that failed": f"/runs/{bad}",
        "logs": f"/runs/{good}/logs",
        "evidence": f"/runs/{good}/evidence",
        "a trial": f"{trial}?verify=yes",
        "a file": f"{trial}/meta.json",
        "trace": f"/trace?ref={good}:wall_ms",
        "evidence of 10 kB": f"/runs/{bad}/evidence",
        "cases": "/history",
        "targets": "/catalogue",
        "a view": f"/views?run={bad}&audience=engineering",
    }


@pytest.mark.timeout(900)  # axe looks at each page twice
@pytest.mark.slow("axe checks every page at two window sizes")
def test_every_page_is_accessible_and_fits_its_window(site, visit, check_windows):
    found = {}
    page = visit(f"{site.base}/")
    for name, path in pages(site).items():
        assert page.goto(site.base + path).status == 200, page.content()
        found[name] = check_windows(page)
        assert str(site.lab.workspace) not in page.content() or "/evidence/" in path, name
        assert page.title() != "taken", name
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_every_page_reads_without_javascript(site, visit):
    paths = pages(site)
    page = visit(f"{site.base}/", script=False)
    for name, path in paths.items():
        page.goto(site.base + path)
        assert len(page.locator("main").inner_text()) > 60, name
    page.goto(site.base + paths["a run"])
    page.locator("noscript a[href*='/trace']").first.click()
    assert "Every step holds." in page.locator("main").inner_text()


def test_a_run_like_no_earlier_one_is_shown_without_a_comparison(site):
    """Its case is that of the earlier run, but its targets are others: a base that nobody asked for is no error."""
    shown = urlopen(f"{site.base}/views?run={run_id(site, 'bad')}&audience=engineering").read().decode()
    assert "is no base: nothing to compare" in shown and "no earlier run of this plan to compare with" in shown


def test_the_front_page_is_small_and_says_what_needs_a_person(site, visit):
    sizes = []
    page = visit(f"{site.base}/runs")
    page.on("response", lambda answer: sizes.append(len(answer.body())))
    page.goto(f"{site.base}/")
    assert sum(sizes) < 150_000
    needs = page.locator("section", has_text="Needs a person").inner_text()
    assert run_id(site, "bad") in needs and "2 trials failed" in needs
    assert "3 new runs" in page.locator("main").inner_text()


def test_a_number_leads_to_its_bytes_and_back(site, visit):
    page = visit(f"{site.base}/runs/{run_id(site, 'good')}")
    page.locator("#points button.num").first.click()
    line = page.locator("#trace-line").inner_text()
    assert "every step holds" in site.lab.bench(*line.split()[1:]).stdout, "without a report that was written"
    page.get_by_role("link", name="Follow it back to its bytes").click()
    assert "Every step holds." in page.locator("main").inner_text()
    page.go_back()
    assert page.locator("#points button.num").count() > 0
    page.locator("#points button.num").first.click()
    page.locator("#lineage-dialog td a").first.click()
    assert page.locator("h1").inner_text().startswith("Trial ")


def test_runs_are_filtered_by_an_address_that_can_be_shared(site, visit):
    page = visit(f"{site.base}/runs")
    page.get_by_label("Scenario").fill("good")
    page.get_by_role("button", name="Show").click()
    assert "scenario=good" in page.url
    assert page.locator("tbody tr").count() == 1
    page.goto(f"{site.base}/runs?state=running")
    assert "No run fits" in page.locator("main").inner_text()


def test_evidence_is_shown_downloaded_and_verified_and_nothing_outside_it(site, visit):
    run = run_id(site, "good")
    trial = first_trial(site, run)
    page = visit(f"{site.base}/runs/{run}/evidence?verify=yes")
    assert "all as sealed" in page.get_by_role("status").inner_text()
    answer = urlopen(f"{site.base}/runs/{run}/evidence/{trial}/metrics.json?download=yes")
    assert answer.headers["content-disposition"].startswith("attachment") and json.loads(answer.read())
    assert answer.headers["content-security-policy"].startswith("sandbox")
    folder = next(site.lab.workspace.glob(f"results/*/{trial}"))
    (folder / "artifacts").mkdir(exist_ok=True)
    (folder / "artifacts" / "passwd").symlink_to("/etc/passwd")
    for path in ("artifacts/passwd", "..%2f..%2fgood.yaml", "%2fetc%2fpasswd", "../../../good.yaml"):
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{site.base}/runs/{run}/evidence/{trial}/{path}")
        assert refused.value.code in (400, 404), path
    page.goto(f"{site.base}/runs/{run}/evidence/{trial}?verify=yes")
    assert "not all is as it was sealed" in page.get_by_role("status").inner_text()
    (folder / "artifacts" / "passwd").unlink()


def test_logs_are_escaped_and_filtered(site, visit):
    page = visit(f"{site.base}/runs/{run_id(site, 'talks')}/logs")
    assert "<b>trouble</b>" in page.locator("pre.log").inner_text()
    page.get_by_label("Component").fill("worker")
    page.get_by_role("button", name="Show").click()
    assert "a line" not in page.locator("main").inner_text()


def test_what_is_not_there_is_a_page_that_says_where_to_go(site, visit, accessible):
    for path in ("/nothing", "/runs/nope", f"/runs/{run_id(site, 'good')}/evidence/nope"):
        page = visit(site.base + path, status=404)
        assert accessible(page) == []
        assert "Traceback" not in page.content()
    assert visit(f"{site.base}/runs/{run_id(site, 'good')}/logs?since=nonsense", status=400)


def test_the_keyboard_reaches_the_content_first(site, visit):
    page = visit(f"{site.base}/runs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_a_run_is_stopped_by_a_button(site, visit):
    lab, gate = site.lab, site.lab.marks / "gate"
    gate.unlink(missing_ok=True)
    submitted = lab.fork("run", lab.scenario("printing", "endless", workload={"wait": True}))
    try:
        address = address_of_the_running(site, visit)
        page = visit(site.base + address)
        page.locator("#live", has_text="1 running").wait_for()
        page.get_by_role("button", name="Stop this run").click()
        page.locator("#live", has_text="interrupted").wait_for()
        gate.touch()
        page.get_by_role("button", name="Resume this run").click()
        page.locator("#points button.num").first.wait_for(timeout=120_000)
        assert "finished" in page.locator("#live").inner_text()
    finally:
        gate.touch()
        submitted.communicate(timeout=60)


def address_of_the_running(site, visit):
    page = visit(f"{site.base}/runs?state=running")
    for _ in range(200):
        if page.locator("tbody a").count():
            break
        page.wait_for_timeout(100)
        page.reload()
    return page.locator("tbody a").first.get_attribute("href")


def test_two_browsers_watch_one_run(site, visit):
    lab, gate = site.lab, site.lab.marks / "gate"
    gate.unlink(missing_ok=True)
    submitted = lab.fork("run", lab.scenario("printing", "slow", workload={"wait": True}))
    try:
        address = address_of_the_running(site, visit)
        watchers = [visit(site.base + address), visit(site.base + address, width=390)]
        silent = visit(site.base + address, script=False)
        assert "finished" not in silent.locator("#live").inner_text()
        for page in watchers:
            page.locator("#live", has_text="1 running").wait_for()
            assert page.locator("progress").count() == 1
        lines = visit(f"{site.base}{address}/logs")
        lines.locator("pre.log", has_text="a line").wait_for()
        gate.touch()
        for page in watchers:
            page.locator("#points button.num").first.wait_for(timeout=60_000)
            assert "finished" in page.locator("#live").inner_text()
        silent.get_by_role("link", name="Reload").click()
        assert "finished" in silent.locator("#live").inner_text()
    finally:
        gate.touch()
        submitted.communicate(timeout=60)
