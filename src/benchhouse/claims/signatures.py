"""Signatures of claims: an in-toto statement in a DSSE envelope, Ed25519. The private key stays in its own folder."""

import binascii
import json
import os
import stat
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchhouse.schema.claim import Claim
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.model import Model
from benchhouse.schema.names import can_name_a_folder

if TYPE_CHECKING:
    from securesystemslib.signer._key import Key  # the package exports it without listing it

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:benchhouse:claim:v1"
LARGEST = 1 << 20
_SHOWN = 12


class Signature(Model):
    """The state of a claim's signature, and its key."""

    state: Literal["unsigned", "signed", "unknown key", "wrong", "not checked"]
    keyid: str = ""
    says: str

    @property
    def is_wrong(self) -> bool:
        return self.state == "wrong"


def make_key(folder: Path, name: str) -> tuple[Path, Path, str]:
    """Create `name.key`, readable only by its owner, and `name.pub`. Return both paths and the key's id."""
    try:
        can_name_a_folder(name)
    except ValueError as error:
        raise BenchError(f"'{name}' can't name a key", "letters, digits, '.', '_' and '-'") from error
    signer_type = _library().CryptoSigner
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    if private.exists() or public.exists():
        raise BenchError(f"there is a key '{name}' in {folder}", "a key is never written over: choose another --name")
    signer = signer_type.generate_ed25519()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(signer.private_bytes)
        fields = {"keyid": signer.public_key.keyid, **signer.public_key.to_dict()}
        public.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise unwritable(folder, error) from error
    return private, public, str(signer.public_key.keyid)


def sign(claim: Claim, private: Path) -> bytes:
    """Return the envelope for this claim, as it is stored next to the claim."""
    library = _library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.dsse import Envelope

    try:
        open_to = stat.S_IMODE(private.stat().st_mode) & 0o077
        if open_to:
            raise BenchError(f"{private} may be read by others than its owner", f"chmod 600 {private}")
        key = load_pem_private_key(private.read_bytes(), None)
    except OSError as error:
        raise BenchError(f"there is no key {private}", "make one: bench claim key make") from error
    except (ValueError, TypeError) as error:
        raise BenchError(f"{private} is not a private key that can be read: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BenchError(f"{private} is not an Ed25519 key", "make one: bench claim key make")
    payload = json.dumps(_statement(claim), sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(library.CryptoSigner(key))
    return json.dumps(envelope.to_dict(), indent=2, sort_keys=True).encode() + b"\n"


def _statement(claim: Claim) -> dict[str, Any]:
    manifests = sorted(trial.artifact_manifest_digest for trial in claim.trials)
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": f"claims/{claim.id}.json", "digest": {"sha256": claim.sha256()}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": claim.summary() | {"query_spec_digest": claim.spec.digest(), "manifests": manifests},
    }


def read_keys(files: Iterable[Path]) -> "dict[str, Key]":
    """Return public keys by their ids; the id is computed from the key, not taken from the file."""
    keys, hint = {}, "give a .pub file, as bench claim key make writes it"
    for path in files:
        try:
            fields = json.loads(path.read_bytes()[:LARGEST])
            read = _library().SSlibKey("", fields["keytype"], fields["scheme"], dict(fields["keyval"]))
            if (read.keytype, read.scheme) != ("ed25519", "ed25519"):
                raise ValueError(f"a key of kind {read.keytype}, expected ed25519")
            key = _library().SSlibKey.from_crypto(read._crypto_key())
        except OSError as error:
            raise BenchError(f"the public key can't be read: {path}: {error.strerror}", hint) from error
        except (ValueError, KeyError, TypeError) as error:
            raise BenchError(f"{path} is not a public key of ed25519", hint) from error
        keys[str(key.keyid)] = key
    return keys


def check(claim: Claim, envelope: bytes | None, keys: "Mapping[str, Key] | None") -> Signature:
    """Check whether a trusted key signed exactly this claim. `keys` is None if the library is missing."""
    if envelope is None:
        return Signature(state="unsigned", says="unsigned")
    if keys is None:
        return Signature(state="not checked", says="there is a signature; to check it: pip install 'benchhouse[sign]'")
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import Error as FormatError
    from securesystemslib.exceptions import VerificationError

    try:
        if len(envelope) > LARGEST:
            raise ValueError("too large")
        parsed = Envelope.from_dict(json.loads(envelope))
        statement = json.loads(parsed.payload)
        problem = _misfit(parsed.payload_type, statement, claim)
    except (ValueError, KeyError, TypeError, AttributeError, FormatError, binascii.Error) as error:
        return Signature(state="wrong", says=f"the signature can't be read: {error}")
    if problem:
        return Signature(state="wrong", says=problem)
    known = [keys[keyid] for keyid in parsed.signatures if keyid in keys]
    names = ", ".join(keyid[:_SHOWN] for keyid in parsed.signatures) or "nobody"
    if not known:
        return Signature(
            state="unknown key" if parsed.signatures else "wrong",
            keyid=next(iter(parsed.signatures), ""),
            says=f"a signature by key {names}, which is not trusted here: who made it is not known",
        )
    try:
        parsed.verify(known, len(known))
    except VerificationError:
        return Signature(state="wrong", keyid=str(known[0].keyid), says=f"the signature of key {names} is wrong")
    return Signature(state="signed", keyid=str(known[0].keyid), says=f"signed by key {names}, which is trusted here")


def _misfit(payload_type: str, statement: Mapping[str, Any], claim: Claim) -> str:
    """Return why a statement is not about this claim, regardless of its signer; "" if it is."""
    kinds = payload_type, statement["_type"], statement["predicateType"]
    if kinds != (PAYLOAD_TYPE, STATEMENT_TYPE, PREDICATE_TYPE):
        return f"the signature is not about a claim: {', '.join(map(str, kinds))}"
    subjects = [subject["digest"]["sha256"] for subject in statement["subject"]]
    if subjects != [claim.sha256()]:
        return "the signature is about another claim"
    if statement != json.loads(json.dumps(_statement(claim))):
        return "the signed statement does not say what the claim says"
    return ""


def has_library() -> bool:
    return all(find_spec(name) for name in ("securesystemslib", "cryptography"))


def _library() -> Any:
    if not has_library():
        raise BenchError("signing needs a library that is not installed", "pip install 'benchhouse[sign]'")
    from securesystemslib import signer

    return signer
