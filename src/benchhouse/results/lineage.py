"""From a published number back to the bytes that prove it: report row, query, runs and digests, evidence."""

import json
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from benchhouse.documents.problems import guess_hint
from benchhouse.results.invalid_trials import INVALID_HINT, invalid_rows, reasons
from benchhouse.results.metric_names import parse_metric
from benchhouse.results.numbers import name_of
from benchhouse.results.sealed_proof import prove, same_bits
from benchhouse.results.selection import Selector, parse_selector, select
from benchhouse.results.table_cells import make_cells
from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.query import Cell, QuerySpec, cell_ref
from benchhouse.schema.quoting import shortened
from benchhouse.schema.trial import outcome_words
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.queries import points, refused_figures
from benchhouse.warehouse.queries import trials as trials_of
from benchhouse.warehouse.query import Result, Warehouse, own

REPORT_FILE = "report.json"
PUBLISHED = "published"  # folder next to it, with every report that was ever written there
SHORTEST_PREFIX = 4
_PREFERRED_STATS = ("value", "mean", "p50")
_SHOWN = 8

# Both tables of `points` are named here too, so that the engine that computed it can run the query again unchanged.
_TRIALS = own(
    """
SELECT trial_id, run_id, benchmark_case_id, workload_spec_digest, artifact_manifest_digest, instance_digest,
       parameters, folder, outcome, repetition, host
FROM trial_fact WHERE list_contains(CAST($trials AS VARCHAR[]), trial_id) ORDER BY repetition, trial_id
""".strip()
)
_MEASUREMENTS = own(
    """
SELECT m.trial_id, m.metric, m.stat, m.value, m.unit, m.scope, m."window", m.outcome
FROM measurement_fact m JOIN trial_fact t ON t.trial_id = m.trial_id
WHERE list_contains(CAST($trials AS VARCHAR[]), m.trial_id) ORDER BY m.trial_id, m.metric, m.stat, m.scope, m."window"
""".strip()
)


StepName = Literal["report", "query", "identity", "evidence"]


class LineageStep(Model):
    """One step of the trace; `says` is for people, `details` for programs."""

    name: StepName
    ok: bool
    says: list[str]
    details: list[dict[str, Any]] = Field(default_factory=empty_list)


class LineageTrace(Model):
    """The four steps from a number to its bytes."""

    schema_version: Literal[1] = 1
    token: str
    kind: Literal["cell", "point", "trial", "claim"]
    ok: bool
    steps: list[LineageStep]

    @classmethod
    def of(
        cls, token: str, kind: Literal["cell", "point", "trial", "claim"], steps: list[LineageStep]
    ) -> "LineageTrace":
        return cls(token=token, kind=kind, ok=all(step.ok for step in steps), steps=steps)

    def as_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def not_reached() -> list[LineageStep]:
    """Return steps two to four of a trace that ended at the first."""
    rest: tuple[StepName, ...] = ("query", "identity", "evidence")
    return [LineageStep(name=name, ok=False, says=["not reached"]) for name in rest]


def publish(workspace: WorkspaceFolder, report_path: Path, specs: Iterable[QuerySpec], cells: Iterable[Cell]) -> None:
    """Make the cells of a written report.json traceable by their refs, and keep the files they were computed from.

    The report is the durable copy: `warehouse rebuild` reads the refs from reports/*/report.json.
    """
    path, root = report_path.resolve(), workspace.root.resolve()
    place = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    files = {entry.file for spec in specs for entry in spec.inputs}
    with Warehouse.open(workspace) as warehouse:
        warehouse.catalog.publish(place, [cell.ref for cell in cells], files)


def trace(workspace: WorkspaceFolder, token: str) -> LineageTrace:
    """Trace a cell's ref, a trial id (or the beginning of either), or `RUN[:key=value,...]:metric[.stat]`."""
    with Warehouse.open(workspace) as warehouse:
        if ":" in token:
            return _trace_points(warehouse, token)
        if len(token) >= SHORTEST_PREFIX:
            refs = warehouse.catalog.refs(token, _SHOWN)
            trials = warehouse.catalog.trial_ids(token, _SHOWN)
            if token in refs or (len(refs) == 1 and not trials):
                return _trace_cell(warehouse, token, refs[0] if token not in refs else token)
            if token in trials or (len(trials) == 1 and not refs):
                return _trace_trial(warehouse, token, trials[0])
            if refs or trials:
                names = ", ".join([*refs, *trials][:_SHOWN])
                raise BenchError(f"'{token}' is the beginning of several: {names}", hint="Give more characters.")
        raise NotFoundError(
            f"nothing to trace by the name '{token}'",
            hint="Give the ref that a report prints beside a number, a trial id, or RUN:metric such as @last:qps; "
            f"at least {SHORTEST_PREFIX} characters of a ref or trial id.",
        )


# -- the three kinds of tokens


def _trace_cell(warehouse: Warehouse, token: str, ref: str) -> LineageTrace:
    place = warehouse.catalog.report_of(ref) or ""
    path = warehouse.workspace.root / place
    try:
        report = json.loads(path.read_bytes())
        cell = Cell.model_validate(next(entry for entry in report["cells"] if entry["ref"] == ref))
        spec = QuerySpec.model_validate(report["queries"][cell.query])
    except (OSError, ValueError, KeyError, TypeError, StopIteration, ValidationError) as error:
        reason = "the ref is no longer in it" if isinstance(error, StopIteration) else str(error).partition("\n")[0]
        lost = LineageStep(name="report", ok=False, says=[f"{place} can't be read as the report of {ref}: {reason}"])
        return LineageTrace.of(token, "cell", [lost, *not_reached()])
    says = [f"{place}: {_exact(cell)}, {cell.column} of n={cell.n}", f"row {_key_text(cell.key)}"]
    wrong = []
    if spec.digest() != cell.query:
        wrong.append(f"{place}: the query's text or inputs were changed: its digest is not {cell.query[:12]}")
    if cell_ref(cell.query, cell.key, cell.column) != cell.ref:
        wrong.append(f"{place}: the row's key was changed: it does not give the ref {ref}")
    shown = LineageStep(name="report", ok=not wrong, says=says + wrong, details=[{"report": place} | cell.model_dump()])
    return LineageTrace.of(token, "cell", [shown, *check_cells(warehouse, [cell], spec)])


def pick_cells(warehouse: Warehouse, token: str) -> tuple[list[Cell], QuerySpec]:
    """Return the numbers for `RUN[:key=value,...]:metric[.stat]`, one per point, and the query that computed them."""
    selected, _, wanted = token.rpartition(":")
    selector = parse_selector(selected)
    run_id = warehouse.require_run(selector.run)
    result = points(warehouse, [run_id])
    rows = result.dicts()
    chosen = {row["instance_digest"] for row in _select_valid(warehouse, rows, run_id, selector)}
    _refuse_invalid(refused_figures(warehouse, [run_id]), rows, run_id, wanted)
    metric, stat = _pick_metric(rows, run_id, wanted)
    picked = [
        row for row in rows if (row["metric"], row["stat"]) == (metric, stat) and row["instance_digest"] in chosen
    ]
    return make_cells(result, rows=picked), result.spec


def check_cells(
    warehouse: Warehouse, cells: Sequence[Cell], spec: QuerySpec, packed: Mapping[str, str] | None = None
) -> list[LineageStep]:
    """Return steps two to four for numbers of one pinned query: it is run again, and each trial's bytes are hashed.

    `packed` is for an unpacked packet: the present folder of each trial, by id, which may lack some of its files.
    """
    query, source = _check_query(warehouse, cells, spec, alone=packed is not None)
    return [query, *_check_trials(warehouse, source, cells, packed=packed)]


def _exact(cell: Cell) -> str:
    """Return every digit, and the unit if there is one."""
    return f"{cell.value!r} {'' if cell.unit == '1' else cell.unit}".rstrip()


def _trace_points(warehouse: Warehouse, token: str) -> LineageTrace:
    cells, spec = pick_cells(warehouse, token)
    says = ["not taken from a report: computed now"]
    says += [f"{_exact(cell)}, mean of n={cell.n}: {_key_text(cell.key)}" for cell in cells[:_SHOWN]]
    if len(cells) > _SHOWN:
        says.append(f"and {len(cells) - _SHOWN} more points")
    shown = LineageStep(name="report", ok=True, says=says, details=[cell.model_dump() for cell in cells])
    return LineageTrace.of(token, "point", [shown, *check_cells(warehouse, cells, spec)])


def _select_valid(
    warehouse: Warehouse, rows: Sequence[Mapping[str, Any]], run_id: str, selector: Selector
) -> list[Mapping[str, Any]]:
    """Return the rows that match the selector. If only invalid trials match, raise an error with the reasons."""
    problem = None
    try:
        if kept := select(rows, selector):
            return kept
    except BenchError as error:
        problem = error
    try:
        refused = select(invalid_rows(trials_of(warehouse, [run_id]).dicts()), selector)
    except BenchError:
        refused = []
    if refused:
        why = reasons((row["failure_code"] or "", row["failure_message"] or "") for row in refused)
        raise BenchError(
            f"{selector}: no number is made of its trials, for all that measured are INVALID: {why}",
            hint=f"The numbers of one are evidence all the same: bench trace {refused[0]['trial_id']}",
        )
    if problem:
        raise problem
    return []


def _trace_trial(warehouse: Warehouse, token: str, trial_id: str) -> LineageTrace:
    run_id = warehouse.catalog.run_of(trial_id) or ""
    result = warehouse.query(_MEASUREMENTS, {"trials": [trial_id]}, runs=[run_id], name="trial")
    numbers = result.dicts()
    says = [f"not taken from a report: all {len(numbers)} numbers of trial {trial_id} of run {run_id}"]
    invalid = [name_of(row["metric"], row["stat"]) for row in numbers if row["outcome"] == "invalid"]
    if invalid and len(invalid) < len(numbers):
        says.append(f"INVALID by themselves, so they enter no summary or comparison: {shortened(invalid, _SHOWN)}")
    shown = LineageStep(name="report", ok=True, says=says, details=numbers)
    query = LineageStep(name="query", ok=True, says=[_engine(result.spec)], details=[result.spec.model_dump()])
    return LineageTrace.of(token, "trial", [shown, query, *_check_trials(warehouse, result.spec, [], [trial_id])])


def _refuse_invalid(refused: Result, rows: Sequence[Mapping[str, Any]], run_id: str, wanted: str) -> None:
    """Raise an error if a metric is INVALID at every point, instead of reporting that it does not exist."""
    valid = {(row["metric"], row["stat"]) for row in rows}
    known: dict[str, list[str]] = {}
    for row in refused.dicts():
        if (row["metric"], row["stat"]) not in valid:
            known.setdefault(row["metric"], []).append(row["stat"])
    name = parse_metric(wanted, known)
    if name and (name.stat or all(metric != name.metric for metric, _ in valid)):
        raise BenchError(f"run {run_id} has no valid '{wanted}': it is INVALID in every trial", hint=INVALID_HINT)


def _pick_metric(rows: Sequence[Mapping[str, Any]], run_id: str, wanted: str) -> tuple[str, str]:
    """Return metric and statistic of `metric` or `metric.stat`; both may contain dots."""
    known: dict[str, list[str]] = {}
    for row in rows:
        known.setdefault(row["metric"], []).append(row["stat"])
    known = {metric: list(dict.fromkeys(stats)) for metric, stats in known.items()}
    if name := parse_metric(wanted, known):
        stats = known[name.metric]
        return name.metric, name.stat or next((stat for stat in _PREFERRED_STATS if stat in stats), stats[0])
    listed = ", ".join(f"{metric} ({', '.join(stats)})" for metric, stats in sorted(known.items()))
    hint = f"It has: {listed}" if known else f"No trial of it succeeded. Why: bench status {run_id}"
    raise NotFoundError(f"run {run_id} has no metric '{wanted}'", guess_hint(wanted, known) + hint)


# -- step 2: the query


def _check_query(
    warehouse: Warehouse, cells: Sequence[Cell], spec: QuerySpec, *, alone: bool = False
) -> tuple[LineageStep, QuerySpec]:
    """Run the pinned query again over the same bytes. Return the step, and the query whose inputs contain the trials.

    `alone`: there are no tables other than those that the query read.
    """
    changed, gone = _check_inputs(warehouse.workspace, spec)
    says = [_engine(spec), *pinned_words(spec)]
    details: list[dict[str, Any]] = [spec.model_dump()]
    if alone and (changed or gone):
        says += [f"{name} is not there with the bytes that the number was computed from" for name in [*changed, *gone]]
        return LineageStep(name="query", ok=False, says=says, details=details), spec.model_copy(update={"inputs": []})
    if changed:
        says += [f"{name} is not what the number was computed from: its sha256 differs" for name in changed]
        present = _query_present(warehouse, spec)
        says += [*warehouse.notes, *_values_now(present, cells)]
        return LineageStep(name="query", ok=False, says=says, details=details), present.spec
    if not gone:
        again = warehouse.query_again(spec)
        ok, lines = _compare(again, cells)
        says += [f"all {len(spec.inputs)} input files have the pinned sha256", *lines]
        tables, runs = {file.table for file in spec.inputs}, {file.run_id for file in spec.inputs}
        present_files = {entry.file for entry in warehouse.catalog.files(tables, runs)}
        if not alone and present_files != {file.file for file in spec.inputs}:
            says += _values_now(_query_present(warehouse, spec), cells)
        says += warehouse.notes
        return LineageStep(name="query", ok=ok, says=says, details=details), spec
    present = _query_present(warehouse, spec)
    ok, _ = _compare(present, cells)
    says += [f"{name} was replaced by a later collect" for name in gone]
    says += _values_now(present, cells)
    return LineageStep(name="query", ok=ok, says=says, details=[*details, present.spec.model_dump()]), present.spec


def _check_inputs(workspace: WorkspaceFolder, spec: QuerySpec) -> tuple[list[str], list[str]]:
    """Return files whose bytes differ from the pinned digest, and files that no longer exist."""
    changed, gone = [], []
    for entry in spec.inputs:
        path = workspace.warehouse / entry.file
        if not path.is_file():
            gone.append(entry.file)
        elif file_digest(path) != entry.sha256:
            changed.append(entry.file)
    return changed, gone


def _query_present(warehouse: Warehouse, spec: QuerySpec) -> Result:
    runs = {entry.run_id for entry in spec.inputs}
    return warehouse.query(spec.sql, spec.parameters, runs=runs, name=spec.name)


def _compare(result: Result, cells: Sequence[Cell]) -> tuple[bool, list[str]]:
    """Return whether the cells are reproduced, and lines with the result or the differences."""
    wrong = []
    for cell in cells:
        row = _find(result, cell)
        if row is None:
            wrong.append(f"run again: the row {_key_text(cell.key)} is not there")
        elif not same_bits(row[cell.column], cell.value):
            off = row[cell.column] - cell.value
            wrong.append(f"run again: {row[cell.column]!r} {cell.unit}, not {cell.value!r}; off by {off!r}")
        elif list(row["trials"]) != list(cell.trials):
            wrong.append(f"run again: the same value, but from other trials than the report names: {row['trials']}")
    values = [*map(_exact, cells[:_SHOWN]), *(["..."] if len(cells) > _SHOWN else [])]
    return not wrong, wrong or [f"run again: the same value, bit for bit ({', '.join(values)})"]


def _values_now(result: Result, cells: Sequence[Cell]) -> list[str]:
    says = []
    for cell in cells:
        row = _find(result, cell)
        if row is None:
            says.append("tables have changed since; the row is not in the present tables")
        elif row["n"] == cell.n and same_bits(row[cell.column], cell.value):
            says.append("tables have been rewritten since; re-run on the present tables gives the same value")
        else:
            now = f"{row[cell.column]!r} {cell.unit} (n={row['n']})"
            says.append(f"tables have grown since; re-run on the present tables gives {now}")
    return says


def _find(result: Result, cell: Cell) -> dict[str, Any] | None:
    if not cell.key.keys() | {cell.column, "unit", "trials", "n"} <= set(result.columns):
        return None
    wanted = [(result.columns.index(name), value) for name, value in (cell.key | {"unit": cell.unit}).items()]
    rows = (row for row in result.rows if all(row[at] == value for at, value in wanted))
    return next((dict(zip(result.columns, row, strict=True)) for row in rows), None)


# -- steps 3 and 4: the trials and their bytes


def _check_trials(
    warehouse: Warehouse,
    source: QuerySpec,
    cells: Sequence[Cell],
    trials: Sequence[str] = (),
    packed: Mapping[str, str] | None = None,
) -> tuple[LineageStep, LineageStep]:
    """Identify the trials behind the numbers, and check their bytes against the seal. Without cells: all numbers of
    `trials`.
    """
    wanted = list(dict.fromkeys([*trials, *(trial for cell in cells for trial in cell.trials)]))
    spec = source.model_copy(update={"sql": _TRIALS, "parameters": {"trials": wanted}, "name": "lineage"})
    known = {row["trial_id"]: row for row in warehouse.query_again(spec).dicts()}
    spec = spec.model_copy(update={"sql": _MEASUREMENTS})
    picked = {(trial, cell.key.get("metric"), cell.key.get("stat")) for cell in cells for trial in cell.trials}
    wholes = (
        row
        for row in warehouse.query_again(spec).dicts()
        if not cells
        or (row["scope"] == "trial" and not row["window"] and (row["trial_id"], row["metric"], row["stat"]) in picked)
    )
    measured = grouped(wholes, itemgetter("trial_id"))
    rows = [known[trial] for trial in wanted if trial in known]
    missing = [trial for trial in wanted if trial not in known]
    if packed is not None:
        rows = [row | {"folder": packed.get(row["trial_id"], "not packed")} for row in rows]
    part = packed is not None
    proofs = [prove(warehouse.workspace, row, measured.get(row["trial_id"], []), part=part) for row in rows]
    return _identity_step(rows, missing), _evidence_step(proofs, missing, part=part)


def _identity_step(rows: Sequence[Mapping[str, Any]], missing: Sequence[str]) -> LineageStep:
    shown = ("trial_id", "run_id", "benchmark_case_id", "workload_spec_digest", "artifact_manifest_digest",
             "instance_digest", "repetition", "outcome", "host", "folder")  # fmt: skip
    wrong = [f"trial {trial} is not in the tables" for trial in missing]
    wrong += [
        f"trial {row['trial_id']}: its parameters do not give its workload_spec_digest"
        for row in rows
        if digest(json.loads(row["parameters"])) != row["workload_spec_digest"]
    ]
    ok, says = bool(rows) and not wrong, list(wrong)
    says += [f"{name}: {', '.join(sorted({row[name] for row in rows}))}" for name in ("run_id", "workload_spec_digest")]
    says += [
        f"trial {row['trial_id']}: {outcome_words(row['outcome'])}, so its numbers enter no summary or comparison"
        for row in invalid_rows(rows)
    ]
    says += [f"trial {row['trial_id']}: manifest {row['artifact_manifest_digest']}" for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        says.append(f"and {len(rows) - _SHOWN} more trials")
    return LineageStep(name="identity", ok=ok, says=says, details=[{name: row[name] for name in shown} for row in rows])


def _evidence_step(proofs: Sequence[dict[str, Any]], missing: Sequence[str], *, part: bool) -> LineageStep:
    problems = [problem for proof in proofs for problem in proof["problems"]]
    says = list(problems)
    sound = sum(not proof["problems"] for proof in proofs)
    every = "every file that was packed" if part else "every file"
    says.append(f"{sound} of {len(proofs) + len(missing)} trial folders re-hashed: {every} as sealed")
    for proof in proofs[:_SHOWN]:
        says += [f"{line['file']}:{line['line']}: {line['text']}" for line in proof["lines"][:_SHOWN]]
        says += [
            f"{entry['file']}:{entry['first_line']}-{entry['last_line']}: {entry['rows']} samples, which give "
            f"{', '.join(entry['recomputed']) or 'nothing of it'} again, bit for bit"
            for entry in proof["samples"]
        ]
        says += [
            f"{entry['file']}#{entry['pointer']}: a histogram of {entry['n']} values, relative error at most "
            f"{entry['relative_error'] * 100:.1g}%, which gives {', '.join(entry['recomputed']) or 'nothing of it'} "
            "again, bit for bit"
            for entry in proof["histograms"]
        ]
    if len(proofs) > _SHOWN:
        says.append(f"and {len(proofs) - _SHOWN} more trials (--json names every file and line)")
    return LineageStep(
        name="evidence", ok=bool(proofs) and not problems and not missing, says=says, details=list(proofs)
    )


def pinned_words(spec: QuerySpec) -> list[str]:
    """Return the parameters and inputs of a query, for people; its text is in `details` and `bench trace --sql`."""
    parameters = json.dumps(spec.parameters, ensure_ascii=False)
    lines = [f"parameters {parameters}, quantiles {spec.quantile_definition}"]
    lines += [f"input {entry.file}: sha256 {entry.sha256}" for entry in spec.inputs[:_SHOWN]]
    return lines + ([f"and {len(spec.inputs) - _SHOWN} more inputs"] if len(spec.inputs) > _SHOWN else [])


def _engine(spec: QuerySpec) -> str:
    return (
        f"query '{spec.name}' {spec.digest()[:12]}, {spec.engine} {spec.engine_version}, {len(spec.inputs)} input files"
    )


def _key_text(key: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={str(value)[:16] if name == 'instance_digest' else value}" for name, value in key.items())
