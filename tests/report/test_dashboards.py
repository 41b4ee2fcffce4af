"""Dashboards and rules: what Grafana's own types and a real Prometheus say of them."""

import json
import re
import time

import pytest
import yaml
from services.prometheus import Prometheus, is_clean, needs_prometheus, promtool

from benchhouse.api.observation import RULES, write_dashboards
from benchhouse.evidence.textfile import TextfileSample, render, telemetry
from benchhouse.report.dashboards import Declared, dashboards, rules, rules_yaml
from benchhouse.schema.experiment import Metric
from benchhouse.schema.hot_metrics import TELEMETRY, telemetry_name
from benchhouse.schema.telemetry import Series
from benchhouse.worker.monitors.series_catalog import all_series

NAMES = ["runs", "telemetry", "serving"]
EVERY = [*NAMES, "served"]  # that one asks no Prometheus: tests/serve/test_outlets.py


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dashboards")
    write_dashboards(folder)
    return folder


@pytest.fixture(scope="module")
def made(written):
    return {name: json.loads((written / f"{name}.json").read_text()) for name in EVERY}


def expressions(dashboard) -> list[str]:
    """Every query of a dashboard's panels."""
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def filled(expression: str) -> str:
    """As Grafana would send it, with everything selected."""
    text = re.sub(r"\$(run_id|case|scope)\b", ".*", expression).replace("$__rate_interval", "1m")
    assert "$" not in text
    return text


def live_page() -> list[TextfileSample]:
    """A value of everything that can be sampled, as a worker writes it."""
    labels = (("run_id", "r1"), ("benchmark_case_id", "c1"))
    once = {telemetry_name(item).name: item for item in all_series()}
    return telemetry((("gpu0", item, 0.5) for item in once.values()), labels)


def test_every_series_and_every_metric_has_its_panel(made):
    asked = " ".join(expressions(made["telemetry"]))
    for item in all_series():
        assert re.search(rf"\b{telemetry_name(item).name}\b", asked), item.name
    assert "benchhouse_result_ttft_p99_seconds" in " ".join(expressions(made["serving"]))
    titles = [panel["title"] for panel in made["runs"]["panels"]]
    assert {"vector.search", "serving.load", "storage.s3"} <= set(titles)


def test_a_new_declaration_is_in_the_next_dashboard():
    metric = Metric(name="made_up", unit="MB/s", role="throughput", direction="higher", formula="in words")
    series = Series(name="new_thing", unit="W", family="energy", description="What it is.")
    found = dashboards([Declared("mine", "custom", [metric])], [series])
    panel = next(panel for panel in found["runs"]["panels"] if panel["title"] == "made_up")
    assert panel["description"] == "in words. Higher is better."
    assert panel["fieldConfig"]["defaults"]["unit"] == "Bps"
    panel = next(panel for panel in found["telemetry"]["panels"] if panel["title"] == "new thing")
    assert panel["fieldConfig"]["defaults"]["unit"] == "watt"
    assert panel["targets"][0]["expr"].startswith(f"{TELEMETRY}_new_thing_watts{{")


@pytest.mark.parametrize("name", EVERY)
def test_panels_do_not_overlap_and_have_ids_of_their_own(made, name):
    panels = made[name]["panels"]
    cells = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in cells, panel["title"]
                cells.add((x, y))
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("name", EVERY)
def test_grafanas_own_types_read_it_and_write_the_same(made, name):
    pytest.importorskip("grafana_foundation_sdk", reason="a development dependency: uv sync")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(made[name])))
    assert lost(made[name], again) == []


def lost(before, after, path: str = "") -> list[str]:
    """What was written and did not come back; defaults that Grafana adds are no loss."""
    if isinstance(before, dict):
        if not isinstance(after, dict):
            return [path]
        return [line for key, value in before.items() for line in lost(value, after.get(key), f"{path}.{key}")]
    if isinstance(before, list):
        if not isinstance(after, list) or len(before) != len(after):
            return [] if not before and after is None else [path]
        return [line for at, value in enumerate(before) for line in lost(value, after[at], f"{path}[{at}]")]
    return [] if before == after else [f"{path}: {before!r} became {after!r}"]


@needs_prometheus
def test_promtool_has_nothing_against_the_rules(written):
    done = promtool("check", "rules", written / RULES)
    assert done.returncode == 0, done.stderr
    assert "SUCCESS" in done.stdout


def test_an_alert_on_a_series_that_nobody_declares_is_left_out():
    names = [rule.get("alert") for group in rules([])["groups"] for rule in group["rules"]]
    assert "BenchhouseGpuHot" not in names
    assert "BenchhouseTrialsFailed" in names
    assert yaml.safe_load(rules_yaml(all_series())) == rules(all_series())


@needs_prometheus
def test_every_panel_and_every_rule_runs_on_a_live_prometheus(written, made, tmp_path):
    place, home = tmp_path / "prom", tmp_path / "home"
    place.mkdir()
    home.mkdir()
    file = place / "benchhouse_live_r1.prom"
    page = render(live_page())
    is_clean(page)
    file.write_text(page)
    mine = (("run_id", "r1"),)
    run = [
        TextfileSample("benchhouse_run_trials_planned", 9, mine, "h"),
        TextfileSample("benchhouse_run_trials_failed", 1, mine, "h"),
        TextfileSample("benchhouse_run_trials_invalid", 1, mine, "h"),
        TextfileSample("benchhouse_run_trials_succeeded", 2, mine, "h"),
        TextfileSample("benchhouse_run_series_dropped", 3, mine, "h"),
        TextfileSample("benchhouse_run_last_trial_timestamp_seconds", time.time() - 7200, mine, "h"),
    ]
    (place / "benchhouse_run_r1.prom").write_text(render(run))
    with Prometheus(home, place, [written / RULES]) as server:
        server.value('benchhouse_telemetry_gpu_power_watts{scope="gpu0"}')
        time.sleep(1.5)  # a rate needs two scrapes
        for name in NAMES:
            for expression in expressions(made[name]):
                found = server.query(filled(expression))
                if TELEMETRY in expression:
                    assert len(found) == 1, f"{name}: {expression} finds nothing"
        groups = server.rule_groups()
        deadline = time.monotonic() + 120
        while {rule["health"] for group in groups for rule in group["rules"]} != {"ok"}:
            assert time.monotonic() < deadline, [
                rule for group in groups for rule in group["rules"] if rule["health"] != "ok"
            ]
            time.sleep(0.2)
            groups = server.rule_groups()
        alerts = {
            rule["name"]: rule["state"] for group in groups for rule in group["rules"] if rule["type"] == "alerting"
        }
        firing = {name for name, state in alerts.items() if state == "firing"}
        assert firing == {
            "BenchhouseTrialsFailed", "BenchhouseTrialsInvalid", "BenchhouseRunStalled", "BenchhouseSeriesDropped",
        }  # fmt: skip
        assert alerts["BenchhouseGpuHot"] == "pending", "half the time is hot; it has to last"
        assert alerts["BenchhouseCacheFull"] == "inactive"
        assert server.value("run:benchhouse_power_watts:sum") == 0.5
