"""What other programs read: badges of a README, a feed of changes, metrics for a Prometheus."""

import json
import random
import re
import sys
import uuid
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen
from xml.etree import ElementTree

import feedparser
import pytest
from laboratory import Lab
from services.prometheus import Prometheus, is_clean, needs_prometheus
from starlette.requests import Request as ServerRequest

import benchhouse
from benchhouse.api.changes import Changes, MovedLevel
from benchhouse.report.badge import badge
from benchhouse.schema.hot_metrics import LABELS, SERIES_BUDGET
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.serve.feed import atom, entries_of

sys.path.insert(0, str(Path(__file__).parents[1] / "warehouse"))
CASE = "demo/name=hnsw ef=16"
HOSTILE = "<script>alert(1)</script>\u202e\x07"
SVG = "{http://www.w3.org/2000/svg}"
ALARMS = """
alarms:
  - {name: slow, case: two/n=1, metric: rate, below: 500, tell: [me]}
channels:
  me: {command: ["true"]}
"""


def day(number):
    return f"202603{number + 1:02d}-120000-aaaaaaa"


@pytest.fixture(scope="module")
def site(tmp_path_factory, show):
    """Two weeks of runs whose level is accepted on the tenth day and falls by a fifth on the eleventh; of today a run
    of two points, and one whose second point is INVALID; a scenario whose name is the longest that there is."""
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    lab = Lab(tmp_path_factory.mktemp("lab"))
    folder, draw = WorkspaceFolder(lab.workspace), random.Random(5)

    def run_on(number, level):
        trials = [
            make_trial(folder, day(number), at + 1, value=level * draw.gauss(1, 0.01), minute=1440 * number)
            for at in range(3)
        ]
        collect(folder, day(number), trials)

    for number in range(11):
        run_on(number, 100.0)
    lab.bench("baseline", "accept", CASE, "--metric", "qps")
    for number in range(11, 16):
        run_on(number, 80.0)
    (lab.workspace / "alarms.yaml").write_text(ALARMS)
    scenario = lab.scenario("certified", "two", axes=[{"grid": {"n": [0, 1]}}])
    lab.bench("run", scenario)
    first = lab.run_id()
    (lab.marks / "bad").touch()
    lab.bench("run", scenario, "--new", code=1)
    return show(lab), first


def ask(base, path, **headers):
    try:
        with urlopen(
            Request(base + path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        ) as a:
            return a.status, a.headers, a.read().decode()
    except HTTPError as error:
        return error.code, error.headers, error.read().decode()


def words(svg):
    """The two halves of a badge, and its description."""
    root = ElementTree.fromstring(svg)
    left, right = (item.text for item in root.iter(f"{SVG}text"))
    assert root.get("aria-label") == root.findtext(f"{SVG}title") and root.get("role") == "img"
    return left, right, root.get("aria-label")


def colour(svg):
    return [item.get("fill") for item in ElementTree.fromstring(svg).iter(f"{SVG}rect")][1]


COLOURS = {verdict: colour(badge("a", "b", verdict, "c")) for verdict in ("good", "regressed", "unknown")}


def test_a_badge_has_the_newest_number_its_unit_and_the_verdict_of_the_baseline(site):
    base = site[0].base
    status, headers, svg = ask(base, f"/badge/{quote(CASE)}/qps.svg")
    assert (status, headers["Content-Type"]) == (200, "image/svg+xml") and "max-age=" in headers["Cache-Control"]
    asked = json.loads(ask(base, f"/api/badge?case={quote(CASE)}&metric=qps")[2])
    name, value, description = words(svg)
    assert (name, value) == ("qps", asked["text"])
    assert asked["run_id"] == day(15) and 78 < asked["value"] < 82
    assert asked["verdict"] == "regressed" and colour(svg) == COLOURS["regressed"]
    assert f"worse than the accepted baseline since run {day(11)}" in description
    tag = headers["ETag"]
    assert ask(base, f"/badge/{quote(CASE)}/qps.svg", If_None_Match=tag)[0] == 304
    assert "javascript" not in svg and "<script" not in svg and "style" not in svg and "href" not in svg


def test_a_number_that_fits_its_baseline_is_good_and_one_without_a_baseline_unknown(site):
    lab = site[0].lab
    ws = benchhouse_of(lab)
    assert ws.badge("two/n=0", "rate").verdict == "unknown"
    lab.bench("baseline", "accept", CASE, "--metric", "qps")
    try:
        now = ws.badge(CASE, "qps")
        assert now.verdict == "good" and colour(now.svg()) == COLOURS["good"]
    finally:
        lab.bench("baseline", "clear", CASE, "--metric", "qps")


def benchhouse_of(lab):
    return benchhouse.open(lab.workspace)


def test_a_number_that_is_invalid_never_stands_on_a_badge(site):
    (base, lab), first = (site[0].base, site[0].lab), site[1]
    newest = benchhouse_of(lab).runs()[-1].id
    asked = json.loads(ask(base, "/api/badge?case=two/n%3D1&metric=rate")[2])
    assert asked["run_id"] == first and asked["verdict"] == "unknown"
    assert asked["reason"] == f"the newest run {newest} gave no valid number"
    assert colour(ask(base, "/badge/two/n%3D1/rate.svg")[2]) == COLOURS["unknown"]
    assert json.loads(ask(base, "/api/badge?case=two/n%3D0&metric=rate")[2])["run_id"] == newest


def test_a_badge_without_a_number_is_a_grey_image_and_programs_get_a_404(site):
    base = site[0].base
    for path in (
        "nothing/here/x.svg",
        "two/n%3D1/nope.svg",
        f"{quote(HOSTILE)}/x.svg",
        f"a/{'x' * 10_000}.svg",
        "%ff/x.svg",
        "a%00b/x.svg",
        "two/n%3D0/%ED%A0%80.svg",
    ):
        status, headers, svg = ask(base, f"/badge/{path}")
        assert (status, headers["Content-Type"]) == (200, "image/svg+xml") and len(svg) < 2000, path
        assert words(svg)[1] == "no number" and colour(svg) == COLOURS["unknown"], path
    assert ask(base, "/api/badge?case=nothing&metric=x")[0] == 404


def test_a_badge_of_hostile_names_is_well_formed_and_shows_nothing_that_deceives():
    svg = badge(f"{HOSTILE}&\"'" * 50, "12\u202e5\u200b ms", "good", HOSTILE * 900)
    left, right, description = words(svg)
    assert len(left) <= 60 and right == "125 ms" and len(description) <= 180
    assert not re.search(r"[\u200b\u202e\x07]|<script", svg)
    both = ElementTree.fromstring(badge("名前", "1", "good", "x"))
    assert int(both.get("width")) == sum(int(item.get("width")) for item in both.iter(f"{SVG}rect"))


def test_a_feed_has_runs_levels_and_alarms_with_ids_and_times_that_stay(site):
    base, lab = site[0].base, site[0].lab
    status, headers, text = ask(base, "/feed.atom?since=2026-01-01")
    assert status == 200 and headers["Content-Type"].startswith("application/atom+xml")
    read = feedparser.parse(text)
    assert not read.bozo and read.version == "atom10" and read.feed.id.startswith("urn:uuid:")
    titles = [entry.title for entry in read.entries]
    assert "Run of two: finished" in titles and "Alarm slow fired" in titles
    assert len({entry.id for entry in read.entries}) == len(read.entries)
    assert read.feed.updated == max(entry.updated for entry in read.entries)
    assert [entry.updated for entry in read.entries] == sorted((e.updated for e in read.entries), reverse=True)
    run = next(entry for entry in read.entries if entry.link.endswith(site[1]) and "Run" in entry.title)
    assert run.link == f"{base}/runs/{site[1]}" and run.published <= run.updated
    assert "2 of 2 trials" in run.summary
    for entry in read.entries:
        assert ask("", entry.link)[0] == 200, entry.link
    again = feedparser.parse(ask(base, "/feed.atom?since=2026-01-02")[2])
    assert [(entry.id, entry.updated) for entry in again.entries] == [(e.id, e.updated) for e in read.entries]
    assert again.feed.id == read.feed.id
    assert ask(base, "/feed.atom?since=2026-01-01", If_None_Match=headers["ETag"])[0] == 304
    assert ask(base, "/feed.atom?since=yesterdayish")[0] == 400
    assert '/feed.atom"' in ask(base, "/")[2]
    assert lab.workspace.name not in text


def test_a_feed_behind_a_proxy_has_the_addresses_that_its_readers_have(site, show):
    headers = {"X_Forwarded_Host": "bench.example.org", "X_Forwarded_Proto": "https", "X_Forwarded_User": "ada"}
    behind = show(site[0].lab, "--trusted-proxy", "127.0.0.1", "--name", "bench.example.org", "--root-path", "/bench")
    base = behind.base.removesuffix("/bench")
    read = feedparser.parse(ask(base, "/feed.atom?since=2026-01-01", **headers)[2])
    assert {entry.link.partition("/runs/")[0] for entry in read.entries if "/runs/" in entry.link} == {
        "https://bench.example.org/bench"
    }
    direct = feedparser.parse(ask(site[0].base, "/feed.atom?since=2026-01-01")[2])
    assert [entry.id for entry in read.entries] == [entry.id for entry in direct.entries]
    assert words(ask(base, "/badge/two/n%3D0/rate.svg", **headers)[2])[0] == "rate"


def test_names_in_a_feed_are_text_however_they_read():
    item = MovedLevel(HOSTILE * 500, HOSTILE, "\ud800", "r1", "2026-03-01 12:00:00")
    found = Changes("", runs=[], levels=[item], broken=[item], alarms=[], notices=[], notes=[])
    scope = {"type": "http", "scheme": "http", "root_path": "/x", "path": "/x/feed.atom", "query_string": b"since=<&"}
    text = atom(entries_of(found), uuid.uuid4(), ServerRequest(scope | {"headers": [(b"host", b"h")]}))
    read = feedparser.parse(text)
    assert not read.bozo and len(read.entries) == 2 and len(read.entries[0].title) == 300
    assert b"<script" not in text and "\u202e" not in text.decode()
    assert read.entries[0].updated == "2026-03-01T12:00:00.000Z"
    assert read.entries[0].link.startswith("http://h/x/history/%3Cscript%3E")


def test_badges_of_a_server_with_tokens_are_for_those_who_have_one_unless_its_owner_shows_them(site, show):
    lab = site[0].lab
    secret = lab.bench("token", "make", "grafana", "--scope", "read").stdout.split()[0]
    closed, open_ = show(lab, "--login").base, show(lab, "--login", "--public-badges").base
    assert ask(closed, "/badge/two/n%3D0/rate.svg")[0] == 401
    for path in ("/metrics", "/feed.atom", "/api/badge?case=two/n%3D0&metric=rate"):
        assert ask(open_, path)[0] == 401
        assert ask(open_, path, Authorization=f"Bearer {secret}")[0] == 200
    status, headers, _ = ask(open_, "/badge/two/n%3D0/rate.svg")
    assert status == 200 and headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert headers["Cache-Control"].startswith("public")
    headers = ask(closed, "/badge/two/n%3D0/rate.svg", Authorization=f"Bearer {secret}")[1]
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin" and headers["Cache-Control"].startswith("private")
    assert ask(open_, "/badge/../api/runs")[0] in (401, 404)


def test_metrics_are_those_of_recent_runs_in_the_labels_of_the_list_within_the_budget(site):
    base = site[0].base
    status, headers, page = ask(base, "/metrics")
    assert status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    labels = {name for line in lines for name in re.findall(r'[{,](\w+)="', line)}
    assert labels <= set(LABELS) and len(lines) <= SERIES_BUDGET
    rates = [line for line in lines if line.startswith("benchhouse_result_rate")]
    assert len(rates) == 3  # the INVALID one of the second run is missing
    assert "# TYPE benchhouse_serve_requests_total counter" in page
    before, after = (
        float(re.search(r"\nbenchhouse_serve_requests_total (\S+)", ask(base, "/metrics")[2])[1]) for _ in "ab"
    )
    assert after == before + 1


@needs_prometheus
def test_a_real_prometheus_scrapes_them_with_a_token(site, show, tmp_path):
    lab = site[0].lab
    secret = lab.bench("token", "make", "prometheus", "--scope", "read").stdout.split()[0]
    base = show(lab, "--login").base
    page = ask(base, "/metrics", Authorization=f"Bearer {secret}")[2]
    is_clean(page)
    (tmp_path / "textfiles").mkdir()
    with Prometheus(tmp_path, tmp_path / "textfiles", [], scrape=(base.removeprefix("http://"), secret)) as server:
        expected = dict(re.findall(r'benchhouse_result_rate\w*\{run_id="([^"]+)".*\} (\S+)', page))
        assert set(expected) == {run.id for run in benchhouse_of(lab).runs(made_here=True)}
        trials = server.value(f'benchhouse_run_trials_succeeded{{run_id="{site[1]}"}}')
        assert trials == 2
        found = server.query('{__name__=~"benchhouse_result_rate.*"}')
        lines = [text for text in page.splitlines() if text.startswith("benchhouse_result_rate")]
        assert len(found) == 3
        for item in found:
            names = [f'{name}="{item["metric"][name]}"' for name in ("run_id", "benchmark_case_id")]
            (line,) = (text for text in lines if all(name in text for name in names))
            assert float(line.rpartition(" ")[2]) == float(item["value"][1])
        assert server.query("up") and all(item["value"][1] == "1" for item in server.query('up{job="bench"}'))


def pages(base, path):
    """All rows of a table, page by page."""
    rows = []
    while path:
        status, headers, body = ask(base, path)
        assert status == 200, body
        rows += json.loads(body)["rows"]
        following = re.search(r'<([^>]*)>; rel="next"', headers["Link"] or "")
        path = following[1].removeprefix(base) if following else ""
    return rows


def test_numbers_of_all_runs_are_one_table_that_can_be_narrowed_down(site):
    base, lab = site[0].base, site[0].lab
    rows = pages(base, "/api/measured?limit=7")
    assert rows == pages(base, "/api/measured?scenario=*&metric=&limit=5000")
    assert len({(row["run_id"], row["instance_digest"], row["metric"], row["stat"]) for row in rows}) == len(rows)
    points = benchhouse_of(lab).points(site[1])
    mine = [row for row in rows if row["run_id"] == site[1]]
    assert {(row["point"], row["metric"], row["stat"]): row["value"] for row in mine} == {
        (point.point, point.metric, point.stat): point.mean for point in points
    }
    assert mine == pages(base, f"/api/measured?run={site[1]}")
    newest = pages(base, "/api/measured?scenario=two&metric=rate&stat=value")
    assert [row["case"] for row in newest].count("two/n=1") == 1 and len(newest) == 3
    assert newest[0]["run_id"] > newest[-1]["run_id"] == site[1]
    assert len(pages(base, "/api/measured?metric=qps&since=2026-03-11&until=2026-03-13")) == 2
    assert pages(base, "/api/measured?experiment=once") == []
    for wrong in ("after=x", "after=[1]", "since=soon", "limit=0", "run=nope", "metrics=qps"):
        assert ask(base, f"/api/measured?{wrong}")[0] in (400, 404), wrong
    table = ask(base, "/api/measured?metric=qps", Accept="text/csv")[2].splitlines()
    assert table[0].startswith("time,run_id,scenario,experiment,case") and len(table) == 1 + 16


def test_every_query_of_the_dashboard_that_reads_from_here_finds_its_columns(site, tmp_path):
    base, lab = site[0].base, site[0].lab
    lab.bench("dashboards", "write", tmp_path)
    dashboard = json.loads((tmp_path / "served.json").read_text())
    times = {"${__from:date:iso}": "2026-01-01T00:00:00.000Z", "${__to:date:iso}": "2999-01-01T00:00:00.000Z"}
    given = times | {"${scenario:percentencode}": "*", "${stat}": "*"}
    asked, answers = {}, {}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            asked[panel["title"], target["url"]] = target
    names = next(item for item in dashboard["templating"]["list"] if item["name"] == "scenario")["query"]
    asked["scenarios", names["infinityQuery"]["url"]] = names["infinityQuery"]
    for (title, url), target in asked.items():
        for variable, value in given.items():
            url = url.replace(variable, value)
        assert "$" not in url
        status, _, body = ask(base, url)
        assert status == 200, (url, body)
        answers[title] = answers.get(title, []) + json.loads(body)[target["root_selector"]]
        for row in json.loads(body)[target["root_selector"]]:
            assert {column["selector"] for column in target["columns"]} <= set(row), url
    assert [row["scenario"] for row in answers["scenarios"]] == ["demo", "two"]
    assert [row["run_id"] for row in answers["Runs"]] == [run.id for run in benchhouse_of(lab).runs()][::-1]
    assert len([row for row in answers["qps"] if row["case"] == CASE]) == 16
    assert len([row for row in answers["rate"] if row["scenario"] == "two"]) == 3
