"""Trace a value back: report row, query, digests, and the bytes on disk."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import verb
from benchhouse.schema.errors import Exit


@verb(
    f"{__doc__}\n\nREF is the reference beside a number, a claim, a trial id, or RUN:metric[.stat]; "
    "points are picked as in RUN:key=value:metric.",
    "bench trace f6741a41b4   a number of a report, by its reference",
    "bench trace @last:index=hnsw:qps   a metric of a run, computed now",
    "bench trace 4f1c2a90e1d37b58   a claim",
)
@click.argument("ref")
@click.option("--sql", "with_sql", is_flag=True, help="Print the text of the query, too.")
def command(workspace: Workspace, ref: str, with_sql: bool, as_json: bool) -> int:
    traced = workspace.trace(ref)
    if as_json:
        screen.as_json(traced.to_dict())
    else:
        traced.show(sql=with_sql)
    return Exit.GOOD if traced.ok else Exit.TRIAL_FAILED
