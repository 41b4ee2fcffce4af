"""Why trials were refused: invalid trials measured something, but their own check rejects the measurement."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from benchhouse.results.numbers import INVALID, plural
from benchhouse.warehouse.grouping import grouped

_KINDS = 3
INVALID_HINT = "A figure is INVALID where it can be off by more than is taken; why: bench report, under Warnings"


def invalid_rows(trials: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows of trial_fact with numbers that are excluded from all summaries."""
    return [row for row in trials if row["outcome"] == "invalid"]


def missing_number_reason(outcomes: Iterable[str]) -> str:
    """Return why a point has no number, by the outcomes of its trials."""
    ended = set(outcomes)
    if "succeeded" in ended:
        return "not measured"
    return INVALID if ended == {"invalid"} else "INVALID or failed" if "invalid" in ended else "failed"


def retried(trials: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a note if some trials (rows of trial_fact) are not first attempts: such a number may be a lucky one."""
    later = [row for row in trials if row["attempt"] > 1]
    if not later:
        return []
    failed = plural(sum(row["attempt"] - 1 for row in later), "attempt")
    return [f"{plural(len(later), 'trial')} ended at a later attempt, after {failed} that failed and are kept aside."]


def reasons(failures: Iterable[tuple[str, str]]) -> str:
    """Return codes and messages in one line: each code once, with the message of its first trial and the number of
    trials.
    """
    kinds = grouped(failures, itemgetter(0))
    shown = [
        f"{code}: {own[0][1]}" + (f" ({plural(len(own), 'trial')})" if len(own) > 1 else "")
        for code, own in list(kinds.items())[:_KINDS]
    ]
    more = len(kinds) - len(shown)
    return "; ".join([*shown, f"and {plural(more, 'more reason')}"] if more else shown)


def caveats(name: str, tried: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes on trials that failed, were refused, or have warnings: a mean over the rest looks too good."""
    invalid = invalid_rows(tried)
    failed = sum(row["outcome"] != "succeeded" for row in tried) - len(invalid)
    notes = []
    if failed:
        notes.append(f"{failed} of {len(tried)} trials of {name} did not succeed and are not in these numbers.")
    if invalid:
        why = reasons((row["failure_code"] or "", row["failure_message"] or "") for row in invalid)
        notes.append(f"{len(invalid)} of {len(tried)} trials of {name} are INVALID and refused: {why}")
    warned = [row["warnings"] for row in tried if row["outcome"] == "succeeded" and row["warnings"]]
    if warned:
        by_code = ({line.partition(": ")[0]: line.partition(": ")[2] for line in lines} for lines in warned)
        why = reasons(warning for of_trial in by_code for warning in of_trial.items())
        notes.append(f"{len(warned)} of {len(tried)} trials of {name} carry warnings: {why}")
    return notes
