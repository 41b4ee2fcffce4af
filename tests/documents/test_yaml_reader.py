"""YAML is read with exact places, without surprises, and never with a traceback."""

import json
import subprocess
import sys
import time

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import check_table

from benchhouse.documents.document import Document
from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.yaml_reader import MAX_DEPTH, load_yaml, parse_yaml
from benchhouse.schema.errors import BenchError


def problems_of(text: str) -> list[str]:
    with pytest.raises(ProblemsError) as caught:
        parse_yaml(text, "s.yaml")
    return [problem.render() for problem in caught.value.problems]


def read(text: str) -> Document:
    return parse_yaml(text, "s.yaml")


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@check_table(
    "text, place, phrases",
    [
        ("", "1:1", ["the file is empty", "expected: a mapping"]),
        (" \n\n", "1:1", ["the file is empty"]),
        ("# note\n", "1:1", ["only comments"]),
        ("---\n", "1:4", ["the file is empty"]),
        ("- a\n- b\n", "1:1", ["top level of the file is a list", "expected: a mapping"]),
        ("\njust words\n", "2:1", ["top level of the file is the text 'just words'"]),
        ("a: 1\nb: 2\na: 3\n", "3:1", ["duplicate key 'a', first on line 1"]),
        ("x: {ä: 1, ö: 2, ä: 3}\n", "1:17", ["duplicate key 'ä', first on line 1"]),
        ("a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a\n", "4:3", ["duplicate key '<<', first on line 3"]),
        ("a: 1\n7: x\n", "2:1", ["the key 7 is read as a number", 'quotes: "7"']),
        ("a:\n  true: x\n", "2:3", ["the key true is read as a boolean", 'quotes: "true"']),
        ("null: x\n", "1:1", ["the key null is read as null"]),
        ("a: {{ name }}\n", "1:5", ["a mapping is used as a key", '"{{ name }}"']),
        ("? [a, b]\n: 1\n", "1:3", ["a list is used as a key"]),
        ("a: !!python/object/apply:os.system [ls]\n", "1:4", ["the tag !!python/object/apply:os.system"]),
        ("a: !secret x\n", "1:4", ["the tag !secret is not allowed"]),
        ("a: !!binary aGk=\n", "1:4", ["the tag !!binary is not allowed"]),
        ("a: !!int x\n", "1:4", ["'x' does not fit its tag !!int"]),
        ("a: 1\n---\nb: 2\n", "2:1", ["a second YAML document begins here"]),
        ("a: &a [1, *a]\n", "1:11", ["alias *a stands inside its own anchor"]),
        ("base: &base 1\nb: *bas\n", "2:4", ["unknown alias *bas", "did you mean 'base'"]),
        ("b:\n  <<: 3\n", "2:7", ["'<<' can't merge this"]),
        ("a: .inf\n", "1:4", [".inf is not a finite number"]),
        ("a: [1, -.Inf]\n", "1:8", ["not a finite number"]),
        ("a: .nan\n", "1:4", [".nan is not a finite number"]),
        ("a: 1e999\n", "1:4", ["1e999 is too large"]),
        ("a: " + "9" * 5000, "1:4", ["a whole number of 5,000 digits"]),
        ("a: 0x" + "f" * 5000, "1:4", ["a whole number of 5,002 digits"]),
        ("a:\n\tb: 1\n", "2:1", ["a tab is used for indentation", "spaces"]),
        ("a:\n  b: 1\n  \tc: 1\n", "3:3", ["a tab is used for indentation"]),
        ("a: b: c\n", "1:5", ["mapping values are not allowed", "needs quotes"]),
        ("a: [1, 2\nb: 3\n", "1:4", ["the [ opened here is not closed", "by line 2"]),
        ('a: 1\nb: "x\n', "2:4", ['the " opened here is not closed']),
        ("a: @home\n", "1:4", ["cannot start any token", "quotes around"]),
        ("a:\n  - 1\n  b: 2\n", "3:3", ["did not find expected '-'"]),
        ('a: "\\d"\n', "1:5", ["unknown escape character", "single quotes"]),
        ("a\nb: 1\n", "2:2", ["mapping values are not allowed"]),
        ("a: x\0y\n", "1:5", ["NUL character at byte offset 4", "binary"]),
        ("a: é\x1b[1m\n", "1:5", ["control character U+001B at byte offset 5"]),
        ("a: 1\n\ufeffb: 2\n", "2:1", ["byte order mark (U+FEFF) at byte offset 5"]),
        ("a: \ud800\n", "1:4", ["control character U+D800"]),
        ("x: " + "[" * 70, f"1:{MAX_DEPTH + 3}", ["nested deeper than 64 levels"]),
        (f"a: &a {'[' * 40}{']' * 40}\nb: {'[' * 40}*a{']' * 40}\n", "2:44", ["alias *a nests deeper"]),
        (bomb(9), "5:45", ["aliases expand to more than 100,000 values"]),
    ],
)
def test_bad_yaml_is_refused_at_its_place(text, place, phrases):
    (shown,) = problems_of(text)
    assert shown.startswith(f"s.yaml:{place}: ")
    for phrase in phrases:
        assert phrase in shown


def test_all_problems_come_at_once():
    shown = problems_of("a: 1\na: 2\n3: x\nb: .nan\nc: !x y\nd: *no\ne: [1\n")
    assert [problem.splitlines()[0].split(":")[1] for problem in shown] == ["2", "3", "4", "5", "6", "7"]


def test_thousands_of_problems_stop_at_a_hundred():
    assert len(problems_of("? \n" * 5000)) == 100


@check_table(
    "written, value",
    [
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("014", "014"),
        ("007.5", "007.5"),
        ("0o14", 12),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("0", 0),
        ("-5", -5),
        ("+5", 5),
        ("yes", "yes"),
        ("No", "No"),
        ("on", "on"),
        ("OFF", "OFF"),
        ("true", True),
        ("FALSE", False),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00Z"),
        ("1e3", 1000.0),
        ("1.5E-3", 0.0015),
        (".5", 0.5),
        ("1.", 1.0),
        (".", "."),
        ("=", "="),
        ("~", None),
        ("", None),
        ("Null", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ('".inf"', ".inf"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ('!!int "12"', 12),
        ("!!float 3", 3.0),
        ("1" * 200, int("1" * 200)),
    ],
)
def test_scalars_have_the_types_of_yaml_1_2(written, value):
    found = read(f"a: {written}\n").data["a"]
    assert found == value
    assert type(found) is type(value)


def test_words_that_yaml_1_1_takes_for_booleans_are_fine_as_keys():
    assert read("on: 1\nyes: 2\nn: 3\n").data == {"on": 1, "yes": 2, "n": 3}


def test_anchors_aliases_and_merge_keys_work():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc:\n  <<: [*a, {x: 9, z: 9}]\nd: [*a, *a]\n'<<': q\n"
    data = read(text).data
    assert data["b"] == {"x": 1, "y": 3}
    assert data["c"] == {"x": 1, "y": 2, "z": 9}
    assert data["d"] == [{"x": 1, "y": 2}] * 2
    assert data["<<"] == "q"


def test_changing_what_came_through_one_alias_changes_no_other():
    data = read("a: &a {x: [1]}\nb: *a\nc: {<<: *a}\n").data
    data["b"]["x"].append(2)
    data["c"]["x"].append(3)
    assert data["a"] == {"x": [1]}


def test_sixty_four_levels_and_many_small_aliases_are_fine():
    read("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))
    assert len(read("a: &a 1\nb: [" + "*a, " * 50_000 + "]").data["b"]) == 50_000


PLACES = "é😀:\n  日本: {ü: 1, 'k k': [a, {z: 2}]}\nempty:\nmore: &m\n  one: 1\nalso: {<<: *m}\n"


@check_table("encode", [str, lambda t: t.replace("\n", "\r\n"), lambda t: t.replace("\n", "\r"), "\ufeff{}".format])
@check_table(
    "loc, key, value",
    [
        ((), (1, 1), (1, 1)),
        (("é😀",), (1, 1), (2, 3)),
        (("é😀", "日本"), (2, 3), (2, 7)),
        (("é😀", "日本", "ü"), (2, 8), (2, 11)),
        (("é😀", "日本", "k k", 1, "z"), (2, 26), (2, 29)),
        (("empty",), (3, 1), (3, 7)),
        (("also", "one"), (5, 3), (5, 8)),
        (("é😀", "nope", "deeper"), (1, 1), (2, 3)),
        (("é😀", "日本", "k k", 7), (2, 14), (2, 21)),
    ],
)
def test_places_of_keys_and_values_are_exact(encode, loc, key, value):
    document = read(encode(PLACES))
    assert document.position(loc, key=True) == key
    assert document.position(loc) == value


def test_lines_are_counted_as_editors_count_them():
    document = read("a: 'x\u2028y'\nb: 2\n")
    assert document.position(("b",)) == (2, 4)
    assert document.line(2) == "b: 2"
    assert document.line(0) == document.line(3) == ""


def test_a_documents_problem_marks_the_key_or_the_value():
    document = read("load:\n  rate: fast  # really\n")
    problem = document.problem(("load", "rate"), "m", expected="e", suggestion="s", key=True)
    assert (problem.line, problem.column, problem.width) == (2, 3, 4)
    problem = document.problem(("load", "rate"), "m")
    assert (problem.line, problem.column, problem.width) == (2, 9, 4)
    assert document.value(("load", "rate")) == "fast"
    assert document.value(("load", "rate", "x")) is None


@check_table(
    "raw, phrases",
    [
        (b"a: caf\xe9\n", ["f.yaml:1:7: byte 0xe9 at offset 6 is not UTF-8"]),
        (b"\xef\xbb\xbfa: 1\r\n\xc3\xa4: \xff\n", ["f.yaml:2:4: byte 0xff at offset 13"]),
        (b"\x7fELF\0\0\xff\xfe", ["looks like a binary file"]),
        (b"\xef\xbb\xbfa: \0", ["f.yaml:1:4: NUL character at byte offset 6"]),
        ("a: 1\n".encode("utf-16"), ["UTF-16", "expected: UTF-8"]),
        (b"a" * (5 * 2**20), ["f.yaml: the file is 5.0 MiB", "at most 4 MiB"]),
    ],
)
def test_files_that_are_not_text_are_refused(tmp_path, raw, phrases):
    (tmp_path / "f.yaml").write_bytes(raw)
    with pytest.raises(ProblemsError) as caught:
        load_yaml(tmp_path / "f.yaml")
    for phrase in phrases:
        assert phrase in str(caught.value)


def test_a_good_file_is_read_and_keeps_its_name(tmp_path):
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: [x]\r\n")
    document = load_yaml(path)
    assert document.data == {"a": 1, "b": ["x"]}
    assert document.path == str(path)
    assert document.text.startswith("a: 1")


def test_files_that_cannot_be_read_say_what_to_do(tmp_path):
    (tmp_path / "scenario.yaml").write_text("a: 1")
    with pytest.raises(BenchError, match=r"no such file(.|\n)*Did you mean .*scenario\.yaml"):
        load_yaml(tmp_path / "scenaro.yaml")
    with pytest.raises(BenchError, match=r"no such file(.|\n)*does not exist either"):
        load_yaml(tmp_path / "nowhere" / "scenario.yaml")
    with pytest.raises(BenchError, match=r"is a directory(.|\n)*Name a file"):
        load_yaml(tmp_path)
    for name in ("a\0b", "x" * 5000, "scenario.yaml/x"):
        with pytest.raises(BenchError, match="can't be read"):
            load_yaml(tmp_path / name)


def test_an_unreadable_file_is_refused(tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):  # chmod does not stop a test that runs as root
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch, pytest.raises(BenchError, match=r"no permission to read(.|\n)*ls -l"):
        patch.setattr(type(tmp_path), "open", refuse)
        load_yaml(tmp_path / "f.yaml")


@check_table("nest", ["[", "{", "- ", "? ", "[[{", "a: [{"])
def test_a_quarter_megabyte_of_nesting_is_refused_quickly(nest):
    start = time.process_time()
    problems_of(nest * (2**18 // len(nest)))
    assert time.process_time() - start < 3


def test_ten_thousand_keys_are_read_quickly():
    text = "".join(f"key_{n}: {{text: 'some words for number {n}', n: {n}}}\n" for n in range(10_000))
    start = time.process_time()
    assert len(read(text).data) == 10_000
    assert time.process_time() - start < 5


def test_reading_yaml_does_not_import_pydantic():
    check = "import sys, benchhouse.documents.yaml_reader; assert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_the_parser_in_python_serves_where_the_fast_one_is_missing(monkeypatch):
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert read(PLACES).position(("also", "one")) == (5, 8)
    assert problems_of('a: "\\U99999999"\n')[0].startswith("s.yaml:1:")
    assert problems_of("a:\n\tb: 1\n")[0].startswith("s.yaml:2:1: a tab")


class _Quoting(yaml.SafeDumper):
    """Quotes all text, since plain PyYAML leaves `1e3` bare for a text."""


_Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=12)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
printable = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff"), max_size=20
)


def plain_data(text):
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
    nested = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20)
    return st.dictionaries(text, nested)


@unhurried
@given(plain_data(any_text), st.booleans())
def test_plain_data_survives_a_dump_as_yaml(data, flow):
    assert read(yaml.dump(data, Dumper=_Quoting, default_flow_style=flow, allow_unicode=True)).data == data


@unhurried
@given(plain_data(printable))
def test_json_is_yaml(data):
    assert read(json.dumps(data, ensure_ascii=False)).data == data


yaml_soup = st.lists(
    st.sampled_from(
        [*"ab:-?[]{},&*!|>'\"%@#<=~.\n\t 1", ": ", "- ", "<<: ", "\n  ", "&a ", "*a", "!!int ", "---\n", "\r\n"]
    )
)


@unhurried
@given(st.text() | yaml_soup.map("".join))
def test_any_text_is_read_or_refused_politely(text):
    try:
        document = read(text)
    except BenchError as error:
        assert str(error)
    else:
        assert isinstance(document.data, dict)


@unhurried
@given(st.binary())
def test_any_bytes_are_read_or_refused_politely(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(raw)
    try:
        load_yaml(path)
    except BenchError as error:
        assert str(error)
