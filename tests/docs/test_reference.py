"""Generated pages are up to date, and no page points to what is not there."""

import re
import subprocess
import sys
import tomllib

from doc_pages import DOCS, ROOT, pages
from tables import check_table

sys.path.insert(0, str(ROOT / "scripts"))

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_generated_pages_are_up_to_date():
    command = [sys.executable, str(ROOT / "scripts" / "make_reference.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_part_of_the_python_api_is_described():
    import python_reference

    assert python_reference.undocumented() == []


def test_the_python_reference_has_every_verb_and_what_it_returns():
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    for heading in (
        "### `ws.compare`",
        "### `ws.servers.start`",
        "### `run.wait`",
        "### PointValue",
        "### RunKeywords",
    ):
        assert f"{heading}\n" in text


@check_table("page", pages())
def test_links_lead_somewhere(page):
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://", "#")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve()
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{page.name}: {link}"


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [
        str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if str(page.relative_to(DOCS)) not in navigation
    ]
    assert missing == []


def test_requirements_name_tests_that_exist():
    text = (DOCS / "requirements.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tests|benchmarks|examples)/[\w./-]+)`", text))
    assert named
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_requirements_name_short_what_stands_beside_the_test_named_before():
    """`tests/cli/test_why.py`, `test_run.py`: both in tests/cli."""
    strays = []
    for line in (DOCS / "requirements.md").read_text(encoding="utf-8").splitlines():
        folder = ROOT
        for before, name in re.findall(r"`(tests/[\w/]+/)?(test_\w+\.py)`", line):
            folder = ROOT / before if before else folder
            strays += [] if (folder / name).exists() else [f"{before}{name}"]
    assert strays == []


def test_the_rooms_are_listed_in_their_order():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (item["layers"] for item in settings["tool"]["importlinter"]["contracts"] if item["type"] == "layers")
    text = (DOCS / "design" / "rooms.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == [set(layer.split(" | ")) for layer in layers]
    tree = (DOCS / "design" / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)) == sorted(" | ".join(layers).split(" | "))
