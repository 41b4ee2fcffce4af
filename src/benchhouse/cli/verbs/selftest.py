"""Run a workload against itself: how often equal things look different here, and the smallest visible change."""

from pathlib import Path
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands


@commands.verb(
    f"{__doc__}\n\nTrials of SCENARIO (by default that of the last run) take turns as A and B. It is kept, "
    "and compare, gate and history cite it.",
    "bench selftest examples/quickstart.yaml",
    "bench selftest examples/quickstart.yaml --pairs 100   a narrower interval of the rate",
    "bench selftest --last   the result of the last one",
)
@commands.scenario_argument(required=False)
@click.option("--pairs", type=click.IntRange(5, 10_000), default=20, show_default=True, help="A/A pairs of each point.")
@click.option("--repetitions", type=click.IntRange(3, 1000), help="Trials on each side; as the scenario says.")
@click.option("--last", is_flag=True, help="Run nothing: show the newest result.")
def command(workspace: Workspace, /, scenario: Path | None, last: bool, as_json: bool, **settings: Any) -> None:
    record = (
        workspace.last_selftest() if last
        else workspace.selftest(scenario, progress=screen.RunProgress(), **settings)
    )  # fmt: skip
    if as_json:
        screen.as_json(record)
    if record is None:
        screen.note("no selftest has been run here:  bench selftest SCENARIO.yaml")
    if as_json or record is None:
        return
    percent = screen.percent
    rows = [
        (f"{item.metric} {item.stat}", f"{item.false_positives} of {item.pairs}", percent(item.rate, signed=False),
         f"{item.rate_low:.1%} to {item.rate_high:.1%}", percent(item.cv, signed=False),
         percent(item.smallest_effect, signed=False) if item.smallest_effect is not None else "none up to 100%")
        for item in record.metrics
    ]  # fmt: skip
    columns = ("metric", "looked different", "rate", "95% interval", "spread", "smallest visible")
    screen.table(columns, rows, right=columns[1:], whole=columns)
    expected = 1.0 - record.confidence
    alarmed = [item.metric for item in record.metrics if item.rate_low > expected]
    if alarmed:
        screen.note(f"more than {expected:.0%} of equal pairs look different in {', '.join(alarmed)}: "
                  "trials are not independent here; a busy or throttling machine does that")  # fmt: skip
    sides = f"{record.repetitions} against {record.repetitions} trials"
    screen.note(f"{record.time[:16]}Z on {record.host}, {sides}, run {record.run_id}")
    screen.note("verdicts cite this from now on; next:  bench compare, bench gate BASE..NEW")
