"""The result of a gate as a comment in a pull request.

The gate's JSON may come from a job that ran untrusted code: no text in it becomes Markdown, a command, or a link here.
"""

from itertools import accumulate
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from benchhouse.report.markdown_text import block, code, folded, plain, table
from benchhouse.report.text_chart import ChangeBar, change_chart
from benchhouse.results.numbers import percent
from benchhouse.schema.quoting import visible

_MOST_ROWS = 30
_MOST_NAMES = 8
_MOST_LENGTH = 12_000  # characters of each table and list: GitHub accepts 65,536 characters in all
Text = Annotated[str, Field(max_length=500)]
Run = Annotated[str, Field(pattern=r"^[A-Za-z0-9@][A-Za-z0-9._:=,@-]{0,300}$")]
Judgement = Literal["regression", "good", "can't tell", "no baseline"]


class _Read(BaseModel):
    """The part of the JSON that is read; the rest is ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class GateCommentRow(_Read):
    point: Text
    metric: Text
    stat: Text
    n_a: int
    n_b: int
    judgement: Judgement
    worse: float | None
    low: float | None
    high: float | None
    visible: float | None


class GateCommentAnswer(_Read):
    """The result of `bench gate --json`."""

    judgement: Judgement
    base: Run = "none"
    new: Run = "@last"
    mde: float = 0.03
    rows: list[GateCommentRow] = Field([], max_length=10_000)
    missing: list[Text] = Field([], max_length=10_000)
    repetitions_needed: int | None = None
    selftest: Text = ""
    message: Text = ""

    @property
    def headline(self) -> str:
        worse = sum(row.judgement == "regression" for row in self.rows)
        return {
            "regression": f"A regression: {worse} of {len(self.rows)} numbers are worse",
            "good": f"Not worse by {self.mde:.3g} of any number",
            "can't tell": "These repetitions can't tell",
            "no baseline": "No run to compare with yet",
        }[self.judgement].replace(f"{self.mde:.3g} of", f"{self.mde:.2%} in")

    @property
    def conclusion(self) -> Literal["success", "failure", "neutral"]:
        """The conclusion of the check run."""
        if self.judgement == "regression":
            return "failure"
        return "success" if self.judgement == "good" else "neutral"


def gate_markdown(gate: GateCommentAnswer, name: str, evidence: str, *, foreign: bool) -> str:
    """Return the comment. `evidence` is the address of the page with the evidence; `foreign` means that the measuring
    job ran code of a fork."""
    parts = [f"### {plain(name)}: {gate.headline}"]
    if foreign:
        parts.append(
            "Measured by a job that ran the code of a fork: whoever wrote that code could write these numbers."
        )
    if gate.message:
        parts.append(plain(gate.message))
    rows = sorted(gate.rows, key=lambda row: (row.judgement != "regression", row.judgement == "good"))
    if rows:
        lines = [_cells(row) for row in rows]
        first = _with_room(lines[:_MOST_ROWS])
        parts.append(_table(lines[:first]))
        if others := lines[first:]:
            shown = _with_room(others)
            left_out = f", of which the first {shown:,} are shown" if shown < len(others) else ""
            parts.append(folded(f"{len(others):,} more{left_out}", _table(others[:shown])))
        parts += _chart(rows[:first], gate.mde)
    if gate.missing:
        names = [plain(name) for name in gate.missing[:_MOST_NAMES]]
        names = names[: _with_room([[name] for name in names])]
        parts.append(f"Not judged: {'; '.join(names)}{' ...' if len(gate.missing) > len(names) else ''}.")
    if gate.judgement == "can't tell" and gate.repetitions_needed:
        parts.append(f"To see a worsening of {gate.mde:.2%} 4 times in 5: `repetitions: {gate.repetitions_needed}`.")
    if gate.selftest:
        parts.append(plain(gate.selftest))
    if gate.rows:
        worst = rows[0]
        commands = [f"bench gate {gate.base}..{gate.new} --mde {gate.mde * 100:g}%",
                    f"bench trace '{gate.new.partition(':')[0]}:{worst.metric}.{worst.stat}'",
                    f"bench verify {gate.new.partition(':')[0]}"]  # fmt: skip
        parts.append(folded("How to look again, in a workspace with this evidence", block("\n".join(commands))))
    if evidence:
        parts.append(
            f"[Evidence, and the chart as a picture]({evidence}); base {code(gate.base)}, new {code(gate.new)}."
        )
    return visible("\n\n".join(parts) + "\n")


def _with_room(lines: list[list[str]]) -> int:
    """Return how many of the first lines fit together, at least one; the evidence has all of them."""
    lengths = accumulate(sum(map(len, cells)) + 3 * len(cells) for cells in lines)
    return max(1, sum(length <= _MOST_LENGTH for length in lengths))


def _chart(rows: list[GateCommentRow], limit: float) -> list[str]:
    bars = [
        ChangeBar(f"{row.point} {row.metric}.{row.stat}", row.worse, row.low, row.high)
        for row in rows
        if row.worse is not None
    ]
    if not bars:
        return []
    key = f"worse than the base by, with the interval; the second line is the {limit:.2%} that is looked for"
    return [folded(f"Chart: {key}", block(change_chart(bars, limit)))]


def _cells(row: GateCommentRow) -> list[str]:
    can_see = percent(row.visible) if row.visible is not None else ""
    name = f"{row.metric}.{row.stat}"
    return [plain(row.point), plain(name), _worse(row), can_see, f"{row.n_a}, {row.n_b}", plain(row.judgement)]


def _table(lines: list[list[str]]) -> str:
    return table(["point", "metric", "worse by (interval)", "can see", "n", "judgement"], lines, range(2, 5))


def _worse(row: GateCommentRow) -> str:
    if row.worse is None:
        return ""
    interval = f" ({percent(row.low)} to {percent(row.high)})" if row.low is not None and row.high is not None else ""
    return f"{percent(row.worse)}{interval}"
