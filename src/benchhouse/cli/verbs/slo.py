"""Find the knee: the highest load that meets a service-level objective."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.analysis.slo_search import Search
    from benchhouse.api.slo import ProbeRun, SloSearchResult

command = commands.group(__doc__, "bench slo find server.yaml --slo 'ttft.p99<300ms,error<0.1%'")


@command.verb(
    "Search for the knee, the highest load at which every clause of --slo holds, with an interval. Each probe is "
    "a run of SCENARIO, which has one point, with its load and number of requests set (its duration is not used).",
    "bench slo find server.yaml --slo 'ttft.p99<300ms,error<0.1%'",
    "bench slo find server.yaml --slo 'e2e.p95<2s' --over concurrency --to 256",
)
@commands.scenario_argument()
@click.option("--slo", "objective", required=True, help="Clauses such as ttft.p99<300ms, error<0.1%, goodput>95%.")
@click.option("--over", type=click.Choice(["rps", "concurrency"]), help="What is varied; as the scenario does.")
@click.option("--from", "first", type=click.FloatRange(min=0, min_open=True), help="Load of the first probe.")
@click.option("--to", "highest", type=click.FloatRange(min=0, min_open=True), help="Highest load that is tried.")
@click.option("--requests", type=click.IntRange(min=200), default=500_000, show_default=True, help="At most, in all.")
@click.option("--precision", type=commands.SHARE, default="3%", show_default=True,
              help="Half the width of the interval, as a share of the load.")  # fmt: skip
def find(workspace: Workspace, /, scenario: Path, objective: str, as_json: bool, **settings: Any) -> int:
    from benchhouse.api.slo import SearchRequest, read_slo

    slo = read_slo(objective)
    names = [str(clause) for clause in slo.clauses]

    def show_probe(probed: "ProbeRun", search: "Search") -> None:
        shares = ", ".join(f"{name}: {share:.2%} over" for name, share in zip(names, probed.over, strict=True))
        known = search.result()
        between = f"; the knee lies between {known.low:.4g} and {known.high:.4g}" if known.high < math.inf else ""
        screen.note(f"probe {known.probes}: {'holds' if probed.holds else 'misses'} ({shares}){between}")

    answer = workspace.find_knee(scenario, SearchRequest(slo, **settings), each=show_probe, note=screen.note)
    if as_json:
        screen.as_json(answer.as_json())
    else:
        _show(answer, names)
    return Exit.GOOD if answer.found.status in ("found", "all_pass") else Exit.TRIAL_FAILED


def _show(answer: "SloSearchResult", names: list[str]) -> None:
    result = answer.found
    rows = [
        (
            f"{point.load:.4g}",
            point.requests,
            f"{point.delivered:.4g}",
            *(f"{over.observed:.2%}" for over in point.over),
        )
        for point in result.curve
    ]
    columns = [answer.over, "requests", "delivered/s", *(f"over {name}" for name in names)]
    screen.table(columns, rows, right=columns)
    unit = "requests/s" if answer.over == "rps" else "in flight"
    if result.status == "none_pass":
        click.echo(f"no load meets {answer.slo}: even {result.curve[0].load:.4g} {unit} misses it")
    elif result.status == "all_pass":
        click.echo(
            f"knee above {result.knee:.4g} {unit}: the highest load that is tried (--to) still meets {answer.slo}"
        )
    elif result.status == "client_limited":
        click.echo(
            f"knee above {result.knee:.4g} {unit}, client-limited: the highest load that the client could deliver "
            f"still meets {answer.slo}"
        )
    else:
        sure = f"{result.confidence:.0%} interval {result.low:.4g} to {result.high:.4g}"
        click.echo(f"knee: {result.knee:.4g} {unit}, the highest load that meets {answer.slo} ({sure})")
    _show_limits(answer, unit)
    screen.note(f"all of it: {answer.path}; each probe is a run: bench report {answer.probes[-1].run_id}")


def _show_limits(answer: "SloSearchResult", unit: str) -> None:
    """Print what prevented a better answer, and the error limit with which this one was certified."""
    if answer.error_limit is not None:
        screen.note(f"times are taken that can be off by {answer.error_limit * 1e3:g} ms")
    if answer.undelivered:
        lowest = min(answer.undelivered, key=lambda probe: probe.load)
        screen.note(
            f"the client could not deliver {lowest.load:.4g} {unit} ({lowest.reason}): free a core for it, give it "
            "more processes, or accept its lateness (workload: {error_limit: 20ms})"
        )
    if answer.found.status == "budget" and answer.found.requests:
        screen.note(f"not as precise as requested after {answer.found.requests} requests; raise --requests")
