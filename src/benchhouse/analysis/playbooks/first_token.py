"""Playbook 5: the first token is later, and the following ones are as fast as before. It finds where the time is lost,
for which numbers suffice; other playbooks, which have series, find the cause.
"""

from benchhouse.analysis.playbooks.causes import symptom_sentence
from benchhouse.analysis.playbooks.values import ComparedNumber, ComparedPoint, PointDiagnosis

NAME = "late_first_token"
_FIRST, _OTHERS = "ttft", ("tpot", "itl")
_CENTRES = ("mean", "p50")
_LEAST_CHANGE = 0.2
# relative to the change of the first token: tokens that became slower by more are not as fast as before
_FLAT = 0.25
_SURE_P = 0.01


def diagnose(case: ComparedPoint) -> PointDiagnosis | None:
    late = [number for number in case.numbers if number.metric == _FIRST and _grown(number)]
    others = [number for number in case.numbers if number.metric in _OTHERS and number.stat in _CENTRES]
    if not late or not others:
        return None
    grown = min(number.change or 0.0 for number in late)
    if any((number.change or 0.0) > _FLAT * grown for number in others):
        return None
    least_sure = max(number.p_adjusted or 0.0 for number in late)
    flat = "; ".join(map(symptom_sentence, others))
    return PointDiagnosis(
        playbook=NAME,
        cause="slower_before_first_token",
        title="the server became slower before the first token",
        says="Requests wait longer for their first token and get the others as fast as before, so the time is lost "
        "before decoding begins: in the server's queue, in its work on the prompt, or on the way there. It is not the "
        "client's: what a late one can have added is in the bounds of these numbers.",
        certainty="moderate" if least_sure <= _SURE_P else "weak",
        why_so_sure=f"the tokens after the first are as fast as before ({flat}); no series tells what takes the time",
        side="service",
        point=case.point,
        symptoms=[symptom_sentence(number) for number in late],
        evidence=[],
        next=[
            "Halve the load: bench run {scenario}; if the first token is early again, requests queue.",
            "Halve the length of prompts; if it follows, it is the work on them: a prefix cache that no longer hits?",
            "Have the server's own metrics scraped (`monitors`): its queue and its cache are then in the evidence.",
        ],
        change="Look at what changed in how the server takes in requests: queue, batching of prompts, prefix cache.",
    )


def _grown(number: ComparedNumber) -> bool:
    return number.stat in _CENTRES and number.worse and (number.change or 0.0) >= _LEAST_CHANGE
