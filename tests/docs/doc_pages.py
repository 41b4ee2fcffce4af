"""The documentation as data: its pages, fenced blocks and links."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The lines after a prompt."""
        return [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]

    @property
    def file(self) -> str | None:
        """The name that the first line gives, as a comment."""
        found = re.match(r"# (\S+\.yaml)$", self.text.splitlines()[0])
        return found[1] if found else None


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
