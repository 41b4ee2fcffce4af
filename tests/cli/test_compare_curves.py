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


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("planted"))
    lab.install("planted", "1.0", CODE, "[benchhouse.experiments]\nplanted = planted:planted\n")
    return lab


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("swept"))
    lab.install("planted", "1.0", CODE, "[benchhouse.experiments]\nplanted = planted:planted\n")
    targets = [{"name": f"{kind}{ef}", "kind": kind, "ef": ef} for kind in "abc" for ef in (8, 16, 32)]
    lab.run("planted", targets=targets, repetitions=3, monitors=False)
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


def test_targets_are_compared_along_an_axis_and_side_by_side_under_identical_load(planted, monkeypatch):
    targets = [{"name": kind, "kind": kind} for kind in "abc"]
    loads = {"concurrency": [1, 4, 8, 16, 32]}
    planted.run("planted", name="loads", targets=targets, workload=loads, repetitions=3, monitors=False)
    monkeypatch.setenv("COLUMNS", "80")
    shown = planted.bench("compare", "loads", "--along", "concurrency")
    flat = " ".join(shown.stdout.split())
    assert flat.count("stops scaling at about concurrency 1") == 3
    assert "measured at 8 and 16" in flat
    assert max(map(len, shown.stdout.splitlines())) <= 80
    (a, b, _) = json.loads(planted.bench("compare", "loads", "--along", "concurrency", "--json").stdout)["curves"]
    assert a["stages"][4]["efficiency"] == pytest.approx(12 / 32, rel=0.05)
    assert b["stops_interval"][0] <= 11.4 <= b["stops_interval"][1]

    shown = planted.bench("compare", "loads").stdout
    assert [line for line in shown.splitlines() if line.startswith("concurrency=")] == [
        f"concurrency={load}" for load in loads["concurrency"]
    ]
    assert shown.count("a best") == 5
    answer = json.loads(planted.bench("compare", "loads", "--metric", "qps", "--json").stdout)
    for case in answer["cases"]:
        (ranking,) = case["rankings"]
        best, second, last = ranking["standings"]
        assert (best["mark"], second["mark"], last["mark"]) == ("best", "median", "worst")
        assert second["low"] < -0.5 < second["high"]
        assert second["verdict"] == "worse than the best"
    page = Path(planted.bench("report", "loads").stdout.strip()).read_text()
    assert "Along concurrency" in page and "Side by side under identical load" in page


def test_a_load_that_failed_is_noted_at_the_curve(planted):
    loads = {"concurrency": [1, 4, 8, 64]}
    planted.run("planted", name="failed", code=1, targets=[{"name": "a"}], workload=loads, repetitions=2)
    along = json.loads(planted.bench("compare", "failed", "--along", "concurrency", "--json").stdout)
    assert "a was also tried at concurrency 64 (failed): no valid number there." in along["notes"]
    assert along["curves"][0]["sentence"].endswith("8, the highest with a valid number; also tried: 64 (failed).")
    level = json.loads(planted.bench("compare", "failed", "--at", "recall=0.7", "--json").stdout)
    assert "Without a valid number and on no curve: name=a concurrency=64 (failed)." in level["notes"]


def test_options_that_make_no_sense_are_refused_with_the_reason(swept):
    failures = []
    for words, why in (
        (("--at", "recall"), "METRIC=NUMBER"),
        (("--at", "recall=95"), "0.95?"),
        (("--at", "speed=1"), "speed"),
        (("--at", "recall=0.9", "--along", "kind"), "no number"),
        (("--at", "recall=0.9", "--metric", "qps"), "--of METRIC"),
        (("--of", "qps"), "--at or --along"),
        (("--report",), "--at"),
        (("--along", "shards"), "target.ef"),
        (("--all",), "two runs"),
        (("--markdown",), "bench report"),
    ):
        done = swept.bench("compare", "@last", *words, code=None)
        if done.returncode != 2 or why not in done.stderr:
            failures.append((words, done.returncode, done.stderr))
    assert not failures


def test_strong_scaling_has_laws_and_a_chart(planted):
    loads = {"concurrency": [1, 2, 4, 8]}
    planted.run("planted", name="strong", workload=loads, repetitions=3, scaling="strong", monitors=False)
    shown = planted.bench("compare", "strong", "--along", "concurrency")
    assert shown.stdout.startswith("Strong scaling along concurrency\n")
    assert "Amdahl's law: " in shown.stdout and "the highest measured" in " ".join(shown.stdout.split())
    along = json.loads(planted.bench("compare", "strong", "--along", "concurrency", "--json").stdout)
    (curve,) = along["curves"]
    assert (along["kind"], [law["law"] for law in curve["laws"]]) == ("strong", ["amdahl", "usl"])
    assert curve["laws"][0]["parameters"]["s"]["low"] <= 0.01
    timed = json.loads(planted.bench("compare", "strong", "--along", "concurrency", "--of", "wait", "--json").stdout)
    assert (timed["throughput"]["metric"], timed["latency"]) == ("wait", None)
    page = Path(planted.bench("report", "strong").stdout.strip())
    assert "Strong scaling along concurrency: throughput, speed-up and efficiency" in page.read_text()
    assert "## Strong scaling along concurrency" in page.with_name("report.md").read_text()
