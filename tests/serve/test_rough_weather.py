"""What teams do to a server: two at once, runs that vanish, the back button, clocks that disagree."""

import json
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import psutil
import pytest
from asking import PAGE, address, ask, bearer, token
from laboratory import Lab, wait_until
from trial_maker import make_trial

from benchhouse.warehouse.ingest import collect

JSON = {"Content_Type": "application/json"}
CASE = "demo/name=hnsw ef=16"


@pytest.fixture(scope="module")
def site(tmp_path_factory, show):
    """A history of twelve runs, on a server whose clock is that of Kathmandu."""
    lab = Lab(tmp_path_factory.mktemp("weather"))
    for number in range(12):
        run = f"202603{number + 1:02d}-120000-aaaaaaa"
        folder = lab.workspace_object()
        trials = [make_trial(folder, run, at, value=100.0 + at, minute=60 * number) for at in (1, 2, 3)]
        collect(folder, run, trials)
    lab.variables["TZ"] = "Asia/Kathmandu"
    return show(lab, "--allow", "approve")


@pytest.fixture
def held(site):
    """A run of three points: the first has ended, the second waits for us."""
    lab = site.lab
    lab.hold(1)
    process = lab.fork(
        "run", lab.scenario("slow", "held", axes=[{"grid": {"n": [0, 1, 2]}}], workload={"seconds": 0}), "--new"
    )
    wait_until(lambda: any(run["done"] == 1 and run["running"] for run in statuses(site, "held", "running")), "it")
    yield statuses(site, "held", "running")[0]["run_id"]
    (lab.marks / "hold").unlink(missing_ok=True)
    process.kill()
    process.communicate()


@pytest.fixture
def serve_quickly(site):
    """A server that says within two seconds that there is no answer, and its process."""
    process = site.lab.fork("serve", "--port", "0", "--max-time", "2s")
    yield address(process), psutil.Process(process.pid)
    process.terminate()
    process.communicate()


def statuses(site, scenario, state):
    return json.loads(ask(site.base, f"/api/runs?scenario={scenario}&state={state}")[2])["runs"]


def text(base, path):
    status, _, page = ask(base, path, **PAGE)
    assert status == 200, page
    return re.sub(r"<[^>]+>", " ", page)


def test_a_run_under_way_says_its_point_and_its_time_left_and_only_those_who_may_can_end_it(site, held, show):
    page = text(site.base, f"/runs/{held}")
    assert "1 of 3, about" in page and "left" in page
    assert re.search(r"Now\s+n=1", page)
    assert "Stop this run" in page
    reader = show(site.lab).base
    page = text(reader, f"/runs/{held}")
    assert "1 of 3, about" in page and "Stop this run" not in page
    assert ask(reader, f"/api/runs/{held}/stop", "POST", "{}", **JSON)[0] == 403
    assert ask(site.base, f"/api/runs/{held}/stop", "POST", "{}", **JSON)[0] == 200
    assert "Resume this run" in text(site.base, f"/runs/{held}")
    assert "Resume this run" not in text(reader, f"/runs/{held}")


@pytest.mark.browser
def test_a_run_that_is_removed_while_its_page_is_open_is_said_to_be_gone(site, held, browser):
    pages = [browser.new_page() for _ in range(2)]
    for page, path in zip(pages, ("", "/logs"), strict=True):
        page.goto(f"{site.base}/runs/{held}{path}")
    pages[0].locator("#live", has_text="1 running").wait_for()
    pages[1].locator("#live", has_text="goes on").wait_for()
    shutil.rmtree(site.lab.workspace / ".bench" / "runs" / held)
    for page in pages:
        page.get_by_role("alert").get_by_text("This run is not here any more").wait_for(timeout=120_000)
        page.close()
    assert ask(site.base, f"/runs/{held}", **PAGE)[0] == 404
    assert ask(site.base, "/runs", **PAGE)[0] == 200


def test_two_who_accept_a_level_at_once_are_both_on_record(site):
    people = [bearer(token(site.lab, name, "--scope", "approve")) for name in ("ada", "bob")]
    before = len(journal(site))

    def accept(number):
        asked = json.dumps({"case": CASE, "why": f"reason {number}"})
        return ask(site.base, "/api/baselines/accept", "POST", asked, **JSON, **people[number % 2])

    with ThreadPoolExecutor(8) as crew:
        answers = list(crew.map(accept, range(8)))
    assert [status for status, _, _ in answers] == [200] * 8
    lines = journal(site)[before:]
    whys = {f"reason {number} ({'ada' if number % 2 == 0 else 'bob'})" for number in range(8)}
    assert {line["why"] for line in lines} == whys and len(lines) == 8
    (counts,) = json.loads(ask(site.base, "/api/baselines")[2])
    assert counts["why"] == lines[-1]["why"], "the last one counts"


def test_a_run_whose_scenario_is_gone_has_no_contract_and_says_why(site):
    site.lab.bench("run", site.lab.scenario("once", "bare"))
    (run,) = statuses(site, "bare", "finished")
    (site.lab.workspace / ".bench" / "runs" / run["run_id"] / "scenario.yaml").unlink()
    for path, kind in ((f"/api/runs/{run['run_id']}/contract/rendered", "application/problem+json"),
                       (f"/runs/{run['run_id']}/contract", "text/html")):  # fmt: skip
        status, headers, said = ask(site.base, path, **(PAGE if "html" in kind else {}))
        assert status == 400 and headers["content-type"].startswith(kind), said
        assert "has no scenario.yaml any more" in said


def test_answers_that_nobody_waits_for_any_more_end_and_leave_room_for_others(site, serve_quickly):
    base, process = serve_quickly
    endless = "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t) SELECT max(x) FROM t"
    asked = json.dumps({"sql": endless, "seconds": 60})
    with ThreadPoolExecutor(12) as crew:
        answers = [crew.submit(ask, base, "/api/query", "POST", asked, **JSON) for _ in range(12)]
        assert ask(base, "/runs", **PAGE)[0] == 200
        for answer in answers:
            status, headers, said = answer.result()
            assert (status, headers.get("retry-after")) == (503, "2"), said
    before = sum(process.cpu_times()[:2])
    time.sleep(1.0)
    assert sum(process.cpu_times()[:2]) - before < 0.5, "nothing is computed any more"


def journal(site):
    path = site.lab.workspace / ".bench" / "baselines.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.browser
def test_the_back_button_leads_to_a_form_that_writes_no_second_time(site, visit):
    before = len(journal(site))
    page = visit(f"{site.base}/history/{quote(CASE)}")
    form = page.locator("form", has_text="Accept the level of now")
    form.get_by_label("Why").fill("as planned")
    form.get_by_role("button").click()
    page.get_by_text("as planned (local)").first.wait_for()
    assert len(journal(site)) == before + 1
    page.go_back()
    form.get_by_label("Why").fill("as planned")
    form.get_by_role("button").click()
    page.get_by_text("as planned (local)").first.wait_for()
    page.reload()
    assert len(journal(site)) == before + 1


def test_times_are_utc_whatever_the_zone_of_the_server_and_of_the_asker(site):
    site.lab.bench("run", site.lab.scenario("once", "timed"))
    (run,) = statuses(site, "timed", "finished")
    created = datetime.fromisoformat(run["created"])
    assert abs(datetime.now(UTC) - created) < timedelta(minutes=10)
    for path in (f"/runs/{run['run_id']}", "/runs", "/"):
        assert f"{created:%Y-%m-%d %H:%M:%S} UTC" in text(site.base, path), path
    for zone in ("+05:45", "-11:00", "Z"):
        for shift, shown in ((-60, True), (60, False)):
            moment = created + timedelta(seconds=shift)
            local = moment.astimezone(datetime.fromisoformat(f"2026-01-01T00:00{zone}").tzinfo)
            given = quote(local.isoformat().replace("+00:00", zone if zone == "Z" else "+00:00"))
            runs = json.loads(ask(site.base, f"/api/runs?scenario=timed&since={given}")[2])["runs"]
            assert bool(runs) == shown, (zone, shift)


def test_a_run_from_a_clock_that_is_ahead_is_shown_like_any_other(site):
    site.lab.bench("run", site.lab.scenario("once", "ahead"))
    (run,) = statuses(site, "ahead", "finished")
    path = site.lab.workspace / ".bench" / "runs" / run["run_id"] / "run.json"
    ahead = (datetime.now(UTC) + timedelta(days=2)).isoformat(timespec="milliseconds")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"created": ahead}))
    (path.parent / "events.jsonl").touch()
    assert [item["created"] for item in statuses(site, "ahead", "finished")] == [ahead]
    for page in ("/", "/runs", f"/runs/{run['run_id']}", f"/runs/{run['run_id']}/logs"):
        assert "-1" not in re.findall(r"(-\d+) (?:s|min|h|d)\b", text(site.base, page)), page
    assert run["run_id"] in text(site.base, "/")
