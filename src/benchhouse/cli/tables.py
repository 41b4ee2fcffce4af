"""The tables of results that several verbs print."""

from typing import Any

from rich.text import Text

from benchhouse.cli import show

_MOST_COLUMNS = 6


def points_table(points: list[dict[str, Any]]) -> None:
    """One row a point, one column a metric (mean over trials ± spread), the experiment's own order of metrics."""
    columns: dict[tuple[str, str], str] = {}
    for row in points:
        if row["headline"]:
            columns.setdefault((row["metric"], row["stat"]), f"{_name(row)} ({row['unit']})")
    shown = list(columns)[:_MOST_COLUMNS]
    by_point: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for row in points:
        by_point.setdefault(row["point"] or row["target_name"] or row["scenario"], {})[row["metric"], row["stat"]] = row
    if not shown:
        return
    rows = [
        (label, max(row["n"] for row in cells.values()), *(_cell(cells.get(column)) for column in shown))
        for label, cells in by_point.items()
    ]
    names = [columns[column] for column in shown]
    show.table(["point", "n", *names], rows, right=["n", *names])
    if any(cells[column]["shaky"] for cells in by_point.values() for column in shown if column in cells):
        show.note("~ a percentile from too few samples within a trial to be trusted")
    if len(columns) > len(shown):
        show.note(f"{len(columns) - len(shown)} more metrics: bench report, or --json")


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    mark = "~" if row["shaky"] else ""
    spread = f" ± {show.number(row['stdev'], 2)}" if row["stdev"] is not None else ""
    return f"{mark}{show.number(row['mean'])}{spread}"


def _name(row: dict[str, Any]) -> str:
    name: str = row["metric"]
    return name if row["stat"] == "value" else f"{name} {row['stat']}"


def failure_block(failure: dict[str, Any]) -> None:
    """What failed, its last words, where it is, and the line that runs it again."""
    console = show.console(stderr=True)
    code = failure.get("code") or ""
    title = f"{failure['outcome']}: {code + ': ' if code else ''}{failure.get('message') or failure['reason']}"
    console.print(Text(f"✗ {failure['trial_id'][:8]}  {title}", style="red"), soft_wrap=True)
    tail = failure.get("traceback") or failure.get("log_tail") or ""
    for line in tail.strip().splitlines()[-8:]:
        console.print(Text(f"    {line}", style="dim"), soft_wrap=True)
    console.print(Text(f"    folder  {failure['folder']}"), soft_wrap=True)
    console.print(Text(f"    again   {failure['rerun']}"), soft_wrap=True)
