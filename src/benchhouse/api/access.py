"""Tokens that identify people and programs to a server, and the record of all writes through that server."""

import builtins
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from benchhouse.api.verb_group import VerbGroup
from benchhouse.evidence import journals
from benchhouse.evidence.writing import after, now
from benchhouse.schema.access import AuditRecord, TokenRecord
from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.names import can_name_a_folder
from benchhouse.schema.roles import ROLES, TOKEN_PREFIX, Role

State = Literal["good", "expired", "revoked"]
_LONGEST = timedelta(days=366)
_AUDIT_BYTES = 8 << 20


@dataclass(frozen=True)
class Token:
    """A token without its secret: nothing here allows anybody to use it."""

    id: str
    name: str
    scope: Role
    made: str
    expires: str
    state: State


@dataclass(frozen=True)
class NewToken:
    """A token that was just made. `secret` is shown only this once."""

    secret: str
    token: Token


class Tokens(VerbGroup):
    """The tokens of this workspace, in a file that only its owner can read."""

    _read: tuple[tuple[int, int, int], builtins.list[TokenRecord]] | None = None

    def make(self, name: str, scope: Role = "read", *, for_s: float = 30 * 86400.0) -> NewToken:
        """Make a token for NAME with a secret of 256 random bits, valid for `for_s` seconds, at most a year."""
        try:
            can_name_a_folder(name)
        except ValueError as error:
            raise BenchError(str(error)) from error
        if scope not in ROLES:
            raise BenchError(f"there is no scope {scope!r}", f"there are {', '.join(ROLES)}")
        if not 0 < for_s <= _LONGEST.total_seconds():
            raise BenchError("a token counts for a year at most", "--expires 90d")
        secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
        made = now()
        record = TokenRecord(
            time=made,
            action="make",
            id=secrets.token_hex(4),
            name=name,
            scope=scope,
            expires=after(made, for_s),
            digest=digest_of(secret),
        )
        self._keep(record)
        return NewToken(secret, _token(record, revoked=False))

    def list(self) -> builtins.list[Token]:
        """Return all tokens that were ever made, oldest first, including expired and revoked ones."""
        records = self._records()
        revoked = {record.id for record in records if record.action == "revoke"}
        return [_token(record, record.id in revoked) for record in records if record.action == "make"]

    def revoke(self, token: str) -> builtins.list[Token]:
        """Revoke the token with this id, or all valid tokens with this name, and return them. Effective at once."""
        revoked = [item for item in self.list() if token in (item.id, item.name) and item.state == "good"]
        if not revoked:
            raise BenchError(f"no good token has the id or the name {token[:80]!r}", "see: bench token list")
        made = {record.id: record for record in self._records() if record.action == "make"}
        for item in revoked:
            self._keep(made[item.id].model_copy(update={"time": now(), "action": "revoke"}))
        return revoked

    def find(self, secret: str) -> Token | None:
        """Return the token that has this secret, whatever its state, or None if no token has it.

        Digests are compared in constant time. A plain SHA-256 is sufficient: a slow hash makes guessing passwords
        expensive, and 256 random bits cannot be guessed.
        """
        digest = digest_of(secret)
        found = [record for record in self._records() if hmac.compare_digest(record.digest, digest)]
        made = next((record for record in found if record.action == "make"), None)
        return _token(made, any(record.action == "revoke" for record in found)) if made else None

    def _records(self) -> builtins.list[TokenRecord]:
        """Read the file again if it has changed: a server calls this on every request and so applies a revocation at
        once."""
        try:
            stat = self._folder.token_journal.stat()
        except FileNotFoundError:
            return []
        state = stat.st_ino, stat.st_size, stat.st_mtime_ns
        if self._read is None or self._read[0] != state:
            self._read = state, journals.read(self._folder.token_journal, TokenRecord)[0]
        return self._read[1]

    def _keep(self, record: TokenRecord) -> None:
        path = self._folder.token_journal
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            path.chmod(0o600)
        except OSError as error:
            raise unwritable(path, error) from error
        journals.append(path, record, "bench token")


class Audit(VerbGroup):
    """The record of everything written through a server: who wrote what, and when."""

    def list(self) -> builtins.list[AuditRecord]:
        """Return one record per write, newest first: its end, or its beginning if the server was killed."""
        last: dict[str, AuditRecord] = {}
        files = journals.rotated(self._folder.audit_journal)
        for record in (record for file in files for record in journals.read(file, AuditRecord)[0]):
            begun = last.get(record.id, record).time
            last[record.id] = record.model_copy(update={"time": begun})
        return sorted(last.values(), key=lambda record: record.time, reverse=True)

    def keep(self, record: AuditRecord) -> None:
        """Append a synced line. The log is rotated at 8 MiB, and eight rotated files are kept."""
        journals.append(self._folder.audit_journal, record, "ask again", rotate_at=_AUDIT_BYTES)


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _token(record: TokenRecord, revoked: bool) -> Token:
    over = datetime.fromisoformat(record.expires) <= datetime.now(UTC)
    state: State = "revoked" if revoked else "expired" if over else "good"
    return Token(record.id, record.name, record.scope, record.time, record.expires, state)
