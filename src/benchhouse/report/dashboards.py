"""Grafana dashboards and Prometheus rules, generated from declared metrics of experiments and series of monitors.

There are three: `runs` (the state and the results of runs), `telemetry` (the load of one trial on the machine),
`serving`. A new declaration appears in the next generated dashboard without manual work.
"""

from collections.abc import Iterable, Sequence
from string import Formatter
from typing import Any, NamedTuple, get_args

from benchhouse.documents.yaml_writer import dump_yaml
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
_RATES = {"s": "short", "B": "Bps", "J": "watt"}  # growth per second: for CPU seconds this is cores
_FAMILY_TITLES: dict[str, str] = {
    "service": "Service", "gpu": "GPU", "nvlink": "NVLink", "pcie": "PCIe", "network": "Network", "node": "Node",
    "process": "Processes of the trial and its services", "energy": "Energy",
    "scheduler": "Scheduler",
}  # fmt: skip
_BAD = "|".join(outcome for outcome in OUTCOMES if outcome not in ("succeeded", "invalid", "cancelled"))
_ANY = "|".join(OUTCOMES)


class Declared(NamedTuple):
    """The metrics that an experiment declares."""

    experiment: str
    component: str
    metrics: Sequence[Metric]


def dashboards(experiments: Iterable[Declared], series: Iterable[Series]) -> dict[str, Json]:
    """Return every dashboard by its file name."""
    declared = list(experiments)
    # Each exported name once: the node and the trial both have a `cpu_user`.
    sampled = list({telemetry_name(item).name: item for item in series}.values())
    serving = [item for item in declared if item.component == "inference"]
    return {
        "runs": _dashboard("runs", "Benchhouse: runs", _runs(declared), scopes=False),
        "telemetry": _dashboard("telemetry", "Benchhouse: telemetry of a trial", _telemetry(sampled), scopes=True),
        "serving": _dashboard("serving", "Benchhouse: serving", _serving(serving, sampled), scopes=True),
    }


def _runs(declared: Sequence[Declared]) -> list[Json]:
    counts = [(f"{RUN}_trials_{name}{{{_OF_THE_RUN}}}", f"{name} {{{{run_id}}}}") for name in ("planned", *OUTCOMES)]
    since = f"time() - {RUN}_last_trial_timestamp_seconds{{{_OF_THE_RUN}}}"
    dropped = f"{RUN}_series_dropped{{{_OF_THE_RUN}}}"
    budget = "Results that are only in the evidence: too many cases for hot metrics."
    panels = [
        row("How the runs go"),
        _panel("Trials", counts, "short", "Trials of each run, by how they ended."),
        _panel("Since the last trial", [(since, "{{run_id}}")], "s", "A run that goes on ends a trial now and then."),
        _panel("Series over the budget", [(dropped, "{{run_id}}")], "short", budget),
    ]
    for item in declared:
        results = [_result(metric) for metric in item.metrics if metric.role is not None]
        panels += [row(item.experiment), *results] if results else []
    return panels


def _telemetry(series: Sequence[Series]) -> list[Json]:
    panels: list[Json] = []
    for family in get_args(Family):
        sampled = [_sampled(item) for item in series if item.family == family]
        panels += [row(_FAMILY_TITLES.get(family, family)), *sampled] if sampled else []
    return panels


def _serving(declared: Sequence[Declared], series: Sequence[Series]) -> list[Json]:
    """Return results of serving experiments next to the measurements of the server and its GPUs."""
    panels = []
    for item in declared:
        panels += [row(item.experiment), *map(_result, item.metrics)]
    beside = [item for item in series if item.family in ("service", "gpu", "energy")]
    return [*panels, row("The server and its GPUs"), *map(_sampled, beside)]


def _result(metric: Metric) -> Json:
    """Return a panel for one value or several percentiles: only the trial knows which of them it has."""
    queries = [
        (f"{result_name(metric.name, stat, metric.unit).name}{{{_OF_THE_CASE}}}", f"{{{{benchmark_case_id}}}} {stat}")
        for stat in _STATS
    ]
    return _panel(metric.name, queries, _unit(metric.unit), better(metric))


def better(metric: Metric) -> str:
    """Return the formula of the metric, and its better direction."""
    direction = f" {metric.direction.capitalize()} is better." if metric.direction else ""
    return f"{metric.formula}.{direction}".lstrip(".")


def _sampled(series: Series) -> Json:
    title, unit = series.name.replace("_", " "), _unit(series.unit)
    query = f"{telemetry_name(series).name}{{{_OF_THE_SCOPE}}}"
    if series.kind == "counter":
        title, unit = f"{title}, a second", _RATES.get(series.unit, "short")
        query = f"rate({query}[$__rate_interval])"
    return _panel(title, [(query, "{{scope}}")], unit, series.description)


def _unit(unit: str) -> str:
    """Return Grafana's name for the unit of the value in Prometheus."""
    return _UNITS.get(result_name("", "value", unit).name.removeprefix("benchhouse_result_"), "short")


def row(title: str) -> Json:
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
    ours = f'{{__name__=~"benchhouse_.+",{_OF_THE_RUN}}}'
    variables = [
        {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "hide": 0},
        _variable("run_id", "Run", f"label_values({RUN}_trials_planned, run_id)"),
        _variable("case", "Case", f"label_values({ours}, benchmark_case_id)"),
        *([_variable("scope", "Scope", f"label_values({ours}, scope)")] if scopes else []),
    ]
    return framed(name, title, panels, variables)


def framed(name: str, title: str, panels: Sequence[Json], variables: Sequence[Json]) -> Json:
    """Return a dashboard of these panels, three per row."""
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
        "templating": {"list": list(variables)},
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
        "sort": 2,  # newest run first: names begin with the date
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "hide": 0,
        "current": {"selected": True, "text": "All", "value": "$__all"},
    }


def _placed(panels: Sequence[Json]) -> list[Json]:
    """Return the panels with their positions: rows at full width, panels three per row."""
    placed, x, y = [], 0, 0
    for number, panel in enumerate(panels, start=1):
        width, height = (_WIDTH, 1) if panel["type"] == "row" else (_PANEL_WIDTH, _PANEL_HEIGHT)
        if x + width > _WIDTH:
            x, y = 0, y + _PANEL_HEIGHT
        placed.append(panel | {"id": number, "gridPos": {"h": height, "w": width, "x": x, "y": y}})
        x, y = (0, y + height) if x + width == _WIDTH else (x + width, y)
    return placed


# -- rules: recordings for long ranges, and alerts


class Alert(NamedTuple):
    """One alert. `{name}` in the expression is a sampled series; alerts on undeclared series are left out."""

    name: str
    expression: str
    summary: str
    after: str = "0s"
    severity: str = "warning"


_RUN_ALERTS = (
    Alert(
        "BenchhouseTrialsFailed",
        f'sum by (run_id) ({{__name__=~"{RUN}_trials_({_BAD})"}}) > 0',
        "Run {{ $labels.run_id }} has {{ $value }} failed trials: bench status {{ $labels.run_id }}",
    ),
    Alert(
        "BenchhouseTrialsInvalid",
        f"{RUN}_trials_invalid > 0",
        "{{ $value }} trials of run {{ $labels.run_id }} are invalid: bench report {{ $labels.run_id }}",
    ),
    Alert(
        "BenchhouseRunStalled",
        f"(time() - {RUN}_last_trial_timestamp_seconds > 3600) and on (run_id) "
        f'({RUN}_trials_planned > on (run_id) sum by (run_id) ({{__name__=~"{RUN}_trials_({_ANY})"}}))',
        "No trial of run {{ $labels.run_id }} has ended for an hour, and it is not finished",
    ),
    Alert(
        "BenchhouseSeriesDropped",
        f"{RUN}_series_dropped > 0",
        "{{ $value }} series of run {{ $labels.run_id }} are over the budget and only in its evidence",
        severity="info",
    ),
    Alert(
        "BenchhouseLiveFileStale",
        'time() - node_textfile_mtime_seconds{file=~".*benchhouse_live_.*"} > 600',
        "{{ $labels.file }} is served though no worker refreshes it: remove it",
    ),
)
_SAMPLED_ALERTS = (
    Alert(
        "BenchhouseGpuHot",
        "{gpu_throttled_heat} > 0",
        "{{ $labels.scope }} of run {{ $labels.run_id }} is slowed down for heat: its numbers are those of a hot GPU",
        after="30s",
    ),
    Alert(
        "BenchhouseGpuMemoryErrors",
        "increase({gpu_ecc_uncorrected}[10m]) > 0",
        "{{ $labels.scope }} has memory errors that could not be corrected",
        severity="critical",
    ),
    Alert(
        "BenchhousePcieNarrow",
        "{pcie_width} < {pcie_width_most}",
        "{{ $labels.scope }} has {{ $value }} PCIe lanes, fewer than it could have",
        after="1m",
    ),
    Alert(
        "BenchhouseNvlinkErrors",
        "increase({nvlink_crc}[10m]) + increase({nvlink_recoveries}[10m]) > 0",
        "NVLinks of {{ $labels.scope }} have errors",
    ),
    Alert(
        "BenchhouseCacheFull",
        "{kv_cache_used} > 0.95",
        "The key-value cache of {{ $labels.scope }} is full: requests wait for it, not for the model",
        after="1m",
    ),
    Alert(
        "BenchhouseCpuThrottled",
        "rate({cgroup_throttled}[1m]) > 0.1",
        "The CPU limit holds {{ $labels.scope }} of run {{ $labels.run_id }} back",
        after="30s",
    ),
)


def rules(series: Iterable[Series]) -> dict[str, Any]:
    """Return recording rules for every counter, and the alerts."""
    names = {item.name: telemetry_name(item).name for item in series}
    counters = sorted({telemetry_name(item).name for item in series if item.kind == "counter"})
    rate = "sum by (run_id, benchmark_case_id, scope) (rate({}[1m]))"
    recorded = [
        {"record": f"scope:{name.removesuffix('_total')}:rate1m", "expr": rate.format(name)} for name in counters
    ]
    if "gpu_power" in names:
        recorded.append({"record": "run:benchhouse_power_watts:sum", "expr": f"sum by (run_id) ({names['gpu_power']})"})
    alerts = [_alert(item, item.expression) for item in _RUN_ALERTS]
    for item in _SAMPLED_ALERTS:
        needed = [name for _, name, _, _ in Formatter().parse(item.expression) if name]
        if all(name in names for name in needed):
            alerts.append(_alert(item, item.expression.format(**names)))
    groups = {"benchhouse_recorded": recorded, "benchhouse_alerts": alerts}
    return {"groups": [{"name": name, "rules": listed} for name, listed in groups.items()]}


def rules_yaml(series: Iterable[Series]) -> str:
    return dump_yaml(rules(list(series)))


def _alert(item: Alert, expression: str) -> dict[str, Any]:
    return {
        "alert": item.name,
        "expr": expression,
        "for": item.after,
        "labels": {"severity": item.severity},
        "annotations": {"summary": item.summary},
    }
