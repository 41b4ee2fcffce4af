"""One answer for three readers: engineering, product and partner, from the same evidence and in their words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchhouse.analysis.playbooks.causes import symptom_sentence
from benchhouse.analysis.playbooks.signals import figure
from benchhouse.analysis.playbooks.values import Diagnosis, Evidence, Number
from benchhouse.report.impact import confidence_words, impact
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


def gather_setting(warehouse: Warehouse, found: Why) -> Setting | None:
    """Of the worst trial, else of the first that there is; None where there is none."""
    rows = queries.trials(warehouse, [found.run_id]).dicts()
    if not rows:
        return None
    wanted = found.points[0].trials[0].trial_id if found.points else ""
    trial = next((row for row in rows if row["trial_id"] == wanted), rows[0])
    try:
        path = TrialFolder(warehouse.workspace.root / trial["folder"]).effective_config
        config = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        config = ""
    counted: dict[str, int] = {}
    for row in rows:
        counted[row["outcome"]] = counted.get(row["outcome"], 0) + 1
    return Setting(trial, config, queries.points(warehouse, [found.run_id]).dicts(), counted)


def view(found: Why, audience: Audience, setting: Setting | None, next_lines: Mapping[int, Sequence[str]]) -> Page:
    """The page for one reader; `next_lines` are the proposed experiments of each diagnosis, as commands."""
    blocks = {"engineering": _engineering, "product": _product, "partner": _partner}[audience](
        found, setting, next_lines
    )
    lead = impact_lead(found) if audience == "product" else _lead(found)
    return Page(f"{found.scenario}: for {audience}", lead, [*blocks, *_runs(found)])


def why_page(found: Why, setting: Setting | None, next_lines: Mapping[int, Sequence[str]]) -> Page:
    """All of `bench why` on one page."""
    return Page(f"{found.scenario}: why", _lead(found), [*_engineering(found, setting, next_lines), *_runs(found)])


def _lead(found: Why) -> str:
    """The headline as a sentence begins, but for one that begins with the name of a node, rank or device."""
    named = bool(found.diagnosed and found.diagnosed[0].suspect)
    return found.headline if named else found.headline[:1].upper() + found.headline[1:]


def impact_lead(found: Why) -> str:
    """The first sentence for people who don't measure."""
    worse = [one for _, one in _by_size(found)]
    if worse:
        return impact(worse[0])
    return "Nothing got worse for sure." if found.base else found.headline


def _by_size(found: Why) -> list[tuple[str, Number]]:
    """What got worse, with its point; the largest change first."""
    worse = [(point.point, one) for point in found.points for one in point.numbers]
    return sorted(worse, key=lambda item: -abs(item[1].change or 0.0))


NextLines = Mapping[int, Sequence[str]]


def _engineering(found: Why, setting: Setting | None, next_lines: NextLines) -> list[Block]:
    blocks: list[Block] = []
    at = 0
    for point in found.points[:_MOST_POINTS]:
        blocks.append(Heading(f"Point {point.point}" if point.point else "What got worse"))
        blocks.append(Items([symptom_sentence(one) for one in point.numbers]))
        if not point.diagnoses:
            blocks.append(Words(_NO_CAUSE))
            blocks += [_signals(point.moved)] if point.moved else []
        for one in point.diagnoses:
            blocks += _hypothesis(one, next_lines.get(at, one.next))
            at += 1
        blocks += _raw(point)
    left = len(found.points) - _MOST_POINTS
    blocks += [Words(f"{left} more points got worse: bench why --json lists all.")] if left > 0 else []
    return [*(blocks or _nothing_worse(found, setting)), *_failures(found), *_differences(found)]


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


def _product(found: Why, setting: Setting | None, next_lines: NextLines) -> list[Block]:
    blocks: list[Block] = [Heading("What users notice")]
    worse = _by_size(found)
    if worse:
        several = len(found.points) > 1
        blocks.append(Items([(f"{point}: " if several and point else "") + impact(one) for point, one in worse[:8]]))
    else:
        blocks += _nothing_worse(found, setting)
    if found.better:
        blocks += [Words("What got better:"), Items(found.better[:4])]
    if setting and (bad := sum(setting.counted.values()) - setting.counted.get("succeeded", 0)):
        total = sum(setting.counted.values())
        blocks.append(Words(f"Reliability: {bad} of {total} trials did not succeed; their numbers are not in here."))
    blocks.append(Heading("How sure we are"))
    blocks.append(Words(confidence_words(found)))
    blocks.append(Heading("Next step"))
    diagnosed = found.diagnosed
    if diagnosed:
        first = diagnosed[0]
        weak = first.certainty == "weak"
        blocks.append(Words(f"{'Possible' if weak else 'Most likely'} cause: {first.title}. {_lies(first)}"))
        if weak:
            blocks.append(Words("The evidence is weak: engineering repeats the run before anything is changed."))
        blocks.append(Words(f"{'If it holds' if weak else 'Proposed change'}: {first.change}"))
    elif found.points:
        blocks.append(Words("The cause is not known yet; engineering repeats the run with more monitors."))
    else:
        blocks.append(Words("None is needed." if found.base else "Run it again: a second run can be compared."))
    return blocks


def _partner(found: Why, setting: Setting | None, next_lines: NextLines) -> list[Block]:
    blocks: list[Block] = []
    worse = [symptom_sentence(one) for point in found.points for one in point.numbers]
    blocks += [Heading("What we see"), Items(worse[:_MOST_NUMBERS])] if worse else _nothing_worse(found, setting)
    first = found.diagnosed[0] if found.diagnosed else None
    blocks.append(Heading("What is ours, what is upstream"))
    if first:
        blocks.append(Words(f"{_blame(first)} {first.says}"))
        blocks.append(Items([one.says for one in first.evidence]))
    else:
        blocks.append(Words(_NO_CAUSE if found.points else "There is nothing to attribute."))
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


def _nothing_worse(found: Why, setting: Setting | None) -> list[Block]:
    blocks: list[Block] = [Words(found.headline + ".")]
    rows = [
        (row["point"] or row["target_name"], name_of(row["metric"], row["stat"]), quantity(row["mean"], row["unit"]),
         str(row["n"]))
        for row in (setting.numbers if setting else ())
        if row["direction"] and row["stat"] in ("value", "mean", "p99")
    ]  # fmt: skip
    return [*blocks, Grid(("point", "number", "mean", "trials"), rows[:_MOST_NUMBERS])] if rows else blocks


def _failures(found: Why) -> list[Block]:
    if not found.failures:
        return []
    rows = [(one.point, one.outcome, f"{one.code}: {one.message}", one.folder) for one in found.failures]
    return [Heading("Trials that did not succeed"), Grid(("point", "outcome", "why", "evidence"), rows)]


def _differences(found: Why) -> list[Block]:
    return [Heading("What else is not the same"), Items(found.differences)] if found.differences else []


def _runs(found: Why) -> list[Block]:
    lines = [f"this run: {found.run_id}", *([f"base: {found.base} ({found.base_chosen})"] if found.base else [])]
    return [Heading("Evidence"), Items([*lines, *found.notes]), Items([_again(found)], code=True)]


def _again(found: Why) -> str:
    return f"bench why {found.run_id} --vs {found.base}" if found.base else f"bench why {found.run_id}"


def _lies(first: Diagnosis) -> str:
    return f"It lies {_SIDES[first.side]}." if first.side in _SIDES else "Where it lies is not known yet."


def _blame(first: Diagnosis) -> str:
    if first.side not in _SIDES:
        return "Whose the cause is can't be told yet."
    whose = "ours" if first.side in _OURS else "not ours" if first.side == "service" else "of the machine"
    if first.certainty == "weak":
        return f"The evidence is weak. If it holds, the cause is {whose}: it lies {_SIDES[first.side]}."
    return f"By the evidence the cause is {whose}: it lies {_SIDES[first.side]}."
