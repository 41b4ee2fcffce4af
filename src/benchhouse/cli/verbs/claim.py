"""Numbers that may be published: make, list, show, sign, verify, export, lint."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.answers import Step
    from benchhouse.api.claims import SignedClaim

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
    claims = options.workspace(ctx).claims
    made = claims.make(number, against, realism=realism)
    if signed or key:
        claims.sign(made.id, key)
    if as_json:
        screen.as_json(_document(claims.show(made.id)))
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
    entries = options.workspace(ctx).claims.list()
    if as_json:
        screen.as_json(screen.plain(entries))
        return
    if not entries:
        screen.note("no claims yet; make one:  bench claim make @last:METRIC")
        return
    screen.table(
        ("claim", "label", "signature", "statement"),
        [(entry.id, entry.label, entry.signature, entry.statement) for entry in entries],
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
    shown = options.workspace(ctx).claims.show(claim)
    if as_json:
        screen.as_json(_document(shown))
        return
    whole = shown.claim
    click.echo(f"{shown.id}  {whole.label}  {shown.signature.says}")
    click.echo(whole.statement)
    rows = [
        ("value", f"{whole.value!r} {'' if whole.unit == '1' else whole.unit}".strip()),
        ("interval", f"{whole.interval} at {whole.policy.confidence}, {whole.method}"),
        ("n", whole.n),
        *((f"lacks {reason.code}", reason.message) for reason in whole.reasons),
        *((f"changed: {change.dimension}", f"{change.a} → {change.b}") for change in whole.changed),
        *(("query", f"{name} ({spec.engine} {spec.engine_version})") for name, spec in whole.queries.items()),
        *(("trial", f"{trial.trial_id} {trial.value!r} {trial.folder}") for trial in whole.trials),
    ]
    screen.table(("what", "is"), rows, whole=("what",))
    screen.note(f"walk it back:  bench trace {shown.id}")


def _document(shown: "SignedClaim") -> dict[str, Any]:
    claim, signature = shown.claim.model_dump(mode="json"), shown.signature.model_dump()
    return {"id": shown.id, "signature": signature, "claim": claim}


@command.command(
    help="Sign a claim: an in-toto statement in a DSSE envelope, Ed25519, beside its file."
    + examples("bench claim sign 4f1c   with the key of: bench claim key make")
)
@click.argument("claim")
@click.option("--key", type=click.Path(path_type=Path), help="Private key; default: claim.key of your keys.")
@click.pass_context
def sign(ctx: click.Context, claim: str, key: Path | None) -> None:
    path = options.workspace(ctx).claims.sign(claim, key)
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
    checked = options.workspace(ctx).claims.verify(what, trust)
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
    path, packet = options.workspace(ctx).claims.export(claim, output, with_raw=with_raw)
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
    found = options.workspace(ctx).claims.lint(files, strict=strict, traced=not untraced)
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
@click.pass_context
def make_key(ctx: click.Context, name: str, as_json: bool) -> None:
    keys = options.workspace(ctx).claims.make_key(name)
    if as_json:
        screen.as_json(screen.plain(keys))
        return
    click.echo(str(keys.public))
    screen.note(f"key {keys.keyid[:12]}; the private one, {keys.private}, is for you alone; give the public one away")
    screen.note("sign:  bench claim sign CLAIM")
