"""Packages of a nexus: which benchmarks belong to which models, and whether everything in them is valid."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands

if TYPE_CHECKING:
    from benchhouse.api.packages import PackageBenchmark, Proof

command = commands.group(
    __doc__,
    "bench packages list",
    "bench packages show terratorch",
    "bench packages validate   schemas, experiments, parameters, and that all of it installs together",
    "bench packages validate terratorch --install   what is not installed here is tried in an environment of its own",
)


@command.verb("All packages of the nexus.", "bench packages list")
@commands.nexus_option
def list_(workspace: Workspace, nexus: str | None, as_json: bool) -> None:
    listed = workspace.packages.list(nexus=nexus)
    if as_json:
        screen.as_json(listed)
        return
    columns = ["package", "Python packages", "experiments", "models", "benchmarks", "broken"]
    judged = [name for name in ("scan", "signature") if any(getattr(item, name) for item in listed)]
    rows = [
        (item.package, item.benchmark_packages, item.experiments, item.models, item.benchmarks, len(item.broken) or "",
         *(getattr(item, name) for name in judged))
        for item in listed
    ]  # fmt: skip
    screen.table([*columns, *judged], rows, right=columns[1:], whole=("package",))
    if any(item.broken for item in listed):
        screen.note("what is broken, and where:  bench packages validate --static")
    elif any(item.signature == "not signed" for item in listed):
        screen.note("what is not signed, and why:  bench packages verify")
    else:
        screen.note("next:  bench packages show PACKAGE")


@command.verb("One package: what it installs, its models and its benchmarks.", "bench packages show terratorch")
@click.argument("name", metavar="PACKAGE")
@commands.nexus_option
def show_(workspace: Workspace, name: str, nexus: str | None, as_json: bool) -> None:
    details = workspace.packages.show(name, nexus=nexus)
    if as_json:
        screen.as_json(details)
        return
    click.echo(f"{details.package}  ({details.file})")
    for item in details.benchmark_packages:
        click.echo(f"  installs {item.requirement_specifier}  for {', '.join(item.experiments) or 'nothing'}")
    rows = [_row(item, "") for item in details.benchmarks]
    for model in details.models:
        owner = f", {model.owner}" if model.owner else ""
        click.echo(f"  model {model.model}{owner}  ({model.file})")
        rows += [_row(item, model.model) for item in model.benchmarks]
    if rows:
        click.echo()
        screen.table(("benchmark", "model", "runs", "file"), rows, whole=("benchmark",))
    for message in details.broken:
        screen.note(f"broken: {message}")
    screen.note(f"next:  bench packages validate {name}")


@command.verb(
    "Look for known vulnerabilities and licences in what packages install, and keep it with its parts list (CycloneDX)."
    "\n\nWhere advisories are and what is let through stands in `packages:` of trusted.yaml. Exit code 2: something is "
    "refused. 1: a scan could not look, which lets nothing through.",
    "bench packages scan   every package of the nexus",
    "bench packages scan terratorch",
    "bench packages scan -c scenario.yaml   what its runs would bring, such as an isolated environment",
)
@click.argument("name", metavar="[PACKAGE]", required=False)
@click.option("-c", "--config", "scenario", type=commands.FILE, help="A scenario in place of a package.")
@commands.nexus_option
def scan(workspace: Workspace, name: str | None, scenario: Path | None, nexus: str | None, as_json: bool) -> int:
    scanned = workspace.packages.scan(name, scenario=scenario, nexus=nexus)
    if as_json:
        screen.as_json(scanned)
        return scanned.exit_code
    rows = [
        (item.package, item.subject, item.state, len(item.scan.components) if item.scan else "", item.parts_list)
        for item in scanned.packages
    ]
    columns = ("package", "installs", "scan", "parts", "parts list")
    screen.table(columns, rows, right=("parts",), whole=("package", "scan"))
    for item in scanned.packages:
        for reason in item.reasons:
            click.echo(screen.on_stderr(f"{item.subject}: {reason}"), err=True)
    if scanned.exit_code:
        screen.note("what is refused may not run; an exception with its reason and its last day:  trusted.yaml")
    return scanned.exit_code


@command.verb(
    "Sign what a wheel, or a distribution that is installed here, brings: with an SSH key of somebody who may register "
    "packages by trusted.yaml. The signature lies in signatures/ of the nexus, else of the workspace: commit it.",
    "bench packages sign dist/terratorch_bench-1.2-py3-none-any.whl",
    "bench packages sign terratorch-bench --key ~/.ssh/work.pub   with the key that your agent holds",
)
@click.argument("what", metavar="WHEEL|NAME")
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Private key, or the .pub of one that your agent holds; default: one of ~/.ssh.")  # fmt: skip
def sign(workspace: Workspace, what: str, key: Path | None, as_json: bool) -> None:
    path = workspace.packages.sign(what, key=key)
    if as_json:
        screen.as_json({"file": str(path)})
        return
    click.echo(f"signed: {path}")
    screen.note("next:  bench packages verify")


@command.verb(
    "Who signed packages: the commit of each package's folder in the nexus, and the Python packages that it installs, "
    "as they are here. Exit code 2 where a signature is missing, or is of nobody who may register by trusted.yaml.",
    "bench packages verify   every package of the nexus",
    "bench packages verify terratorch",
    "bench packages verify dist/terratorch_bench-1.2-py3-none-any.whl",
)
@click.argument("name", metavar="[PACKAGE|WHEEL]", required=False)
@commands.nexus_option
def verify(workspace: Workspace, name: str | None, nexus: str | None, as_json: bool) -> int:
    verified = workspace.packages.verify(name, nexus=nexus)
    if as_json:
        screen.as_json(verified)
        return verified.exit_code
    rows = [
        (item.package, item.standing.subject, "signed" if item.standing.signed else "not signed", item.standing.says)
        for item in verified.packages
    ]
    screen.table(("package", "what", "state", "says"), rows, whole=("package", "state"))
    for then in dict.fromkeys(item.standing.next for item in verified.packages if item.standing.next):
        screen.note(then)
    return verified.exit_code


def _row(item: "PackageBenchmark", model: str) -> tuple[str, str, str, str]:
    runs = [f"{need.experiment} {need.version or ''}".strip() for need in item.experiments]
    return item.benchmark, model, ", ".join(runs) or f"uses {item.uses}", item.file


@command.verb(
    "Prove it; exit code 2 for what is broken, 1 for what could not be checked, 0 for neither.",
    "bench packages validate",
    "bench packages validate terratorch --static   the files alone, without a resolver",
)
@click.argument("name", metavar="[PACKAGE]", required=False)
@click.option("--static", is_flag=True, help="Files, and experiments that are installed here; nothing is resolved.")
@click.option("--install", is_flag=True, help="Check what is not installed here in an environment of its own.")
@click.option("--timeout", "timeout_s", type=float, default=120, show_default=True, help="Seconds for each resolution.")
@commands.nexus_option
def validate(workspace: Workspace, /, name: str | None, as_json: bool, **settings: Any) -> int:
    proof = workspace.packages.validate(name, note=screen.note, **settings)
    if as_json:
        screen.as_json(proof.to_dict())
    else:
        _show_proof(proof)
    return proof.exit_code


@command.verb(
    "Prove that all packages can be installed in one environment; where they can't (exit code 2), the smallest set of "
    "requirements that conflicts.",
    "bench packages together",
    "bench packages together --json",
)
@click.option("--timeout", "timeout_s", type=float, default=120, show_default=True, help="Seconds for each resolution.")
@commands.nexus_option
def together(workspace: Workspace, timeout_s: float, nexus: str | None, as_json: bool) -> int:
    proof = workspace.packages.together(timeout_s=timeout_s, nexus=nexus, note=screen.note)
    if as_json:
        screen.as_json(proof)
        return proof.exit_code
    scope = f"{screen.count(proof.packages, 'package')}, {screen.count(proof.requirements, 'requirement')}"
    if not proof.conflict:
        click.echo(f"{scope}: all can be installed together, {screen.count(proof.distributions, 'distribution')}")
        return proof.exit_code
    click.echo(f"{scope}: {len(proof.conflict)} of them can't be installed together, and none of these can be left out")
    screen.table(("requirement", "place"), [(item.requirement, item.place) for item in proof.conflict])
    click.echo(screen.on_stderr(proof.reason), err=True)
    screen.note("run them apart:  runtime: {kind: venv, environments: [[...], [...]]}")
    return proof.exit_code


def _show_proof(proof: "Proof") -> None:
    for problem in proof.problems:
        click.echo(screen.on_stderr(problem.render()), err=True)
    for item in proof.unchecked:
        screen.note(f"not checked: {item.what}: {item.why}")
    scope = f"{screen.count(proof.packages, 'package')}, {screen.count(proof.benchmarks, 'benchmark')}"
    click.echo(f"{scope}: {screen.count(len(proof.problems), 'problem')}, {len(proof.unchecked)} not checked")
    if proof.problems:
        screen.note("correct what is named above, then:  bench packages validate")
    elif proof.unchecked and not proof.static:
        screen.note("check it in an environment of its own:  bench packages validate --install")
    elif proof.static:
        screen.note("the files hold; whether all of it installs together:  bench packages validate")
    else:
        screen.note("next:  bench list benchmarks")
