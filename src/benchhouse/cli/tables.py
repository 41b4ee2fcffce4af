"""The tables of results that several verbs print."""

import json
from typing import Any

from rich.text import Text

from benchhouse.cli import show

_SHOWN = {"value", "mean", "p50", "p99"}


def points_table(points: list[dict[str, Any]]) -> None:
    """Every point's metrics: mean over trials, spread, unit, n."""
    rows = []
    for row in points:
        if row["stat"] not in _SHOWN:
            continue
        name = row["metric"] if row["stat"] == "value" else f"{row['metric']}.{row['stat']}"
        spread = f"± {show.number(row['stdev'], 2)}" if row["stdev"] is not None else ""
        value = show.number(row["mean"])
        if row.get("shaky"):
            value = f"~{value}"
        rows.append((row["point"] or row["target_name"], name, value, spread, row["unit"], row["n"], row["ref"]))
    if rows:
        columns = ("point", "metric", "mean", "spread", "unit", "n", "trace")
        show.table(columns, rows, right=("mean", "n"))
        if any(str(row[2]).startswith("~") for row in rows):
            show.note("~ a percentile from too few samples within a trial to be trusted")


def failure_block(failure: dict[str, Any]) -> None:
    """What failed, its last words, where it is, and the line that runs it again."""
    console = show.console(stderr=True)
    code = failure.get("code") or ""
    title = f"{failure['outcome']}: {code + ': ' if code else ''}{failure.get('message') or failure['reason']}"
    console.print(Text(f"✗ {failure['trial_id'][:8]}  {title}", style="red"))
    tail = failure.get("traceback") or failure.get("log_tail") or ""
    for line in tail.strip().splitlines()[-8:]:
        console.print(Text(f"    {line}", style="dim"))
    console.print(Text(f"    folder  {failure['folder']}"))
    console.print(Text(f"    again   {failure['rerun']}"))


def axes_text(axes: str) -> str:
    return " ".join(f"{key}={value}" for key, value in json.loads(axes).items())
