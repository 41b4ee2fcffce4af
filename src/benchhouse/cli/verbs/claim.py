"""Values that may be published: make, list, show, sign, verify, export, lint."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import FILE, group
from benchhouse.schema.errors import Exit

command = group(
    __doc__,
    "bench claim make @last:name=short:wall_ms   refused with every reason, or written",
    "bench claim make @last:name=short:wall_ms --against @last:name=longer",
    "bench claim export 4f1c -o claim-4f1c.tar && bench claim verify claim-4f1c.tar",
    "bench claim lint README.md   numbers that no claim stands behind",
)


@command.verb(
    "Claim a number: its ref in a report, or RUN[:key=value]:metric[.stat]. What is not publication-safe is "
    "refused with every reason, exit code 4.",
    "bench claim make @last:name=short:wall_ms",
    "bench claim make @last:name=short:wall_ms --against @last:name=longer   the change from there",
)
@click.argument("number")
@click.option("--against", metavar="RUN[:KEY=VALUE]", help="Claim the change from there to the number.")
@click.option("--realism", is_flag=True, help="Label it REALISM-GRADE and list what it lacks, where a label may do.")
@click.option("--sign", "signed", is_flag=True, help="Sign it with your own key.")
@click.option("--key", type=FILE, help="Private key; default: claim.key of your keys.")
def make(
    workspace: Workspace, number: str, against: str | None, realism: bool, signed: bool, key: Path | None, as_json: bool
) -> None:
    claims = workspace.claims
    made = claims.make(number, against, realism=realism)
    if signed or key:
        claims.sign(made.id, key)
    if as_json:
        screen.as_json(claims.show(made.id))
        return
    click.echo(made.id)
    screen.note(f"{made.label}: {made.statement}")
    for reason in made.reasons:
        screen.note(f"lacks {reason.code}: {reason.message}")
    screen.note(f"cite it as [claim:{made.id}]; give it away:  bench claim export {made.id}")


@command.verb("Claims of this workspace.", "bench claim list")
def list_(workspace: Workspace, as_json: bool) -> None:
    entries = workspace.claims.list()
    if as_json:
        screen.as_json(entries)
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


@command.verb("One claim, whole.", "bench claim show 4f1c   the beginning of its id is enough")
@click.argument("claim")
def show_(workspace: Workspace, claim: str, as_json: bool) -> None:
    shown = workspace.claims.show(claim)
    if as_json:
        screen.as_json(shown)
        return
    whole = shown.claim
    click.echo(f"{shown.id}  {whole.label}  {shown.signature.says}")
    click.echo(whole.statement)
    rows = [
        ("value", f"{whole.value!r} {'' if whole.unit == '1' else whole.unit}".strip()),
        ("interval", f"{whole.interval} at {whole.policy.confidence}, {whole.method}"),
        ("n", whole.n),
        *(("contract", f"{item.name} {item.digest}: {item.mode} of {item.asked}") for item in whole.contracts),
        *((f"lacks {reason.code}", reason.message) for reason in whole.reasons),
        *((f"changed: {change.dimension}", f"{change.a} → {change.b}") for change in whole.changed),
        *(("query", f"{name} ({spec.engine} {spec.engine_version})") for name, spec in whole.queries.items()),
        *(("trial", f"{trial.trial_id} {trial.value!r} {trial.folder}") for trial in whole.trials),
    ]
    screen.table(("what", "is"), rows, whole=("what",))
    screen.note(f"walk it back:  bench trace {shown.id}")


@command.verb(
    "Sign a claim: an in-toto statement in a DSSE envelope, Ed25519, beside its file.",
    "bench claim sign 4f1c   with the key of: bench claim key make",
    json=False,
)
@click.argument("claim")
@click.option("--key", type=FILE, help="Private key; default: claim.key of your keys.")
def sign(workspace: Workspace, claim: str, key: Path | None) -> None:
    path = workspace.claims.sign(claim, key)
    click.echo(str(path))
    screen.note(f"check it:  bench claim verify {path.stem}")


@command.verb(
    "Check a claim, or a packet from elsewhere by itself alone: digests, the query run again, statistics, label, "
    "signature. Exit code 4 where something does not hold.",
    "bench claim verify 4f1c",
    "bench claim verify claim-4f1c.tar --trust team.pub   a packet from elsewhere",
)
@click.argument("what", metavar="CLAIM|PACKET")
@click.option("--trust", multiple=True, type=FILE, help="Public key that must have signed it (repeatable).")
def verify(workspace: Workspace, what: str, trust: tuple[Path, ...], as_json: bool) -> int:
    checked = workspace.claims.verify(what, trust)
    code = Exit.GOOD if checked.ok else Exit.CLAIM_NOT_SAFE
    if as_json:
        screen.as_json(checked)
        return code
    for number, step in enumerate(checked.trace.steps, start=1):
        mark = click.style("✓", fg="green") if step.ok else click.style("✗", fg="red")
        click.echo("\n     ".join([f"{number}. {mark} {step.name}", *step.says]))
    mark = {"signed": "✓", "wrong": "✗"}.get(checked.signature.state, "-")
    click.echo(f"5. {mark} signature\n     {checked.signature.says}")
    for note in checked.notes:
        screen.note(note)
    click.echo(f"{checked.label} {checked.claim_id}: {'holds' if checked.ok else 'does NOT hold: see above'}")
    if not checked.ok:
        screen.note(f"more:  bench claim verify {what} --json")
    return code


@command.verb(
    "Write a packet: one file with the claim and all that proves it, to be checked anywhere.",
    "bench claim export 4f1c -o claim-4f1c.tar",
    "bench claim export 4f1c --with-raw",
)
@click.argument("claim")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Default: claim-ID.tar here.")
@click.option("--with-raw", is_flag=True, help="All files of the evidence, not only those that the number is made of.")
def export(workspace: Workspace, claim: str, output: Path | None, with_raw: bool, as_json: bool) -> None:
    path, packet = workspace.claims.export(claim, output, with_raw=with_raw)
    if as_json:
        screen.as_json({"packet": str(path)} | packet.model_dump(mode="json"))
        return
    click.echo(str(path))
    screen.note(f"{screen.count(len(packet.files), 'file')}, {path.stat().st_size:,} bytes")
    screen.note(f"anywhere:  bench claim verify {path}")


@command.verb(
    "Find numbers of Markdown files that cite no claim, cite a wrong value, or cite an unsafe one. A number cites "
    "a claim as in `12.3 ms [claim:4f1c2a90]`.",
    "bench claim lint README.md docs/*.md",
)
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--strict", is_flag=True, help="Whole numbers without a unit need a claim, too.")
@click.option("--no-trace", "untraced", is_flag=True, help="Don't walk cited claims back to their bytes.")
def lint(workspace: Workspace, files: tuple[Path, ...], strict: bool, untraced: bool, as_json: bool) -> int:
    linted = workspace.claims.lint(files, strict=strict, traced=not untraced)
    problems = [problem for item in linted for problem in item.problems]
    code = Exit.CLAIM_NOT_SAFE if problems else Exit.GOOD
    if as_json:
        screen.as_json([
            {"file": item.path, "cited": item.cited, "ignored": item.ignored,
             "problems": [problem.as_dict() for problem in item.problems]}
            for item in linted
        ])  # fmt: skip
        return code
    for problem in problems:
        click.echo(problem.render())
    for item in linted:
        looked_at = f"{screen.count(item.cited, 'number')} cited, {item.ignored} ignored"
        screen.note(f"{item.path}: {looked_at}, {screen.count(len(item.problems), 'problem')}")
    if problems:
        screen.note("claim a number:  bench claim make RUN:metric")
    return code


key = command.subgroup(
    "key",
    "Keys that sign claims. The private key stays in your own folder, readable by you alone.",
    "bench claim key make",
)


@key.verb(
    "Make a key pair; nothing is written over.", "bench claim key make", "bench claim key make --name team", name="make"
)
@click.option("--name", default="claim", show_default=True, help="Name of its files.")
def make_key(workspace: Workspace, name: str, as_json: bool) -> None:
    keys = workspace.claims.make_key(name)
    if as_json:
        screen.as_json(keys)
        return
    click.echo(str(keys.public))
    screen.note(f"key {keys.keyid[:12]}; the private one, {keys.private}, is for you alone; give the public one away")
    screen.note("sign:  bench claim sign CLAIM")
