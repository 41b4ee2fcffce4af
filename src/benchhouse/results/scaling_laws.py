"""Laws fitted to a scaling curve, as values and words: the serial share, and where more units stop paying."""

import math
from collections.abc import Sequence

from benchhouse.analysis import scaling, scaling_laws
from benchhouse.analysis.scaling_laws import PAYS, Fitted, Law, LawName
from benchhouse.results.curves import CurveStage, FittedNumber, ScalingLaw
from benchhouse.results.numbers import SEED, number, percent
from benchhouse.schema.scenario import ScalingKind

NAMES = {"amdahl": "Amdahl's law", "gustafson": "Gustafson's law", "usl": "the universal scalability law"}
_STEPS = 32  # of a line to draw
_ROUNDING = 1e-6  # for a share: values that follow the law exactly may be this far below zero
_LARGEST_MISFIT = 0.1  # a law with a larger misfit anywhere is not used


def fit_laws(stages: Sequence[scaling.ScalingStage], kind: ScalingKind | None, confidence: float) -> list[ScalingLaw]:
    """Fit Amdahl's law, or Gustafson's if work grows, and USL; empty for too few stages."""
    wanted: tuple[LawName, LawName] = ("gustafson" if kind == "weak" else "amdahl", "usl")
    laws = [scaling_laws.fit(name, stages, seed=SEED, confidence=confidence) for name in wanted]
    places = [stage.place for stage in stages]
    return [_shown(law, min(places), max(places)) for law in laws if law]


def _shown(law: Law, first: float, last: float) -> ScalingLaw:
    parameters = {name: _limited(fitted) for name, fitted in law.parameters.items()}
    steps = [first + (last - first) * at / _STEPS for at in range(_STEPS + 1)]
    return ScalingLaw(
        law=law.name,
        rate=law.rate,
        parameters=parameters,
        misfit=law.misfit,
        fits=law.misfit <= _LARGEST_MISFIT
        and all(fitted.interval is None or fitted.interval.hi > -_ROUNDING for fitted in law.parameters.values()),
        pays_to=_number(law.pays_to),
        peak=_number(law.peak) if law.peak else None,
        line=[(place, law.throughput(place)) for place in steps],
    )


def _number(fitted: Fitted) -> FittedNumber:
    low, high = fitted.interval or (None, None)
    return FittedNumber(value=_finite(fitted.value), low=_finite(low), high=_finite(high))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _limited(fitted: Fitted) -> FittedNumber:
    """Limit a fitted share to zero or more. A negative one is noise: it is only known to be small."""
    number = _number(fitted)
    return FittedNumber(**{name: None if end is None else max(0.0, end) for name, end in number.model_dump().items()})


def speaking(laws: Sequence[ScalingLaw]) -> ScalingLaw | None:
    """Return the law for the text: USL if throughput significantly falls again, otherwise the simplest that fits; None
    if none fits.
    """
    usable = [law for law in laws if law.fits]
    falls = [law for law in usable if law.law == "usl" and (law.parameters["kappa"].low or 0.0) > 0.0]
    return next(iter(falls or usable), None)


def law_sentence(law: ScalingLaw, confidence: float) -> str:
    """Return `Amdahl's law: 5.2% of the work is serial (95% interval 4.1% to 6.3%); no mean is more than 1.3%
    off it.`
    """
    words = {"s": "of the work is serial", "sigma": "contention", "kappa": "coherence"}
    parts = [
        f"{_text(own.value, own, '%')} {words[name]}{_ends(own, confidence, '%')}"
        for name, own in law.parameters.items()
    ]
    name = NAMES[law.law]
    off = f"no mean is more than {percent(law.misfit, signed=False)} off it"
    if law.misfit > _LARGEST_MISFIT:
        off = f"a mean is {percent(law.misfit, signed=False)} off it, so it is no guide here"
    elif not law.fits:
        off = "more units do more than their share, which the law does not know"
    return f"{name[0].upper()}{name[1:]}: {', '.join(parts)}; {off}."


def pays_sentence(laws: Sequence[ScalingLaw], axis: str, stages: Sequence[CurveStage], confidence: float) -> str:
    """Return where more units stop paying, by the law that fits, otherwise by the measured `stages`, which are in
    order.
    """
    share, last = f"{PAYS * 100:g}%", number(stages[-1].place)
    law = speaking(laws)
    if law is None:
        at = next(
            (at for at, stage in enumerate(stages) if stage.efficiency is not None and stage.efficiency < PAYS), 0
        )
        if at:
            where = f"between {axis} {number(stages[at - 1].place)} and {number(stages[at].place)}"
            return f"It stops paying {where}, where efficiency is {percent(stages[at].efficiency, signed=False)}."
        return f"It pays up to {axis} {last}, the highest measured: efficiency is {share} or more." if laws else ""
    own = law.pays_to
    if own.value is None:
        return f"By {NAMES[law.law]} it never stops paying: efficiency stays above {share}."
    beyond = f"; that is beyond {last}, the highest measured" if own.value > stages[-1].place else ""
    place = f"{axis} {_text(own.value, own)}{_ends(own, confidence)}"
    return f"It stops paying at about {place}, where efficiency falls below {share}{beyond}."


def _text(value: float | None, own: FittedNumber, unit: str = "") -> str:
    """Format a value with the digits that the interval leaves meaningful."""
    factor = 100.0 if unit else 1.0
    wide = own.high - own.low if own.high is not None and own.low is not None else (own.low or own.value or 0.0) / 10
    return number(None if value is None else value * factor, wide * 5 * factor or None) + unit


def _ends(own: FittedNumber, confidence: float, unit: str = "") -> str:
    if own.low is None:
        return " (spread over trials unknown)"
    sure = f"{confidence * 100:g}% interval"
    low = _text(own.low, own, unit)
    return f" ({sure} from {low} on)" if own.high is None else f" ({sure} {low} to {_text(own.high, own, unit)})"
