"""Whether a number is publication-safe: every reason why it is not, at once."""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from benchhouse.analysis.student import critical_t
from benchhouse.analysis.summary import mean, shaky_quantiles, variance
from benchhouse.results.matching import leaves, one_line
from benchhouse.schema.claim import Changed, Policy, Reason
from benchhouse.schema.trial import TrialSpec

Row = Mapping[str, Any]
_LISTED = 4
_TREND_AT_LEAST = 5  # trials: of fewer, every order is likely by chance
_TREND_P = 0.02  # five trials in order of size are 1 chance in 60


def interval_of(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Student's t interval of the mean; None for fewer than two values. Never below zero where no value is."""
    if len(values) < 2:
        return None
    ordered = sorted(values)
    centre = mean(ordered)
    half = critical_t(confidence, len(ordered) - 1) * math.sqrt(variance(ordered, centre) / len(ordered))
    return max(0.0, centre - half) if ordered[0] >= 0.0 else centre - half, centre + half


def judge_values(name: str, values: Sequence[float], policy: Policy) -> list[Reason]:
    """Too few, too wide, or moving: `values` are in the order of repetitions."""
    reasons = []
    if len(values) < policy.min_replicates:
        told = f"{name}: {_count(len(values), 'trial')}, the policy asks for {policy.min_replicates} or more"
        reasons.append(Reason(code="few_replicates", message=told))
    ends = interval_of(values, policy.confidence)
    if ends is None:
        reasons.append(Reason(code="no_interval", message=f"{name}: one trial has no interval"))
    elif (share := _half_share(ends, mean(sorted(values)))) > policy.max_relative_half_width:
        told = f"{name}: the {policy.confidence * 100:g}% interval is ±{share:.1%} of the value"
        allowed = f"the policy allows ±{policy.max_relative_half_width:.1%}"
        reasons.append(Reason(code="wide_interval", message=f"{told}; {allowed}"))
    moved = drift(values)
    if moved is not None and abs(moved) > policy.max_drift:
        told = f"{name}: the trials follow a trend, {moved:+.1%} from the first to the last"
        reasons.append(Reason(code="drift", message=f"{told}; the policy allows {policy.max_drift:.1%}"))
    return reasons


def _half_share(ends: tuple[float, float], centre: float) -> float:
    half = (ends[1] - ends[0]) / 2.0
    return half / abs(centre) if centre else (math.inf if half else 0.0)


def drift(values: Sequence[float]) -> float | None:
    """The change along the Theil-Sen line, as a share of the mean, where Kendall's test sees a trend; else None."""
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
    """P(|S| >= score) for a random order of n different values: exact to 30 of them, then normal."""
    if n > 30:
        spread = math.sqrt(n * (n - 1) * (2 * n + 5) / 18.0)
        return math.erfc(max(0.0, score - 1) / spread / math.sqrt(2.0))
    orders = [1]  # how many orders have so many inversions
    for size in range(2, n + 1):
        grown = [0] * (len(orders) + size - 1)
        for at, count in enumerate(orders):
            for more in range(size):
                grown[at + more] += count
        orders = grown
    most = n * (n - 1) // 2
    extreme = sum(count for inversions, count in enumerate(orders) if abs(most - 2 * inversions) >= score)
    return extreme / math.factorial(n)


def judge_trials(name: str, tried: Sequence[Row], used: Collection[str], policy: Policy) -> list[Reason]:
    """Of rows of trial_fact of one point: a mean over those that survived flatters, and some doubt themselves."""
    reasons = []
    invalid = [row for row in tried if row["outcome"] == "invalid"]
    failed = [row for row in tried if row["outcome"] not in ("succeeded", "invalid")]
    if invalid:
        why = _some(f"{row['failure_code']}: {row['failure_message']}" for row in invalid)
        told = f"{name}: {len(invalid)} of {len(tried)} trials are INVALID, their load was not what it says: {why}"
        reasons.append(Reason(code="failed_certificate", message=told))
    if failed:
        why = _some(f"{row['outcome']} ({row['failure_code']})" for row in failed)
        told = f"{name}: {len(failed)} of {len(tried)} trials did not succeed: {why}"
        reasons.append(Reason(code="failed_trials", message=told))
    doubts = [line for row in tried if row["trial_id"] in used for line in row["warnings"] or ()]
    refused = [line for line in doubts if line.partition(":")[0] in policy.refused_warnings]
    if refused:
        reasons.append(Reason(code="doubted_trials", message=f"{name}: trials doubt themselves: {_some(refused)}"))
    return reasons


def judge_source(name: str, rows: Sequence[Row]) -> list[Reason]:
    reasons = []
    if any(row["git_dirty"] for row in rows):
        commits = _some((row["git_commit"] or "?")[:12] for row in rows if row["git_dirty"])
        told = f"{name}: the git tree had uncommitted changes beside commit {commits}"
        reasons.append(Reason(code="dirty_tree", message=told))
    if any(not row["git_commit"] or row["git_dirty"] is None for row in rows):
        told = f"{name}: no commit is known of the folder that held the scenario: it was in no git checkout"
        reasons.append(Reason(code="unknown_source", message=told))
    return reasons


def judge_images(name: str, specs: Iterable[tuple[TrialSpec, str | None]]) -> list[Reason]:
    """Containers whose bytes nobody noted, and servers that somebody else keeps; `specs` come with what meta says."""
    found: dict[str, None] = {}
    for spec, container in specs:
        if spec.runtime.image and not (container or spec.container_digest):
            found[f"the image {spec.runtime.image} has no digest"] = None
        for service, used in spec.services.items():
            if used.recipe is None:
                found[f"service '{service}' is an endpoint that somebody else keeps: {used.use.endpoint}"] = None
    return [Reason(code="unpinned_image", message=f"{name}: {_some(found)}")] if found else []


def judge_percentile(name: str, stat: str, samples: int, n: int) -> list[Reason]:
    if n and stat in shaky_quantiles(int(samples / n)):
        told = f"{name}: {stat} of about {int(samples / n)} samples a trial is too few to be told"
        return [Reason(code="thin_percentile", message=told)]
    return []


def changes(a: Row, b: Row, facts_a: Mapping[str, str], facts_b: Mapping[str, str]) -> list[Changed]:
    """What differs between two rows of the points query: target, each parameter, each circumstance by name."""
    found = []
    if a["target"] != b["target"]:
        same_name = a["target_name"] == b["target_name"]
        told = [row["target" if same_name else "target_name"] for row in (a, b)]
        found.append(Changed(dimension="target", a=told[0], b=told[1]))
    of_a, of_b = (leaves(json.loads(row["parameters"])) for row in (a, b))
    for key in sorted(of_a.keys() | of_b.keys()):
        if of_a.get(key) != of_b.get(key):
            sides = one_line(of_a.get(key)), one_line(of_b.get(key))
            found.append(Changed(dimension=f"parameter {key}", a=sides[0], b=sides[1]))
    for name in dict.fromkeys(["experiment", *facts_a, *facts_b]):
        sides = (a[name], b[name]) if name == "experiment" else (facts_a.get(name, ""), facts_b.get(name, ""))
        if sides[0] != sides[1]:
            found.append(Changed(dimension=name, a=sides[0] or "unknown", b=sides[1] or "unknown"))
    return found


def judge_changes(changed: Sequence[Changed]) -> list[Reason]:
    if len(changed) <= 1:
        return []
    names = ", ".join(one.dimension for one in changed)
    told = f"{len(changed)} things changed at once ({names}); a comparison that is published changes one"
    return [Reason(code="several_variables", message=told)]


def _some(texts: Iterable[str]) -> str:
    listed = list(dict.fromkeys(texts))
    return "; ".join(listed[:_LISTED]) + (f"; and {len(listed) - _LISTED} more" if len(listed) > _LISTED else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
