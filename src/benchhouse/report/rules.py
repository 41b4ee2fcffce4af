"""Prometheus rules beside the dashboards: what is recorded for long ranges, and what somebody should be told of."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.schema.hot_metrics import RUN, telemetry_name
from benchhouse.schema.telemetry import Series
from benchhouse.schema.trial import OUTCOMES

_BAD = "|".join(outcome for outcome in OUTCOMES if outcome not in ("succeeded", "invalid", "cancelled"))
_ANY = "|".join(OUTCOMES)


class Alert(NamedTuple):
    """One alert. `{name}` in the expression is a sampled series; an alert on one that nobody declares is left out."""

    name: str
    expression: str
    summary: str
    after: str = "0s"
    severity: str = "warning"
    needs: tuple[str, ...] = ()


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
        needs=("gpu_throttled_heat",),
    ),
    Alert(
        "BenchhouseGpuMemoryErrors",
        "increase({gpu_ecc_uncorrected}[10m]) > 0",
        "{{ $labels.scope }} has memory errors that could not be corrected",
        severity="critical",
        needs=("gpu_ecc_uncorrected",),
    ),
    Alert(
        "BenchhousePcieNarrow",
        "{pcie_width} < {pcie_width_most}",
        "{{ $labels.scope }} has {{ $value }} PCIe lanes, fewer than it could have",
        after="1m",
        needs=("pcie_width", "pcie_width_most"),
    ),
    Alert(
        "BenchhouseNvlinkErrors",
        "increase({nvlink_crc}[10m]) + increase({nvlink_recoveries}[10m]) > 0",
        "NVLinks of {{ $labels.scope }} have errors",
        needs=("nvlink_crc", "nvlink_recoveries"),
    ),
    Alert(
        "BenchhouseCacheFull",
        "{kv_cache_used} > 0.95",
        "The key-value cache of {{ $labels.scope }} is full: requests wait for it, not for the model",
        after="1m",
        needs=("kv_cache_used",),
    ),
    Alert(
        "BenchhouseCpuThrottled",
        "rate({cgroup_throttled}[1m]) > 0.1",
        "The CPU limit holds {{ $labels.scope }} of run {{ $labels.run_id }} back",
        after="30s",
        needs=("cgroup_throttled",),
    ),
)


def rules(series: Iterable[Series]) -> dict[str, Any]:
    """Recording rules for every counter, and the alerts."""
    names = {item.name: telemetry_name(item).name for item in series}
    counters = sorted({telemetry_name(item).name for item in series if item.kind == "counter"})
    recorded = [
        {
            "record": f"scope:{name.removesuffix('_total')}:rate1m",
            "expr": f"sum by (run_id, benchmark_case_id, scope) (rate({name}[1m]))",
        }
        for name in counters
    ]
    if "gpu_power" in names:
        recorded.append({"record": "run:benchhouse_power_watts:sum", "expr": f"sum by (run_id) ({names['gpu_power']})"})
    alerts = [_alert(item, item.expression) for item in _RUN_ALERTS]
    known = [item for item in _SAMPLED_ALERTS if all(need in names for need in item.needs)]
    alerts += [_alert(item, item.expression.format(**names)) for item in known]
    return {
        "groups": [
            {"name": "benchhouse_recorded", "rules": recorded},
            {"name": "benchhouse_alerts", "rules": alerts},
        ]
    }


def as_yaml(series: Iterable[Series]) -> str:
    return dump_yaml(rules(list(series)))


def _alert(item: Alert, expression: str) -> dict[str, Any]:
    return {
        "alert": item.name,
        "expr": expression,
        "for": item.after,
        "labels": {"severity": item.severity},
        "annotations": {"summary": item.summary},
    }
