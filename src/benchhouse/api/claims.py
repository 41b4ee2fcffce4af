"""Values that may be published: claims that are made, signed, packed, and checked."""

import builtins
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.api.verb_group import VerbGroup
from benchhouse.claims import claim_files
from benchhouse.runs.selection import find_selector
from benchhouse.schema.claim import Claim
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.layout import WorkspaceFolder

if TYPE_CHECKING:
    from securesystemslib.signer._key import Key  # the package exports it without saying so

    from benchhouse.claims.lint import Linted
    from benchhouse.claims.packet import Packet
    from benchhouse.claims.signatures import Signature
    from benchhouse.claims.verification import ClaimCheck


@dataclass(frozen=True)
class ClaimEntry:
    """One line of the list of claims. `label` is CHANGED if its file was modified after it was written."""

    id: str
    label: str
    statement: str
    signature: str
    metric: str = ""
    stat: str = ""
    value: float | None = None
    unit: str = ""
    interval: tuple[float, float] | None = None
    n: int | None = None


@dataclass(frozen=True)
class SignedClaim:
    """A complete claim, and the state of its signature."""

    id: str
    signature: "Signature"
    claim: Claim


@dataclass(frozen=True)
class KeyPair:
    """A new pair of keys. The private key is for its owner alone."""

    private: Path
    public: Path
    keyid: str


class Claims(VerbGroup):
    """The claims of a workspace. A claim is written once and named by its digest."""

    def make(self, number: str, against: str | None = None, *, realism: bool = False) -> Claim:
        """Claim a value (its ref, or `RUN[:key=value]:metric[.stat]`); with `against`, the change from that value.

        Raises BenchError with every reason if the value is not publication-safe. With `realism`, the claim is labeled
        REALISM-GRADE instead, for reasons that such a label permits.
        """
        from benchhouse.claims.creation import make_claim
        from benchhouse.warehouse.query import Warehouse

        policy = claim_files.read_policy(self._folder)
        number = find_selector(self._folder, number) if ":" in number else number
        base = find_selector(self._folder, against) if against else None
        with Warehouse.open(self._folder) as warehouse:
            claim = make_claim(warehouse, number, base, policy, realism=realism)
        claim_files.put(self._folder, claim)
        return claim

    def list(self) -> builtins.list[ClaimEntry]:
        """Return every claim with the state of its signature. A claim whose file was changed has the label CHANGED."""
        keys, entries = self._trusted(()), []
        for claim_id in claim_files.list_ids(self._folder):
            try:
                claim = claim_files.read(self._folder, claim_id)
            except BenchError as error:
                entries.append(ClaimEntry(claim_id, "CHANGED", error.message, "wrong"))
                continue
            entries.append(ClaimEntry(**claim.summary(), signature=self._signature(claim, keys).state))
        return entries

    def of_run(self, run_id: str) -> builtins.list[ClaimEntry]:
        """Return the publication-grade claims that rest on trials of a run, without those that were changed."""
        whole = [entry for entry in self.list() if entry.label == "PUBLICATION-GRADE" and entry.signature != "wrong"]
        read = ((entry, claim_files.read(self._folder, entry.id)) for entry in whole)
        return [entry for entry, claim in read if any(trial.run_id == run_id for trial in claim.trials)]

    def show(self, claim: str) -> SignedClaim:
        """Return one claim, by its id or the first characters of it."""
        whole = claim_files.read(self._folder, claim_files.require(self._folder, claim))
        return SignedClaim(whole.id, self._signature(whole, self._trusted(())), whole)

    def sign(self, claim: str, key: Path | None = None) -> Path:
        """Write a signature next to an intact claim: an in-toto statement in a DSSE envelope, Ed25519. Return its
        path."""
        from benchhouse.claims import signatures
        from benchhouse.evidence.writing import write_text

        claim_id = claim_files.require(self._folder, claim)
        envelope = signatures.sign(claim_files.read(self._folder, claim_id), key or keys_folder() / "claim.key")
        path = claim_files.signature_path(self._folder, claim_id)
        try:
            write_text(path, envelope.decode())
        except OSError as error:
            raise unwritable(self._folder.claims, error) from error
        self._refresh(claim_files.read(self._folder, claim_id))
        return path

    def verify(self, what: str, trust: Iterable[Path] = ()) -> "ClaimCheck":
        """Check a claim of this workspace, or a packet from anywhere. If `trust` has keys, one of them must have
        signed."""
        from benchhouse.claims.verification import ClaimCheck, check_claim

        required = list(trust)
        keys = self._trusted(required)
        if what.endswith(".tar") or "/" in what or Path(what).is_file():
            from benchhouse.claims.packet import check_packet

            return _require_signature(
                check_packet(Path(what), keys, claim_files.read_policy(self._folder)), bool(required)
            )
        claim_id = claim_files.require(self._folder, what)
        claim = claim_files.read(self._folder, claim_id)
        traced, verdict = check_claim(self._folder, claim_id, what)
        signature = self._signature(claim, keys)
        checked = ClaimCheck(
            claim_id=claim_id,
            label=claim.label,
            statement=claim.statement,
            ok=traced.ok and not signature.is_wrong and (verdict is None or verdict.holds(claim)),
            trace=traced,
            signature=signature,
            policies=verdict,
        )
        return _require_signature(checked, bool(required))

    def export(self, claim: str, target: Path | None = None, *, with_raw: bool = False) -> "tuple[Path, Packet]":
        """Write the packet of a claim that still holds: one file with everything that proves it."""
        from benchhouse.claims import packet
        from benchhouse.evidence import deposits
        from benchhouse.schema.digests import file_digest

        claim_id = claim_files.require(self._folder, claim)
        checked = self.verify(claim_id)
        if not checked.ok:
            broken = [line for step in checked.trace.steps if not step.ok for line in step.says]
            broken += [reason.message for reason in checked.policies.lacks] if checked.policies else []
            raise BenchError(
                f"claim {claim_id} does not hold any more: {'; '.join(broken or [checked.signature.says])}",
                f"see: bench trace {claim_id}",
                Exit.CLAIM_NOT_SAFE,
            )
        path = target or Path(f"claim-{claim_id}.tar")
        envelope = _envelope(self._folder, claim_id)
        whole = claim_files.read(self._folder, claim_id)
        exported = packet.export(self._folder, whole, envelope, path, with_raw=with_raw)
        uris = {trial.run_id: path.absolute().as_uri() for trial in whole.trials}
        deposits.note(self._folder, "packet", uris, file_digest(path))
        self._refresh(whole)
        return path, exported

    def _refresh(self, claim: Claim) -> None:
        """Update the lineage of the runs behind a claim."""
        from benchhouse.warehouse.ingest import refresh

        refresh(self._folder, {trial.run_id for trial in claim.trials})

    def documents(self) -> builtins.list[Path]:
        """Return the Markdown files of the workspace and its docs/. Links that lead out of the workspace are left
        out."""
        root = self._folder.root.resolve()
        files = [path for pattern in ("*.md", "docs/**/*.md") for path in sorted(self._folder.root.glob(pattern))]
        return [path for path in files if path.is_file() and path.resolve().is_relative_to(root)]

    def lint(self, files: Iterable[Path], *, strict: bool = False, traced: bool = True) -> "builtins.list[Linted]":
        """Find values in documents that cite no claim, cite a wrong value, or cite an unsafe claim."""
        from benchhouse.claims.lint import lint_file
        from benchhouse.claims.verification import trace_claim

        def broken_steps(claim_id: str) -> builtins.list[str]:
            known = claim_files.find(self._folder, claim_id) if traced else None
            steps = trace_claim(self._folder, known, claim_id).steps if known else ()
            return [": ".join([f"step {step.name}", *step.says[-1:]]) for step in steps if not step.ok]

        return [lint_file(self._folder, path, broken_steps, strict=strict) for path in files]

    def make_key(self, name: str = "claim") -> KeyPair:
        """Make a pair of keys in your own folder. An existing key is never overwritten."""
        from benchhouse.claims import signatures

        return KeyPair(*signatures.make_key(keys_folder(), name))

    def _trusted(self, files: Iterable[Path]) -> "dict[str, Key] | None":
        """Return the keys of `files` or, without any, those of claims.yaml and your own. None if the library is
        missing."""
        from benchhouse.claims import signatures

        paths = list(files)
        if not signatures.has_library():
            if paths:  # a check that is impossible here is not a verdict on the claim
                raise BenchError(
                    "signatures can't be checked here", "pip install 'benchhouse[sign]'; or leave --trust out"
                )
            return None
        if not paths:
            paths = [self._folder.root / name for name in claim_files.read_policy(self._folder).trusted_keys]
            paths += sorted(keys_folder().glob("*.pub"))
        return signatures.read_keys(paths) if paths else {}

    def _signature(self, claim: Claim, keys: "dict[str, Key] | None") -> Any:
        from benchhouse.claims import signatures

        envelope = _envelope(self._folder, claim.id)
        return signatures.check(claim, envelope, keys if envelope is not None else {})


def keys_folder() -> Path:
    """Return $BENCH_KEYS_DIR, otherwise $XDG_CONFIG_HOME/benchhouse/keys, otherwise ~/.config/benchhouse/keys: never a
    folder of the workspace."""
    if given := os.environ.get("BENCH_KEYS_DIR"):
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "benchhouse" / "keys"


def _envelope(folder: WorkspaceFolder, claim_id: str) -> bytes | None:
    path = claim_files.signature_path(folder, claim_id)
    return path.read_bytes() if path.is_file() else None


def _require_signature(checked: "ClaimCheck", required: bool) -> "ClaimCheck":
    if not required or checked.signature.state == "signed":
        return checked
    note = "a signature by a key named with --trust is required"
    return checked.model_copy(update={"ok": False, "notes": [*checked.notes, note]})
