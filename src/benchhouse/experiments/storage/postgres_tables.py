"""The tables of one trial, in a schema of their own: made, filled, checked against what was acknowledged, dropped."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from time import monotonic, sleep

from benchhouse.experiments.storage.postgres_tally import Written
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.postgres import Administrator, Effect

_BLOCK_ROWS = 5_000
_FILLER = "x" * 84  # as wide as a row of pgbench
_MOST_BALANCE = 10_000
_LEAVING_S = 5.0
_LONGEST_NAME = 63
_DUPLICATE_SCHEMA = "sqlstate_42P06"


class SchemaExists(Exception):  # noqa: N818 - an outcome that the experiment names
    """A schema of that name is there already, and is nobody's to touch."""


@dataclass(frozen=True)
class Sums:
    """What the tables hold."""

    accounts: int = 0
    balance: int = 0
    hits: int = 0
    rows: int = 0
    amount: int = 0


def schema_name(trial_id: str) -> str:
    return f"benchhouse_{re.sub(r'[^a-z0-9]', '_', trial_id.lower())}"[:_LONGEST_NAME]


class Tables:
    """`accounts`, filled from a seed, and `history`, empty. Whoever made them drops them."""

    def __init__(self, session: Administrator, schema: str) -> None:
        self._session, self.schema = session, schema
        self.loaded = Sums()

    def create(self) -> None:
        try:
            self._session.query(f'CREATE SCHEMA "{self.schema}"')
        except CallFailed as failed:
            if failed.kind == _DUPLICATE_SCHEMA:
                raise SchemaExists(self.schema) from None
            raise

    def load(self, rows: int, seed: int) -> float:
        """Make and fill the tables; seconds that the rows took. Raises CallFailed where they are not all there."""
        place = f'"{self.schema}"'
        self._session.query(
            f"CREATE TABLE {place}.accounts (id integer PRIMARY KEY, balance bigint NOT NULL, "
            "hits bigint NOT NULL DEFAULT 0, filler text NOT NULL)"
        )
        self._session.query(
            f"CREATE TABLE {place}.history (account integer NOT NULL, amount integer NOT NULL, note text NOT NULL)"
        )
        made = _Accounts(rows, seed)
        began = monotonic()
        self._session.copy(f"COPY {place}.accounts (id, balance, filler) FROM STDIN", made.blocks())
        taken = monotonic() - began
        self.loaded = Sums(accounts=rows, balance=made.balance)
        if (found := self.sums()) != self.loaded:
            raise CallFailed("wrong_rows", f"loaded {self.loaded}, and the server has {found}")
        self._session.query(f"VACUUM ANALYZE {place}.accounts")
        return taken

    def sums(self) -> Sums:
        place = f'"{self.schema}"'
        ((accounts, balance, hits),) = self._session.query(
            f"SELECT count(*), coalesce(sum(balance), 0)::bigint, coalesce(sum(hits), 0)::bigint FROM {place}.accounts"  # noqa: S608 - a name that we made
        )
        ((rows, amount),) = self._session.query(
            f"SELECT count(*), coalesce(sum(amount), 0)::bigint FROM {place}.history"  # noqa: S608
        )
        return Sums(accounts, balance, hits, rows, amount)

    def wait_for_leaving(self, name: str) -> None:
        """Until no session of the load is left: what one has begun may yet be committed, and holds its locks."""
        deadline = monotonic() + _LEAVING_S
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()"
        while self._session.query(asked, (name,)) != [(0,)] and monotonic() < deadline:
            sleep(0.02)

    def drop(self) -> None:
        self._session.query(f'DROP SCHEMA "{self.schema}" CASCADE')


class _Accounts:
    """Rows as COPY takes them, and the sum of what is in them."""

    def __init__(self, rows: int, seed: int) -> None:
        self._rows, self._random, self.balance = rows, Random(seed), 0

    def blocks(self) -> Iterator[bytes]:
        for first in range(1, self._rows + 1, _BLOCK_ROWS):
            count = min(_BLOCK_ROWS, self._rows + 1 - first)
            balances = self._random.choices(range(_MOST_BALANCE), k=count)
            self.balance += sum(balances)
            rows = [f"{first + at}\t{balance}\t{_FILLER}\n" for at, balance in enumerate(balances)]
            yield "".join(rows).encode()


def discrepancies(loaded: Sums, found: Sums, written: Written, unchecked: tuple[str, ...]) -> dict[str, list[str]]:
    """What is not as it was acknowledged, in words, by code. Nothing can be said of what was never answered."""
    sure, unsure = written.acknowledged, written.unsure
    said: dict[str, list[str]] = defaultdict(list)

    def compare(where: str, what: str, grown: int, sure: int, unsure: int) -> None:
        told = f"{where} has grown by {grown}; {sure} were acknowledged{f', {unsure} never answered' if unsure else ''}"
        if grown < sure:
            head = f"{sure - grown} of {sure} acknowledged {what} are not in the database: " if what else ""
            said["writes_lost"].append(head + told)
        elif grown > sure + unsure:
            said["writes_unasked"].append(told)

    if "accounts" not in unchecked:
        if found.accounts != loaded.accounts:
            said["rows_lost"].append(f"accounts has {found.accounts} rows; {loaded.accounts} were loaded")
        compare("accounts.hits", "updates", found.hits - loaded.hits, sure.hits, unsure.hits)
        compare("accounts.balance", "", found.balance - loaded.balance, sure.balance, unsure.balance)
    if "history" not in unchecked:
        compare("history", "rows", found.rows - loaded.rows, sure.rows, unsure.rows)
        compare("history.amount", "", found.amount - loaded.amount, sure.amount, unsure.amount)
    return said


def lost(loaded: Sums, found: Sums, written: Written, unchecked: tuple[str, ...]) -> int:
    """Acknowledged updates and inserted rows that are not there."""
    sure: Effect = written.acknowledged
    hits = 0 if "accounts" in unchecked else max(sure.hits - (found.hits - loaded.hits), 0)
    rows = 0 if "history" in unchecked else max(sure.rows - (found.rows - loaded.rows), 0)
    return hits + rows
