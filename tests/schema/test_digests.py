"""Canonical JSON: equal values, equal bytes."""

import hashlib
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import check_table

from benchhouse.schema.digests import canonical_json, digest, file_digest

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value):
    """The same value with its mappings written in another order."""
    if isinstance(value, dict):
        keys = list(value)
        random.Random(1).shuffle(keys)
        return {key: shuffled(value[key]) for key in keys}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=40)
@given(PLAIN)
def test_the_order_of_keys_does_not_matter_and_the_value_can_be_read_back(value):
    try:
        encoded = canonical_json(value)
    except UnicodeEncodeError:  # lone surrogates have no bytes; YAML refuses them
        return
    assert canonical_json(shuffled(value)) == encoded
    assert json.loads(encoded) == value


@check_table("one, other", [(1, 1.0), ([1.0], (1,)), ({"a": 2.0}, {"a": 2}), (-0.0, 0), (1e16, 10**16)])
def test_equal_numbers_have_one_digest(one, other):
    assert digest(one) == digest(other)


@check_table("one, other", [(1, True), (0, False), (1, "1"), (None, ""), ([], {}), (0.1, 0.2), ([1, 2], [2, 1])])
def test_different_values_have_different_digests(one, other):
    assert digest(one) != digest(other)


@check_table("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_values_that_are_not_numbers_have_no_digest(value):
    with pytest.raises(ValueError, match="JSON compliant"):
        digest(value)


def test_the_bytes_are_what_the_docstring_says():
    assert canonical_json({"b": [1.0, "ü"], "a": None}) == '{"a":null,"b":[1,"ü"]}'.encode()
    assert digest({}) == hashlib.sha256(b"{}").hexdigest()


def test_a_file_is_digested_by_its_bytes(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert file_digest(tmp_path / "x") == hashlib.sha256(b"abc").hexdigest()
