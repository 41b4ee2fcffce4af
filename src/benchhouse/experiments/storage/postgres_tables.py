"""The tables of one trial, in a separate schema, and the tally that their content is checked against."""

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress
from random import Random
from time import monotonic, sleep

from benchhouse.load.answers import measured
from benchhouse.load.calls import CallTally
from benchhouse.load.load_record import Answers, Call
from benchhouse.load.protocols.calls import CallFailed, CallResult
from benchhouse.load.protocols.postgres import UNSURE, Administrator, Effect
from benchhouse.load.slo import Slo

_BLOCK_ROWS = 5_000
_FILLER = "x" * 84  # as wide as a row of pgbench
_MOST_BALANCE = 10_000
_LEAVING_S = 5.0
_LONGEST_NAME = 63
_DUPLICATE_SCHEMA = "sqlstate_42P06"
_NOTHING = Effect()


class SchemaExists(Exception):  # noqa: N818 - an outcome that the experiment names
    """A schema of that name already exists and must not be changed."""


@dataclass(frozen=True)
class Sums:
    """The content of the tables, added up."""

    accounts: int = 0
    balance: int = 0
    hits: int = 0
    rows: int = 0
    amount: int = 0


def schema_name(trial_id: str) -> str:
    return f"benchhouse_{re.sub(r'[^a-z0-9]', '_', trial_id.lower())}"[:_LONGEST_NAME]


class AccountTables:
    """`accounts`, filled from a seed, and `history`, empty. The caller that made them drops them."""

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
        """Make and fill the tables. Return the seconds that the rows took. Raise CallFailed if rows are missing."""
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
        if (stored := self.sums()) != self.loaded:
            raise CallFailed("wrong_rows", f"loaded {self.loaded}, and the server has {stored}")
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
        """Wait until no session of the load is left: its transactions may still be committed, and hold locks."""
        deadline = monotonic() + _LEAVING_S
        others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()"
        while self._session.query(others, (name,)) != [(0,)] and monotonic() < deadline:
            sleep(0.02)

    def drop(self) -> None:
        self._session.query(f'DROP SCHEMA "{self.schema}" CASCADE')


class _Accounts:
    """Rows in the format of COPY, and the sum of their balances."""

    def __init__(self, rows: int, seed: int) -> None:
        self._rows, self._random, self.balance = rows, Random(seed), 0

    def blocks(self) -> Iterator[bytes]:
        for first in range(1, self._rows + 1, _BLOCK_ROWS):
            count = min(_BLOCK_ROWS, self._rows + 1 - first)
            balances = self._random.choices(range(_MOST_BALANCE), k=count)
            self.balance += sum(balances)
            rows = [f"{first + at}\t{balance}\t{_FILLER}\n" for at, balance in enumerate(balances)]
            yield "".join(rows).encode()


@dataclass
class WrittenRows:
    """Writes that the server acknowledged, and possible writes of transactions without an answer."""

    acknowledged: Effect = _NOTHING
    unsure: Effect = _NOTHING


class PostgresTally(CallTally):
    """A tally that also adds up written rows; `writes` states whether there are any."""

    def __init__(self, slo: Slo | None = None, *, writes: bool = True) -> None:
        super().__init__(slo)
        self._writes = writes
        self.written = WrittenRows()

    def add(self, call: Call, reply: CallResult, start_ns: int, end_ns: int) -> int:
        missed = super().add(call, reply, start_ns, end_ns)
        if reply.error is None and not call.measured:  # others went through `add_many`
            self._acknowledge([call.item.effect])
        elif reply.error in UNSURE and call.item.effect:
            self.written.unsure = _sum([self.written.unsure, call.item.effect])
        return missed

    def add_many(self, ended: list[tuple[Call, CallResult]]) -> None:
        super().add_many(ended)
        self._acknowledge(call.item.effect for call, _ in ended)

    def add_answers(self, answers: Answers) -> None:
        latencies, known = self.count_answers(answers)
        kinds = [item.kind for item in answers.items]
        different = set(kinds)
        for kind in different:
            of_kind = array("q", compress(latencies, map(kind.__eq__, kinds))) if len(different) > 1 else latencies
            self.by_kind[kind].count(known if of_kind is latencies else measured(of_kind))
        self._acknowledge(item.effect for item in answers.items)

    def _acknowledge(self, effects: Iterable[Effect | None]) -> None:
        if self._writes:
            self.written.acknowledged = _sum([self.written.acknowledged, *filter(None, effects)])

    def merge(self, other: CallTally) -> None:
        super().merge(other)
        if isinstance(other, PostgresTally):
            self.written.acknowledged = _sum((self.written.acknowledged, other.written.acknowledged))
            self.written.unsure = _sum((self.written.unsure, other.written.unsure))


def _sum(effects: Iterable[Effect]) -> Effect:
    return Effect(*map(sum, zip(*effects, strict=True)))


class RowReconciliation:
    """Compares loaded and acknowledged rows with the stored ones; unanswered writes may be stored or not."""

    def __init__(self, loaded: Sums, stored: Sums, written: WrittenRows, unchecked: tuple[str, ...]) -> None:
        self.problems: dict[str, list[str]] = defaultdict(list)  # messages by code
        self.lost = 0  # acknowledged updates and inserted rows that are not there
        self._loaded, self._stored, self._written = loaded, stored, written
        if "accounts" not in unchecked:
            if stored.accounts != loaded.accounts:
                self.problems["rows_lost"].append(f"accounts has {stored.accounts} rows; {loaded.accounts} were loaded")
            self._compare("accounts.hits", "hits", "updates")
            self._compare("accounts.balance", "balance")
        if "history" not in unchecked:
            self._compare("history", "rows", "rows")
            self._compare("history.amount", "amount")

    def _compare(self, where: str, column: str, counted: str = "") -> None:
        grown = getattr(self._stored, column) - getattr(self._loaded, column)
        sure, unsure = getattr(self._written.acknowledged, column), getattr(self._written.unsure, column)
        unanswered = f", {unsure} never answered" if unsure else ""
        message = f"{where} has grown by {grown}; {sure} were acknowledged{unanswered}"
        if grown > sure + unsure:
            self.problems["writes_unasked"].append(message)
        elif grown < sure:
            if counted:
                self.lost += sure - grown
                message = f"{sure - grown} of {sure} acknowledged {counted} are not in the database: {message}"
            self.problems["writes_lost"].append(message)
