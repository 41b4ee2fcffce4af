"""Whether a number is publication-safe: all reasons why not, at once.

A claim is based on the rows of its numbers and on all trials that were tried; making and verifying it use the same
judgement.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchhouse.analysis.compare import DEFINITION
from benchhouse.analysis.student import mean_interval
from benchhouse.analysis.summary import mean, shaky_quantiles, variance
from benchhouse.evidence.folder import read_meta, read_spec
from benchhouse.results.concurrent_trials import Beside, count_concurrent
from benchhouse.results.matching import leaves, one_line
from benchhouse.results.run_conditions import circumstances
from benchhouse.schema.claim import Changed, Citation, ClaimTrial, Policy, UnsafeReason
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.secrets import without_secrets
from benchhouse.schema.service import mentioned
from benchhouse.schema.trial import Meta, TrialSpec
from benchhouse.warehouse.contract_rows import RunContract, run_contract
from benchhouse.warehouse.grouping import grouped

Row = Mapping[str, Any]
_LISTED = 4
_TREND_AT_LEAST = 5  # trials: with fewer, every order is likely by chance
_TREND_P = 0.02  # the chance of five trials in order of size is 1 in 60
_TELLS_VERSION = ("server_version", "server", "engine")  # fields in which experiments record their server
_ADDRESS_KEY = re.compile(r"(^|[._])(url|uri|endpoint|address|dsn)(e?s)?$")
_SERVER = "server"  # key in `artifacts`, like the name of the target or service


@dataclass(frozen=True)
class ClaimedNumber:
    """One number: its row of the points query, and every trial of its point except warm-ups."""

    row: Row
    tried: list[Row]

    @property
    def name(self) -> str:
        return f"{self.row['run_id']} {self.row['point']}".strip()

    @property
    def used(self) -> list[Row]:
        """The trials behind the number, in its order."""
        by_id = {row["trial_id"]: row for row in self.tried}
        return [by_id[trial] for trial in self.row["trials"] if trial in by_id]


@dataclass(frozen=True)
class Basis:
    sides: list[ClaimedNumber]
    beside: Beside
    """Concurrent trials of each trial, counted only in the runs of the claim, so that a packet gives the same
    counts.
    """
    contracts: dict[str, RunContract] = field(default_factory=dict)
    """Contracts by run, for runs that have one."""

    @classmethod
    def of(cls, rows: Sequence[Row], every_trial: Sequence[Row]) -> "Basis":
        """Return the basis of `rows`: the number alone, or the number that it is compared with, followed by the
        number.
        """
        sides = []
        for row in rows:
            point = (row["run_id"], row["instance_digest"])
            tried = [trial for trial in every_trial if (trial["run_id"], trial["instance_digest"]) == point]
            sides.append(ClaimedNumber(row, [trial for trial in tried if not trial["warmup"]]))
        by_run = grouped(every_trial, lambda row: str(row["run_id"]))
        contracts = {run_id: contract for run_id, rows in by_run.items() if (contract := run_contract(rows))}
        return cls(sides, count_concurrent(every_trial), contracts)

    def changed(self) -> list[Changed]:
        if len(self.sides) < 2:
            return []
        a, b = self.sides
        return changes(a.row, b.row, *circumstances([a.used, b.used], self.beside))

    def citations(self) -> list[Citation]:
        return [
            Citation(
                run_id=run_id,
                name=contract.terms.name,
                digest=contract.terms.digest,
                asked=contract.terms.asked.removesuffix("_grade"),
                mode=contract.mode,
                missing=contract.settled.missing,
            )
            for run_id, contract in sorted(self.contracts.items())
        ]

    def times(self) -> tuple[str, str]:
        used = [row for side in self.sides for row in side.used]
        return min(row["started"] for row in used), max(row["ended"] for row in used)

    def trials(self) -> list[ClaimTrial]:
        trials = []
        for at, side in enumerate(self.sides):
            letter = "b" if at == len(self.sides) - 1 else "a"
            for row, value in zip(side.used, side.row["values"], strict=True):
                fields = {name: row[name] for name in ClaimTrial.model_fields if name in row}
                trials.append(ClaimTrial.model_validate(fields | {"side": letter, "value": value}))
        return trials

    def judge(self, policy: Policy, folder_of: Callable[[Row], TrialFolder]) -> list[UnsafeReason]:
        """Return every reason except the lineage; `folder_of` returns the evidence folder of a trial."""
        reasons: list[UnsafeReason] = []
        for side in self.sides:
            row, name = side.row, side.name
            reasons += judge_values(name, row["values"], policy)
            reasons += judge_percentile(name, row["stat"], int(row["samples"]), row["n"])
            reasons += judge_trials(name, side.tried, row["trials"], policy)
            reasons += judge_source(name, side.used)
            reasons += _judge_images(side, folder_of)
        for run_id, contract in sorted(self.contracts.items()):
            reasons += judge_contract(run_id, contract)
        reasons += judge_changes(self.changed())
        if len(self.sides) == 2 and set(self.sides[0].row["trials"]) & set(self.sides[1].row["trials"]):
            same = "a number can't be compared with itself: both sides have trials in common"
            reasons.append(UnsafeReason(code="same_trials", message=same))
        return reasons


def _judge_images(side: ClaimedNumber, folder_of: Callable[[Row], TrialFolder]) -> Iterator[UnsafeReason]:
    specs = []
    for row in side.used:
        try:
            folder = folder_of(row)
            specs.append((read_spec(folder), read_meta(folder)))
        except (OSError, ValueError):
            continue  # the trace to the bytes reports it, with the reason
    return judge_images(side.name, specs)


def interval_of(values: Sequence[float], confidence: float, definition: int = DEFINITION) -> tuple[float, float] | None:
    """Return Student's t interval of the mean; None for fewer than two values. It is never below zero if no value is.

    Before definition 3, no end was computed on the log scale.
    """
    if len(values) < 2:
        return None
    ordered = sorted(values)
    centre, n = mean(ordered), len(ordered)
    error = math.sqrt(variance(ordered, centre) / n)
    positive = ordered[0] > 0.0 and definition > 2
    low, high = mean_interval(centre, error, n - 1, confidence, positive=positive)
    return max(0.0, low) if ordered[0] >= 0.0 else low, high


def judge_values(name: str, values: Sequence[float], policy: Policy) -> Iterator[UnsafeReason]:
    """Judge values, in the order of repetitions: too few, an interval that is too wide, or a trend."""
    if len(values) < policy.min_replicates:
        trials = "1 trial" if len(values) == 1 else f"{len(values)} trials"
        message = f"{name}: {trials}, the policy asks for {policy.min_replicates} or more"
        yield UnsafeReason(code="few_replicates", message=message)
    ends = interval_of(values, policy.confidence, definition=2)  # shown as ± of the value, so without its skew
    if ends is None:
        yield UnsafeReason(code="no_interval", message=f"{name}: one trial has no interval")
    else:
        half, centre = (ends[1] - ends[0]) / 2.0, mean(sorted(values))
        share = half / abs(centre) if centre else (math.inf if half else 0.0)
        if share > policy.max_relative_half_width:
            message = f"{name}: the {policy.confidence * 100:g}% interval is ±{share:.1%} of the value"
            allowed = f"the policy allows ±{policy.max_relative_half_width:.1%}"
            yield UnsafeReason(code="wide_interval", message=f"{message}; {allowed}")
    moved = drift(values)
    if moved is not None and abs(moved) > policy.max_drift:
        message = f"{name}: the trials follow a trend, {moved:+.1%} from the first to the last"
        yield UnsafeReason(code="drift", message=f"{message}; the policy allows {policy.max_drift:.1%}")


def drift(values: Sequence[float]) -> float | None:
    """Return the change along the Theil-Sen line, as a share of the mean, if Kendall's test finds a trend; otherwise
    None.
    """
    n = len(values)
    centre = mean(sorted(values)) if values else 0.0
    if n < _TREND_AT_LEAST or not centre:
        return None
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    score = sum((values[j] > values[i]) - (values[j] < values[i]) for i, j in pairs)
    if kendall_p(n, abs(score)) >= _TREND_P:
        return None
    slopes = sorted((values[j] - values[i]) / (j - i) for i, j in pairs)
    middle = (slopes[(len(slopes) - 1) // 2] + slopes[len(slopes) // 2]) / 2.0
    return middle * (n - 1) / centre


def kendall_p(n: int, score: int) -> float:
    """Return P(|S| >= score) for a random order of n different values: exact up to 30 values, then normal."""
    if n > 30:
        spread = math.sqrt(n * (n - 1) * (2 * n + 5) / 18.0)
        return math.erfc(max(0.0, score - 1) / spread / math.sqrt(2.0))
    orders = [1]  # number of orders by their number of inversions
    for size in range(2, n + 1):
        grown = [0] * (len(orders) + size - 1)
        for at, count in enumerate(orders):
            for more in range(size):
                grown[at + more] += count
        orders = grown
    most = n * (n - 1) // 2
    extreme = sum(count for inversions, count in enumerate(orders) if abs(most - 2 * inversions) >= score)
    return extreme / math.factorial(n)


def judge_trials(name: str, tried: Sequence[Row], used: Collection[str], policy: Policy) -> Iterator[UnsafeReason]:
    """Judge the rows of trial_fact of one point: a mean over the survivors looks too good, and some trials have
    warnings.
    """
    invalid = [row for row in tried if row["outcome"] == "invalid"]
    failed = [row for row in tried if row["outcome"] not in ("succeeded", "invalid")]
    if invalid:
        why = _some(f"{row['failure_code']}: {row['failure_message']}" for row in invalid)
        message = f"{name}: {len(invalid)} of {len(tried)} trials are INVALID, their load was not what it says: {why}"
        yield UnsafeReason(code="failed_certificate", message=message)
    if failed:
        why = _some(f"{row['outcome']} ({row['failure_code']})" for row in failed)
        message = f"{name}: {len(failed)} of {len(tried)} trials did not succeed: {why}"
        yield UnsafeReason(code="failed_trials", message=message)
    doubts = [line for row in tried if row["trial_id"] in used for line in row["warnings"] or ()]
    refused = [line for line in doubts if line.partition(":")[0] in policy.refused_warnings]
    if refused:
        yield UnsafeReason(code="doubted_trials", message=f"{name}: trials doubt themselves: {_some(refused)}")


def judge_source(name: str, rows: Sequence[Row]) -> Iterator[UnsafeReason]:
    if any(row["git_dirty"] for row in rows):
        commits = _some((row["git_commit"] or "?")[:12] for row in rows if row["git_dirty"])
        message = f"{name}: the git tree had uncommitted changes beside commit {commits}"
        yield UnsafeReason(code="dirty_tree", message=message)
    if any(not row["git_commit"] or row["git_dirty"] is None for row in rows):
        message = f"{name}: no commit is known of the folder that held the scenario: it was in no git checkout"
        yield UnsafeReason(code="unknown_source", message=message)


def judge_images(name: str, specs: Iterable[tuple[TrialSpec, Meta]]) -> Iterator[UnsafeReason]:
    """Find containers and servers whose version or image was not recorded."""
    unpinned = []
    for spec, meta in specs:
        if spec.runtime.image and not (meta.container_digest or spec.container_digest):
            unpinned.append(f"the image {spec.runtime.image} has no digest")
        unpinned += _unknown_servers(spec, meta)
    if unpinned:
        yield UnsafeReason(code="unpinned_image", message=f"{name}: {_some(unpinned)}")


def _unknown_servers(spec: TrialSpec, meta: Meta) -> list[str]:
    """Return servers that bench did not start, and that neither the scenario nor their own answers identify."""
    described = meta.custom.get("services") or {}
    outside = [
        (name, used.use.endpoint or used.use.kubernetes or "")
        for name, used in spec.services.items()
        if used.recipe is None and not _has_known_images(described.get(name))
    ]
    servers = spec.artifacts.get("servers") or {}
    told = [servers.get(_SERVER), *(meta.custom.get(key) for key in _TELLS_VERSION)]
    if any(map(_contains_number, told)):  # of the measured server
        asked = mentioned(spec.target)
        outside = [(name, endpoint) for name, endpoint in outside if name not in asked]
    elif not spec.target.get("start"):
        name = str(spec.target.get("name") or _SERVER)
        outside += [(name, address) for address in _addresses(spec.target)]
    return [
        f"nobody noted the version or image of the server at {without_secrets(endpoint)}; start it by a recipe "
        "(`services`), or say in the scenario what it is: "
        f"`artifacts: {{servers: {{{name}: IMAGE:VERSION@sha256:...}}}}`"
        for name, endpoint in outside
        if not _contains_number(servers.get(name))
    ]


def _has_known_images(service: Any) -> bool:
    """Whether the cluster reported the image of each pod behind the service."""
    pods = service.get("pods", []) if isinstance(service, dict) else []
    images = [image for pod in pods for image in pod.get("images", {}).values()]
    return bool(images) and all("sha256:" in image for image in images)


def _contains_number(text: Any) -> bool:
    """Whether a text contains a digit, as versions and digests do; a bare name identifies nothing."""
    return re.search(r"\d", str(text or "")) is not None


def _addresses(target: Mapping[str, Any]) -> Iterator[str]:
    for key, value in leaves(target).items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and _ADDRESS_KEY.search(key) and "://" in text and not text.startswith("file:"):
                yield text


def judge_contract(run_id: str, contract: RunContract) -> Iterator[UnsafeReason]:
    """Yield the reasons in a run's contract that prevent publishing a number."""
    about = f"{run_id}: the contract '{contract.terms.name}'"
    if contract.mode == "rejected" and contract.terms.on_missing == "reject":
        yield UnsafeReason(code="contract_rejected", message=f"{about} is {contract.settled.sentence()}")
    elif contract.settled.verdict != "accepted":
        yield UnsafeReason(code="guarantee_missing", message=f"{about} is {contract.settled.sentence()}")
    elif contract.mode == "realism":
        yield UnsafeReason(code="realism_contract", message=f"{about} asks for realism_grade and no more")


def judge_percentile(name: str, stat: str, samples: int, n: int) -> Iterator[UnsafeReason]:
    if n and stat in shaky_quantiles(int(samples / n)):
        message = f"{name}: {stat} of about {int(samples / n)} samples a trial is too few to be told"
        yield UnsafeReason(code="thin_percentile", message=message)


def changes(a: Row, b: Row, facts_a: Mapping[str, str], facts_b: Mapping[str, str]) -> list[Changed]:
    """Return what differs between two rows of the points query: target, each parameter, each circumstance, by name."""
    sides: dict[str, tuple[str, str]] = {}
    if a["target"] != b["target"]:
        shown = "target" if a["target_name"] == b["target_name"] else "target_name"
        sides["target"] = a[shown], b[shown]
    of_a, of_b = (leaves(json.loads(row["parameters"])) for row in (a, b))
    for key in sorted(of_a.keys() | of_b.keys()):
        if of_a.get(key) != of_b.get(key):
            sides[f"parameter {key}"] = one_line(of_a.get(key)), one_line(of_b.get(key))
    facts_a, facts_b = {"experiment": a["experiment"], **facts_a}, {"experiment": b["experiment"], **facts_b}
    for name in dict.fromkeys([*facts_a, *facts_b]):
        if facts_a.get(name, "") != facts_b.get(name, ""):
            sides[name] = facts_a.get(name) or "unknown", facts_b.get(name) or "unknown"
    return [Changed(dimension=name, a=was, b=now) for name, (was, now) in sides.items()]


def judge_changes(changed: Sequence[Changed]) -> Iterator[UnsafeReason]:
    if len(changed) > 1:
        names = ", ".join(change.dimension for change in changed)
        message = f"{len(changed)} things changed at once ({names}); a comparison that is published changes one"
        yield UnsafeReason(code="several_variables", message=message)


def _some(texts: Iterable[str]) -> str:
    listed = list(dict.fromkeys(texts))
    return "; ".join(listed[:_LISTED]) + (f"; and {len(listed) - _LISTED} more" if len(listed) > _LISTED else "")
