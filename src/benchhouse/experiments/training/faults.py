"""Find out why an attempt of a training ended early, and at which rank, from how ranks ended and what they printed.

A rank that waits for another one fails too, often first and with its own message: it is a witness and is never named.
"""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchhouse.experiments.training.launch import RankProcess
from benchhouse.experiments.training.stacks import ABORTED, Frame, odd_one, read_stack
from benchhouse.experiments.training.symptoms import symptom_of

Kind = Literal["killed", "failed", "memory", "disk", "left", "hung", "hung_at_exit", "node", "timeout", "unknown"]
CODES: Mapping[Kind, str] = {
    "killed": "rank_killed",
    "failed": "rank_failed",
    "memory": "out_of_memory",
    "disk": "disk_full",
    "left": "rank_left",
    "hung": "rank_hung",
    "hung_at_exit": "hung_at_exit",
    "node": "node_lost",
    "timeout": "timeout",
    "unknown": "training_interrupted",
}
"""The code that a trial fails with."""
_TOLD = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_SEARCHED, _SHOWN_LINES, _SHOWN = 40, 3, 200  # last lines of a rank; those in a message, and their first characters


@dataclass(frozen=True)
class Fault:
    """What went wrong and at which rank; the candidates if the evidence does not show which."""

    kind: Kind
    ranks: Sequence[int]
    certain: bool
    """If false, `ranks` are candidates."""
    message: str
    moment_s: float | None = None
    """When a rank ended; None for one that hangs."""

    @property
    def rank(self) -> int | None:
        """The rank that is named; None if there are several, or only candidates."""
        return self.ranks[0] if self.certain and len(self.ranks) == 1 else None


@dataclass(frozen=True)
class FaultEvidence:
    """Evidence about an attempt that failed."""

    ranks: Sequence[RankProcess]
    last_steps: Mapping[int, int]
    """The last step that each rank recorded in this attempt."""
    timed_out: bool = False


def diagnose(evidence: FaultEvidence) -> Fault:
    """Name the rank that failed on its own, otherwise one that left, otherwise the one that the others waited for."""
    causes = {rank.number: kind for rank in evidence.ranks if (kind := _cause_of_rank(rank))}
    own = [rank for rank in evidence.ranks if rank.number in causes]
    # After a rank failed, its launcher ended the others.
    if own := [rank for rank in own if _signal(rank) not in _TOLD] or own:
        return _failed(own, causes, evidence)
    return _left(evidence) or _at_exit(evidence) or _hung(evidence)


def _cause_of_rank(rank: RankProcess) -> Kind | None:
    """Return None for a rank that did not fail and for a witness."""
    if not rank.failed:
        return None
    ended_by = _signal(rank)
    if ended_by not in (None, signal.SIGABRT):
        return "memory" if ended_by == signal.SIGKILL and rank.facts.get("oom_kills") else "killed"
    symptom = symptom_of(_last_words(rank))
    if symptom == "late" or symptom == "gone":
        return None
    return symptom or "failed"


def _failed(own: Sequence[RankProcess], causes: Mapping[int, Kind], evidence: FaultEvidence) -> Fault:
    ranks = sorted(own, key=lambda rank: rank.ended_s or 0.0)
    first, kind = ranks[0], causes[ranks[0].number]
    of_node = [rank for rank in evidence.ranks if rank.node == first.node]
    several = len({rank.node for rank in evidence.ranks}) > 1
    if several and all("exit_code" not in rank.facts and not rank.told_to_end for rank in of_node):
        message = f"node {first.node} was lost{_after(of_node, evidence)} with {_names(of_node)}"
        return Fault("node", [rank.number for rank in of_node], True, message + _last_lines(first))
    alike = [rank for rank in ranks if causes[rank.number] == kind]
    if 1 < len(evidence.ranks) == len(alike):
        message = f"all {len(alike)} ranks {_how(first, kind)}{_after(alike, evidence)}"
        return Fault(kind, [rank.number for rank in alike], True, message + _last_lines(first), first.ended_s)
    others = f" ({_names(ranks[1:])} too)" if ranks[1:] else ""
    message = f"{_name(first)} {_how(first, kind)}{_after([first], evidence)}{others}"
    return Fault(kind, [first.number], True, message + _last_lines(first), first.ended_s)


def _left(evidence: FaultEvidence) -> Fault | None:
    """Name ranks that exited with code 0 while others needed them: the others complain, wait, or did more steps."""
    left, rest = _ended_well(evidence)
    stacks = [stack for rank in rest if (stack := read_stack(_text(rank)))]
    if not left or not rest or any(not stack[0].waits_for_ranks for stack in stacks):
        return None
    steps = [evidence.last_steps.get(rank.number, -1) for rank in left]
    further = [step for rank in rest if (step := evidence.last_steps.get(rank.number, -1)) > max(steps)]
    if not further and not stacks and not any(rank.failed for rank in rest):
        return None
    message = f"{_names(left)} ended with exit code 0{_after(left, evidence)} while the others went on"
    ended_s = min((rank.ended_s for rank in left if rank.ended_s is not None), default=None)
    return Fault("left", [rank.number for rank in left], True, message + _last_lines(left[0]), ended_s)


def _at_exit(evidence: FaultEvidence) -> Fault | None:
    """Name the ranks that did all steps but did not end, while others exited with code 0."""
    left, rest = _ended_well(evidence)
    if not left or not rest or len({evidence.last_steps.get(rank.number) for rank in evidence.ranks}) > 1:
        return None
    where = "; ".join(f"{_name(rank)}{_where(read_stack(_text(rank)))}" for rank in rest)
    message = f"{where} did not end after the last step, as {_names(left)} did"
    return Fault("hung_at_exit", [rank.number for rank in rest], True, message + _last_lines(rest[0]))


def _ended_well(evidence: FaultEvidence) -> tuple[list[RankProcess], list[RankProcess]]:
    """Return the ranks that exited with code 0, and the others."""
    well = [rank for rank in evidence.ranks if rank.exit_code == 0]
    return well, [rank for rank in evidence.ranks if rank.exit_code != 0]


def _hung(evidence: FaultEvidence) -> Fault:
    """Name the rank that the others wait for: it does not wait itself, or it is behind, and it does not complain."""
    suspects = [rank for rank in evidence.ranks if rank.exit_code != 0 and not _complains(rank)]
    stacks = {rank.number: stack for rank in suspects if (stack := read_stack(_text(rank)))}
    witnesses = [rank for rank in evidence.ranks if _complains(rank)]
    if evidence.timed_out and not any("asked_s" in rank.facts for rank in evidence.ranks):
        message = f"the ranks were ended by workload.timeout{_after(evidence.ranks, evidence)}"
        return Fault("timeout", [], False, message)  # they still recorded steps
    named, why = _suspect(suspects, stacks, evidence)
    if named is not None:
        over = "workload.timeout is over: " if evidence.timed_out else ""
        message = f"{over}{_name(named)} hung{_after([named], evidence)}{_where(stacks.get(named.number, ()))}{why}"
        return Fault("hung", [named.number], True, message + _last_lines(named))
    places = "; ".join(f"rank {number}{_where(stack)}" for number, stack in stacks.items())
    message = f"{_names(witnesses)} waited in vain" if witnesses else "the ranks told no steps any more"
    message += f"{_after(evidence.ranks, evidence)}, and it can't be told for which rank"
    if evidence.timed_out and not witnesses:
        message = f"the ranks were ended by workload.timeout{_after(evidence.ranks, evidence)}"
    kind: Kind = "timeout" if evidence.timed_out else "hung" if suspects else "unknown"
    message += f"{why}{f' ({places})' if places else ''}{_last_lines(witnesses[0]) if witnesses else ''}"
    return Fault(kind, [rank.number for rank in suspects or evidence.ranks], False, message)


def _complains(rank: RankProcess) -> bool:
    """Return whether it is a witness: it failed, possibly just as it was made to print its stacks."""
    return rank.failed or (not read_stack(_text(rank)) and symptom_of(_last_words(rank)) in ("late", "gone"))


def _suspect(
    suspects: Sequence[RankProcess], stacks: Mapping[int, Sequence[Frame]], evidence: FaultEvidence
) -> tuple[RankProcess | None, str]:
    """Return the rank that hangs and the evidence for it, or None and whatever evidence there is."""
    if len(suspects) == 1:
        return suspects[0], ", as the only one that does not complain" if len(evidence.ranks) > 1 else ""
    stopped = [rank for rank in suspects if rank.facts.get("state") in ("T", "t")]
    if len(stopped) == 1:
        return stopped[0], ": its process was stopped (SIGSTOP)"
    steps = {rank.number: evidence.last_steps[rank.number] for rank in suspects if rank.number in evidence.last_steps}
    most = max(steps.values(), default=0)
    behind = [rank for rank in suspects if steps.get(rank.number, most) < most]
    busy = [rank for rank in suspects if (stack := stacks.get(rank.number)) and not stack[0].waits_for_ranks]
    if len(stacks) == len(suspects) and len(busy) == 1 and behind in ([], busy):
        return busy[0], " while the others waited for it in a collective operation"
    if len(behind) == 1 and busy in ([], behind):
        return behind[0], f", behind the others, which had done step {most}"
    odd = odd_one(stacks)
    return None, f"; only rank {odd} is elsewhere than all the others" if odd is not None else ""


def _text(rank: RankProcess) -> list[str]:
    return [line for _, line in rank.lines]


def _last_words(rank: RankProcess) -> list[str]:
    """Return the end of its log, without the stacks that it was made to print."""
    lines = _text(rank)
    if asked := [at for at, line in enumerate(lines) if line.startswith(ABORTED)]:
        lines = lines[: asked[-1]]
    return lines[-_SEARCHED:]


def _last_lines(rank: RankProcess) -> str:
    lines = [line.strip()[:_SHOWN] for line in _last_words(rank)[-_SHOWN_LINES:]]
    return f": {' / '.join(lines) or 'it printed nothing'}"


def _signal(rank: RankProcess) -> signal.Signals | None:
    """Return the signal that ended it; a shell or a container reports it as 128 plus its number."""
    code = rank.exit_code or 0
    number = -code if code < 0 else code - 128
    return signal.Signals(number) if number in set(signal.Signals) else None


def _how(rank: RankProcess, kind: Kind) -> str:
    ended_by = _signal(rank)
    code = f"signal {ended_by.value} ({ended_by.name})" if ended_by else f"exit code {rank.exit_code}"
    if kind == "memory":
        return f"ran out of memory ({code})"
    if kind == "disk":
        return f"found no space left on its disk ({code})"
    return f"was ended by {code}" if ended_by else f"ended with {code}"


def _name(rank: RankProcess) -> str:
    device = rank.facts.get("device")
    place = [f"node {rank.node}"] * bool(rank.node) + [f"device {device}"] * (device is not None)
    return f"rank {rank.number} ({', '.join(place)})" if place else f"rank {rank.number}"


def _names(ranks: Sequence[RankProcess]) -> str:
    if len(ranks) == 1:
        return _name(ranks[0])
    *most, last = (str(rank.number) for rank in ranks)
    return f"ranks {', '.join(most)} and {last}"


def _after(ranks: Sequence[RankProcess], evidence: FaultEvidence) -> str:
    steps = [step for rank in ranks if (step := evidence.last_steps.get(rank.number)) is not None]
    return f" after step {max(steps)}" if steps else " before the first step"


def _where(stack: Sequence[Frame]) -> str:
    """Describe the innermost call, and the innermost one of the program's own code."""
    if not stack:
        return ""
    own = next((frame for frame in stack if "/lib/python" not in frame.file), stack[0])
    return f" in {own}" if own == stack[0] else f" in {stack[0]}, called by {own}"
