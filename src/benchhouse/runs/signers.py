"""The owner of the SSH key that signed something, whether it counts today, and the user's own key to sign with."""

import os
from datetime import UTC, datetime
from pathlib import Path

from benchhouse.runs.ssh_signatures import is_signed_by, public_key
from benchhouse.schema.errors import BenchError
from benchhouse.schema.trust import TrustedFile

_OWN_KEYS = ("id_ed25519", "id_ed25519_sk", "id_ecdsa")


def signature_doubt(trusted: TrustedFile, signer: str, message: bytes, signature: str, namespace: str) -> str:
    """Return why this is not a valid signature of that person today; empty if it is one."""
    today = datetime.now(UTC).date()
    if is_signed_by(trusted.keys_of(signer, today), message, signature, namespace):
        return ""
    for end in trusted.ended_keys(signer, today):
        if is_signed_by([end.key], message, signature, namespace):
            return f"the key of {signer} counts no more since {end.until}: {end.why}"
    return f"it is not signed by a key that {signer} has in trusted.yaml"


def signing_key(trusted: TrustedFile, key: str | os.PathLike[str] | None, by: str = "") -> Path:
    """Return the named key, or otherwise the first key in ~/.ssh that trusted.yaml has, of `by` if given."""
    if key is not None:
        return Path(key)
    folder = Path.home() / ".ssh"
    for name in _OWN_KEYS:
        private = folder / name
        owner = trusted.by_key(public_key(private)) if private.with_name(f"{name}.pub").is_file() else None
        if owner is not None and owner == (by or owner):
            return private
    raise BenchError(f"no key in {folder} is in trusted.yaml", "name one: --key FILE; a .pub where an agent has it")


def owner_of(trusted: TrustedFile, key: Path) -> str:
    """Return the owner of this key. Raise BenchError if trusted.yaml does not have it."""
    owner = trusted.by_key(public_key(key))
    if owner is None:
        raise BenchError(f"{key} is nobody's key in trusted.yaml", "add its public half to `keys` of a person")
    return owner
