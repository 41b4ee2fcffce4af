"""JSON from strangers, and for them."""

import json
import math

import pytest

from benchhouse.schema.json_text import finite, read_json


def test_json_that_is_nested_too_deep_is_an_ordinary_mistake():
    with pytest.raises(ValueError, match="nested too deep"):
        read_json("[" * 200_000)
    assert read_json(b'{"a": [1]}') == {"a": [1]}


def test_what_json_has_no_word_for_is_null():
    value = {"a": [math.nan, (math.inf, 1.5)], "b": {"c": -math.inf}, "d": "nan"}
    assert json.loads(json.dumps(finite(value), allow_nan=False)) == {
        "a": [None, [None, 1.5]],
        "b": {"c": None},
        "d": "nan",
    }
