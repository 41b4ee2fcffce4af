"""Check the numbers of a document: each must cite a claim with the same value, or need no claim.

A number cites a claim directly after it: `12.3 ms [claim:4f1c2a90]`. It is correct if the claim's value, in the written
unit, is within half of the last written digit. `docs/how-to/publish-a-number.md` lists what is ignored.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from benchhouse.claims import claim_files
from benchhouse.documents.document import Document, Spot
from benchhouse.documents.problems import Problem
from benchhouse.results.numbers import MINUS, THIN
from benchhouse.schema.claim import Claim
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder

_LARGEST = 16 << 20
_SPACES = f" \u00a0\u202f{THIN}"
_NUMBER = rf"[-+{MINUS}]?(?:\d{{1,3}}(?:[,\u00a0\u202f{THIN}]\d{{3}})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?"
_UNIT = r"1/[A-Za-zµμ]+|%|‰|×|x\b|[A-Za-zµμ°][A-Za-zµμ°0-9]*(?:/[A-Za-zµμ]+)?|/[A-Za-zµμ]+"
_MEASURED = re.compile(rf"(?<![\w.:/#-])(?P<number>{_NUMBER})(?P<gap>[{_SPACES}]?)(?P<unit>{_UNIT})?(?![\d])")
_CITATION = re.compile(rf"[{_SPACES}]?\[claim:(?P<id>[^\]\s]{{0,80}})\]")
_REMARK = re.compile(r"<!--\s*no claim: *(?!-->)\S")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_NUMBERED = "version|python|chapter|section|table|figure|step|issue|RFC|ISO"
_LEFT_ALONE = (
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)", re.DOTALL),
    re.compile(r"\]\([^)\s]*\)|<https?://[^>]*>|https?://\S+|\[\^[^\]]*\]"),
    re.compile(r"\b\d{4}-\d{2}(?:-\d{2})?(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?Z?)?\b|\b\d{1,2}:\d{2}(?::\d{2})?\b"),
    re.compile(rf"\b(?:\d{{1,2}} )?(?:{_MONTHS})(?: \d{{1,2}},?)?(?: \d{{4}})?\b"),
    re.compile(rf"\bv\d+(?:\.\d+)*\S*|\b\d+\.\d+\.\d+\S*|\b(?:{_NUMBERED}) #?\d+(?:\.\d+)*", re.IGNORECASE),
)  # fmt: skip
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_LINES_ALONE = re.compile(
    r"\A---\n.*?^---$|^ {0,3}#{1,6} [^\n]*$|^(?:    |\t)[^\n]*$|^[^\n|]+\n(?:=+|-+)[ \t]*$|^\s*\d+[.)](?= )",
    re.DOTALL | re.MULTILINE,
)
_SCALES: dict[str, tuple[str, Decimal]] = {
    "s": ("s", Decimal(1)), "ms": ("s", Decimal("1e-3")), "us": ("s", Decimal("1e-6")), "µs": ("s", Decimal("1e-6")),
    "μs": ("s", Decimal("1e-6")), "ns": ("s", Decimal("1e-9")), "min": ("s", Decimal(60)), "h": ("s", Decimal(3600)),
    "B": ("B", Decimal(1)), "kB": ("B", Decimal(10**3)), "MB": ("B", Decimal(10**6)), "GB": ("B", Decimal(10**9)),
    "TB": ("B", Decimal(10**12)), "KiB": ("B", Decimal(2**10)), "MiB": ("B", Decimal(2**20)),
    "GiB": ("B", Decimal(2**30)), "bytes": ("B", Decimal(1)), "1": ("1", Decimal(1)), "": ("1", Decimal(1)),
    "%": ("1", Decimal("0.01")), "‰": ("1", Decimal("0.001")),
}  # fmt: skip
_UNITS = {*_SCALES, "x", "×", "qps", "rps", "tps", "Hz", "kHz", "MHz", "GHz", "W", "kW", "J", "kJ", "GFLOPS", "TFLOPS",
          "IOPS", "fps", "EUR", "USD", "°C"} - {"", "1"}  # fmt: skip


@dataclass
class Linted:
    """One document: its problems, and how many numbers were checked."""

    path: str
    problems: list[Problem] = field(default_factory=list)
    cited: int = 0
    ignored: int = 0


def lint_file(workspace: WorkspaceFolder, path: Path, holds: Callable[[str], list[str]], *, strict: bool) -> Linted:
    """Check a Markdown file; `holds` traces a claim and returns the steps that fail. Raise BenchError if the file can't
    be read.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise BenchError(f"{path} can't be read: {why}", "name a Markdown file") from error
    if len(raw) > _LARGEST:
        raise BenchError(f"{path} is larger than {_LARGEST >> 20} MiB", "name a Markdown file")
    document = Document(str(path), text, None, Spot(0, 0, {}))
    linted, seen = Linted(str(path)), set()
    # text without measured numbers is replaced by blanks, so that every other character keeps its position
    plain = text
    for pattern in (_FENCE, _LINES_ALONE, *_LEFT_ALONE):
        plain = pattern.sub(lambda blank: re.sub(r"[^\n]", " ", blank[0]), plain)
    for match in _MEASURED.finditer(plain):
        citation = _CITATION.match(text, match.end())
        if citation:
            seen.add(citation.start("id"))
            linted.cited += 1
            linted.problems += _check(workspace, document, match, citation, holds)
        elif _needs_none(text, match, strict=strict):
            linted.ignored += 1
        else:
            message = f"'{match[0].strip()}' cites no claim"
            expected = f"{match[0].strip()} [claim:ID], or on its line <!-- no claim: why -->"
            linted.problems.append(document.problem_at(match.start(), match.end(), message, expected))
    for citation in _CITATION.finditer(plain):
        if citation.start("id") not in seen:
            message = "a citation without a number before it"
            linted.problems.append(document.problem_at(citation.start(), citation.end(), message, "12.3 ms [claim:ID]"))
    linted.problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
    return linted


def _needs_none(text: str, match: re.Match[str], *, strict: bool) -> bool:
    start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    line = text[start : end if end >= 0 else len(text)]
    if _REMARK.search(line):
        return True
    bare = match["number"].lstrip("+-" + MINUS)
    # a word that is not a unit names what is counted, such as `3 servers`
    word = match["unit"] or ""
    whole = bare.isdigit() and not (word in _UNITS or "/" in word)
    return whole and (not strict or (len(bare) == 4 and 1900 <= int(bare) <= 2100))


# -- one citation


def _check(
    workspace: WorkspaceFolder,
    document: Document,
    number: re.Match[str],
    citation: re.Match[str],
    holds: Callable[[str], list[str]],
) -> Iterator[Problem]:
    token = citation["id"]
    at = citation.start("id"), max(citation.end("id"), citation.start("id") + 1)
    try:
        claim_id = claim_files.find(workspace, token)
        if claim_id is None:
            yield document.problem_at(*at, f"there is no claim '{token}' here", "the id that bench claim list shows")
            return
        claim = claim_files.read(workspace, claim_id)
    except BenchError as error:
        yield document.problem_at(*at, error.message)
        return
    if broken := holds(claim_id):
        yield document.problem_at(*at, f"claim {claim_id} does not hold any more: {', '.join(broken)}")
    start, end = document.text.rfind("\n\n", 0, at[0]), document.text.find("\n\n", at[0])
    paragraph = document.text[max(0, start) : end if end >= 0 else len(document.text)]
    if claim.label == "REALISM-GRADE" and not re.search(r"realism[- ]grade", paragraph, re.I):
        lacks = ", ".join(dict.fromkeys(reason.code for reason in claim.reasons))
        message = f"claim {claim_id} is REALISM-GRADE ({lacks}), and the paragraph does not say so"
        reasons = "; ".join(reason.message for reason in claim.reasons)
        expected = f"the words REALISM-GRADE in the same paragraph, or a claim without this: {reasons}"
        yield document.problem_at(*at, message, expected)
    yield from _compare(document, number, claim)


def _compare(document: Document, number: re.Match[str], claim: Claim) -> Iterator[Problem]:
    """Check that the number is the claim's value to the written digits; a change of -3% may be written as `3%
    lower`.
    """
    at = number.start("number"), number.end()
    unit = number["unit"] or ""
    written, place = _read(number["number"])
    scale = _scale(unit, claim.unit)
    stated = f"{claim.value!r} {claim.unit}".strip()
    if scale is None:
        message = f"'{number[0].strip()}' is in another unit than claim {claim.id}: {stated}"
        yield document.problem_at(*at, message, f"a number in {claim.unit or 'no unit'}")
        return
    value = Decimal(claim.value) / scale
    if claim.kind == "comparison" and number["number"][0].isdigit():
        value = abs(value)
    slack = place / 2 + abs(value) * Decimal("1e-12")
    if abs(written - value) > slack:
        rounded = value.quantize(place) if place >= Decimal("1e-15") else value
        message = f"'{number[0].strip()}' is not what claim {claim.id} says: {stated}"
        yield document.problem_at(*at, message, f"{rounded:f}{number['gap']}{unit}, to the digits written")


def _read(text: str) -> tuple[Decimal, Decimal]:
    """Return the number, and the value of one in its last written digit."""
    plain = re.sub(rf"[,\u00a0\u202f{THIN}]", "", text).replace(MINUS, "-")
    value = Decimal(plain)  # the pattern admits only numbers
    exponent = value.as_tuple().exponent
    return value, Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)


def _scale(written: str, claimed: str) -> Decimal | None:
    """Return the divisor that converts the claim's value to the written unit; None if the units are of
    different kinds.
    """
    rate = "qps" if claimed == "1/s" else claimed
    if written in (claimed, rate) or (claimed.startswith("1/") and written == claimed[1:]):
        return Decimal(1)
    shown, own = _SCALES.get(written), _SCALES.get(claimed)
    return shown[1] / own[1] if shown and own and shown[0] == own[0] else None
