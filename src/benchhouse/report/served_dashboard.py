"""A Grafana dashboard without a Prometheus: its panels read JSON of `bench serve` through the Infinity data source."""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from benchhouse.report.dashboards import Declared, Json, better, framed, row
from benchhouse.schema.experiment import Metric

_SOURCE = {"type": "yesoreyeram-infinity-datasource", "uid": "${datasource}"}
_SINCE = "since=${__from:date:iso}"
_TIMES = "since=${__from:date:iso}&until=${__to:date:iso}"
_MOST = 5000
_UNITS = {
    "s": "s", "ms": "ms", "us": "µs", "µs": "µs", "ns": "ns", "min": "m", "h": "h", "B": "decbytes", "%": "percent",
    "W": "watt", "J": "joule", "degC": "celsius", "$": "currencyUSD", "1": "short", "": "short", "B/s": "Bps",
}  # fmt: skip
_SCENARIOS = "/api/query?sql=SELECT%20DISTINCT%20scenario%20FROM%20benchmark_run_fact%20ORDER%20BY%201"
_RUN_COLUMNS = (
    ("created", "begun", "timestamp"), ("run_id", "run", "string"), ("scenario", "scenario", "string"),
    ("experiment", "experiment", "string"), ("executor", "executor", "string"), ("state", "state", "string"),
    ("trials", "trials", "number"), ("done", "ended", "number"),
)  # fmt: skip
_RESULT_COLUMNS = (
    ("time", "time", "timestamp"), ("case", "case", "string"), ("stat", "stat", "string"), ("unit", "unit", "string"),
    ("value", "value", "number"),
)  # fmt: skip


def served_dashboard(experiments: Iterable[Declared]) -> Json:
    """Return a dashboard with runs as a table, and every metric over the runs, one line per case."""
    runs = _target("A", f"/api/runs?{_SINCE}&limit=200", "runs", _RUN_COLUMNS, "table")
    panels: list[Json] = [row("Runs"), _panel("table", "Runs", [runs], "short", "How runs stand, the newest first.")]
    for item in experiments:
        shown = [_result(item.experiment, metric) for metric in item.metrics if metric.role is not None]
        panels += [row(item.experiment), *shown] if shown else []
    return framed("served", "Benchhouse: results, from bench serve", panels, _variables()) | {
        "refresh": "1m",
        "time": {"from": "now-90d", "to": "now"},
    }


def _result(experiment: str, metric: Metric) -> Json:
    asked = f"experiment={quote(experiment)}&metric={quote(metric.name)}&scenario=${{scenario:percentencode}}"
    url = f"/api/measured?{asked}&stat=${{stat}}&{_TIMES}&limit={_MOST}"
    query = _target("A", url, "rows", _RESULT_COLUMNS, "timeseries")
    unit = _UNITS.get(metric.unit, f"suffix: {metric.unit}")
    return _panel("timeseries", metric.name, [query], unit, better(metric))


def _target(ref: str, url: str, root: str, columns: Sequence[tuple[str, str, str]], format: str) -> Json:
    """Return one query of the Infinity data source; `url` is relative to the address of the data source."""
    return {
        "refId": ref,
        "datasource": _SOURCE,
        "type": "json",
        "source": "url",
        "parser": "backend",
        "format": format,
        "url": url,
        "url_options": {"method": "GET", "data": ""},
        "root_selector": root,
        "columns": [{"selector": selector, "text": text, "type": kind} for selector, text, kind in columns],
        "filters": [],
    }


def _panel(kind: str, title: str, targets: Sequence[Json], unit: str, description: str) -> Json:
    custom: dict[str, Any] = {"spanNulls": True, "showPoints": "always"} if kind == "timeseries" else {}
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": _SOURCE,
        "targets": list(targets),
        "fieldConfig": {"defaults": {"unit": unit, "custom": custom}, "overrides": []},
        "options": {},
    }


def _variables() -> list[Json]:
    names = _target("variable", _SCENARIOS, "rows", (("scenario", "scenario", "string"),), "table")
    stats = ("*", "value", "mean", "p50", "p95", "p99")
    return [
        {
            "type": "datasource", "name": "datasource", "label": "bench serve",
            "query": "yesoreyeram-infinity-datasource", "hide": 0,
        },
        {
            "type": "query", "name": "scenario", "label": "Scenario", "datasource": _SOURCE,
            "query": {"queryType": "infinity", "infinityQuery": names}, "refresh": 1, "sort": 1, "multi": False,
            "includeAll": True, "allValue": "*", "hide": 0,
            "current": {"selected": True, "text": "All", "value": "$__all"},
        },
        {
            "type": "custom", "name": "stat", "label": "Statistic", "query": ",".join(stats), "multi": False,
            "includeAll": False, "hide": 0, "current": {"selected": True, "text": "*", "value": "*"},
            "options": [{"text": stat, "value": stat, "selected": stat == "*"} for stat in stats],
        },
    ]  # fmt: skip
