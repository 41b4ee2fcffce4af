"""BenchmarkRun contracts, promised before a run: list, show, render, validate."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import FILE, group
from benchhouse.cli.file_checks import check_files
from benchhouse.schema.errors import BenchError, Exit

if TYPE_CHECKING:
    from benchhouse.api.contracts import Contracts
    from benchhouse.schema.contract import BenchmarkRun


command = group(
    __doc__,
    "bench contracts show publication-inference > contract.yaml",
    "bench contracts render examples/quickstart.yaml   what a scenario amounts to, and what it leaves open",
    "bench contracts validate contract.yaml   accepted, downgraded or rejected: never in silence",
)


@command.verb("Contracts to begin with, by class and kind of workload.", "bench contracts list")
def list_(workspace: Workspace, as_json: bool) -> None:
    templates = workspace.contracts.list()
    if as_json:
        screen.as_json([{"class": row.pop("benchmark_class")} | row for row in screen.plain(templates)])
        return
    screen.table(
        ("contract", "class", "replicates", "metrics of"),
        [(item.contract, item.benchmark_class, item.min_replicates, item.workload) for item in templates],
        right=("replicates",),
    )
    metrics_of = {item.workload: item.metrics for item in templates}
    parts = {metric for workload, metrics in metrics_of.items() if workload != "mixed" for metric in metrics}
    if set(metrics_of.get("mixed", ())) == parts:
        metrics_of["mixed"] = ["all of these"]
    click.echo()
    screen.facts((workload, ", ".join(metrics)) for workload, metrics in metrics_of.items())
    screen.note("next:  bench contracts show CONTRACT > contract.yaml")


@command.verb(
    "A contract as YAML; --schema: the JSON Schema of all.",
    "bench contracts show publication-inference > contract.yaml",
    "bench contracts show --schema > contract.schema.json",
)
@click.argument("contract", required=False)
@click.option("--schema", is_flag=True, help="Print the JSON Schema.")
def show_(workspace: Workspace, contract: str | None, schema: bool, as_json: bool) -> None:
    contracts = workspace.contracts
    if schema:
        screen.as_json(contracts.json_schema())
        return
    if contract is None:
        raise BenchError("name a contract, or ask for --schema", "see: bench contracts list")
    _print(contracts, contracts.show(contract), as_json)
    screen.note("next:  bench contracts validate FILE")


def _print(contracts: "Contracts", contract: "BenchmarkRun", as_json: bool) -> None:
    if as_json:
        screen.as_json(contract.model_dump(mode="json", by_alias=True, exclude_none=True))
    else:
        click.echo(contracts.text(contract), nl=False)


@command.verb(
    "The contract that a scenario file or a run amounts to; what it leaves open is listed.",
    "bench contracts render scenarios/first.yaml",
    "bench contracts render @last",
)
@click.argument("what", metavar="SCENARIO|RUN")
def render(workspace: Workspace, what: str, as_json: bool) -> None:
    contracts = workspace.contracts
    rendered = contracts.render(what)
    _print(contracts, rendered.contract, as_json)
    for line in rendered.to_confirm:
        screen.note(f"to confirm: {line}")
    screen.note("next:  bench contracts validate FILE")


@command.verb(
    "Check contract files: mistakes with file:line:column (exit code 2). A promise that is missing downgrades the "
    "contract, which is reported, or rejects it (exit code 4).",
    "bench contracts validate contract.yaml",
)
@click.argument("files", nargs=-1, required=True, type=FILE)
def validate(workspace: Workspace, files: tuple[Path, ...], as_json: bool) -> int:
    def check(path: Path) -> tuple[dict[str, Any], str]:
        checked = workspace.contracts.validate(path)
        result = {"valid": True, "name": checked.contract.name, **checked.settled.model_dump()}
        return result, checked.settled.sentence()

    code, results = check_files(files, check, as_json)
    rejected = any(result.get("verdict") == "rejected" for result in results)
    return code or (Exit.CLAIM_NOT_SAFE if rejected else Exit.GOOD)
