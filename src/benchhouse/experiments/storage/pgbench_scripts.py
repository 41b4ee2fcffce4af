"""The transactions of a workload as scripts of pgbench; what it can't express is refused, with the reason."""

import math
import re
from collections.abc import Iterator
from fractions import Fraction

from benchhouse.experiments.storage.postgres_workload import (
    BEGIN,
    BUILT_IN,
    COMMIT,
    LOOKUP,
    RANGE,
    RECORD,
    UPDATE,
    Between,
    CustomSql,
    PostgresWorkload,
)
from benchhouse.load.arrivals import Poisson
from benchhouse.load.protocols.pgbench import PgbenchScript
from benchhouse.load.protocols.postgres import Effect, Statement, Step, Value, Work
from benchhouse.schema.errors import BenchError

_MOST_WEIGHT = 2**31 - 1
_MOST_PLACES = 255  # of one statement
_OTHER = "or take driver: postgres"
_LIKE_A_PLACE = re.compile(r"(?<!:):[A-Za-z_]")
_NUMBER = int | float
Command = Statement | tuple[str, str]  # or the name of a variable and the expression that it is set to


def transactions(workload: PostgresWorkload) -> dict[str, Work]:
    """What one transaction of each kind does, by its name; raises BenchError for one that pgbench can't make.

    Every amount is 1, so that what is written can be added up although pgbench draws the rows itself.
    """
    lookup, update, record = Step(LOOKUP, rows=1), Step(UPDATE, rows=1), Step(RECORD, rows=1)
    built_in = {
        "lookup": Work("lookup", [lookup]),
        "range": Work("range", [Step(RANGE, rows=workload.span)]),
        "update": Work("update", [update], Effect(balance=1, hits=1)),
        "transfer": Work("transfer", [Step(BEGIN), update, update, Step(COMMIT)], Effect(hits=2)),
        "oltp": Work(
            "oltp",
            [Step(BEGIN), update, lookup, record, Step(COMMIT)],
            Effect(balance=1, hits=1, rows=1, amount=1),
        ),
    }
    for kind in workload.weights:
        if kind in BUILT_IN and kind not in built_in:
            raise BenchError(
                f"pgbench has no {kind}: its scripts send single statements with few values",
                f"choose from {', '.join(built_in)} and SQL of your own, {_OTHER}",
            )
    return {kind: built_in[kind] if kind in built_in else Work(kind, []) for kind in workload.weights}


def scripts(workload: PostgresWorkload) -> tuple[PgbenchScript, ...]:
    """One for each kind of transaction, in the order of the workload's weights. Raises BenchError."""
    _refuse_shape(workload)
    transactions(workload)
    made = []
    for number, (kind, weight) in enumerate(zip(workload.weights, _whole_weights(workload), strict=True)):
        if kind in workload.sql:
            made.append(_of_own(kind, number, workload.sql[kind], weight))
        else:
            variables = {"note": "oltp"} if kind == "oltp" else {}
            made.append(PgbenchScript(_text(_built_in(kind, workload)), weight, variables))
    return tuple(made)


def _refuse_shape(workload: PostgresWorkload) -> None:
    if workload.requests:
        raise BenchError("pgbench runs for a time, not for a number of requests", f"give duration, {_OTHER}")
    if workload.think_time:
        raise BenchError("pgbench counts a pause as part of a transaction", f"leave think_time out, {_OTHER}")
    if workload.open_loop and not isinstance(workload.law, Poisson):
        raise BenchError(
            f"pgbench has no arrivals of the kind {workload.law.kind}", f"give rps with arrivals: poisson, {_OTHER}"
        )
    if workload.nodes != "own":
        raise BenchError("pgbench runs on the node of the trial alone", f"leave nodes out, {_OTHER}")


def _whole_weights(workload: PostgresWorkload) -> list[int]:
    """Pgbench takes whole numbers."""
    shares = [Fraction(str(weight)) for weight in workload.weights.values()]
    scale = math.lcm(*(share.denominator for share in shares))
    weights = [int(share * scale) for share in shares]
    if max(weights) > _MOST_WEIGHT:
        raise BenchError("mix: pgbench needs weights that are whole numbers", f"round them, {_OTHER}")
    return weights


def _built_in(kind: str, workload: PostgresWorkload) -> Iterator[Command]:
    rows, span = workload.rows, workload.span
    if kind == "range":
        yield from (("first", f"random(1, {rows - span + 1})"), ("last", f":first + {span - 1}"), RANGE)
        return
    yield "id", f"random(1, {rows})"
    if kind == "lookup":
        yield LOOKUP
        return
    if kind == "update":
        yield from (("amount", "1"), UPDATE)
    elif kind == "transfer":
        yield from (BEGIN, ("amount", "-1"), UPDATE)
        yield from (("id", f"1 + (:id + random(0, {rows - 2})) % {rows}"), ("amount", "1"), UPDATE, COMMIT)  # another
    elif kind == "oltp":
        yield from (("amount", "1"), BEGIN, UPDATE, LOOKUP, RECORD, COMMIT)


def _text(commands: Iterator[Command]) -> str:
    lines = []
    for command in commands:
        if isinstance(command, Statement):
            lines.append(f"{command.text.strip().removesuffix(';')}\n;")  # after a comment, too
        else:
            lines.append(f"\\set {command[0]} {command[1]}")
    return "\n".join(lines) + "\n"


def _of_own(kind: str, number: int, own: CustomSql, weight: int) -> PgbenchScript:
    """Its variables are named after the script: those from the command line are the same in all of them."""
    sets: list[Command] = []
    variables: dict[str, str] = {}
    names = {name: f"v{number}_{name}" for name in own.params}
    for name, value in own.params.items():
        if isinstance(value, tuple) and len(value) > 1:
            sets += _drawn(kind, name, value, names[name])
        elif isinstance(value, Between):
            sets.append((names[name], f"random({value.low}, {value.high})"))
        else:
            only = value[0] if isinstance(value, tuple) else value
            variables[names[name]] = _as_text(kind, name, only)
    statements = [Statement(kind, _renamed(kind, text, names)) for text in own.texts]
    return PgbenchScript(_text(iter([*sets, *statements])), weight, variables)


def _drawn(kind: str, name: str, values: tuple[Value, ...], variable: str) -> list[Command]:
    numbers = [value for value in values if isinstance(value, _NUMBER) and not isinstance(value, bool)]
    if len(numbers) < len(values) or not all(map(math.isfinite, numbers)):
        raise BenchError(
            f"sql.{kind}: pgbench can choose among numbers only, and the list {name} of params holds something else",
            f"give numbers, or one value, {_OTHER}",
        )
    *first, last = (repr(value) for value in numbers)
    cases = " ".join(f"WHEN :{variable}_at = {at} THEN {text}" for at, text in enumerate(first))
    return [(f"{variable}_at", f"random(0, {len(first)})"), (variable, f"CASE {cases} ELSE {last} END")]


def _as_text(kind: str, name: str, value: Value) -> str:
    if value is None:
        raise BenchError(f"sql.{kind}: pgbench has no null for {name} of params", f"write NULL into the text, {_OTHER}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _renamed(kind: str, text: str, names: dict[str, str]) -> str:
    statement = Statement(kind, text)
    if ";" in statement.unquoted.strip().removesuffix(";"):
        raise BenchError(
            f"sql.{kind}: pgbench would send these as several statements: {text}", "write a list of statements"
        )
    for quoted in statement.quoted:
        if _LIKE_A_PLACE.search(quoted):
            raise BenchError(
                f"sql.{kind}: pgbench would replace what follows the colon in {quoted}", f"avoid it there, {_OTHER}"
            )
    if len(statement.places) > _MOST_PLACES:
        raise BenchError(f"sql.{kind}: pgbench takes {_MOST_PLACES} values in a statement", f"use fewer, {_OTHER}")
    return statement.filled({name: f":{names[name]}" for name in statement.names})
