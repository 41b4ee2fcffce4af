"""What `make mutants` changes, and what it leaves alone."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

SOURCE = '''"""Doc."""

LIMIT: "int" = 3
Row = dict[str, int]
_T = TypeVar("_T", bound=int)
PAIRS = list(zip(LIMIT, strict=True))


@cache("x")
def keep(value: float, name="a") -> "str":
    """A docstring."""
    if value in LIMIT:
        raise ValueError(f"{value} is too much", 2)
    os.fsync(value)
    return "two words" + name.lower()
'''
CHANGED = {
    'LIMIT: "int" = 3': ['LIMIT: "int" = None', 'LIMIT: "int" = 4'],
    "PAIRS = list(zip(LIMIT, strict=True))": [
        "PAIRS = None",
        "PAIRS = list(None)",
        "PAIRS = list(zip(None, strict=True))",
        "PAIRS = list(zip(strict=True))",
    ],
    'def keep(value: float, name="a") -> "str":': ['def keep(value: float, name="XXaXX") -> "str":'],
    "if value in LIMIT:": ["if not (value in LIMIT):", "if value not in LIMIT:"],
    'raise ValueError(f"{value} is too much", 2)': ['raise ValueError(f"{value} is too much", 3)'],
    "os.fsync(value)": ["pass", "os.fsync(None)"],
    'return "two words" + name.lower()': ['return "two words" - name.lower()', 'return "two words" + name.upper()'],
}


@pytest.fixture
def mutations(tmp_path):
    from mutations import mutations_of

    (tmp_path / "source.py").write_text(SOURCE)
    return mutations_of(tmp_path / "source.py", "source.py")


def test_code_is_changed_and_texts_annotations_and_decorators_are_not(mutations):
    found = {line: [one.after for one in mutations if one.before == line] for line in CHANGED}
    assert found == CHANGED
    assert len(mutations) == sum(map(len, CHANGED.values()))


def test_a_change_changes_its_lines_alone(mutations):
    for one in mutations:
        changed = one.apply(SOURCE.encode()).decode()
        compile(changed, "source.py", "exec")
        lines = [pair for pair in zip(SOURCE.splitlines(), changed.splitlines(), strict=True) if pair[0] != pair[1]]
        assert [tuple(" ".join(line.split()) for line in pair) for pair in lines] == [(one.before, one.after)]


def test_the_share_that_is_killed_comes_with_its_interval():
    from mutants import KILLED, SURVIVED, Score

    score = Score()
    score.outcomes.update({KILLED: 360, SURVIVED: 40})
    assert (score.tried, score.share) == (400, 0.9)
    assert score.interval() == pytest.approx((0.8667, 0.9257), abs=1e-4)
