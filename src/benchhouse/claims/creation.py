"""From a number of a report, or a comparison of two, to a claim; numbers that are not publication-safe are refused."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from benchhouse.analysis.compare import DEFINITION, compare, hide_within
from benchhouse.analysis.interval_checks import doubt
from benchhouse.claims.safety import Basis, interval_of
from benchhouse.results.comparison import CompareOptions
from benchhouse.results.comparison_sides import compare_selected
from benchhouse.results.early_stopping import confidence_for
from benchhouse.results.lineage import check_cells, pick_cells
from benchhouse.results.numbers import SEED, name_of, quantity
from benchhouse.results.sealed_proof import same_bits
from benchhouse.results.table_cells import make_cells
from benchhouse.schema.claim import Claim, Policy, UnsafeReason
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.query import Cell
from benchhouse.schema.version import __version__
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Result, Warehouse

Row = Mapping[str, Any]
Key = tuple[str, str, str, str]
_T_METHOD = "Student's t over trials"
_LOG_METHOD = f"{_T_METHOD}, upper end on the scale of logarithms"
_MADE_AT = "; a rule ended repetitions, so intervals are made at "


class NotSafe(BenchError):  # noqa: N818 - the house's words
    """A number can't be claimed; contains every reason."""

    def __init__(
        self, what: str, reasons: Sequence[UnsafeReason], *, realism: bool, against: str | None = None
    ) -> None:
        self.reasons = list(reasons)
        lines = [f"{what} is not publication-safe:", *(f"  {reason.code}: {reason.message}" for reason in reasons)]
        never = [reason.code for reason in reasons if not reason.may_be_labelled]
        make = shlex.join(["bench", "claim", "make", what, *(("--against", against) if against else ()), "--realism"])
        hint = f"Mend it and run again, or publish it under a label that lists these:  {make}"
        if never:
            hint = f"{', '.join(dict.fromkeys(never))} can't be labelled away: see  bench trace, bench verify"
        elif realism:
            hint = "see: bench trace"
        super().__init__("\n".join(lines), hint, Exit.CLAIM_NOT_SAFE)


def make_claim(warehouse: Warehouse, number: str, against: str | None, policy: Policy, *, realism: bool) -> Claim:
    """Make a claim. `number` is a ref of a report or `RUN[:key=value]:metric[.stat]`; `against` is `RUN[:key=value]`.

    Raise NotSafe with all reasons; with `realism`, only if a label cannot compensate for one of them.
    """
    keys = [_key_of(warehouse, number)] if against is None else _keys_compared(warehouse, number, against)
    result = queries.points(warehouse, {key[0] for key in keys})
    rows = [_row_of(result, key) for key in keys]
    cells = [_cell_of(result, key) for key in keys]
    root = warehouse.workspace.root
    basis = Basis.of(rows, queries.trials(warehouse, {key[0] for key in keys}).dicts())
    reasons = basis.judge(policy, lambda row: TrialFolder(root / row["folder"]))
    broken = [step for step in check_cells(warehouse, cells, result.spec) if not step.ok]
    reasons += [
        UnsafeReason(code="broken_lineage", message=f"step {step.name}: {'; '.join(step.says)}") for step in broken
    ]
    if reasons and (not realism or not all(reason.may_be_labelled for reason in reasons)):
        raise NotSafe(number, reasons, realism=realism, against=against)
    fields: dict[str, Any] = {
        "label": "REALISM-GRADE" if reasons else "PUBLICATION-GRADE", "reasons": reasons, "policy": policy,
        "cells": cells, "queries": {result.spec.digest(): result.spec}, "trials": basis.trials(),
        "changed": basis.changed(), "contracts": basis.citations(),
        "measured_from": basis.times()[0], "measured_to": basis.times()[1], "benchhouse": __version__,
        "definition": DEFINITION,
        "scenario": rows[-1]["scenario"], "metric": rows[-1]["metric"], "stat": rows[-1]["stat"],
        "direction": rows[-1]["direction"],
    }  # fmt: skip
    # rounded as in the claim's method
    made = round(confidence_for(warehouse.workspace, {key[0] for key in keys}, policy.confidence), 6)
    return Claim(**fields, **value_or_comparison(rows, policy, made))


def value_or_comparison(
    rows: Sequence[Row], policy: Policy, made: float, definition: int = DEFINITION
) -> dict[str, Any]:
    """Return the claim's fields for its one or two numbers. Intervals have the confidence `made`, which is higher than
    the policy's if a rule ended runs.
    """
    if len(rows) == 1:
        fields = value_fields(rows[0], made, definition)
    else:
        fields = comparison_fields(rows[0], rows[1], made, definition)
    if made != policy.confidence:
        fields["method"] += f"{_MADE_AT}{made:.6g}"
    return fields


def confidence_of(claim: Claim) -> float:
    """Return the confidence of a claim's intervals, from the text of its method; never less than the policy's."""
    _, separator, number = claim.method.partition(_MADE_AT)
    try:
        return min(max(float(number), claim.policy.confidence), 1.0 - 1e-9) if separator else claim.policy.confidence
    except ValueError:
        return claim.policy.confidence


def value_fields(row: Row, confidence: float, definition: int) -> dict[str, Any]:
    """Return the claim's fields for one number; verification computes them again."""
    ends = interval_of(row["values"], confidence, definition)
    logs = definition > 2 and min(row["values"]) > 0.0
    shown = quantity(row["mean"], row["unit"], row["stdev"])
    interval = f"{quantity(ends[0], '1')} to {quantity(ends[1], row['unit'])}" if ends else "none"
    doubted = doubt(row["values"]) if definition > 2 else ""
    about = f"{confidence * 100:g}% interval {interval}, n={row['n']}" + (f"; {doubted}" if doubted else "")
    where = row["point"] or row["target_name"]
    return {
        "kind": "value", "value": row["mean"], "unit": row["unit"], "interval": ends, "n": row["n"],
        "point": where, "method": _LOG_METHOD if logs else _T_METHOD,
        "statement": f"{row['scenario']}, {where}: {name_of(row['metric'], row['stat'])} is {shown} ({about})",
    }  # fmt: skip


def comparison_fields(a: Row, b: Row, confidence: float, definition: int) -> dict[str, Any]:
    """Return the claim's fields for two numbers: the change in percent if it has an interval, otherwise the
    difference.
    """
    options: dict[str, Any] = {"seed": SEED, "confidence": confidence, "definition": definition}
    compared = compare(a["values"], b["values"], direction=b["direction"], **options)
    compared = hide_within(compared, a.get("error_bound"), b.get("error_bound"))
    value, ends, scale, unit = compared.difference, compared.difference_interval, 1.0, b["unit"]
    if compared.change is not None and compared.change_interval is not None:
        value, ends, scale, unit = compared.change * 100.0, compared.change_interval, 100.0, "%"
    labels = [row["point"] or row["target_name"] for row in (a, b)]
    names = labels if labels[0] != labels[1] else [f"{row['run_id']} {row['point']}".strip() for row in (a, b)]
    return {
        "kind": "comparison", "value": value, "unit": unit,
        "interval": (ends.lo * scale, ends.hi * scale) if ends else None, "n": min(a["n"], b["n"]),
        "point": labels[0] if labels[0] == labels[1] else " → ".join(labels), "method": compared.method,
        "verdict": compared.verdict, "seed": SEED,
        "statement": f"{b['scenario']}, {name_of(b['metric'], b['stat'])}: {compared.sentence(*names)}",
    }  # fmt: skip


# -- which rows


def _key_of(warehouse: Warehouse, number: str) -> Key:
    if ":" in number:
        cells, _ = pick_cells(warehouse, number)
        if len(cells) != 1:
            hint = "Pick a point: bench claim make RUN:key=value:metric.stat"
            raise BenchError(f"{number} stands for {len(cells)} numbers; a claim is about one", hint)
        return _key(cells[0].key)
    refs = warehouse.catalog.refs(number, 2) if number else []
    if number in refs or len(refs) == 1:
        return _published(warehouse, number if number in refs else refs[0])
    what = "the beginning of several numbers" if refs else "no number of a report"
    hint = "Give the ref that a report prints beside a number, or RUN:metric such as @last:qps."
    raise BenchError(f"'{number}' is {what}", hint)


def _published(warehouse: Warehouse, ref: str) -> Key:
    """Return the key of the row that a report shows. Raise NotSafe if the tables now have another value."""
    place = warehouse.catalog.report_of(ref) or ""
    try:
        report = json.loads((warehouse.workspace.root / place).read_bytes())
        cell = Cell.model_validate(next(cell for cell in report["cells"] if cell["ref"] == ref))
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise BenchError(f"{place} can't be read as the report of {ref}", f"see: bench trace {ref}") from error
    key = _key(cell.key)
    now = _cell_of(queries.points(warehouse, [key[0]]), key)
    if not same_bits(now.value, cell.value) or now.trials != cell.trials:
        message = f"{place} shows {cell.value!r} (n={cell.n}), the tables now give {now.value!r} (n={now.n})"
        raise NotSafe(ref, [UnsafeReason(code="broken_lineage", message=message)], realism=True)
    return key


def _keys_compared(warehouse: Warehouse, number: str, against: str) -> list[Key]:
    if ":" not in number:
        raise BenchError("a comparison names its points", "bench claim make RUN:key=value:metric --against RUN:...")
    selected, _, _ = number.rpartition(":")
    wanted = _key_of(warehouse, number)
    table = compare_selected(warehouse, against, selected, CompareOptions((wanted[2],), every=True, paired=False))
    shared = [row for row in table.rows if row.stat == wanted[3]]
    if len(shared) != 1:
        common = f"{against} and {selected} have {len(shared)} points in common"
        raise BenchError(f"{common}; a claim is about one", "Pick one on each side: RUN:key=value")
    base_run = warehouse.require_run(against.partition(":")[0])
    rows = queries.points(warehouse, [base_run]).dicts()
    base = next(row for row in rows if list(row["trials"]) == shared[0].trials_a)
    return [(base_run, base["instance_digest"], wanted[2], wanted[3]), wanted]


def _key(key: Mapping[str, Any]) -> Key:
    return key["run_id"], key["instance_digest"], key["metric"], key["stat"]


def _row_of(result: Result, key: Key) -> Row:
    rows = [row for row in result.dicts() if _key(row) == key]
    if len(rows) != 1:
        message = f"{key[2]} of run {key[0]} has {len(rows)} rows: its unit changed between trials, or it is gone"
        raise BenchError(message, "see: bench query")
    return rows[0]


def _cell_of(result: Result, key: Key) -> Cell:
    cells = [cell for cell in make_cells(result) if _key(cell.key) == key]
    if len(cells) != 1:
        raise BenchError(f"run {key[0]} has no single number {key[2]}.{key[3]}", "see: bench report")
    return cells[0]
