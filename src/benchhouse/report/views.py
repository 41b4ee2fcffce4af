"""One answer for three readers, engineering, product, and partner, from the same evidence and in their language."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchhouse.analysis.playbooks.causes import symptom_sentence
from benchhouse.analysis.playbooks.signals import figure, with_unit
from benchhouse.analysis.playbooks.values import ComparedNumber, PointDiagnosis, SignalEvidence
from benchhouse.report.pages import Block, Grid, Heading, Items, Listing, Page, Words
from benchhouse.results.numbers import name_of, quantity, titled
from benchhouse.results.why import PointWhy, WhyAnswer
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.quoting import shortened
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
    """The circumstances of a run: a row of trial_fact, its effective configuration, and the numbers of the run."""

    trial: Mapping[str, Any]
    config: str
    numbers: Sequence[Mapping[str, Any]]
    counted: Mapping[str, int]


def gather_setting(warehouse: Warehouse, why: WhyAnswer) -> Setting | None:
    """Return the setting of the worst trial, or of the first; None if there is no trial."""
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
    outcomes = Counter(row["outcome"] for row in rows)
    return Setting(trial, config, queries.points(warehouse, [why.run_id]).dicts(), outcomes)


NextLines = Mapping[int, Sequence[str]]


def view(why: WhyAnswer, audience: Audience, setting: Setting | None, next_lines: NextLines) -> Page:
    """Return the page for one reader; `next_lines` are the proposed experiments of each diagnosis, as commands."""
    blocks = {"engineering": _engineering, "product": _product, "partner": _partner}[audience](why, setting, next_lines)
    lead = _lead(why)
    if audience == "product":  # readers who don't measure
        worse = _by_size(why)
        lead = impact(worse[0][1]) if worse else "Nothing got worse for sure." if why.base else why.headline
    return Page(f"{why.scenario}: for {audience}", lead, [*blocks, *_runs(why)])


def published_view(why: WhyAnswer, setting: Setting | None, claims: Sequence[Sequence[str]]) -> Page:
    """Return the partner's page with publishable numbers only: `claims` are rows of claim, statement, and signature."""
    blocks: list[Block] = [Heading("Numbers that may be published")]
    if claims:
        blocks.append(Grid(("claim", "statement", "signature"), claims))
    else:
        blocks += [Words("No number of this run is claimed as publication-grade. Claim one:"),
                   Items([f"bench claim make {why.run_id}:METRIC"], code=True)]  # fmt: skip
    first = why.diagnosed[0] if why.diagnosed else None
    blocks += [Heading("What is ours, what is upstream")]
    blocks.append(Words(f"{_blame(first)} {first.title}." if first else "There is nothing to attribute."))
    blocks += [Grid(("whose", "what", "which"), _whose(setting.trial))] if setting else []
    blocks += _repro(setting)
    if first:
        blocks += [Heading("Smallest actionable change"), Words(first.change)]
    lead = (
        f"{len(claims)} publishable number{'' if len(claims) == 1 else 's'}" if claims else "No publishable number yet"
    )
    return Page(
        f"{why.scenario}: for partner", lead, [*blocks, Heading("Evidence"), Items([f"this run: {why.run_id}"])]
    )


def why_page(why: WhyAnswer, setting: Setting | None, next_lines: NextLines) -> Page:
    """Return the full answer of `bench why` on one page."""
    return Page(f"{why.scenario}: why", _lead(why), [*_engineering(why, setting, next_lines), *_runs(why)])


def _lead(why: WhyAnswer) -> str:
    """Return the headline with a capital, unless it begins with the name of a node, rank, or device."""
    named = bool(why.diagnosed and why.diagnosed[0].suspect)
    return why.headline if named else why.headline[:1].upper() + why.headline[1:]


def _by_size(why: WhyAnswer) -> list[tuple[str, ComparedNumber]]:
    """Return the numbers that got worse, with their points; the largest change first."""
    worse = [(point.point, number) for point in why.points for number in point.numbers]
    return sorted(worse, key=lambda item: -abs(item[1].change or 0.0))


def _engineering(why: WhyAnswer, setting: Setting | None, next_lines: NextLines) -> list[Block]:
    blocks: list[Block] = []
    at = 0
    for point in why.points[:_MOST_POINTS]:
        blocks.append(Heading(f"Point {point.point}" if point.point else "What got worse"))
        blocks.append(Items(list(map(symptom_sentence, point.numbers))))
        if not point.diagnoses:
            blocks.append(Words(_NO_CAUSE))
            blocks += [_signals(point.moved)] if point.moved else []
        for diagnosis in point.diagnoses:
            blocks += _hypothesis(diagnosis, next_lines.get(at, diagnosis.next))
            at += 1
        blocks += _raw(point)
    left = len(why.points) - _MOST_POINTS
    blocks += [Words(f"{left} more points got worse: bench why --json lists all.")] if left > 0 else []
    blocks = blocks or _nothing_worse(why, setting)
    if why.failures:
        failed = [(item.point, item.outcome, f"{item.code}: {item.message}", item.folder) for item in why.failures]
        blocks += [Heading("Trials that did not succeed"), Grid(("point", "outcome", "why", "evidence"), failed)]
    if why.differences:
        blocks += [Heading("What else is not the same"), Items(why.differences)]
    return blocks


def _hypothesis(cause: PointDiagnosis, next_lines: Sequence[str]) -> list[Block]:
    also: list[Block] = [Words("Also with evidence, weaker or downstream:"), Items(cause.also)] if cause.also else []
    return [
        Words(f"Hypothesis: {cause.title}. {cause.says}"),
        Words(f"Evidence is {cause.certainty}: {cause.why_so_sure}."),
        *([_signals(cause.evidence)] if cause.evidence else []),
        Words("Proposed experiment:"),
        Items(next_lines),
        Words(f"Smallest change: {cause.change}"),
        *also,
    ]


def _signals(evidence: Sequence[SignalEvidence]) -> Grid:
    rows = [
        (titled(f"{item.scope} {item.series}", item.unit), _values(item.now), f"{item.against}: {_values(item.base)}",
         f"{item.distance:.0f}", item.phase)
        for item in evidence
    ]  # fmt: skip
    return Grid(("signal", "this run, by trial", "against", "spreads", "phase"), rows)


def _values(values: Sequence[float]) -> str:
    return shortened([figure(value) for value in values], 6)


def _raw(point: PointWhy) -> list[Block]:
    if not point.trials:
        return []
    files = [(trial.folder, file) for trial in point.trials for file in dict.fromkeys([*trial.files, trial.requests])]
    paths = [f"{folder}/{file}" for folder, file in files if file]
    slow = [f"{trial.trial_id}: {line}" for trial in point.trials for line in trial.slow]
    return [
        Words("Raw evidence, the worst trials first:"),
        Items([*(trial.folder for trial in point.trials), *paths], code=True),
        *([Items(slow)] if slow else []),
        Items([point.trials[0].logs, point.trials[0].trace, point.repro], code=True),
    ]


def _product(why: WhyAnswer, setting: Setting | None, next_lines: NextLines) -> list[Block]:
    blocks: list[Block] = [Heading("What users notice")]
    worse = _by_size(why)
    if worse:
        several = len(why.points) > 1
        names = [f"{point}: " if several and point else "" for point, _ in worse]
        blocks.append(Items([name + impact(number) for name, (_, number) in zip(names, worse[:8], strict=False)]))
    else:
        blocks += _nothing_worse(why, setting)
    if why.better:
        blocks += [Words("What got better:"), Items(why.better[:4])]
    if setting and (bad := sum(setting.counted.values()) - setting.counted.get("succeeded", 0)):
        total = sum(setting.counted.values())
        blocks.append(Words(f"Reliability: {bad} of {total} trials did not succeed; their numbers are not in here."))
    blocks += [Heading("How sure we are"), Words(confidence_sentence(why)), Heading("Next step")]
    if why.diagnosed:
        first = why.diagnosed[0]
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


def _partner(why: WhyAnswer, setting: Setting | None, next_lines: NextLines) -> list[Block]:
    worse = [symptom_sentence(number) for point in why.points for number in point.numbers]
    seen: list[Block] = [Heading("What we see"), Items(worse[:_MOST_NUMBERS])]
    blocks = [*(seen if worse else _nothing_worse(why, setting)), Heading("What is ours, what is upstream")]
    first = why.diagnosed[0] if why.diagnosed else None
    if first:
        blocks += [Words(f"{_blame(first)} {first.says}"), Items([item.says for item in first.evidence])]
    else:
        blocks.append(Words(_NO_CAUSE if why.points else "There is nothing to attribute."))
    if setting:
        blocks.append(Grid(("whose", "what", "which"), _whose(setting.trial)))
    blocks += _repro(setting)
    change = first.change if first else "None yet: no cause has evidence."
    blocks += [Heading("Smallest actionable change"), Words(change)]
    if first:
        blocks.append(Items(next_lines.get(0, first.next)))
    return blocks


def _repro(setting: Setting | None) -> list[Block]:
    if setting and setting.config:
        command = Items(["bench run repro.yaml"], code=True)
        return [Heading("Minimal repro"), Words("Save as repro.yaml, then:"), command, Listing(setting.config)]
    return [Heading("Minimal repro"), Words("The trial's configuration is not in this workspace.")]


def _whose(trial: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    commit = (trial["git_commit"] or "unknown")[:_SHORT] + (" (dirty)" if trial["git_dirty"] else "")
    target = {key: value for key, value in json.loads(trial["target"]).items() if key != "name"}
    parts = [
        ("ours", "scenario", trial["scenario"]),
        ("ours", "experiment", f"{trial['experiment']} {trial['experiment_version']}"),
        ("ours", "from", f"{trial['distribution'] or ''} {trial['distribution_version'] or ''}".strip()),
        ("ours", "git commit", commit),
        ("ours", "packages", (trial["package_lock_digest"] or "")[:_SHORT]),
        ("upstream", "target", trial["target_name"] or ""),
        *(("upstream", key, value if isinstance(value, str) else json.dumps(value)) for key, value in target.items()),
        ("evidence", "manifest", trial["artifact_manifest_digest"]),
    ]
    return [row for row in parts if row[2]]


def _nothing_worse(why: WhyAnswer, setting: Setting | None) -> list[Block]:
    blocks: list[Block] = [Words(why.headline + ".")]
    rows = [
        (row["point"] or row["target_name"], name_of(row["metric"], row["stat"]), quantity(row["mean"], row["unit"]),
         str(row["n"]))
        for row in (setting.numbers if setting else ())
        if row["direction"] and row["stat"] in ("value", "mean", "p99")
    ]  # fmt: skip
    return [*blocks, Grid(("point", "number", "mean", "trials"), rows[:_MOST_NUMBERS])] if rows else blocks


def _runs(why: WhyAnswer) -> list[Block]:
    lines = [f"this run: {why.run_id}", *([f"base: {why.base} ({why.base_chosen})"] if why.base else [])]
    again = f"bench why {why.run_id} --vs {why.base}" if why.base else f"bench why {why.run_id}"
    return [Heading("Evidence"), Items([*lines, *why.notes]), Items([again], code=True)]


def _lies(first: PointDiagnosis) -> str:
    return f"It lies {_SIDES[first.side]}." if first.side in _SIDES else "Where it lies is not known yet."


def _blame(first: PointDiagnosis) -> str:
    if first.side not in _SIDES:
        return "Whose the cause is can't be told yet."
    whose = "ours" if first.side in _OURS else "not ours" if first.side == "service" else "of the machine"
    if first.certainty == "weak":
        return f"The evidence is weak. If it holds, the cause is {whose}: it lies {_SIDES[first.side]}."
    return f"By the evidence the cause is {whose}: it lies {_SIDES[first.side]}."


# -- numbers for readers who don't measure: what a user notices, and how certain it is


def impact(number: ComparedNumber) -> str:
    """Return one sentence: who notices what, and by how much."""
    levels = f"{figure(number.base)} → {figure(number.now)} {with_unit(number.unit)}".rstrip()
    if number.metric == "queue_s":
        return f"Jobs wait longer before they start ({levels})."
    if number.change is None:
        return f"{number.name} got worse ({levels})."
    size, levels = abs(number.change), levels + _interval(number)
    if number.is_time:
        who = f"The slowest 1 in {_RARE[number.stat]}" if number.stat in _RARE else "A typical one"
        verb = "take" if number.stat in _RARE else "takes"
        longer = f"{1 + size:.1f} times as long" if size >= 1 else f"{size:.0%} longer"
        return f"{who} ({number.metric}) {verb} {longer} ({levels})."
    if number.is_rate:
        return f"{size:.0%} less gets done a second ({number.metric} {levels})."
    if "cost" in number.metric:
        return f"It costs {size:.0%} more ({number.metric} {levels})."
    if "error" in number.metric or "timeout" in number.metric:
        return f"More requests fail ({number.name} {levels})."
    return f"{number.name} is {size:.0%} worse ({levels})."


def _interval(number: ComparedNumber) -> str:
    if number.low is None or number.high is None:
        return ""
    low, high = sorted((abs(number.low), abs(number.high)))
    if number.is_time and number.change is not None and number.change >= 1:  # in the same form as the change
        return f"; between {1 + low:.2f} and {1 + high:.2f} times, 95% sure"
    return f"; between {low:.0%} and {high:.0%}, 95% sure"


def confidence_sentence(why: WhyAnswer) -> str:
    """Return how certain the change is, and separately how certain the cause is."""
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
