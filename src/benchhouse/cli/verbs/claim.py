"""Numbers that may be published: make, list, show, sign, verify, export, lint."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.results.lineage import Step

_EXAMPLES = """\b
Examples:
  bench claim make @last:name=short:wall_ms          refused with every reason, or written
  bench claim make @last:name=short:wall_ms --against @last:name=longer
  bench claim export 4f1c -o claim-4f1c.tar && bench claim verify claim-4f1c.tar
  bench claim lint README.md                         numbers that no claim stands behind
"""


@click.group(help=f"{__doc__}\n\n{_EXAMPLES}")
def command() -> None:
    pass


@command.command(
    help="Claim a number: its ref in a report, or RUN[:key=value]:metric[.stat]. What is not publication-safe is "
    "refused with every reason, exit code 4."
    + examples(
        "bench claim make @last:name=short:wall_ms",
        "bench claim make @last:name=short:wall_ms --against @last:name=longer   the change from there",
    )
)
@click.argument("number")
@click.option("--against", metavar="RUN[:KEY=VALUE]", help="Claim the change from there to the number.")
@click.option("--realism", is_flag=True, help="Label it REALISM-GRADE and list what it lacks, where a label may do.")
@click.option("--sign", "signed", is_flag=True, help="Sign it with your own key.")
@click.option("--key", type=click.Path(path_type=Path), help="Private key; default: claim.key of your keys.")
@options.json_option
@click.pass_context
def make(
    ctx: click.Context, number: str, against: str | None, realism: bool, signed: bool, key: Path | None, as_json: bool
) -> None:
    from benchhouse.api import claims

    workspace = options.workspace(ctx).folder
    made = claims.make(workspace, number, against, realism=realism)
    if signed or key:
        claims.sign(workspace, made.id, key)
    if as_json:
        screen.as_json(claims.show(workspace, made.id))
        return
    click.echo(made.id)
    screen.note(f"{made.label}: {made.statement}")
    for reason in made.reasons:
        screen.note(f"lacks {reason.code}: {reason.message}")
    screen.note(f"cite it as [claim:{made.id}]; give it away:  bench claim export {made.id}")


@command.command("list", help="Claims of this workspace." + examples("bench claim list"))
@options.json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    from benchhouse.api import claims

    rows = claims.listed(options.workspace(ctx).folder)
    if as_json:
        screen.as_json(rows)
        return
    if not rows:
        screen.note("no claims yet; make one:  bench claim make @last:METRIC")
        return
    screen.table(
        ("claim", "label", "signature", "statement"),
        [(row["id"], row["label"], row["signature"], row["statement"]) for row in rows],
        whole=("claim", "label", "signature"),
    )
    screen.note("next:  bench claim verify CLAIM")


@command.command(
    "show", help="One claim, whole." + examples("bench claim show 4f1c   the beginning of its id is enough")
)
@click.argument("claim")
@options.json_option
@click.pass_context
def show_(ctx: click.Context, claim: str, as_json: bool) -> None:
    from benchhouse.api import claims

    found = claims.show(options.workspace(ctx).folder, claim)
    if as_json:
        screen.as_json(found)
        return
    told = found["claim"]
    click.echo(f"{found['id']}  {told['label']}  {found['signature']['says']}")
    click.echo(told["statement"])
    rows = [
        ("value", f"{told['value']!r} {'' if told['unit'] == '1' else told['unit']}".strip()),
        ("interval", f"{told['interval']} at {told['policy']['confidence']}, {told['method']}"),
        ("n", told["n"]),
        *((f"lacks {one['code']}", one["message"]) for one in told["reasons"]),
        *((f"changed: {one['dimension']}", f"{one['a']} → {one['b']}") for one in told["changed"]),
        *(("query", f"{name} ({spec['engine']} {spec['engine_version']})") for name, spec in told["queries"].items()),
        *(("trial", f"{one['trial_id']} {one['value']!r} {one['folder']}") for one in told["trials"]),
    ]
    screen.table(("what", "is"), rows, whole=("what",))
    screen.note(f"walk it back:  bench trace {found['id']}")


@command.command(
    help="Sign a claim: an in-toto statement in a DSSE envelope, Ed25519, beside its file."
    + examples("bench claim sign 4f1c   with the key of: bench claim key make")
)
@click.argument("claim")
@click.option("--key", type=click.Path(path_type=Path), help="Private key; default: claim.key of your keys.")
@click.pass_context
def sign(ctx: click.Context, claim: str, key: Path | None) -> None:
    from benchhouse.api import claims

    path = claims.sign(options.workspace(ctx).folder, claim, key)
    click.echo(str(path))
    screen.note(f"check it:  bench claim verify {path.stem}")


@command.command(
    help="Check a claim, or a packet from elsewhere by itself alone: digests, the query run again, statistics, label, "
    "signature. Exit code 4 where something does not hold."
    + examples(
        "bench claim verify 4f1c", "bench claim verify claim-4f1c.tar --trust team.pub   a packet from elsewhere"
    )
)
@click.argument("what", metavar="CLAIM|PACKET")
@click.option(
    "--trust", multiple=True, type=click.Path(path_type=Path), help="Public key that must have signed it (repeatable)."
)
@options.json_option
@click.pass_context
def verify(ctx: click.Context, what: str, trust: tuple[Path, ...], as_json: bool) -> int:
    from benchhouse.api import claims

    checked = claims.verify(options.workspace(ctx).folder, what, trust)
    if as_json:
        screen.as_json(checked.model_dump(mode="json"))
        return Exit.GOOD if checked.ok else Exit.CLAIM_NOT_SAFE
    print_steps(checked.trace.steps)
    mark = {"signed": "✓", "wrong": "✗"}.get(checked.signature.state, "-")
    click.echo(f"5. {mark} signature")
    click.echo(f"     {checked.signature.says}")
    for note in checked.notes:
        screen.note(note)
    click.echo(f"{checked.label} {checked.claim_id}: {'holds' if checked.ok else 'does NOT hold: see above'}")
    if not checked.ok:
        screen.note(f"more:  bench claim verify {what} --json")
    return Exit.GOOD if checked.ok else Exit.CLAIM_NOT_SAFE


def print_steps(steps: "list[Step]") -> None:
    """The steps of a walk, each with its mark."""
    for number, step in enumerate(steps, start=1):
        mark = click.style("✓", fg="green") if step.ok else click.style("✗", fg="red")
        click.echo(f"{number}. {mark} {step.name}")
        for line in step.says:
            click.echo(f"     {line}")


@command.command(
    help="Write a packet: one file with the claim and all that proves it, to be checked anywhere."
    + examples("bench claim export 4f1c -o claim-4f1c.tar", "bench claim export 4f1c --with-raw")
)
@click.argument("claim")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Default: claim-ID.tar here.")
@click.option("--with-raw", is_flag=True, help="All files of the evidence, not only those that the number is made of.")
@options.json_option
@click.pass_context
def export(ctx: click.Context, claim: str, output: Path | None, with_raw: bool, as_json: bool) -> None:
    from benchhouse.api import claims

    path, packet = claims.export(options.workspace(ctx).folder, claim, output, with_raw=with_raw)
    if as_json:
        screen.as_json({"packet": str(path)} | packet.model_dump(mode="json"))
        return
    click.echo(str(path))
    screen.note(f"{screen.count(len(packet.files), 'file')}, {path.stat().st_size:,} bytes")
    screen.note(f"anywhere:  bench claim verify {path}")


@command.command(
    help="Find numbers of Markdown files that cite no claim, cite a wrong value, or cite an unsafe one. A number cites "
    "a claim as in `12.3 ms [claim:4f1c2a90]`." + examples("bench claim lint README.md docs/*.md")
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Whole numbers without a unit need a claim, too.")
@click.option("--no-trace", "untraced", is_flag=True, help="Don't walk cited claims back to their bytes.")
@options.json_option
@click.pass_context
def lint(ctx: click.Context, files: tuple[Path, ...], strict: bool, untraced: bool, as_json: bool) -> int:
    from benchhouse.api import claims

    found = claims.lint(options.workspace(ctx).folder, files, strict=strict, traced=not untraced)
    problems = [problem for one in found for problem in one.problems]
    if as_json:
        screen.as_json([_linted(one) for one in found])
        return Exit.CLAIM_NOT_SAFE if problems else Exit.GOOD
    for problem in problems:
        click.echo(problem.render())
    for one in found:
        looked_at = f"{screen.count(one.cited, 'number')} cited, {one.ignored} ignored"
        screen.note(f"{one.path}: {looked_at}, {screen.count(len(one.problems), 'problem')}")
    if problems:
        screen.note("claim a number:  bench claim make RUN:metric")
    return Exit.CLAIM_NOT_SAFE if problems else Exit.GOOD


def _linted(one: Any) -> dict[str, Any]:
    problems = [problem.as_dict() for problem in one.problems]
    return {"file": one.path, "cited": one.cited, "ignored": one.ignored, "problems": problems}


@command.group(
    help="Keys that sign claims. The private key stays in your own folder, readable by you alone."
    + examples("bench claim key make")
)
def key() -> None:
    pass


@key.command(
    "make",
    help="Make a key pair; nothing is written over."
    + examples("bench claim key make", "bench claim key make --name team"),
)
@click.option("--name", default="claim", show_default=True, help="Name of its files.")
@options.json_option
def make_key(name: str, as_json: bool) -> None:
    from benchhouse.api import claims

    private, public, keyid = claims.make_key(name)
    if as_json:
        screen.as_json({"private": str(private), "public": str(public), "keyid": keyid})
        return
    click.echo(str(public))
    screen.note(f"key {keyid[:12]}; the private one, {private}, is for you alone; give the public one away")
    screen.note("sign:  bench claim sign CLAIM")
