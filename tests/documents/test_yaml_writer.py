"""What is written is read back as the same data."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tables import check_table

from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.documents.yaml_writer import dump_yaml

TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Co", "Cn"], exclude_characters="\ufeff"), max_size=30
)
LEAVES = (
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
DATA = st.dictionaries(
    TEXT,
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)),
    max_size=4,
)


@settings(max_examples=20)
@given(DATA)
def test_any_data_survives(data):
    assert parse_yaml(dump_yaml(data), "x").data == data


@check_table(
    "text",
    [
        "1",
        "1.0",
        "true",
        "null",
        "~",
        "",
        "yes",
        "0x1F",
        "1e3",
        ".inf",
        "2024-01-01",
        "1:30",
        "- a",
        "a: b",
        "#",
        "*a",
        "line\nbreak",
        " space ",
    ],
)
def test_text_that_looks_like_another_type_remains_text(text):
    read = parse_yaml(dump_yaml({"key": text, text or "empty": 1}), "x").data
    assert read["key"] == text
    assert isinstance(read["key"], str)


def test_the_order_of_keys_is_kept_and_no_alias_is_written():
    shared = [1, 2]
    written = dump_yaml({"b": shared, "a": shared})
    assert written.index("b:") < written.index("a:")
    assert "&" not in written and "*" not in written
