"""`bench alarms` on sealed trials of many runs: who is told of what, and how often."""

import json
import sys
from pathlib import Path

import pytest

from benchhouse.schema.layout import WorkspaceFolder

sys.path.insert(0, str(Path(__file__).parents[1] / "warehouse"))

CHANNELS = "channels:\n  me: {command: [tee, -a, told.jsonl]}\n"
SLOW = "alarms:\n  - {name: slow, case: demo, metric: qps, below: 90, tell: [me]}\n" + CHANNELS


@pytest.fixture
def add(tmp_path):
    """Adds a run with these values of qps, an hour after the one before."""
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    runs = []

    def adder(*values, **more):
        run = f"20260301-{len(runs):02d}0000-aaaaaaa"
        runs.append(run)
        folders = [
            make_trial(WorkspaceFolder(tmp_path), run, at + 1, value=value, minute=60 * len(runs), **more)
            for at, value in enumerate(values)
        ]
        collect(WorkspaceFolder(tmp_path), run, folders)
        return run

    return adder


def told(root):
    path = root / "told.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_alarms_of_one_run_are_one_message(bench, add, tmp_path):
    rules = [f"  - {{name: {name}, case: demo, metric: qps, below: {below}, tell: [me]}}\n" for name, below in
             (("slow", 90), ("slower", 85))]  # fmt: skip
    (tmp_path / "alarms.yaml").write_text(f"address: https://bench.example.org\nalarms:\n{''.join(rules)}{CHANNELS}")
    run = add(80.0, 81.0, 82.0)
    bench("alarms", "check", cwd=tmp_path)
    assert bench("alarms", "check", cwd=tmp_path).code == 3
    (message,) = told(tmp_path)
    assert message["alarm"] == "2 alarms" and [item["alarm"] for item in message["messages"]] == ["slow", "slower"]
    assert message["text"].startswith(f"2 alarms are firing since run {run}:")
    assert message["messages"][0]["link"] == f"https://bench.example.org/runs/{run}"


def test_it_fires_once_and_tells_when_it_is_over(bench, add, tmp_path):
    (tmp_path / "alarms.yaml").write_text(SLOW)
    add(100.0, 101.0, 102.0)
    assert bench("alarms", "check", cwd=tmp_path).code == 0
    assert told(tmp_path) == []
    bad = add(80.0, 81.0, 82.0)
    for _ in range(2):
        done = bench("alarms", "check", cwd=tmp_path)
        assert done.code == 3
        assert "firing" in done.out and f"bench report {bad}" in done.err
    (message,) = told(tmp_path)
    assert (message["alarm"], message["state"], message["run_id"]) == ("slow", "firing", bad)
    assert message["value"] == pytest.approx(81.0) and message["low"] < 81.0 < message["high"] < message["limit"] == 90
    good = add(99.0, 100.0, 101.0)
    assert bench("alarms", "check", cwd=tmp_path).code == 0
    assert [(line["state"], line["run_id"]) for line in told(tmp_path)] == [("firing", bad), ("over", good)]
    log = json.loads(bench("alarms", "log", "--json", cwd=tmp_path).out)
    assert [line["action"] for line in log] == ["fired", "told", "cleared", "told"]


def test_noise_around_the_limit_neither_fires_nor_ends_it(bench, add, tmp_path):
    (tmp_path / "alarms.yaml").write_text(SLOW)
    add(88.0, 95.0, 83.0)
    (standing,) = json.loads(bench("alarms", "list", "--json", cwd=tmp_path).out)
    assert standing["state"] == "unsure" and "perhaps below 90" in standing["sentence"]
    assert bench("alarms", "check", cwd=tmp_path).code == 0
    assert told(tmp_path) == []
    add(80.0, 81.0, 82.0)
    add(88.0, 95.0, 83.0)
    bench("alarms", "check", cwd=tmp_path)
    assert told(tmp_path) == []


def test_a_run_in_which_nothing_succeeded_fires(bench, add, tmp_path):
    (tmp_path / "alarms.yaml").write_text(SLOW)
    add(100.0, 101.0)
    bad = add(100.0, 101.0, outcome="failed")
    done = bench("alarms", "check", "--json", cwd=tmp_path)
    assert done.code == 3
    (standing,) = json.loads(done.out)["alarms"]
    assert standing["sentence"].startswith("none of 2 trials of demo") and bad in standing["sentence"]
    assert standing["value"] is None


def test_who_could_not_be_told_is_told_later(bench, add, tmp_path, monkeypatch):
    (tmp_path / "alarms.yaml").write_text(
        "alarms:\n  - {name: slow, case: demo, metric: qps, below: 90, tell: [me, hook]}\n"
        "channels:\n  me: {command: [tee, -a, told.jsonl]}\n  hook: {webhook: $DEMO_HOOK}\n"
    )
    add(80.0, 81.0, 82.0)
    monkeypatch.delenv("DEMO_HOOK", raising=False)
    for _ in range(2):
        done = bench("alarms", "check", cwd=tmp_path)
        assert "hook could not be notified: the variable DEMO_HOOK is not set" in done.err
    log = json.loads(bench("alarms", "log", "--json", cwd=tmp_path).out)
    assert [(line["action"], line["channel"]) for line in log] == [("fired", ""), ("told", "me"), ("told", "hook")], (
        "the same failure is recorded once"
    )
    from services.hook import hears

    with hears() as (address, heard):
        monkeypatch.setenv("DEMO_HOOK", address)
        done = bench("alarms", "check", cwd=tmp_path)
        bench("alarms", "check", cwd=tmp_path)
    assert "slow: hook was notified" in done.err
    (body,) = heard
    assert body["text"].startswith("slow is firing: qps of demo")
    assert len(told(tmp_path)) == 1


def test_worse_than_the_accepted_baseline(bench, add, tmp_path):
    (tmp_path / "alarms.yaml").write_text(
        "alarms:\n  - {name: off, case: demo, metric: qps, worse_by: 5%, tell: [me]}\n"
        "  - {name: drifted, case: demo, metric: qps, regressed: true, tell: [me]}\n" + CHANNELS
    )
    for number in range(12):
        add(100.0 + number % 3, 101.0 - number % 2, 100.5)
    states = [item["state"] for item in json.loads(bench("alarms", "list", "--json", cwd=tmp_path).out)]
    assert states == ["no data", "no data"]
    assert bench("baseline", "accept", "demo", "--metric", "qps", cwd=tmp_path).code == 0
    assert bench("alarms", "check", cwd=tmp_path).code == 0
    for _ in range(3):
        add(90.0, 90.5, 91.0)
    found = json.loads(bench("alarms", "check", "--json", cwd=tmp_path).out)
    assert [item["state"] for item in found["alarms"]] == ["firing", "firing"]
    assert found["alarms"][0]["limit"] == pytest.approx(95.5, abs=0.5)
    (message,) = told(tmp_path)
    assert [item["alarm"] for item in message["messages"]] == ["off", "drifted"]


def test_a_regression_after_quiet_runs_fires_at_once_and_tells_the_level_of_now_until_it_came_back(
    bench, add, tmp_path
):
    (tmp_path / "alarms.yaml").write_text(
        "alarms:\n  - {name: slower, case: demo, metric: qps, regressed: true, tell: [me]}\n" + CHANNELS
    )
    for number in range(15):
        add(100.0 + 0.02 * (number % 5))  # each near the run before
    bench("baseline", "accept", "demo", "--metric", "qps", cwd=tmp_path)
    add(100.01)
    first = add(92.4)
    add(92.41)
    add(92.4)
    found = json.loads(bench("alarms", "check", "--json", cwd=tmp_path).out)
    assert found["alarms"][0]["state"] == "firing"
    assert f"worse by 7.6% than its baseline of 100/s since run {first}" in found["alarms"][0]["sentence"]
    for number in range(5):
        add(100.0 + 0.02 * number)
    assert json.loads(bench("alarms", "check", "--json", cwd=tmp_path).out)["alarms"][0]["state"] == "ok"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alarms: []\nchannels: {}\n", "alarms.yaml:2"),
        (SLOW.replace("tell: [me]", "tell: [mi]"), "alarms.yaml:2:61: no channel is called 'mi'"),
        (
            SLOW.replace("channels", "  - {name: slow, case: demo, metric: qps, below: 9, tell: [me]}\nchannels"),
            "two alarms",
        ),
        (SLOW.replace("below: 90", "below: 90, above: 3"), "give one of above, below, worse_by, regressed"),
        (SLOW.replace("below: 90, ", ""), "give one of above, below"),
        (SLOW.replace("below:", "belo:"), "did you mean"),
        (SLOW.replace("command: [tee, -a, told.jsonl]", "webhook: 'https://me:hunter22@example.org/x'"), "a secret"),
        (SLOW.replace("command: [tee, -a, told.jsonl]", "apprise: 'mailto://me:hunter22@example.org'"), "$NAME"),
        (SLOW.replace("command: [tee, -a, told.jsonl]", "webhook: 'file:///etc/passwd'"), "http://"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(bench, tmp_path, text, said):
    (tmp_path / "alarms.yaml").write_text(text)
    done = bench("alarms", "list", cwd=tmp_path)
    assert done.code == 2
    assert "alarms.yaml:" in done.err and said in done.err


def test_without_a_file_it_says_how_one_looks(bench, tmp_path):
    done = bench("alarms", "list", cwd=tmp_path)
    assert done.code == 2
    assert "there is no alarms.yaml" in done.err and "channels:" in done.err


def test_another_unit_is_no_data(bench, add, tmp_path):
    (tmp_path / "alarms.yaml").write_text(SLOW.replace("below: 90", "below: 90, unit: ms"))
    add(80.0, 81.0, 82.0)
    (standing,) = json.loads(bench("alarms", "check", "--json", cwd=tmp_path).out)["alarms"]
    assert standing["state"] == "no data" and "the limit in ms" in standing["sentence"]


def test_a_run_checks_them_at_its_end_and_a_mistake_does_not_fail_it(bench, tmp_path):
    (tmp_path / "s.yaml").write_text(
        "scenario: s\nexperiment: command\ntarget: {name: t, argv: [echo, 'x=7']}\nmonitors: false\nworkload:\n"
        "  {executions: 1, warmup: 0, metrics: [{name: x, unit: ms, direction: lower, pattern: 'x=([0-9]+)'}]}\n"
    )
    path = tmp_path / "alarms.yaml"
    path.write_text("alarms:\n  - {name: high, case: s, metric: x, above: 5, tell: [me]}\n" + CHANNELS)
    done = bench("run", "s.yaml", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "alarm high fired: x of s/t is 7" in done.err and "one trial: how sure is not known" in done.err
    assert [line["alarm"] for line in told(tmp_path)] == ["high"]
    path.write_text("alarms: 7\n")
    done = bench("collect", "@last", cwd=tmp_path)
    assert done.code == 0
    assert "alarms were not checked" in done.err


def test_many_alarms_open_the_tables_once_and_read_the_journal_once(add, tmp_path, monkeypatch):
    from benchhouse.automation import alarms
    from benchhouse.evidence import journals
    from benchhouse.warehouse.query import Warehouse

    rules = "".join(f"  - {{name: a{at}, case: demo, metric: qps, below: {90 + at}, tell: [me]}}\n" for at in range(5))
    (tmp_path / "alarms.yaml").write_text("alarms:\n" + rules + CHANNELS)
    add(80.0, 81.0, 82.0)
    opened, read = [], []
    open_, read_ = Warehouse.open, journals.read
    monkeypatch.setattr(Warehouse, "open", lambda *given: opened.append(1) or open_(*given))
    monkeypatch.setattr(journals, "read", lambda path, kind: read.append(path.name) or read_(path, kind))
    monkeypatch.chdir(tmp_path)
    checked = alarms.check(WorkspaceFolder(tmp_path))
    assert [standing.state for standing in checked.standings] == ["firing"] * 5
    assert [line.action for line in checked.lines] == ["fired"] * 5 + ["told"] * 5
    assert (len(opened), read.count("notices.jsonl")) == (1, 1)
