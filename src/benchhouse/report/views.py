"""One answer for three readers: engineering, product and partner, from the same evidence and in their words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchhouse.analysis.playbooks.causes import symptom_sentence
from benchhouse.analysis.playbooks.signals import figure
from benchhouse.analysis.playbooks.values import Diagnosis, Evidence, Number
from benchhouse.report.pages import Block, Grid, Heading, Items, Listing, Page, Words
from benchhouse.results.numbers import name_of, quantity, titled
from benchhouse.results.why import PointWhy, Why
from benchhouse.schema.layout import TrialFolder
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse

Audience = Literal["engineering", "product", "partner"]
AUDIENCES: tuple[Audience, ...] = ("engineering", "product", "partner")
_MOST_POINTS = 10
_MOST_NUMBERS = 12
_SHORT = 12
_OURS = ("scenario", "cluster")
_SIDES = {
    "scenario": "in our own scenario: what it asks for or limits",
    "machine": "in a machine: its hardware, storage or cooling",
    "service": "in the service under test: its settings or its code",
    "cluster": "in the cluster around it: network, neighbours, queues",
}
_RARE = {"p95": "20", "p99": "100", "p99.9": "1000"}
_NO_CAUSE = (
    "No cause is named: no playbook fits, or no sampled series moved far outside the spread of its repetitions. "
    "More repetitions or more monitors would tell more."
)


@dataclass(frozen=True)
class Setting:
    """What was run: a row of trial_fact of one trial, its effective configuration, and the numbers of the run."""

    trial: Mapping[str, Any]
    config: str
    numbers: Sequence[Mapping[str, Any]]
    counted: Mapping[str, int]


def gather_setting(warehouse: Warehouse, why: Why) -> Setting | None:
    """Of the worst trial, else of the first that there is; None where there is none."""
    rows = queries.trials(warehouse, [why.run_id]).dicts()
    if not rows:
        return None
    wanted = why.points[0].trials[0].trial_id if why.points else ""
    trial = next((row for row in rows if row["trial_id"] == wanted), rows[0])
    try:
        path = TrialFolder(warehouse.workspace.root / trial["folder"]).effective_config
        config = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        config = ""
    counted: dict[str, int] = {}
    for row in rows:
        counted[row["outcome"]] = counted.get(row["outcome"], 0) + 1
    return Setting(trial, config, queries.points(warehouse, [why.run_id]).dicts(), counted)


def view(why: Why, audience: Audience, setting: Setting | None, next_lines: Mapping[int, Sequence[str]]) -> Page:
    """The page for one reader; `next_lines` are the proposed experiments of each diagnosis, as commands."""
    blocks = {"engineering": _engineering, "product": _product, "partner": _partner}[audience](why, setting, next_lines)
    lead = impact_lead(why) if audience == "product" else _lead(why)
    return Page(f"{why.scenario}: for {audience}", lead, [*blocks, *_runs(why)])


def why_page(why: Why, setting: Setting | None, next_lines: Mapping[int, Sequence[str]]) -> Page:
    """All of `bench why` on one page."""
    return Page(f"{why.scenario}: why", _lead(why), [*_engineering(why, setting, next_lines), *_runs(why)])


def _lead(why: Why) -> str:
    """The headline as a sentence begins, but for one that begins with the name of a node, rank or device."""
    named = bool(why.diagnosed and why.diagnosed[0].suspect)
    return why.headline if named else why.headline[:1].upper() + why.headline[1:]


def impact_lead(why: Why) -> str:
    """The first sentence for people who don't measure."""
    worse = [one for _, one in _by_size(why)]
    if worse:
        return impact(worse[0])
    return "Nothing got worse for sure." if why.base else why.headline


def _by_size(why: Why) -> list[tuple[str, Number]]:
    """What got worse, with its point; the largest change first."""
    worse = [(point.point, one) for point in why.points for one in point.numbers]
    return sorted(worse, key=lambda item: -abs(item[1].change or 0.0))


NextLines = Mapping[int, Sequence[str]]


def _engineering(why: Why, setting: Setting | None, next_lines: NextLines) -> list[Block]:
    blocks: list[Block] = []
    at = 0
    for point in why.points[:_MOST_POINTS]:
        blocks.append(Heading(f"Point {point.point}" if point.point else "What got worse"))
        blocks.append(Items([symptom_sentence(one) for one in point.numbers]))
        if not point.diagnoses:
            blocks.append(Words(_NO_CAUSE))
            blocks += [_signals(point.moved)] if point.moved else []
        for one in point.diagnoses:
            blocks += _hypothesis(one, next_lines.get(at, one.next))
            at += 1
        blocks += _raw(point)
    left = len(why.points) - _MOST_POINTS
    blocks += [Words(f"{left} more points got worse: bench why --json lists all.")] if left > 0 else []
    return [*(blocks or _nothing_worse(why, setting)), *_failures(why), *_differences(why)]


def _hypothesis(one: Diagnosis, next_lines: Sequence[str]) -> list[Block]:
    also: list[Block] = [Words("Also with evidence, weaker or downstream:"), Items(one.also)] if one.also else []
    return [
        Words(f"Hypothesis: {one.title}. {one.says}"),
        Words(f"Evidence is {one.certainty}: {one.why_so_sure}."),
        _signals(one.evidence),
        Words("Proposed experiment:"),
        Items(next_lines),
        Words(f"Smallest change: {one.change}"),
        *also,
    ]


def _signals(evidence: Sequence[Evidence]) -> Grid:
    rows = [
        (titled(f"{one.scope} {one.series}", one.unit), _values(one.now), f"{one.against}: {_values(one.base)}",
         f"{one.distance:.0f}", one.phase)
        for one in evidence
    ]  # fmt: skip
    return Grid(("signal", "this run, by trial", "against", "spreads", "phase"), rows)


def _values(values: Sequence[float]) -> str:
    told = [figure(value) for value in values[:6]]
    return ", ".join(told) + (f" and {len(values) - 6} more" if len(values) > 6 else "")


def _raw(point: PointWhy) -> list[Block]:
    if not point.trials:
        return []
    paths = [
        f"{trial.folder}/{file}"
        for trial in point.trials
        for file in dict.fromkeys([*trial.files, trial.requests])
        if file
    ]
    slow = [f"{trial.trial_id}: {line}" for trial in point.trials for line in trial.slow]
    return [
        Words("Raw evidence, the worst trials first:"),
        Items([*(trial.folder for trial in point.trials), *paths], code=True),
        *([Items(slow)] if slow else []),
        Items([point.trials[0].logs, point.trials[0].trace, point.repro], code=True),
    ]


def _product(why: Why, setting: Setting | None, next_lines: NextLines) -> list[Block]:
    blocks: list[Block] = [Heading("What users notice")]
    worse = _by_size(why)
    if worse:
        several = len(why.points) > 1
        blocks.append(Items([(f"{point}: " if several and point else "") + impact(one) for point, one in worse[:8]]))
    else:
        blocks += _nothing_worse(why, setting)
    if why.better:
        blocks += [Words("What got better:"), Items(why.better[:4])]
    if setting and (bad := sum(setting.counted.values()) - setting.counted.get("succeeded", 0)):
        total = sum(setting.counted.values())
        blocks.append(Words(f"Reliability: {bad} of {total} trials did not succeed; their numbers are not in here."))
    blocks.append(Heading("How sure we are"))
    blocks.append(Words(confidence_sentence(why)))
    blocks.append(Heading("Next step"))
    diagnosed = why.diagnosed
    if diagnosed:
        first = diagnosed[0]
        weak = first.certainty == "weak"
        blocks.append(Words(f"{'Possible' if weak else 'Most likely'} cause: {first.title}. {_lies(first)}"))
        if weak:
            blocks.append(Words("The evidence is weak: engineering repeats the run before anything is changed."))
        blocks.append(Words(f"{'If it holds' if weak else 'Proposed change'}: {first.change}"))
    elif why.points:
        blocks.append(Words("The cause is not known yet; engineering repeats the run with more monitors."))
    else:
        blocks.append(Words("None is needed." if why.base else "Run it again: a second run can be compared."))
    return blocks


def _partner(why: Why, setting: Setting | None, next_lines: NextLines) -> list[Block]:
    blocks: list[Block] = []
    worse = [symptom_sentence(one) for point in why.points for one in point.numbers]
    blocks += [Heading("What we see"), Items(worse[:_MOST_NUMBERS])] if worse else _nothing_worse(why, setting)
    first = why.diagnosed[0] if why.diagnosed else None
    blocks.append(Heading("What is ours, what is upstream"))
    if first:
        blocks.append(Words(f"{_blame(first)} {first.says}"))
        blocks.append(Items([one.says for one in first.evidence]))
    else:
        blocks.append(Words(_NO_CAUSE if why.points else "There is nothing to attribute."))
    if setting:
        blocks.append(Grid(("whose", "what", "which"), _whose(setting.trial)))
    blocks.append(Heading("Minimal repro"))
    if setting and setting.config:
        blocks += [Words("Save as repro.yaml, then:"), Items(["bench run repro.yaml"], code=True)]
        blocks.append(Listing(setting.config))
    else:
        blocks.append(Words("The trial's configuration is not in this workspace."))
    blocks.append(Heading("Smallest actionable change"))
    blocks.append(Words(first.change if first else "None yet: no cause has evidence."))
    if first:
        blocks.append(Items(next_lines.get(0, first.next)))
    return blocks


def _whose(trial: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    commit = (trial["git_commit"] or "unknown")[:_SHORT] + (" (dirty)" if trial["git_dirty"] else "")
    target = {key: value for key, value in json.loads(trial["target"]).items() if key != "name"}
    told = [
        ("ours", "scenario", trial["scenario"]),
        ("ours", "experiment", f"{trial['experiment']} {trial['experiment_version']}"),
        ("ours", "from", f"{trial['distribution'] or ''} {trial['distribution_version'] or ''}".strip()),
        ("ours", "git commit", commit),
        ("ours", "packages", (trial["package_lock_digest"] or "")[:_SHORT]),
        ("upstream", "target", trial["target_name"] or ""),
        *(("upstream", key, value if isinstance(value, str) else json.dumps(value)) for key, value in target.items()),
        ("evidence", "manifest", trial["artifact_manifest_digest"]),
    ]
    return [row for row in told if row[2]]


def _nothing_worse(why: Why, setting: Setting | None) -> list[Block]:
    blocks: list[Block] = [Words(why.headline + ".")]
    rows = [
        (row["point"] or row["target_name"], name_of(row["metric"], row["stat"]), quantity(row["mean"], row["unit"]),
         str(row["n"]))
        for row in (setting.numbers if setting else ())
        if row["direction"] and row["stat"] in ("value", "mean", "p99")
    ]  # fmt: skip
    return [*blocks, Grid(("point", "number", "mean", "trials"), rows[:_MOST_NUMBERS])] if rows else blocks


def _failures(why: Why) -> list[Block]:
    if not why.failures:
        return []
    rows = [(one.point, one.outcome, f"{one.code}: {one.message}", one.folder) for one in why.failures]
    return [Heading("Trials that did not succeed"), Grid(("point", "outcome", "why", "evidence"), rows)]


def _differences(why: Why) -> list[Block]:
    return [Heading("What else is not the same"), Items(why.differences)] if why.differences else []


def _runs(why: Why) -> list[Block]:
    lines = [f"this run: {why.run_id}", *([f"base: {why.base} ({why.base_chosen})"] if why.base else [])]
    return [Heading("Evidence"), Items([*lines, *why.notes]), Items([_again(why)], code=True)]


def _again(why: Why) -> str:
    return f"bench why {why.run_id} --vs {why.base}" if why.base else f"bench why {why.run_id}"


def _lies(first: Diagnosis) -> str:
    return f"It lies {_SIDES[first.side]}." if first.side in _SIDES else "Where it lies is not known yet."


def _blame(first: Diagnosis) -> str:
    if first.side not in _SIDES:
        return "Whose the cause is can't be told yet."
    whose = "ours" if first.side in _OURS else "not ours" if first.side == "service" else "of the machine"
    if first.certainty == "weak":
        return f"The evidence is weak. If it holds, the cause is {whose}: it lies {_SIDES[first.side]}."
    return f"By the evidence the cause is {whose}: it lies {_SIDES[first.side]}."


# -- numbers for people who don't measure: what a user notices, and how sure that is


def impact(number: Number) -> str:
    """One sentence: who notices what, and by how much."""
    levels = f"{figure(number.base)} → {figure(number.now)} {number.unit if number.unit != '1' else ''}".rstrip()
    if number.metric == "queue_s":
        return f"Jobs wait longer before they start ({levels})."
    if number.change is None:
        return f"{number.name} got worse ({levels})."
    size = abs(number.change)
    if number.is_time:
        who = f"The slowest 1 in {_RARE[number.stat]}" if number.stat in _RARE else "A typical one"
        verb = "take" if number.stat in _RARE else "takes"
        longer = f"{1 + size:.1f} times as long" if size >= 1 else f"{size:.0%} longer"
        return f"{who} ({number.metric}) {verb} {longer} ({levels}{_interval(number)})."
    if number.is_rate:
        return f"{size:.0%} less gets done a second ({number.metric} {levels}{_interval(number)})."
    if "cost" in number.metric:
        return f"It costs {size:.0%} more ({number.metric} {levels}{_interval(number)})."
    if "error" in number.metric or "timeout" in number.metric:
        return f"More requests fail ({number.name} {levels}{_interval(number)})."
    return f"{number.name} is {size:.0%} worse ({levels}{_interval(number)})."


def _interval(number: Number) -> str:
    if number.low is None or number.high is None:
        return ""
    low, high = sorted((abs(number.low), abs(number.high)))
    if number.is_time and number.change is not None and number.change >= 1:  # in the same words as the change itself
        return f"; between {1 + low:.2f} and {1 + high:.2f} times, 95% sure"
    return f"; between {low:.0%} and {high:.0%}, 95% sure"


def confidence_sentence(why: Why) -> str:
    """How sure the change is, and apart from it how sure the cause is."""
    if not why.base:
        return "There is no earlier run to compare with: nothing is said about a change."
    if not why.points:
        return (
            f"{why.compared} numbers were compared, corrected for looking at so many; none is worse for sure. "
            "A change smaller than the spread of the repetitions would not be seen."
        )
    change = (
        f"The change is real by the tests of {why.compared} compared numbers, corrected for looking at so many: such "
        "a result would come by chance alone in at most 5 of 100 comparisons."
    )
    if not why.diagnosed:
        return f"{change} The cause is not known."
    first = why.diagnosed[0]
    several = " More than one thing changed between the runs." if len(why.differences) > 1 else ""
    return f"{change} The evidence for the cause is {first.certainty}: {first.why_so_sure}.{several}"
