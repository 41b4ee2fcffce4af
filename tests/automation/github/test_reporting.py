"""A gate's answer beside a commit and in its pull request: by GitHub's event, whatever the file says."""

import json
import re

import pytest
from jsonschema import Draft202012Validator
from services.fake_github import TOKEN, fake_github
from services.github_payloads import DATA

from benchhouse.report.text_chart import ChangeBar, change_chart

SHA, OTHER = "a" * 40, "b" * 40
ROW = {"point": "index=flat", "metric": "latency", "stat": "p99", "n_a": 5, "n_b": 5, "judgement": "regression",
       "worse": 0.12, "low": 0.08, "high": 0.16, "visible": 0.03}  # fmt: skip
GATE = {"judgement": "regression", "base": "20260101-000000-aaaaaaa", "new": "20260102-000000-bbbbbbb", "mde": 0.05,
        "rows": [ROW], "missing": [], "repetitions_needed": None, "selftest": "no selftest"}  # fmt: skip


def workflow_run(sha=SHA, head="mallory/bench", event="pull_request"):
    source = {"full_name": head, "owner": {"login": head.partition("/")[0]}}
    done = {"id": 5, "event": event, "head_sha": sha, "head_branch": "fast", "head_repository": source}
    return {"workflow_run": done}


@pytest.fixture
def stage(tmp_path, monkeypatch, bench):
    with fake_github() as fake:
        fake.pulls = [{"number": 7, "head": {"label": "mallory:fast", "sha": SHA}}]
        variables = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": fake.api, "GITHUB_REPOSITORY": "team/bench",
                     "GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "GITHUB_SHA": OTHER}  # fmt: skip
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

        def report(event, gate=GATE):
            (tmp_path / "event.json").write_text(json.dumps(event))
            (tmp_path / "gate.json").write_text(gate if isinstance(gate, str) else json.dumps(gate))
            return bench("github", "report", "gate.json", "--name", "speed")

        report.fake = fake
        yield report


def test_a_check_run_and_one_comment_that_is_updated(stage):
    assert stage(workflow_run()).code == 0
    done = stage(workflow_run(), GATE | {"judgement": "good", "rows": [ROW | {"judgement": "good", "worse": 0.0}]})
    assert "check run of aaaaaaaaaaaa, pull request 7" in done.out
    (check_run,) = stage.fake.check_runs
    assert (check_run["head_sha"], check_run["conclusion"]) == (SHA, "success")
    (comment,) = stage.fake.said()
    assert "Not worse by 5.00% in any number" in comment and "code of a fork" in comment
    assert "bench trace '20260102-000000-bbbbbbb:latency.p99'" in comment and "actions/runs/5" in comment


def test_the_pull_request_is_that_of_the_commit_never_that_of_the_file(stage):
    assert stage(workflow_run(OTHER), GATE | {"number": 7, "pull_request": 7}).code == 0  # pushed again meanwhile
    assert stage.fake.said() == [] and stage.fake.check_runs[0]["head_sha"] == OTHER


def test_our_own_pull_request_is_not_called_a_fork(stage):
    stage.fake.pulls[0]["head"]["label"] = "team:fast"
    stage(workflow_run(head="team/bench"))
    assert "fork" not in stage.fake.said()[0] and stage.fake.check_runs[0]["conclusion"] == "failure"


def test_a_comment_of_a_person_is_never_overwritten(stage):
    stage.fake.write("<!-- benchhouse report speed -->", login="mallory")
    stage(workflow_run())
    assert stage.fake.edits == {} and len(stage.fake.said()) == 1


def test_a_comment_of_nobody_is_none_of_ours(stage):
    stage.fake.write("<!-- benchhouse report speed -->")["user"] = None
    assert stage(workflow_run()).code == 0
    assert stage.fake.edits == {} and len(stage.fake.said()) == 1


@pytest.mark.parametrize("name", ["index=flat, size=1000, batch=32", "<@" * 250])
def test_however_many_numbers_there_are_the_comment_is_one_that_github_takes(stage, name):
    long = {"point": name, "metric": name, "stat": name}
    rows = [ROW | long | {"judgement": "good"} for _ in range(1000)]
    gate = GATE | {"rows": [ROW, *rows], "missing": [name] * 100, "selftest": name, "message": name}
    assert stage(workflow_run(), gate).code == 0
    (comment,) = stage.fake.said()
    assert len(comment) < 65_536 and comment.endswith("<!-- benchhouse report speed -->")
    assert re.search(r"\b9\d\d more, of which the first [1-9]", comment) and "[Evidence" in comment
    assert comment.count("<details>") == comment.count("</details>") == 3, "nothing is cut in its middle"


def test_what_a_stranger_writes_into_the_file_is_only_text(stage):
    nasty = "@team [x](http://evil) <img src=x> `$(reboot)`\n# head"
    row = ROW | {"point": nasty, "metric": nasty}
    assert stage(workflow_run(), GATE | {"rows": [row], "missing": [nasty], "selftest": nasty}).code == 0
    shown = stage.fake.said()[0].partition("<details>")[0]
    assert "@team" not in shown and "<img" not in shown and "](http://evil)" not in shown.replace("\\]", "")


@pytest.mark.parametrize(
    "gate",
    ["", "{", "[]", '{"judgement": "great"}', json.dumps(GATE | {"base": "x`; rm -rf /"}), "[" * 100_000,
     json.dumps(GATE | {"selftest": "x" * 100_000}), " " * (5 << 20)],
    ids=["empty", "cut", "list", "unknown", "base", "deep", "long", "large"],
)  # fmt: skip
def test_a_broken_file_is_refused_and_nothing_is_written(stage, gate):
    done = stage(workflow_run(), gate)
    assert done.code == 2 and "gate.json" in done.err and stage.fake.requests == []


def test_a_push_has_a_check_run_alone(stage):
    assert stage({"ref": "refs/heads/main"}, {"judgement": "no baseline", "message": "the first"}).code == 0
    assert stage.fake.check_runs[0]["head_sha"] == OTHER and stage.fake.check_runs[0]["conclusion"] == "neutral"


def test_the_requests_are_as_github_describes_them(stage):
    schemas = json.loads((DATA / "openapi.json").read_text())
    stage(workflow_run())
    run = stage.fake.check_runs[0]
    asked = {name: run[name] for name in ("name", "status", "conclusion", "output", "head_sha")}
    asked["output"] = {name: run["output"][name] for name in ("title", "summary")}
    for schema, value in ((schemas["requests"], asked), (schemas["answers"], run)):
        whole = schema["POST check run"] | {"components": schemas["components"]}
        Draft202012Validator(whole).validate(value)
    pull = schemas["components"]["schemas"]["pull-request-simple"]["properties"]
    assert "number" in pull and "sha" in pull["head"]["properties"]


def test_the_chart_is_text_that_no_name_gets_out_of(stage):
    nasty = "a\n```\n# head ``````` | <img src=x> \x1b[31m \u202e@team " + "x" * 300
    rows = [ROW, ROW | {"point": nasty}, ROW | {"worse": 1e300, "low": -1e300, "high": 1e300}, ROW | {"low": None},
            ROW | {"worse": None}]  # fmt: skip
    assert stage(workflow_run(), GATE | {"rows": rows}).code == 0
    chart = stage.fake.said()[0].partition("<summary>Chart")[2].partition("</details>")[0]
    fence, *lines, close = chart.partition("</summary>\n\n")[2].strip().splitlines()
    assert fence == close and set(fence) == {"`"} and len(lines) == 5
    assert all(fence not in line and "\x1b" not in line and "\u202e" not in line for line in lines)
    assert lines[1].startswith("index=flat latency.p99") and "●" in lines[1] and "◀" in lines[3]


def test_a_chart_shows_where_each_interval_stands():
    """Columns of 0, 5% and the ends of an interval are where their numbers are on one axis."""
    bars = [ChangeBar("a", 0.10, 0.05, 0.15), ChangeBar("b", -0.05, -0.10, 0.0), ChangeBar("c", 0.0)]
    head, a, b, c = change_chart(bars, 0.05).splitlines()
    column = {sign: line.index(sign) for line, signs in ((a, "│├●┤"),) for sign in signs}
    step = column["├"] - column["│"]  # 5%
    assert (
        step > 5 and abs(column["●"] - column["│"] - 2 * step) <= 1 and abs(column["┤"] - column["│"] - 3 * step) <= 1
    )
    assert b.index("┤") == c.index("●") == column["│"] and c.index("┊") == column["├"] and b.index("├") == 3
    assert head.split() == ["0", "+5.0%"]
    assert change_chart([ChangeBar("a", 0.0)], 0.0).endswith("a  ●")
