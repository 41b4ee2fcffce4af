"""Find the claims of a release, and pair those of two releases.

A release is named by what the trials of its claims record about themselves: the version of the server, an image digest,
a commit, a framework, the version of the experiment's package, or a run.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from benchhouse.claims import claim_files
from benchhouse.claims.verification import trace_claim
from benchhouse.results import noise_persistence
from benchhouse.results.release import Claimed, LeftOut, ReleaseView, Unpaired, compare_releases
from benchhouse.schema.claim import Claim
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quoting import shortened
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse, own

Row = Mapping[str, Any]
_COMMIT, _LISTED, _SHOWN = 7, 6, 32
_FACTS = own(
    """
SELECT t.*, s.image_digest, s.server, s.server_version, s.framework, h.gpu_model, h.gpu_count, h.cpu_model,
       h.cpu_threads, h.machine
FROM trial_fact t
LEFT JOIN (SELECT DISTINCT ON (software_version_id) * FROM software_version_dim) s USING (software_version_id)
LEFT JOIN (SELECT DISTINCT ON (hardware_topology_id) * FROM hardware_topology_dim) h USING (hardware_topology_id)
WHERE list_contains(CAST($runs AS VARCHAR[]), t.run_id)
"""
)
KINDS = ("run", "server version", "image digest", "commit", "framework", "package version")


def release_view(
    workspace: WorkspaceFolder, older: str, newer: str, *, realism: bool = False, confidence: float = 0.95
) -> ReleaseView:
    """Return the numbers that both releases claim. A claim that no longer holds or lacks the grade is listed as left
    out.
    """
    if older == newer:
        raise BenchError(f"'{older}' is compared with itself", "give two releases: --from OLDER --to NEWER")
    claims, left_out = _whole_claims(workspace, realism=realism)
    with Warehouse.open(workspace) as warehouse:
        runs = sorted({trial.run_id for claim in claims for trial in claim.trials})
        facts = {row["trial_id"]: row for row in warehouse.query(_FACTS, {"runs": runs}, runs=runs).dicts()}
        known = [(claim, rows) for claim in claims if (rows := _rows_of(claim, facts))]
        (of_older, by_older), (of_newer, by_newer) = (_pick(known, token) for token in (older, newer))
        # Claims are traced to their bytes last, because that takes longest.
        picked_claims = {claim.id: claim for claim, _ in (*of_older, *of_newer)}
        broken = {key: reason for key, claim in picked_claims.items() if (reason := _broken(workspace, claim))}
        left_out += [LeftOut(claim=claim_id, reason=reason) for claim_id, reason in broken.items()]
        points = {
            (row["run_id"], row["instance_digest"], row["metric"], row["stat"]): row
            for row in queries.points(warehouse, runs, {(claim.metric, claim.stat) for claim in claims}).dicts()
        }
        sides = [
            _newest(_claimed(claim, rows, points) for claim, rows in picked if claim.id not in broken)
            for picked in (of_older, of_newer)
        ]
        pairs = [(sides[0][key], sides[1][key]) for key in sides[0] if key in sides[1]]
        both = [row for pair in pairs for row in (pair[0].row, pair[1].row)]
        earlier = partial(noise_persistence.earlier_rows, warehouse, both)
        compared, notes = compare_releases(pairs, confidence, facts, earlier) if pairs else ([], [])
    statements = {claim.id: claim.statement for claim in claims}
    return ReleaseView(
        older=older,
        newer=newer,
        by=(by_older, by_newer),
        confidence=confidence,
        rows=compared,
        only_older=_unpaired(sides[0], sides[1], statements),
        only_newer=_unpaired(sides[1], sides[0], statements),
        left_out=left_out,
        notes=notes,
    )


def _whole_claims(workspace: WorkspaceFolder, *, realism: bool) -> tuple[list[Claim], list[LeftOut]]:
    claims, left_out = [], []
    for claim_id in claim_files.list_ids(workspace):
        try:
            claim = claim_files.read(workspace, claim_id)
        except BenchError as error:
            left_out.append(LeftOut(claim=claim_id, reason=error.message))
            continue
        if claim.kind == "comparison":
            left_out.append(LeftOut(claim=claim_id, reason="it claims a change, not a number of one release"))
        elif claim.label == "REALISM-GRADE" and not realism:
            codes = ", ".join(dict.fromkeys(reason.code for reason in claim.reasons))
            left_out.append(LeftOut(claim=claim_id, reason=f"REALISM-GRADE ({codes}); --realism takes it in, marked ~"))
        else:
            claims.append(claim)
    if not claims:
        why = f"{len(left_out)} claims are left out: {left_out[0].reason}" if left_out else "there is none"
        raise BenchError(f"no claim to make a view of: {why}", "Claim the numbers of each release: bench claim make")
    return claims, left_out


def _rows_of(claim: Claim, facts: Mapping[str, Row]) -> list[Row]:
    """Return the claim's trials from the tables; empty if some are missing."""
    rows = [facts[trial.trial_id] for trial in claim.trials if trial.trial_id in facts]
    return rows if len(rows) == len(claim.trials) else []


def _names(row: Row) -> dict[str, str | None]:
    """Return the possible names of a trial, in the order of KINDS."""
    image = row["image_digest"]
    return dict(
        zip(
            KINDS,
            (
                row["run_id"], row["server_version"], image and image.removeprefix("sha256:"), row["git_commit"],
                row["framework"], row["distribution_version"],
            ),
            strict=True,
        )
    )  # fmt: skip


def _is_called(kind: str, name: str | None, token: str, row: Row) -> bool:
    if not name:
        return False
    if kind == "image digest":
        bare = token.removeprefix("sha256:")
        return len(bare) >= _COMMIT and name.startswith(bare)
    if kind == "commit":
        return len(token) >= _COMMIT and name.startswith(token)
    if kind == "server version":
        return token in (name, f"{row['server']} {name}", f"{row['server']}@{name}")
    if kind == "package version":
        return token in (name, f"{row['distribution']}=={name}")
    return token == name


def _pick(known: Sequence[tuple[Claim, list[Row]]], token: str) -> tuple[list[tuple[Claim, list[Row]]], str]:
    """Return the claims whose trials all belong to this release, by the first kind of name that matches any."""
    for kind in KINDS:
        picked = [
            (claim, rows)
            for claim, rows in known
            if all(_is_called(kind, _names(row)[kind], token, row) for row in rows)
        ]
        if picked:
            return picked, kind
    names: dict[str, None] = {}
    for _, rows in known:
        names |= {f"{value[:_SHOWN]} ({kind})": None for kind, value in _names(rows[0]).items() if value}
    hint = f"claims are of {shortened(list(names), _LISTED)}" if names else "bench claim list"
    raise NotFoundError(f"no claim is of a release '{token}'", hint)


def _broken(workspace: WorkspaceFolder, claim: Claim) -> str:
    trace = trace_claim(workspace, claim.id, claim.id)
    steps = [
        f"step {step.name}: {step.says[-1] if step.says else 'not reached'}" for step in trace.steps if not step.ok
    ]
    return f"it does not hold any more: {steps[0]}" if steps else ""


def _claimed(claim: Claim, rows: Sequence[Row], points: Mapping[tuple[str, str, str, str], Row]) -> Claimed:
    first = rows[0]
    target = json.loads(first["target"] or "{}")
    row = points[first["run_id"], first["instance_digest"], claim.metric, claim.stat]
    test = (first["experiment"], first["experiment_version"], first["workload_spec_digest"], first["target_name"])
    return Claimed(
        claim.id, claim.label, _version(first), str(target.get("model") or first["target_name"]), _hardware(first),
        tuple(str(part) for part in test), row,
    )  # fmt: skip


def _version(row: Row) -> str:
    if row["server_version"]:
        return f"{row['server'] or ''} {row['server_version']}".strip()
    names = _names(row)
    image, commit = names["image digest"], names["commit"]
    known = row["framework"] or (image and f"image {image[:12]}") or (commit and f"commit {commit[:12]}")
    return known or f"{row['distribution']} {row['distribution_version']}"


def _hardware(row: Row) -> str:
    if row["gpu_model"]:
        return f"{row['gpu_count'] or 1} x {row['gpu_model']}"
    threads = f", {row['cpu_threads']} threads" if row["cpu_threads"] else ""
    return f"{row['cpu_model'] or row['machine'] or 'unknown'}{threads}"


def _newest(claimed: Iterable[Claimed]) -> dict[tuple[str, ...], Claimed]:
    """Return one claim per number: if there are several, the one with the newest run."""
    newest: dict[tuple[str, ...], Claimed] = {}
    for item in sorted(claimed, key=lambda item: (item.row["run_id"], item.claim_id)):
        newest[item.key] = item
    return newest


def _unpaired(
    side: Mapping[tuple[str, ...], Claimed], other: Mapping[tuple[str, ...], Claimed], statements: Mapping[str, str]
) -> list[Unpaired]:
    alone = [item for key, item in side.items() if key not in other]
    return [Unpaired(claim=item.claim_id, statement=statements[item.claim_id]) for item in alone]
