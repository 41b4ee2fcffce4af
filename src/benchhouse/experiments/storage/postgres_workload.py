"""The load of PostgreSQL: the transactions of a workload, made from a seed before any time is measured."""

import re
from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from benchhouse.load.protocols.postgres import Effect, Statement, StatementCall, Value, Work
from benchhouse.load.shape import Shape
from benchhouse.schema.model import Model

BUILT_IN = ("lookup", "range", "update", "transfer", "oltp", "insert", "copy")
_MOST_BATCHES = 32  # different batches of insert and copy: they are long
_MOST_AMOUNT = 100
_CONTROL = re.compile(r"\s*(begin|start|commit|end|rollback|abort|savepoint|release)\b", re.IGNORECASE)
_COLUMNS = 3
_MOST_PLACES = 65_535  # of one statement, by the protocol
BEGIN, COMMIT = Statement("begin", "BEGIN", control=True), Statement("commit", "COMMIT", control=True)
LOOKUP = Statement("lookup", "SELECT balance FROM accounts WHERE id = :id")
RANGE = Statement("range", "SELECT id, balance FROM accounts WHERE id BETWEEN :first AND :last ORDER BY id")
UPDATE = Statement("update", "UPDATE accounts SET balance = balance + :amount, hits = hits + 1 WHERE id = :id")
RECORD = Statement("record", "INSERT INTO history (account, amount, note) VALUES (:id, :amount, :note)")
COPY = Statement("copy", "COPY history (account, amount, note) FROM STDIN", control=True)


class Between(Model):
    """A whole number, uniformly distributed."""

    low: int = Field(description="The lowest.")
    high: int = Field(description="The highest.")

    @model_validator(mode="after")
    def _is_in_order(self) -> "Between":
        if self.low > self.high:
            raise ValueError(f"low is {self.low} and high is {self.high}")
        return self


class CustomSql(Model):
    """A user's transaction: one statement, or several in the order in which they are sent."""

    text: str | tuple[str, ...] = Field(
        description="SQL with :name for each value, as pgbench has it. Several statements: a list, with BEGIN and "
        "COMMIT where they are one transaction."
    )
    params: dict[str, Value | tuple[Value, ...] | Between] = Field(
        {}, description="Value of each :name: one, a list to choose from, or {low: 1, high: 1000}."
    )

    @model_validator(mode="before")
    @classmethod
    def _text_alone(cls, given: Any) -> Any:
        """Accept statements without values and without their own key."""
        return {"text": given} if isinstance(given, str | list | tuple) else given

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,) if isinstance(self.text, str) else self.text

    @model_validator(mode="after")
    def _names_fit(self) -> "CustomSql":
        if not self.texts or not all(text.strip() for text in self.texts):
            raise ValueError("text: there is an empty statement")
        named = {name for text in self.texts for name in Statement("", text).names}
        if missing := named - self.params.keys():
            raise ValueError(f"params: no value for :{', :'.join(sorted(missing))}")
        if unused := self.params.keys() - named:
            raise ValueError(f"text: {', '.join(sorted(unused))} of params is not in it; write :{min(unused)}")
        if any(value == () for value in self.params.values()):
            raise ValueError("params: an empty list has nothing to choose from")
        return self


class PostgresWorkload(Shape):
    """The load and its transactions."""

    operation: str | None = Field(
        None,
        description="What every transaction is: lookup (default), range, update, transfer (two updates in a "
        "transaction), oltp (update, lookup and insert in one), insert (many rows), copy, or a name from `sql`.",
    )
    mix: dict[str, float] | None = Field(None, description="Several by weight: {lookup: 80, update: 20}.")
    sql: dict[str, CustomSql] = Field(default_factory=dict, description="Transactions of your own, by name.")
    rows: int = Field(100_000, ge=2, le=10**9, description="Rows of the table `accounts`.")
    span: int = Field(100, ge=1, description="range: rows that one reads.")
    batch: int = Field(1000, ge=1, description="insert, copy: rows of one transaction.")
    prepared: bool = Field(True, description="Whether statements are prepared in the server, once a connection.")
    isolation: Literal["read committed", "repeatable read", "serializable"] = Field(
        "read committed", description="Isolation level of every transaction."
    )
    distinct: int = Field(20_000, ge=1, le=10**6, description="Different transactions, made before and used in turn.")

    @field_validator("sql")
    @classmethod
    def _names_are_free(cls, sql: dict[str, CustomSql]) -> dict[str, CustomSql]:
        for name in sql:
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name) or name in BUILT_IN:
                raise ValueError(f"{name!r} can't be its name: small letters, digits and _, and none of {BUILT_IN}")
        return sql

    @model_validator(mode="after")
    def _goes_together(self) -> "PostgresWorkload":
        if self.operation and self.mix is not None:
            raise ValueError("give operation or mix, not both")
        if self.mix is not None and (not self.mix or min(self.mix.values()) <= 0):
            raise ValueError("mix needs at least one transaction, and weights above 0")
        known = (*BUILT_IN, *self.sql)
        for kind in self.weights:
            if kind not in known:
                raise ValueError(f"{kind!r} is none of {', '.join(known)}; your own belong into `sql`")
        if unused := self.sql.keys() - self.weights.keys():
            raise ValueError(f"sql: {', '.join(sorted(unused))} is used by neither operation nor mix")
        if "range" in self.weights and self.span > self.rows:
            raise ValueError(f"a range of {self.span} rows does not fit into {self.rows}")
        if "insert" in self.weights and self.batch * _COLUMNS > _MOST_PLACES:
            raise ValueError(f"insert: PostgreSQL takes at most {_MOST_PLACES // _COLUMNS} rows in one; use copy")
        return self

    @property
    def weights(self) -> dict[str, float]:
        return self.mix or {self.operation or "lookup": 1.0}

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Tables that the user's own transactions name: what they write there is unknown."""
        text = " ".join(text for item in self.sql.values() for text in item.texts)
        return tuple(table for table in ("accounts", "history") if re.search(rf"\b{table}\b", text, re.IGNORECASE))


class TransactionScript:
    """The statements of a workload and its transactions."""

    def __init__(self, workload: PostgresWorkload, seed: int) -> None:
        self._workload, self._random = workload, Random(seed)
        places = ", ".join(f"(:account{row}, :amount{row}, :note{row})" for row in range(workload.batch))
        insert = f"INSERT INTO history (account, amount, note) VALUES {places}"  # noqa: S608 - of places
        self._insert = Statement("insert_rows", insert)  # one statement for all rows of a batch, which can be prepared
        self._own = {
            name: [
                Statement(f"{name}_{number}", text, control=bool(_CONTROL.match(text)))
                for number, text in enumerate(item.texts)
            ]
            for name, item in workload.sql.items()
        }
        self._made: dict[str, list[Work]] = {"insert": [], "copy": []}

    @property
    def own(self) -> list[Statement]:
        return [statement for statements in self._own.values() for statement in statements]

    @property
    def statements(self) -> list[Statement]:
        """Statements that the transactions need, without BEGIN and COMMIT."""
        needed = {
            "lookup": [LOOKUP], "range": [RANGE], "update": [UPDATE], "transfer": [UPDATE], "insert": [self._insert],
            "oltp": [UPDATE, LOOKUP, RECORD], "copy": [COPY],
        }  # fmt: skip
        statements = [item for kind in self._workload.weights for item in (needed | self._own)[kind]]
        return [item for item in dict.fromkeys(statements) if not item.control or item is COPY]

    def works(self) -> Iterator[Work]:
        """Yield the distinct transactions, by their weights; the first ones include each kind, however rare it is."""
        kinds, weights = list(self._workload.weights), list(self._workload.weights.values())
        count = max(self._workload.distinct, len(kinds))
        chosen = [*kinds, *self._random.choices(kinds, weights, k=count - len(kinds))]
        for kind in chosen:
            many = self._made.get(kind)
            if many is not None and len(many) >= _MOST_BATCHES:
                yield self._random.choice(many)
                continue
            work = self._work(kind)
            if many is not None:
                many.append(work)
            yield work

    def _amount(self) -> int:
        """Return an amount above 0, so that a sum can only be right if everything is there."""
        return self._random.randint(1, _MOST_AMOUNT)

    def _work(self, kind: str) -> Work:
        rows, amount = self._workload.rows, self._amount()
        account = self._random.randint(1, rows)
        lookup, update = StatementCall(LOOKUP, (account,), 1), StatementCall(UPDATE, (amount, account), 1)
        if kind in self._own:
            params = {name: self._choose(value) for name, value in self._workload.sql[kind].params.items()}
            return Work(
                kind, [StatementCall(item, tuple(params[name] for name in item.names)) for item in self._own[kind]]
            )
        if kind == "lookup":
            return Work(kind, [lookup])
        if kind == "range":
            first, span = self._random.randint(1, rows - self._workload.span + 1), self._workload.span
            return Work(kind, [StatementCall(RANGE, (first, first + span - 1), span)])
        if kind == "update":
            return Work(kind, [update], Effect(balance=amount, hits=1))
        if kind == "transfer":
            giver, taker = self._random.sample(range(1, rows + 1), 2)
            updates = StatementCall(UPDATE, (-amount, giver), 1), StatementCall(UPDATE, (amount, taker), 1)
            return Work(kind, [StatementCall(BEGIN), *updates, StatementCall(COMMIT)], Effect(hits=2))
        if kind == "oltp":
            steps = [
                StatementCall(BEGIN),
                update,
                lookup,
                StatementCall(RECORD, (account, amount, "oltp"), 1),
                StatementCall(COMMIT),
            ]
            return Work(kind, steps, Effect(balance=amount, hits=1, rows=1, amount=amount))
        return self._many(kind)

    def _many(self, kind: str) -> Work:
        """Return a batch of rows, by INSERT or COPY."""
        random, numbers = self._random.randint, range(self._workload.batch)
        rows = [(random(1, self._workload.rows), self._amount(), f"entry {number}") for number in numbers]
        effect = Effect(rows=len(rows), amount=sum(amount for _, amount, _ in rows))
        if kind == "insert":
            return Work(kind, [StatementCall(self._insert, tuple(chain.from_iterable(rows)), len(rows))], effect)
        text = "".join(f"{account}\t{amount}\t{note}\n" for account, amount, note in rows)
        return Work(kind, [StatementCall(COPY, (), len(rows), text.encode())], effect)

    def _choose(self, value: Value | tuple[Value, ...] | Between) -> Value:
        if isinstance(value, Between):
            return self._random.randint(value.low, value.high)
        return self._random.choice(value) if isinstance(value, tuple) else value
