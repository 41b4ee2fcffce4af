"""Claims as functions: make, list, show, sign, verify, export, lint, and keys."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.claims import shelf
from benchhouse.schema.claim import Claim
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.layout import Workspace

if TYPE_CHECKING:
    from securesystemslib.signer._key import Key  # the package exports it without saying so

    from benchhouse.claims.lint import Linted
    from benchhouse.claims.packet import Packet
    from benchhouse.claims.verification import Checked
    from benchhouse.results.lineage import Trace


def keys_folder() -> Path:
    """$BENCH_KEYS_DIR, else $XDG_CONFIG_HOME/benchhouse/keys, else ~/.config/benchhouse/keys: never the workspace."""
    if given := os.environ.get("BENCH_KEYS_DIR"):
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "benchhouse" / "keys"


def make(workspace: Workspace, number: str, against: str | None, *, realism: bool) -> Claim:
    """Write claims/<id>.json for a number that is publication-safe, or labelled; raises NotSafe with every reason."""
    from benchhouse.claims.creation import make_claim
    from benchhouse.warehouse.query import Warehouse

    policy = shelf.read_policy(workspace)
    with Warehouse.open(workspace) as warehouse:
        claim = make_claim(warehouse, number, against, policy, realism=realism)
    shelf.put(workspace, claim)
    return claim


def sign(workspace: Workspace, token: str, key: Path | None) -> Path:
    """Put a signature beside a claim that was found whole."""
    from benchhouse.claims import signatures
    from benchhouse.evidence.writing import write_text

    claim_id = shelf.require(workspace, token)
    claim = shelf.read(workspace, claim_id)
    envelope = signatures.sign(claim, key or keys_folder() / "claim.key")
    path = shelf.signature_path(workspace, claim_id)
    try:
        write_text(path, envelope.decode())
    except OSError as error:
        raise unwritable(workspace.claims, error) from error
    return path


def listed(workspace: Workspace) -> list[dict[str, Any]]:
    """Every claim with its signature's state; one that was changed is listed as what it is."""
    keys = trusted(workspace, ())
    rows = []
    for claim_id in shelf.list_ids(workspace):
        try:
            claim = shelf.read(workspace, claim_id)
        except BenchError as error:
            rows.append({"id": claim_id, "label": "CHANGED", "statement": error.message, "signature": "wrong"})
            continue
        rows.append(claim.summary() | {"signature": _signature(workspace, claim, keys).state})
    return rows


def show(workspace: Workspace, token: str) -> dict[str, Any]:
    claim = shelf.read(workspace, shelf.require(workspace, token))
    signature = _signature(workspace, claim, trusted(workspace, ()))
    return {"id": claim.id, "signature": signature.model_dump(), "claim": claim.model_dump(mode="json")}


def trace(workspace: Workspace, token: str) -> "Trace | None":
    """The four steps of the claim that `token` names; None where it names none."""
    claim_id = shelf.find(workspace, token) if ":" not in token else None
    if claim_id is None:
        return None
    from benchhouse.claims.verification import trace_claim

    return trace_claim(workspace, claim_id, token)


def verify(workspace: Workspace, what: str, trust: Iterable[Path]) -> "Checked":
    """A claim of this workspace, or a packet from anywhere. With `trust`, one of these must have signed it."""
    from benchhouse.claims.verification import Checked, trace_claim

    asked = list(trust)
    keys = trusted(workspace, asked)
    if _is_packet(what):
        from benchhouse.claims.receipt import check_packet

        return _required(check_packet(Path(what), keys), bool(asked))
    claim_id = shelf.require(workspace, what)
    claim = shelf.read(workspace, claim_id)
    traced = trace_claim(workspace, claim_id, what)
    signature = _signature(workspace, claim, keys)
    checked = Checked(
        claim_id=claim_id,
        label=claim.label,
        statement=claim.statement,
        ok=traced.ok and not signature.is_wrong,
        trace=traced,
        signature=signature,
    )
    return _required(checked, bool(asked))


def export(workspace: Workspace, token: str, target: Path | None, *, with_raw: bool) -> "tuple[Path, Packet]":
    """Write the packet of a claim that still walks back to its bytes."""
    from benchhouse.claims import packet

    claim_id = shelf.require(workspace, token)
    checked = verify(workspace, claim_id, ())
    if not checked.ok:
        broken = [line for step in checked.trace.steps if not step.ok for line in step.says]
        raise BenchError(
            f"claim {claim_id} does not hold any more: {'; '.join(broken or [checked.signature.says])}",
            f"see: bench trace {claim_id}",
            Exit.CLAIM_NOT_SAFE,
        )
    path = target or Path(f"claim-{claim_id}.tar")
    envelope = _envelope(workspace, claim_id)
    return path, packet.export(workspace, shelf.read(workspace, claim_id), envelope, path, with_raw=with_raw)


def lint(workspace: Workspace, files: Iterable[Path], *, strict: bool, traced: bool) -> "list[Linted]":
    """What is wrong with the numbers of documents."""
    from benchhouse.claims.lint import lint_file

    def holds(claim_id: str) -> list[str]:
        found = trace(workspace, claim_id) if traced else None
        return [] if found is None or found.ok else [f"step {step.name}" for step in found.steps if not step.ok]

    return [lint_file(workspace, path, holds, strict=strict) for path in files]


def make_key(name: str) -> tuple[Path, Path, str]:
    from benchhouse.claims import signatures

    return signatures.make_key(keys_folder(), name)


def trusted(workspace: Workspace, files: Iterable[Path]) -> "dict[str, Key] | None":
    """The keys of `files`; without any, those of claims.yaml and one's own. None where the library is missing."""
    from benchhouse.claims import signatures

    asked = list(files)
    if not signatures.has_library():
        if asked:  # what can't be checked here is no verdict on the claim
            raise BenchError("signatures can't be checked here", "pip install 'benchhouse[sign]'; or leave --trust out")
        return None
    if not asked:
        asked = [workspace.root / name for name in shelf.read_policy(workspace).trusted_keys]
        asked += sorted(keys_folder().glob("*.pub"))
    return signatures.read_keys(asked) if asked else {}


def _is_packet(what: str) -> bool:
    return what.endswith(".tar") or "/" in what or Path(what).is_file()


def _envelope(workspace: Workspace, claim_id: str) -> bytes | None:
    path = shelf.signature_path(workspace, claim_id)
    return path.read_bytes() if path.is_file() else None


def _signature(workspace: Workspace, claim: Claim, keys: "dict[str, Key] | None") -> Any:
    from benchhouse.claims import signatures

    envelope = _envelope(workspace, claim.id)
    return signatures.check(claim, envelope, keys if envelope is not None else {})


def _required(checked: "Checked", asked: bool) -> "Checked":
    if not asked or checked.signature.state == "signed":
        return checked
    note = "a signature by a key named with --trust was asked for"
    return checked.model_copy(update={"ok": False, "notes": [*checked.notes, note]})
