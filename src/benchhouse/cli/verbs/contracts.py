"""BenchmarkRun contracts, promised before a run: list, show, render, validate."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import BenchError, Exit

if TYPE_CHECKING:
    from benchhouse.api.contracts import Contracts, ContractTemplate
    from benchhouse.schema.contract import BenchmarkRun

_EXAMPLES = """\b
Examples:
  bench contracts show publication-inference > contract.yaml
  bench contracts render examples/quickstart.yaml      what a scenario amounts to, and what it leaves open
  bench contracts validate contract.yaml               accepted, downgraded or rejected: never in silence
"""


@click.group(help=f"{__doc__}\n\n{_EXAMPLES}")
def command() -> None:
    pass


@command.command(
    "list", help="Contracts to begin with, by class and kind of workload." + examples("bench contracts list")
)
@options.json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    templates = options.workspace(ctx).contracts.list()
    if as_json:
        screen.as_json([{"class": row.pop("benchmark_class")} | row for row in screen.plain(templates)])
        return
    screen.table(
        ("contract", "class", "replicates", "metrics of"),
        [(item.contract, item.benchmark_class, item.min_replicates, item.workload) for item in templates],
        right=("replicates",),
    )
    click.echo()
    screen.facts((workload, ", ".join(metrics)) for workload, metrics in _by_workload(templates).items())
    screen.note("next:  bench contracts show CONTRACT > contract.yaml")


def _by_workload(templates: "list[ContractTemplate]") -> dict[str, list[str]]:
    """What each kind of workload is held to; a mixed one to all of it."""
    metrics_of = {item.workload: item.metrics for item in templates}
    parts = {metric for workload, metrics in metrics_of.items() if workload != "mixed" for metric in metrics}
    if set(metrics_of.get("mixed", ())) == parts:
        metrics_of["mixed"] = ["all of these"]
    return metrics_of


@command.command(
    "show",
    help="A contract as YAML; --schema: the JSON Schema of all."
    + examples(
        "bench contracts show publication-inference > contract.yaml",
        "bench contracts show --schema > contract.schema.json",
    ),
)
@click.argument("contract", required=False)
@click.option("--schema", is_flag=True, help="Print the JSON Schema.")
@options.json_option
@click.pass_context
def show_(ctx: click.Context, contract: str | None, schema: bool, as_json: bool) -> None:
    contracts = options.workspace(ctx).contracts
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


@command.command(
    help="The contract that a scenario file or a run amounts to; what it leaves open is listed."
    + examples("bench contracts render scenarios/first.yaml", "bench contracts render @last")
)
@click.argument("what", metavar="SCENARIO|RUN")
@options.json_option
@click.pass_context
def render(ctx: click.Context, what: str, as_json: bool) -> None:
    contracts = options.workspace(ctx).contracts
    rendered = contracts.render(what)
    _print(contracts, rendered.contract, as_json)
    for line in rendered.to_confirm:
        screen.note(f"to confirm: {line}")
    screen.note("next:  bench contracts validate FILE")


@command.command(
    help="Check contract files: mistakes with file:line:column (exit code 2). A promise that is missing downgrades the "
    "contract, which is said, or rejects it (exit code 4)." + examples("bench contracts validate contract.yaml")
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.json_option
@click.pass_context
def validate(ctx: click.Context, files: tuple[Path, ...], as_json: bool) -> int:
    from benchhouse.cli import show_error

    contracts = options.workspace(ctx).contracts
    results: list[dict[str, Any]] = []
    codes = [Exit.GOOD]
    for path in files:
        try:
            checked = contracts.validate(path)
        except BenchError as error:
            codes.append(Exit.BAD_INPUT)
            problems = [problem.as_dict() for problem in getattr(error, "problems", [])]
            results.append({"file": str(path), "valid": False, "error": error.message, "problems": problems})
            if not as_json:
                show_error(error)
            continue
        if checked.settled.verdict == "rejected":
            codes.append(Exit.CLAIM_NOT_SAFE)
        results.append(
            {"file": str(path), "valid": True, "name": checked.contract.name, **checked.settled.model_dump()}
        )
        if not as_json:
            click.echo(f"{path}: {checked.settled.sentence()}")
    if as_json:
        screen.as_json(results)
    return Exit.BAD_INPUT if Exit.BAD_INPUT in codes else max(codes)
