"""Values of the API as data for JSON, whatever they hold."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from benchhouse.api.rows import Rows, plain


class Model(BaseModel):
    name: str


@dataclass(frozen=True)
class Value:
    models: list[Model]
    counts: Mapping[str, int]
    nested: "Value | None" = None


def test_models_counts_and_values_within_values_become_lists_and_dicts():
    inner = Value([Model(name="a")], Counter(["failed", "failed"]))
    document = {"models": [{"name": "a"}], "counts": {"failed": 2}, "nested": None}
    assert plain(Value([], {}, inner)) == {"models": [], "counts": {}, "nested": document}
    assert plain(Rows([inner])) == [document]
    assert plain({"first": (inner,), "text": "t"}) == {"first": [document], "text": "t"}
