"""`bench compare` at equal quality, along an axis and side by side, on an experiment whose truth is planted."""

import json
from pathlib import Path

import pytest
from laboratory import Lab

CODE = '''
import random
from benchhouse import Context, Metric, experiment
from benchhouse.schema.model import Model


class Target(Model):
    name: str = ""
    kind: str = "a"
    ef: int = 4


@experiment("planted", version="1.0", metrics=[
    Metric(name="recall", unit="1", direction="higher"),
    Metric(name="qps", unit="1/s", direction="higher", role="throughput"),
    Metric(name="wait", unit="ms", direction="lower", role="latency"),
])
def planted(target: Target, ctx: Context, concurrency: int = 1):
    """Recall 1 - 1/ef, qps 100000/ef a client up to 12 of them; kind b has half of it."""
    if concurrency == 64:
        raise ValueError("nobody asks")
    noise = random.Random(f"{ctx.repetition}{target.kind}{target.ef}{concurrency}").gauss(1.0, 0.01)
    speed = {"a": 1.0, "b": 0.5, "c": 0.5}[target.kind]
    ctx.emit("recall", (1.0 - 1.0 / target.ef) * (0.8 if target.kind == "c" else 1.0))
    ctx.emit("qps", speed * 1e5 / target.ef * min(concurrency, 12) * noise)
    ctx.emit("wait", target.ef / 100 * max(concurrency, 12) / noise)
'''


@pytest.fixture
def planted(lab):
    lab.install("planted", "1.0", CODE, "[benchhouse.experiments]\nplanted = planted:planted\n")
    return lab


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("swept"))
    lab.install("planted", "1.0", CODE, "[benchhouse.experiments]\nplanted = planted:planted\n")
    targets = [{"name": f"{kind}{ef}", "kind": kind, "ef": ef} for kind in "abc" for ef in (8, 16, 32)]
    lab.run("planted", targets=targets, repetitions=5)
    return lab


def test_targets_are_compared_at_equal_recall(swept, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = swept.bench("compare", "@last", "--at", "recall=0.95")
    assert "a has the highest qps" in shown.stdout
    assert "c does not reach 0.95: recall 0.775 at best (ef 32)." in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "not beaten on both recall and qps: a ef 8, a ef 16, a ef 32" in shown.stderr
    told = json.loads(swept.bench("compare", "@last", "--at", "recall=95%", "--json").stdout)
    at = {curve["name"]: curve["at"] for curve in told["curves"]}
    assert at["a"]["value"] == pytest.approx(5000.0, rel=0.02)
    assert at["a"]["interval"][0] < 5000.0 < at["a"]["interval"][1]
    assert at["b"]["change_interval"][0] < -0.5 < at["b"]["change_interval"][1]
    assert (at["b"]["verdict"], at["c"]["reach"]) == ("worse than the best", "short")


def test_selectors_pick_the_targets_and_any_metric_can_be_asked_for(swept):
    done = swept.bench("compare", "@last:kind=b", "--at", "recall=0.9", "--of", "wait", "--json")
    (curve,) = json.loads(done.stdout)["curves"]
    assert curve["at"]["value"] == pytest.approx(10 / 100 * 12, rel=0.02)


def test_the_report_is_written_with_the_level_that_was_asked_for(swept):
    shown = swept.bench("compare", "@last:kind=a", "@last:kind=b", "--at", "recall=0.9", "--report", "--markdown")
    assert "## qps at recall 0.9" in shown.stdout
    page = Path(shown.stderr.rpartition("also ")[2].strip())
    assert "At recall 0.9, a has the highest qps" in page.read_text()
    told = json.loads((page.parent / "report.json").read_text())["report"]
    points = told["points"]
    for curve in told["tradeoff"]["curves"]:
        assert {points[one["point"]]["target"]["kind"] for one in curve["points"]} == {curve["name"]}
    plain = Path(swept.bench("report", "@last").stdout.strip())
    assert "At recall 0.95, a has the highest qps" in plain.read_text()


def test_targets_are_told_along_an_axis_and_where_they_stop(planted, monkeypatch):
    targets = [{"name": kind, "kind": kind} for kind in "ab"]
    planted.run("planted", targets=targets, workload={"concurrency": [1, 4, 8, 16, 32]}, repetitions=3)
    monkeypatch.setenv("COLUMNS", "80")
    shown = planted.bench("compare", "@last", "--along", "concurrency")
    flat = " ".join(shown.stdout.split())
    assert flat.count("stops scaling at about concurrency 1") == 2
    assert "measured at 8 and 16" in flat
    assert max(map(len, shown.stdout.splitlines())) <= 80
    (a, b) = json.loads(planted.bench("compare", "@last", "--along", "concurrency", "--json").stdout)["curves"]
    assert a["stages"][4]["efficiency"] == pytest.approx(12 / 32, rel=0.05)
    assert b["stops_interval"][0] <= 11.4 <= b["stops_interval"][1]
    page = Path(planted.bench("report", "@last").stdout.strip()).read_text()
    assert "Along concurrency" in page
    assert "Side by side under identical load" in page


def test_a_load_that_failed_is_told_beside_the_curve(planted):
    planted.run("planted", code=1, targets=[{"name": "a"}], workload={"concurrency": [1, 4, 8, 64]}, repetitions=2)
    along = json.loads(planted.bench("compare", "@last", "--along", "concurrency", "--json").stdout)
    assert "a was also tried at concurrency 64 (failed): no valid number there." in along["notes"]
    assert along["curves"][0]["sentence"].endswith("8, the highest with a valid number; also tried: 64 (failed).")
    level = json.loads(planted.bench("compare", "@last", "--at", "recall=0.7", "--json").stdout)
    assert "Without a valid number and on no curve: name=a concurrency=64 (failed)." in level["notes"]


def test_targets_stand_side_by_side_under_identical_load(planted, monkeypatch):
    targets = [{"name": kind, "kind": kind} for kind in "abc"]
    planted.run("planted", targets=targets, workload={"concurrency": [1, 4]}, repetitions=3)
    monkeypatch.setenv("COLUMNS", "80")
    shown = planted.bench("compare", "@last").stdout
    assert [line for line in shown.splitlines() if line.startswith("concurrency=")] == [
        "concurrency=1",
        "concurrency=4",
    ]
    assert shown.count("a best") == 2
    told = json.loads(planted.bench("compare", "@last", "--metric", "qps", "--json").stdout)
    for case in told["cases"]:
        (ranking,) = case["rankings"]
        best, second, last = ranking["standings"]
        assert (best["mark"], second["mark"], last["mark"]) == ("best", "median", "worst")
        assert second["low"] < -0.5 < second["high"]
        assert second["verdict"] == "worse than the best"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--at", "recall"), "expected METRIC=NUMBER"),
        (("--at", "recall=95"), "Did you mean 0.95?"),
        (("--at", "speed=1"), "no metric speed here"),
        (("--at", "recall=0.9", "--along", "kind"), "it is no number"),
        (("--at", "recall=0.9", "--metric", "qps"), "it is --of METRIC"),
        (("--of", "qps"), "--of goes with --at or --along"),
        (("--report",), "--report goes with --at"),
        (("--along", "shards"), "it is not there; numbers that vary: target.ef"),
        (("--all",), "--all is for two runs"),
        (("--markdown",), "bench report writes report.md"),
    ],
)
def test_what_can_not_be_is_refused_with_the_reason(swept_once, words, why):
    assert why in swept_once.bench("compare", "@last", *words, code=2).stderr


@pytest.fixture(scope="module")
def swept_once(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.install("planted", "1.0", CODE, "[benchhouse.experiments]\nplanted = planted:planted\n")
    lab.run("planted", targets=[{"name": f"a{ef}", "ef": ef} for ef in (8, 32)])
    return lab


def test_one_target_has_nothing_beside_it(lab):
    lab.run("once", workload={"n": [0, 1]})
    assert "no two targets ran the same test" in lab.bench("compare", "@last", code=2).stderr


def test_an_experiment_without_a_throughput_asks_for_one(lab):
    lab.run("mischief", workload={"act": ["ok"], "n": [1, 2]})
    assert "Name it: --of METRIC" in lab.bench("compare", "@last", "--at", "x=1", code=2).stderr


def test_strong_scaling_has_laws_and_a_chart(planted):
    planted.run("planted", workload={"concurrency": [1, 2, 4, 8]}, repetitions=3, scaling="strong")
    shown = planted.bench("compare", "@last", "--along", "concurrency")
    assert shown.stdout.startswith("Strong scaling along concurrency\n")
    assert "Amdahl's law: " in shown.stdout and "the highest measured" in " ".join(shown.stdout.split())
    along = json.loads(planted.bench("compare", "@last", "--along", "concurrency", "--json").stdout)
    (curve,) = along["curves"]
    assert (along["kind"], [law["law"] for law in curve["laws"]]) == ("strong", ["amdahl", "usl"])
    assert curve["laws"][0]["parameters"]["s"]["low"] <= 0.01
    timed = json.loads(planted.bench("compare", "@last", "--along", "concurrency", "--of", "wait", "--json").stdout)
    assert (timed["throughput"]["metric"], timed["latency"]) == ("wait", None)
    page = Path(planted.bench("report", "@last").stdout.strip())
    assert "Strong scaling along concurrency: throughput, speed-up and efficiency" in page.read_text()
    assert "## Strong scaling along concurrency" in page.with_name("report.md").read_text()
