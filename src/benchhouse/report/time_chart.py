"""A chart over the time of one trial, drawn as SVG: lines from zero, with the trial's phases behind them."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from benchhouse.report.tags import tag
from benchhouse.results.machine import Panel
from benchhouse.results.numbers import number
from benchhouse.schema.telemetry import STEADY, TEARDOWN, WARMUP, WHOLE, Phase

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 460, 200, 52, 10, 22, 36
_LETTER = 6.2  # average width of a letter
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_SHADES = (WARMUP, STEADY, TEARDOWN)
_PHASES = {WARMUP: "warm-up", WHOLE: "whole trial"}


def nice_step(reach: float, most: int) -> float:
    """Return the smallest step of 1, 2, or 5 times a power of ten that divides the reach into at most `most` parts."""
    power = 10.0 ** math.floor(math.log10(reach / most))
    return next(base * power for base in (1, 2, 5, 10, 20) if reach / (base * power) <= most)


def scaled(unit: str, greatest: float) -> tuple[float, str]:
    """Return the divisor and the resulting unit: bytes by their size, a share in percent."""
    if unit == "1":
        return 0.01, "%"
    if unit != "B":
        return 1.0, unit
    power = min(len(_BYTES) - 1, int(math.log2(greatest) // 10)) if greatest >= 1 else 0
    return 1024.0**power, _BYTES[power]


def phase_words(name: str) -> str:
    return _PHASES.get(name, name)


def time_chart(panel: Panel, phases: Sequence[Phase], duration_s: float, colours: Mapping[str, str]) -> Markup:
    """Return the chart; `colours` are by the label of a line."""
    greatest = max(max(line.values) for line in panel.lines)
    factor, unit = scaled(panel.unit, greatest)
    most = max(0.0, greatest / factor) or 1.0
    step = nice_step(most, 4)
    top = step * math.ceil(most / step - 1e-9)
    last_s = max(duration_s, *(line.times_s[-1] for line in panel.lines))
    seconds, clock = (3600.0, "h") if last_s >= 14_400 else (60.0, "min") if last_s >= 600 else (1.0, "s")

    def x(second: float) -> float:
        return _LEFT + second / last_s * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP)

    drawn = [
        part for phase in phases if phase.name != WHOLE for part in _shade(phase, x(phase.begin_s), x(phase.end_s))
    ]
    for at in range(round(top / step) + 1):
        level = f"{y(at * step):.1f}"
        drawn += [
            tag("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=level, y2=level),
            tag("text", number(at * step), x=_LEFT - 7, y=f"{y(at * step) + 4:.1f}", text_anchor="end"),
        ]
    every = nice_step(last_s / seconds, 8)
    for at in range(int(last_s / seconds / every) + 1):
        place = f"{x(at * every * seconds):.1f}"
        drawn.append(tag("text", number(at * every), x=place, y=_HEIGHT - _BOTTOM + 17, text_anchor="middle"))
    middle = (_LEFT + _WIDTH - _RIGHT) // 2
    drawn += [
        tag("text", f"{clock} since the trial's start", x=middle, y=_HEIGHT - 4, text_anchor="middle"),
        tag("text", unit, x=0, y=0, transform=f"translate(10 {(_HEIGHT - _BOTTOM + _TOP) // 2}) rotate(-90)",
            text_anchor="middle"),
    ]  # fmt: skip
    for line in panel.lines:
        places = [
            f"{x(time):.1f} {y(value / factor):.1f}" for time, value in zip(line.times_s, line.values, strict=True)
        ]
        path = "M" + "L".join(places) + ("h0" if len(places) == 1 else "")
        drawn.append(tag("path", tag("title", line.label), d=path, class_="over-time", stroke=colours[line.label]))
    label = f"{panel.title} ({unit}) over {number(last_s)} s: {', '.join(line.label for line in panel.lines)}"
    return tag("svg", *drawn, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=label)


def _shade(phase: Phase, begin: float, end: float) -> list[Markup]:
    """Return a band, with its name above it if there is room."""
    name = phase_words(phase.name)
    shade = f"phase {phase.name if phase.name in _SHADES else 'other'}"
    size: dict[str, str | int] = {
        "x": f"{begin:.1f}",
        "width": f"{end - begin:.1f}",
        "y": _TOP,
        "height": _HEIGHT - _BOTTOM - _TOP,
    }
    parts = [tag("rect", tag("title", name), class_=shade, **size)]
    if end - begin >= len(name) * _LETTER:
        parts.append(tag("text", name, x=f"{(begin + end) / 2:.1f}", y=_TOP - 6, text_anchor="middle"))
    return parts
