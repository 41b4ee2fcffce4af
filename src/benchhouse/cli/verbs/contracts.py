"""BenchmarkRun contracts, promised before a run: list, show, render, validate."""

from pathlib import Path
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import BenchError, Exit

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
def list_(as_json: bool) -> None:
    from benchhouse.api import contracts

    rows = contracts.listed()
    if as_json:
        screen.as_json(rows)
        return
    screen.table(
        ("contract", "class", "replicates", "metrics of"),
        [(row["contract"], row["class"], row["min_replicates"], row["workload"]) for row in rows],
        right=("replicates",),
    )
    click.echo()
    screen.facts((workload, ", ".join(metrics)) for workload, metrics in _by_workload(rows).items())
    screen.note("next:  bench contracts show CONTRACT > contract.yaml")


def _by_workload(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What each kind of workload is held to; a mixed one to all of it."""
    found = {row["workload"]: row["metrics"] for row in rows}
    parts = {metric for workload, metrics in found.items() if workload != "mixed" for metric in metrics}
    if set(found.get("mixed", ())) == parts:
        found["mixed"] = ["all of these"]
    return found


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
def show_(contract: str | None, schema: bool, as_json: bool) -> None:
    from benchhouse.api import contracts

    if schema:
        screen.as_json(contracts.json_schema())
        return
    if contract is None:
        raise BenchError("name a contract, or ask for --schema", "see: bench contracts list")
    _print(contracts.show(contract), as_json)
    screen.note("next:  bench contracts validate FILE")


def _print(contract: Any, as_json: bool) -> None:
    from benchhouse.api import contracts

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
    from benchhouse.api import contracts

    contract, open_points = contracts.render(options.workspace(ctx).folder, what)
    _print(contract, as_json)
    for line in open_points:
        screen.note(f"to confirm: {line}")
    screen.note("next:  bench contracts validate FILE")


@command.command(
    help="Check contract files: mistakes with file:line:column (exit code 2). A promise that is missing downgrades the "
    "contract, which is said, or rejects it (exit code 4)." + examples("bench contracts validate contract.yaml")
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.json_option
def validate(files: tuple[Path, ...], as_json: bool) -> int:
    from benchhouse.api import contracts
    from benchhouse.cli import show_error

    results: list[dict[str, Any]] = []
    codes = [Exit.GOOD]
    for path in files:
        try:
            contract, settled = contracts.validate(path)
        except BenchError as error:
            codes.append(Exit.BAD_INPUT)
            problems = [problem.as_dict() for problem in getattr(error, "problems", [])]
            results.append({"file": str(path), "valid": False, "error": error.message, "problems": problems})
            if not as_json:
                show_error(error)
            continue
        if settled.verdict == "rejected":
            codes.append(Exit.CLAIM_NOT_SAFE)
        results.append({"file": str(path), "valid": True, "name": contract.name, **settled.model_dump()})
        if not as_json:
            click.echo(f"{path}: {settled.sentence()}")
    if as_json:
        screen.as_json(results)
    return Exit.BAD_INPUT if Exit.BAD_INPUT in codes else max(codes)
