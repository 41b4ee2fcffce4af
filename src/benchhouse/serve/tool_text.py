"""The answer of a tool in a few lines: each value with its unit, its interval, n, and its reference for `trace`."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchhouse.results.numbers import duration, name_of, number, percent, plural, quantity

Answer = Mapping[str, Any]
_MOST_LINES = 60
_MOST_CHARACTERS = 6000
_LONGEST_VALUE = 120


def text_of(tool: str, answer: Answer, left_out: Mapping[str, int]) -> str:
    """Return the text for readers without the structured answer, which has all digits and all fields."""
    lines = list(_LINES.get(tool, _as_json)(answer))
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES} more lines: they are in the structured answer"]
    lines += [f"{count} more of {name} are left out: ask for less" for name, count in left_out.items()]
    return "\n".join(lines) or "nothing"


def figure(mean: float, unit: str, interval: Sequence[float] | None, n: int, ref: str, confidence: float = 0.95) -> str:
    """Return a value as `101/s (95% interval 99 to 103, n=4; trace RUN:...)`."""
    ends = f"{confidence * 100:g}% interval {_ends(interval)}" if interval else "no interval"
    proof = f"; trace {ref}" if ref else ""
    return f"{quantity(mean, unit)} ({ends}, n={n}{proof})"


def _ends(interval: Sequence[float]) -> str:
    return f"{number(interval[0])} to {number(interval[1])}"


def _points(answer: Answer) -> Iterator[str]:
    for row in answer["rows"]:
        name = row["point"] or row["target_name"] or row["scenario"]
        value = figure(row["mean"], row["unit"], row["interval"], row["n"], row["ref"])
        doubt = "; too few samples for this percentile" if row["shaky"] else ""
        yield f"{name}, {name_of(row['metric'], row['stat'])}: {value}{doubt}"
    if answer["cursor"]:
        yield f"there are more: after={answer['cursor']}, or name a metric"
    if not answer["rows"]:
        yield "no number: no trial has succeeded, or none is collected yet"


def _compare(answer: Answer) -> Iterator[str]:
    if "a" not in answer:
        yield from _as_json(answer)
        return
    confidence = answer["confidence"]
    yield f"A is {answer['a']}, B is {answer['b']}"
    for row in answer["rows"]:
        sides = [
            figure(row[f"mean_{side}"], row["unit"], row[f"interval_{side}"], row[f"n_{side}"],
                   row[f"ref_{side}"], confidence)
            for side in "ab"
        ]  # fmt: skip
        yield f"{row['sentence']}. A: {sides[0]}. B: {sides[1]}. Change: {_change(row)}"
    yield from (f"{name}: only in A" for name in answer["only_a"])
    yield from (f"{name}: only in B" for name in answer["only_b"])
    yield from (f"{item['dimension']} differs: {item['a']} in A, {item['b']} in B" for item in answer["differences"])
    yield from [*answer["invalid_metrics"], *answer["notes"]]


def _change(row: Answer) -> str:
    if row["change"] is not None:
        ends = row["change_interval"]
        return percent(row["change"]) + (f" ({percent(ends[0])} to {percent(ends[1])})" if ends else " (no interval)")
    ends = row["difference_interval"]
    return quantity(row["difference"], row["unit"]) + (f" ({_ends(ends)})" if ends else " (no interval)")


def _history(answer: Answer) -> Iterator[str]:
    yield f"{name_of(answer['metric'], answer['stat'])} over {plural(len(answer['runs']), 'run')}, oldest first"
    for run in answer["runs"]:
        value = figure(run["mean"], answer["unit"], run["interval"], run["n"], run["ref"])
        yield f"{run['run_id']}: {value}"
    for change in answer["changes"]:
        ends = f" ({percent(change['interval'][0])} to {percent(change['interval'][1])})" if change["interval"] else ""
        yield f"changed at {change['run_after']}: {percent(change['change'])}{ends}, {change['verdict']}"
    if alarm := answer["alarm"]:
        yield f"does not fit the accepted baseline since {alarm['since_run']}"
    yield from answer["notes"]


def _why(answer: Answer) -> Iterator[str]:
    yield answer["headline"]
    for point in answer["points"]:
        for item in point["numbers"]:
            sides = (
                f"{quantity(item[side], item['unit'])} (n={item[f'n_{side}']}; trace {item[f'ref_{side}']})"
                for side in ("base", "now")
            )
            ends = f" ({percent(item['low'])} to {percent(item['high'])})" if item["low"] is not None else ""
            change = "" if item["change"] is None else f", {percent(item['change'])}{ends}"
            yield f"{point['point']}, {name_of(item['metric'], item['stat'])}: {' to '.join(sides)}{change}"
        yield from (f"  cause: {item['title']} ({item['certainty']} evidence)" for item in point["diagnoses"])
        yield from (f"  look at trial {item['trial_id']}" for item in point["trials"])
    yield from answer["notes"]


def _trace(answer: Answer) -> Iterator[str]:
    yield f"{answer['token']}: {'proved' if answer['ok'] else 'NOT PROVED'}"
    for step in answer["steps"]:
        yield from (f"{step['name']}{'' if step['ok'] else ' (broken)'}: {line}" for line in step["says"])


def _plan(answer: Answer) -> Iterator[str]:
    estimate = answer["estimate"]
    time = "not known" if estimate["seconds"] is None else f"about {duration(estimate['seconds'])}"
    cost = "not known" if estimate["cost"] is None else f"about {number(estimate['cost'])}"
    yield f"{answer['trials']} trials = {answer['points']} points x {answer['repetitions']} repetitions"
    yield f"time: {time}; cost: {cost} ({estimate['basis']}); storage: {answer['storage']['text']}"
    yield f"budget of the scenario: {_short(answer['budget']) if answer['budget'] else 'none'}"
    yield f"on {answer['executor']}, {answer['runtime']}; plan digest {answer['plan_digest']}"
    yield from answer["notes"]


def _runs(answer: Answer) -> Iterator[str]:
    for run in answer["runs"]:
        yield _run(run)
    if answer["cursor"]:
        yield f"and older ones: after={answer['cursor']}"


def _run(run: Answer) -> str:
    ended = ", ".join(f"{count} {outcome}" for outcome, count in run["outcomes"].items())
    return f"{run['run_id']}: {run['scenario']}, {run['state']}, {run['done']} of {run['trials']} trials ({ended})"


def _query(answer: Answer) -> Iterator[str]:
    yield from map(_short, answer["rows"])
    yield "there are more rows" if answer["more"] else f"{plural(len(answer['rows']), 'row')} in all"
    yield f"query_spec_digest {answer['query_spec_digest']}; to prove a number, trace the trial_id that it is of"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE * 4 else f"{text[: _LONGEST_VALUE * 4]}..."


def _as_json(answer: Answer) -> Iterator[str]:
    """Return one line per field, and one line per row of a field that is a table."""
    size = 0
    for name, value in answer.items() if list(answer) != ["answer"] else [("", answer["answer"])]:
        for line in _field(name, value):
            size += len(line)
            if size > _MOST_CHARACTERS:
                yield "and more: it is in the structured answer"
                return
            yield line


def _field(name: str, value: Any) -> Iterable[str]:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [f"{name} {_short(row)}".strip() for row in value]
    return [f"{name}: {_short(value)}" if name else _short(value)]


_LINES: dict[str, Callable[[Answer], Iterable[str]]] = {
    "points": _points,
    "compare": _compare,
    "history": _history,
    "why": _why,
    "trace": _trace,
    "plan": _plan,
    "list": _runs,
    "status": lambda answer: [_run(answer)],
    "query": _query,
}
