"""Playbooks: from symptoms and signals of a point to its most likely cause, or none. Pure; one file and one entry each.

A diagnosis needs a number that got significantly worse and a signal that moved far outside its repetitions' spread.
"""

from collections.abc import Callable

from benchhouse.analysis.playbooks import first_token, idle_gpu, pending, straggler, tail
from benchhouse.analysis.playbooks.values import ComparedPoint, PointDiagnosis

PLAYBOOKS: dict[str, Callable[[ComparedPoint], PointDiagnosis | None]] = {
    straggler.NAME: straggler.diagnose,
    idle_gpu.NAME: idle_gpu.diagnose,
    tail.NAME: tail.diagnose,
    pending.NAME: pending.diagnose,
    first_token.NAME: first_token.diagnose,
}

_ORDER = ("strong", "moderate", "weak")


def diagnose(case: ComparedPoint) -> list[PointDiagnosis]:
    """Return the diagnoses of the playbooks, the most certain first; empty if there is no evidence.

    Among those with more than weak certainty, one that names the node, rank, or device comes first: it explains the
    others.
    """
    named = [diagnosis for ask in PLAYBOOKS.values() if (diagnosis := ask(case))]
    return sorted(named, key=lambda item: (item.certainty == "weak", not item.suspect, _ORDER.index(item.certainty)))
