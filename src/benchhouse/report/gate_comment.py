"""What a gate said, as a comment of a pull request.

The gate's JSON may come from a job that ran a stranger's code: nothing in it is Markdown, a command or an address here.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from benchhouse.report.markdown_text import block, code, folded, plain, table
from benchhouse.report.text_chart import ChangeBar, change_chart
from benchhouse.results.numbers import percent
from benchhouse.schema.quoting import visible

_MOST_ROWS = 30
_MOST_FOLDED = 30_000  # of the table of all others
_MOST = 60_000  # GitHub takes 65,536 characters
_MOST_NAMES = 8
Text = Annotated[str, Field(max_length=500)]
Run = Annotated[str, Field(pattern=r"^[A-Za-z0-9@][A-Za-z0-9._:=,@-]{0,300}$")]
Judgement = Literal["regression", "good", "can't tell", "no baseline"]


class _Read(BaseModel):
    """What is read of the JSON; the rest is left alone."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class GateRow(_Read):
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


class GateAnswer(_Read):
    """`bench gate --json`."""

    judgement: Judgement
    base: Run = "none"
    new: Run = "@last"
    mde: float = 0.03
    rows: list[GateRow] = Field([], max_length=10_000)
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
        """Of a check run."""
        if self.judgement == "regression":
            return "failure"
        return "success" if self.judgement == "good" else "neutral"


def gate_markdown(gate: GateAnswer, name: str, evidence: str, *, foreign: bool) -> str:
    """`evidence`: address of the page with the evidence; `foreign`: a fork's own code ran in the job that measured."""
    parts = [f"### {plain(name)}: {gate.headline}"]
    if foreign:
        parts.append(
            "Measured by a job that ran the code of a fork: whoever wrote that code could write these numbers."
        )
    if gate.message:
        parts.append(plain(gate.message))
    rows = sorted(gate.rows, key=lambda row: (row.judgement != "regression", row.judgement == "good"))
    if rows:
        parts.append(_table(rows[:_MOST_ROWS]))
        if len(rows) > _MOST_ROWS:
            parts.append(_others(rows[_MOST_ROWS:]))
        parts += _chart(rows, gate.mde)
    if gate.missing:
        shown = "; ".join(map(plain, gate.missing[:_MOST_NAMES]))
        parts.append(f"Not judged: {shown}{' ...' if len(gate.missing) > _MOST_NAMES else ''}.")
    if gate.judgement == "can't tell" and gate.repetitions_needed:
        parts.append(f"To see a worsening of {gate.mde:.2%} 4 times in 5: `repetitions: {gate.repetitions_needed}`.")
    if gate.selftest:
        parts.append(plain(gate.selftest))
    if gate.rows:
        first = rows[0]
        commands = [f"bench gate {gate.base}..{gate.new} --mde {gate.mde * 100:g}%",
                    f"bench trace '{gate.new.partition(':')[0]}:{first.metric}.{first.stat}'",
                    f"bench verify {gate.new.partition(':')[0]}"]  # fmt: skip
        parts.append(folded("How to look again, in a workspace with this evidence", block("\n".join(commands))))
    if evidence:
        parts.append(
            f"[Evidence, and the chart as a picture]({evidence}); base {code(gate.base)}, new {code(gate.new)}."
        )
    return visible("\n\n".join(parts) + "\n")[:_MOST]


def _others(rows: list[GateRow]) -> str:
    """As many as have room; all of them are in the evidence."""
    each = len(_table(rows)) // len(rows) + 1
    shown = rows[: max(1, _MOST_FOLDED // each)]
    left_out = f", of which the first {len(shown):,} are shown" if len(shown) < len(rows) else ""
    return folded(f"{len(rows):,} more{left_out}", _table(shown))


def _chart(rows: list[GateRow], limit: float) -> list[str]:
    bars = [
        ChangeBar(f"{row.point} {row.metric}.{row.stat}", row.worse, row.low, row.high)
        for row in rows[:_MOST_ROWS]
        if row.worse is not None
    ]
    if not bars:
        return []
    key = f"worse than the base by, with the interval; the second line is the {limit:.2%} that is looked for"
    return [folded(f"Chart: {key}", block(change_chart(bars, limit)))]


def _table(rows: list[GateRow]) -> str:
    lines = [
        [plain(row.point), plain(f"{row.metric}.{row.stat}"), _worse(row),
         percent(row.visible) if row.visible is not None else "", f"{row.n_a}, {row.n_b}", plain(row.judgement)]
        for row in rows
    ]  # fmt: skip
    return table(["point", "metric", "worse by (interval)", "can see", "n", "judgement"], lines, range(2, 5))


def _worse(row: GateRow) -> str:
    if row.worse is None:
        return ""
    interval = f" ({percent(row.low)} to {percent(row.high)})" if row.low is not None and row.high is not None else ""
    return f"{percent(row.worse)}{interval}"
