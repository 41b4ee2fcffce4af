"""Verify a claim: check its bytes and signature, run its query again, and recompute its statistics and label."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field

from benchhouse.analysis.compare import DEFINITION
from benchhouse.claims.claim_files import claim_path, parse, read_policy
from benchhouse.claims.creation import confidence_of, value_or_comparison
from benchhouse.claims.safety import Basis
from benchhouse.claims.signatures import Signature
from benchhouse.results.lineage import LineageStep, LineageTrace, check_cells, not_reached
from benchhouse.results.sealed_proof import close, same_bits
from benchhouse.schema.claim import Claim, Policy, UnsafeReason
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.query import cell_ref
from benchhouse.schema.version import __version__
from benchhouse.warehouse.queries import POINTS, TRIALS
from benchhouse.warehouse.query import Warehouse

EARLIER_QUERIES = frozenset({"47c90815bccb099f1f5d540cc3452633d1735141c1e96bf451f032d63fa66a29"})
"""sha256 of the earlier texts of POINTS, which are also run again; other SQL is not. Never remove an entry."""


class PolicyVerdict(Model):
    """A claim judged by the policy of its maker, and by that of the verifier."""

    policy: Policy = Field(description="The policy of the maker of the claim.")
    own: Policy = Field(description="The policy of the verifier: claims.yaml of the workspace, or the defaults.")
    weaker: list[str] = Field(description="Rules of the maker that are weaker than those of the verifier.")
    stricter: list[str] = Field(description="Rules of the maker that are stricter.")
    lacks: list[UnsafeReason] = Field(
        description="Why the number is not publication-safe by the policy of the verifier."
    )

    def holds(self, claim: Claim) -> bool:
        """Whether the verifier's policy gives the number the same label; a claim that admits too much is not false."""
        return claim.label != "PUBLICATION-GRADE" or not self.lacks

    @property
    def sentences(self) -> list[str]:
        """The lines that `verify` prints."""
        weaker, stricter = ", ".join(self.weaker), ", ".join(self.stricter)
        compared = [f"weaker than yours: {weaker}"] if weaker else []
        compared += [f"stricter than yours: {stricter}"] if stricter else []
        lacking = "; ".join(f"{reason.code}: {reason.message}" for reason in self.lacks)
        return [
            f"policy of its maker: {policy_text(self.policy)}",
            f"your policy: {'the same' if not compared else policy_text(self.own)}",
            *compared,
            f"by your policy it lacks {lacking}" if lacking else "by your policy it is publication-safe, too",
        ]


def policy_text(policy: Policy) -> str:
    """Return the rules of a policy in one line."""
    return (
        f"{policy.min_replicates} trials or more, {policy.confidence * 100:g}% intervals of "
        f"±{policy.max_relative_half_width:.3g} of the value at most, drift of {policy.max_drift:.3g} at most, "
        f"without {', '.join(policy.refused_warnings) or 'refused warnings'}"
    )


def weaker_rules(policy: Policy, other: Policy) -> list[str]:
    """Return the rules by which a policy accepts numbers that the other one refuses."""
    rules = []
    if policy.min_replicates < other.min_replicates:
        rules.append(f"min_replicates {policy.min_replicates} instead of {other.min_replicates}")
    if policy.confidence < other.confidence:
        rules.append(f"confidence {policy.confidence:g} instead of {other.confidence:g}")
    rules += [
        f"{name} {getattr(policy, name):g} instead of {getattr(other, name):g}"
        for name in ("max_relative_half_width", "max_drift")
        if getattr(policy, name) > getattr(other, name)
    ]
    allowed = [name for name in other.refused_warnings if name not in policy.refused_warnings]
    return [*rules, *(f"allows the warning {name}" for name in allowed)]


class ClaimCheck(Model):
    """The answer of `bench claim verify`."""

    claim_id: str
    label: str
    statement: str
    ok: bool
    trace: LineageTrace
    signature: Signature
    policies: PolicyVerdict | None = None
    """None if the claim could not be computed again."""
    notes: list[str] = Field(default_factory=empty_list)


def trace_claim(workspace: WorkspaceFolder, claim_id: str, token: str) -> LineageTrace:
    """Return the four steps of a claim of this workspace; the first is its file."""
    return check_claim(workspace, claim_id, token)[0]


def check_claim(workspace: WorkspaceFolder, claim_id: str, token: str) -> tuple[LineageTrace, PolicyVerdict | None]:
    """Return the same, and the claim judged by the present policy of the workspace."""
    path = claim_path(workspace, claim_id)
    place = path.relative_to(workspace.root).as_posix()
    try:
        claim = parse(path.read_bytes(), claim_id, place)
    except (BenchError, OSError) as error:
        lost = LineageStep(name="report", ok=False, says=[str(getattr(error, "message", error))])
        return LineageTrace.of(token, "claim", [lost, *not_reached()]), None
    own = read_policy(workspace)
    with Warehouse.open(workspace) as warehouse:
        return walk(warehouse, claim, place, token, lambda row: TrialFolder(workspace.root / row["folder"]), own)


def walk(
    warehouse: Warehouse,
    claim: Claim,
    place: str,
    token: str,
    folder_of: Callable[[Mapping[str, Any]], TrialFolder],
    own: Policy | None,
    packed: Mapping[str, str] | None = None,
) -> tuple[LineageTrace, PolicyVerdict | None]:
    """Trace a claim to the bytes. Nothing in it is trusted: everything is recomputed from its trials.

    `own` is the policy of the verifier, which also judges it; None: only the policy of its maker does.
    """
    says = [f"{place}: {claim.statement}", claim.label]
    says += [f"contract {item.name} {item.digest[:12]}: {item.mode} of {item.asked}" for item in claim.contracts]
    says += [f"lacks {reason.code}: {reason.message}" for reason in claim.reasons]
    problems = _problems_of_claim(claim)
    if problems:
        first = LineageStep(name="report", ok=False, says=[*says, *problems], details=[claim.summary()])
        return LineageTrace.of(token, "claim", [first, *not_reached()]), None
    steps, verdict = not_reached(), None
    try:
        steps = check_cells(warehouse, claim.cells, claim.spec, packed)
        if steps[0].ok:
            problems, notes, verdict = _restate(warehouse, claim, folder_of, own)
            says += notes
    except (BenchError, ValueError, KeyError, TypeError) as error:  # from tables that only look like ours
        problems = [f"it can't be computed again: {getattr(error, 'message', repr(error))}"]
    if verdict:
        says += verdict.sentences
    if steps[0].ok and not problems:
        says.append("value, interval, n, verdict, trials and label computed again: the same")
    first = LineageStep(name="report", ok=not problems, says=[*says, *problems], details=[claim.summary()])
    return LineageTrace.of(token, "claim", [first, *steps]), verdict


def _problems_of_claim(claim: Claim) -> list[str]:
    """Return problems that are visible in the claim alone."""
    problems = []
    sql = claim.spec.sql
    if sql != POINTS and hashlib.sha256(sql.encode()).hexdigest() not in EARLIER_QUERIES:
        problems.append(f"its query is none that benchhouse {__version__} knows, and is not run")
    if claim.spec.engine != "duckdb":
        problems.append(f"its query is for the engine {claim.spec.engine}, which can't be asked here")
    wanted = 1 if claim.kind == "value" else 2
    if len(claim.cells) != wanted:
        problems.append(f"it has {len(claim.cells)} rows, a {claim.kind} has {wanted}")
    for cell in claim.cells:
        if cell.query != claim.spec.digest() or cell.column != "mean":
            problems.append(f"the row {cell.ref} is not of its query")
        if cell_ref(cell.query, cell.key, cell.column) != cell.ref:
            problems.append(f"the row's key does not give the ref {cell.ref}")
    if (claim.label == "PUBLICATION-GRADE") != (not claim.reasons):
        problems.append(f"it is labelled {claim.label} with {len(claim.reasons)} reasons against it")
    return problems


def _restate(
    warehouse: Warehouse, claim: Claim, folder_of: Callable[[Mapping[str, Any]], TrialFolder], own: Policy | None
) -> tuple[list[str], list[str], PolicyVerdict | None]:
    """Make the claim again from the rows of its query. Return what differs, notes, and the verdict by policies."""
    every_row = warehouse.query_again(claim.spec).dicts()
    rows = []
    for cell in claim.cells:
        matching = [row for row in every_row if all(row.get(name) == value for name, value in cell.key.items())]
        if len(matching) != 1:
            return [f"its query gives {len(matching)} rows for {cell.ref}"], [], None
        rows += matching
    runs = sorted({str(row["run_id"]) for row in rows})
    tried = claim.spec.model_copy(update={"sql": TRIALS, "parameters": {"runs": runs}, "name": "trials"})
    basis = Basis.of(rows, warehouse.query_again(tried).dicts())
    shared = {name: rows[-1][name] for name in ("scenario", "metric", "stat", "direction")}
    times = dict(zip(("measured_from", "measured_to"), basis.times(), strict=True))
    again = shared | times | {"trials": basis.trials(), "changed": basis.changed(), "contracts": basis.citations()}
    problems, says = _recompute(claim, rows, again)
    lacking = {reason.code: reason.message for reason in basis.judge(claim.policy, folder_of)}
    stated = {reason.code for reason in claim.reasons}
    wrong = [f"it lacks {code} ({message})" for code, message in lacking.items() if code not in stated]
    # another version may have required more: a claim that admits too much is not false
    if not _of_another_version(claim):
        wrong += [f"it does not lack {code}" for code in sorted(stated - lacking.keys())]
    if wrong:
        problems.append(f"its label does not hold: judged again by its own policy, {'; '.join(wrong)}")
    if own is None:
        return problems, says, None
    weaker, stricter = weaker_rules(claim.policy, own), weaker_rules(own, claim.policy)
    lacks = basis.judge(own, folder_of)
    return problems, says, PolicyVerdict(policy=claim.policy, own=own, weaker=weaker, stricter=stricter, lacks=lacks)


def _recompute(claim: Claim, rows: Sequence[Mapping[str, Any]], again: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Recompute a claim by its definition of intervals, or by each definition if it names none. Return problems and
    notes.
    """
    if claim.definition is not None and claim.definition > DEFINITION:
        known = f"benchhouse {__version__} knows {DEFINITION} at most: use the newer one that made it"
        return [f"made with definition {claim.definition} of intervals; {known}"], []
    wrong: dict[int, list[str]] = {}
    for definition in [claim.definition] if claim.definition else range(DEFINITION, 0, -1):
        again_so = value_or_comparison(rows, claim.policy, confidence_of(claim), definition) | again
        wrong[definition] = _differing(claim, again_so)
        if not wrong[definition]:
            break
    used = min(wrong, key=lambda definition: (bool(wrong[definition]), -definition))
    if wrong[used] or used == DEFINITION:
        return wrong[used], []
    ends = value_or_comparison(rows, claim.policy, confidence_of(claim))["interval"]
    says = f"made with definition {used} of intervals, by which it is the same; definition {DEFINITION} gives"
    return [], [f"{says} {ends[0]:.4g} to {ends[1]:.4g} {claim.unit}" if ends else f"{says} none"]


def _differing(claim: Claim, again: dict[str, Any]) -> list[str]:
    reworded = _of_another_version(claim)  # another version may phrase the statement differently; the numbers count
    return [
        f"{name} is {_short(getattr(claim, name))}, computed again {_short(value)}"
        for name, value in again.items()
        if not _same(name, getattr(claim, name), value) and not (name == "statement" and reworded)
    ]


def _of_another_version(claim: Claim) -> bool:
    return claim.benchhouse != __version__


def _same(name: str, stated: Any, computed: Any) -> bool:
    if name == "value":
        return same_bits(stated, computed) or close(stated, computed)
    if name == "interval":
        pairs = zip(stated or (None, None), computed or (None, None), strict=True)
        return all(close(x, y) for x, y in pairs)
    return bool(stated == computed)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
