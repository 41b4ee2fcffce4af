"""TOML is read with exact places, and its mistakes are told with theirs."""

import tomllib
from pathlib import Path

import pytest
from tables import check_table

from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.toml_reader import load_toml, parse_toml

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "benchmark-ai").glob("*.toml"))
CROOKED = '''# every form that TOML has
a.b."c d" = 'lit # no comment'
"quoted key" = """one
two "quotes" inside"""  # comment
lists = [1, [2, "]"], # here
  { x = 1, y.z = [true] }, 3.5]
when = 1979-05-27 07:32:00Z
day = 1979-05-27
[table.below]
\tkey=1
[table]
other = \'\'\'
raw\\\'\'\'
[[many]]
n = 1
[many.inner]
v = "a\\"b"
[[many]]
n = 2
[[many.deep]]
k = "last"
'''


def leaves(value, loc=()):
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*loc, key))
    else:
        yield loc, value


@check_table("text", [CROOKED, CROOKED.replace("\n", "\r\n"), *(path.read_text() for path in EXAMPLES)])
def test_at_the_place_of_each_value_stands_that_value(text):
    document = parse_toml(text, "d.toml")
    spots = {loc: document._spot(loc, False) for loc, _ in leaves(document.data)}
    assert len(spots) > 5
    for loc, value in leaves(document.data):
        spot = spots[loc]
        (read,) = tomllib.loads(f"x = {text[spot.start : spot.end]}").values()
        assert (
            read if isinstance(value, str | int | float) and not hasattr(read, "year") else read.isoformat()
        ) == value
        if isinstance(loc[-1], str):
            line, _ = document.position(loc, key=True)
            assert loc[-1] in document.line(line)


@pytest.mark.parametrize(
    ("text", "place", "phrase"),
    [
        ("a = 1\nb = 2\n  a = 3\n", "3:3", "'a' is given twice, first in line 1"),
        ("[t]\nx = 1\n[t]\n", "3:2", "'t' is given twice, first in line 1"),
        ("[t]\nx = 1\nx.y = 2\n", "3:7", "cannot"),
        ("a = {b = 1, b = 2}", "1:13", "'b' is given twice"),
        ("[[t]]\n[t]\n", "2:2", "'t' is given twice"),
        ("a = 1\na = '''\nlong\n'''\n", "2:1", "twice"),
        ("a = [1, 2", "1:10", "not valid TOML: unclosed array"),
        ("a = yes\n", "1:5", "not valid TOML: invalid value"),
        ("a\n", "1:2", "not valid TOML"),
        ("a = " + "[" * 3000, "1:1", "nested deeper"),
        ("a = " + "[" * 80 + "]" * 80, "1:1", "nested deeper"),
    ],
)
def test_a_mistake_is_reported_at_its_place(text, place, phrase):
    with pytest.raises(ProblemsError) as caught:
        parse_toml(text, "d.toml")
    (problem,) = caught.value.problems
    assert problem.place == f"d.toml:{place}" and phrase in problem.message


def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"a = '\xff'")
    with pytest.raises(ProblemsError, match="a TOML file in UTF-8"):
        load_toml(path)
    with pytest.raises(ProblemsError, match="too large"):
        parse_toml("#" * (2**20 + 1), "x.toml")
