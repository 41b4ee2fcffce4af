"""Signatures by SSH keys, made and verified by OpenSSH's ssh-keygen, which supports agents and hardware keys."""

import base64
import binascii
import hashlib
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchhouse.schema.errors import BenchError

_TIMEOUT_S = 120.0  # time to touch a key, or type a passphrase
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"


def public_key(key: Path) -> str:
    """Return the public half of a key file; `key` may be either half."""
    public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    try:
        return public.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BenchError(
            f"the public key can't be read: {public}", f"write it there: ssh-keygen -y -f {key} > {public}"
        ) from error


def fingerprint(public_key: str) -> str:
    """Return the fingerprint of a key as OpenSSH and git print it."""
    blob = base64.b64decode(public_key.split()[1])
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"


def sign(message: bytes, key: Path, namespace: str) -> str:
    """Return the signature of `message` by a private key, or by the agent's key for a `.pub`."""
    done = _ssh_keygen(["-Y", "sign", "-q", "-f", str(key), "-n", namespace], message)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip() or "ssh-keygen says no more"
        raise BenchError(f"nothing was signed with {key}: {why}", "is it a private key of yours, or in your agent?")
    return done.stdout.decode()


def is_signed_by(keys: Iterable[str], message: bytes, signature: str, namespace: str) -> bool:
    """Return whether one of these public keys signed exactly this message for this namespace."""
    if not _is_plain(signature):
        return False
    with tempfile.TemporaryDirectory(prefix="bench-signature-") as folder:
        signers, signed = Path(folder, "signers"), Path(folder, "signature")
        # The comment behind a key is left out: it is free text.
        lines = [f'signer namespaces="{namespace}" {" ".join(key.split()[:2])}\n' for key in keys]
        signers.write_text("".join(lines), encoding="utf-8")
        signed.write_text(signature, encoding="utf-8")
        named = ["-I", "signer", "-n", namespace]
        done = _ssh_keygen(["-Y", "verify", "-q", "-f", str(signers), *named, "-s", str(signed)], message)
    return done.returncode == 0


def _is_plain(signature: str) -> bool:
    """Return whether a signature is spelled as ssh-keygen writes it, because it also reads other spellings."""
    first, *lines, last, after = signature.split("\n") if signature.count("\n") > 2 else ("", "", "", "")
    try:
        whole = base64.b64encode(base64.b64decode("".join(lines), validate=True)).decode()
    except (ValueError, binascii.Error):
        return False
    wrapped = [whole[at : at + 70] for at in range(0, len(whole), 70)]
    return (first, lines, last, after) == (_BEGIN, wrapped, _END, "")


def _ssh_keygen(arguments: list[str], message: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", *arguments], input=message, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise BenchError("ssh-keygen is not installed", "install OpenSSH's client, 8.2 or newer") from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"ssh-keygen did not end within {_TIMEOUT_S:g} s", "try again") from error
