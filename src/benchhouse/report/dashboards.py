"""Grafana dashboards, made of what is declared: the metrics of experiments and the series of monitors.

Three of them: `runs` (how runs go and what they measured), `telemetry` (what one trial does to the machine), `serving`.
What is added to a declaration is in the next dashboard; nobody has to draw a panel.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from benchhouse.schema.experiment import Metric
from benchhouse.schema.hot_metrics import RUN, result_name, telemetry_name
from benchhouse.schema.telemetry import Family, Series
from benchhouse.schema.trial import OUTCOMES

Json = dict[str, Any]

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _PANEL_WIDTH, _PANEL_HEIGHT = 24, 8, 7
_OF_THE_RUN = 'run_id=~"$run_id"'
_OF_THE_CASE = f'{_OF_THE_RUN},benchmark_case_id=~"$case"'
_OF_THE_SCOPE = f'{_OF_THE_CASE},scope=~"$scope"'
_STATS = ("value", "p50", "p99")
_UNITS = {
    "seconds": "s", "bytes": "bytes", "watts": "watt", "joules": "joule", "celsius": "celsius", "hertz": "hertz",
    "ratio": "percentunit", "dollars": "currencyUSD", "bytes_per_second": "Bps",
}  # fmt: skip
_RATES = {"s": "short", "B": "Bps", "J": "watt"}  # growth a second: of CPU seconds it is cores
_FAMILY_TITLES: dict[str, str] = {
    "service": "Service", "gpu": "GPU", "nvlink": "NVLink", "pcie": "PCIe", "network": "Network", "node": "Node",
    "process": "Processes of the trial and its services", "energy": "Energy",
}  # fmt: skip


class Declared(NamedTuple):
    """What an experiment measures."""

    experiment: str
    component: str
    metrics: Sequence[Metric]


def dashboards(experiments: Iterable[Declared], series: Iterable[Series]) -> dict[str, Json]:
    """Every dashboard by the name of its file."""
    declared, sampled = list(experiments), _once(series)
    serving = [item for item in declared if item.component == "inference"]
    return {
        "runs": _dashboard("runs", "Benchhouse: runs", _runs(declared), scopes=False),
        "telemetry": _dashboard("telemetry", "Benchhouse: telemetry of a trial", _telemetry(sampled), scopes=True),
        "serving": _dashboard("serving", "Benchhouse: serving", _serving(serving, sampled), scopes=True),
    }


def expressions(dashboard: Mapping[str, Any]) -> list[str]:
    """Every query of a dashboard's panels."""
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def _runs(declared: Sequence[Declared]) -> list[Json]:
    counts = [(f"{RUN}_trials_{name}{{{_OF_THE_RUN}}}", f"{name} {{{{run_id}}}}") for name in ("planned", *OUTCOMES)]
    since = f"time() - {RUN}_last_trial_timestamp_seconds{{{_OF_THE_RUN}}}"
    panels = [
        _row("How the runs go"),
        _panel("Trials", counts, "short", "Trials of each run, by how they ended."),
        _panel("Since the last trial", [(since, "{{run_id}}")], "s", "A run that goes on ends a trial now and then."),
        _panel(
            "Series over the budget",
            [(f"{RUN}_series_dropped{{{_OF_THE_RUN}}}", "{{run_id}}")],
            "short",
            "Results that are only in the evidence: too many cases for hot metrics.",
        ),
    ]
    for item in declared:
        found = [_result(metric) for metric in item.metrics if metric.role is not None]
        panels += [_row(item.experiment), *found] if found else []
    return panels


def _telemetry(series: Sequence[Series]) -> list[Json]:
    panels: list[Json] = []
    for family in get_args(Family):
        found = [_sampled(item) for item in series if item.family == family]
        panels += [_row(_FAMILY_TITLES.get(family, family)), *found] if found else []
    return panels


def _serving(declared: Sequence[Declared], series: Sequence[Series]) -> list[Json]:
    """Results of serving experiments beside what the server and its GPUs say of themselves."""
    panels = []
    for item in declared:
        panels += [_row(item.experiment), *map(_result, item.metrics)]
    beside = [item for item in series if item.family in ("service", "gpu", "energy")]
    return [*panels, _row("The server and its GPUs"), *map(_sampled, beside)]


def _result(metric: Metric) -> Json:
    """One value, or the percentiles of several: which of them a trial has, only the trial knows."""
    queries = [
        (f"{result_name(metric.name, stat, metric.unit).name}{{{_OF_THE_CASE}}}", f"{{{{benchmark_case_id}}}} {stat}")
        for stat in _STATS
    ]
    better = f" {metric.direction.capitalize()} is better." if metric.direction else ""
    return _panel(metric.name, queries, _unit(metric.unit), f"{metric.formula}.{better}".lstrip("."))


def _sampled(series: Series) -> Json:
    name = telemetry_name(series).name
    title = series.name.replace("_", " ")
    if series.kind == "counter":
        query = f"rate({name}{{{_OF_THE_SCOPE}}}[$__rate_interval])"
        return _panel(
            f"{title}, a second", [(query, "{{scope}}")], _RATES.get(series.unit, "short"), series.description
        )
    return _panel(title, [(f"{name}{{{_OF_THE_SCOPE}}}", "{{scope}}")], _unit(series.unit), series.description)


def _unit(unit: str) -> str:
    """How Grafana calls the unit that the value has in Prometheus."""
    words = result_name("", "value", unit).name.removeprefix("benchhouse_result_")
    return _UNITS.get(words, "short")


def _once(series: Iterable[Series]) -> list[Series]:
    """Each exported name once: the node and the trial both have a `cpu_user`."""
    return list({telemetry_name(item).name: item for item in series}.values())


def _row(title: str) -> Json:
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def _panel(title: str, queries: Sequence[tuple[str, str]], unit: str, description: str) -> Json:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
        for at, (expression, legend) in enumerate(queries)
    ]
    return {
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"spanNulls": True}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}},
    }


def _dashboard(name: str, title: str, panels: Sequence[Json], *, scopes: bool) -> Json:
    variables = [
        {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "hide": 0},
        _variable("run_id", "Run", f"label_values({RUN}_trials_planned, run_id)"),
        _variable("case", "Case", f'label_values({{__name__=~"benchhouse_.+",{_OF_THE_RUN}}}, benchmark_case_id)'),
    ]
    if scopes:
        variables.append(
            _variable("scope", "Scope", f'label_values({{__name__=~"benchhouse_.+",{_OF_THE_RUN}}}, scope)')
        )
    return {
        "uid": f"benchhouse-{name}",
        "title": title,
        "tags": ["benchhouse"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 38,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "annotations": {"list": []},
        "panels": _placed(panels),
    }


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,  # when the time range changes
        "sort": 2,  # newest run first: their names begin with the date
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "hide": 0,
        "current": {"selected": True, "text": "All", "value": "$__all"},
    }


def _placed(panels: Sequence[Json]) -> list[Json]:
    """Rows across, panels three beside each other."""
    placed, x, y = [], 0, 0
    for number, panel in enumerate(panels, start=1):
        if panel["type"] == "row":
            y += _PANEL_HEIGHT if x else 0
            placed.append(panel | {"id": number, "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": y}})
            x, y = 0, y + 1
            continue
        place = {"h": _PANEL_HEIGHT, "w": _PANEL_WIDTH, "x": x, "y": y}
        placed.append(panel | {"id": number, "gridPos": place})
        x += _PANEL_WIDTH
        if x == _WIDTH:
            x, y = 0, y + _PANEL_HEIGHT
    return placed
