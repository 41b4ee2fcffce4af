"""`@record` makes what `@dataclass(frozen=True)` makes, for whoever uses it."""

import dataclasses
from functools import cached_property
from typing import Any

import pytest

from benchhouse.schema.record import record


def made_by(decorate: Any) -> Any:
    @decorate
    class Made:
        """Fields of every kind."""

        name: str
        secret: str = dataclasses.field(repr=False)
        size: int = 0
        found: list[int] = dataclasses.field(default_factory=list)
        kept: list[int] = dataclasses.field(default_factory=list, compare=False, repr=False)

        @cached_property
        def doubled(self) -> int:
            return 2 * self.size

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("a size is not negative")

    return Made


@pytest.mark.parametrize("cls", [made_by(record), made_by(dataclasses.dataclass(frozen=True))])
def test_they_behave_alike(cls):
    one = cls("a", "hidden", size=2)
    assert repr(one) == "made_by.<locals>.Made(name='a', size=2, found=[])"
    assert one == cls("a", "hidden", 2, [], [1]), "what is not compared makes no difference"
    assert one != cls("b", "hidden", 2) and one != ("a", "hidden", 2, [])
    assert one.found is not cls("b", "").found
    assert one.doubled == 4 and one.doubled == 4
    assert dataclasses.replace(one, size=3).size == 3
    assert dataclasses.asdict(one) == {"name": "a", "secret": "hidden", "size": 2, "found": [], "kept": []}
    assert [field.name for field in dataclasses.fields(cls)] == ["name", "secret", "size", "found", "kept"]
    for change in (lambda: setattr(one, "size", 3), lambda: delattr(one, "size")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    wrong = [
        lambda: cls("a"),
        lambda: cls("a", "", 1, [], [], 6),
        lambda: cls("a", "", name="b"),
        lambda: cls("a", "", q=1),
    ]
    for make in wrong:
        with pytest.raises(TypeError):
            make()
    with pytest.raises(ValueError, match="not negative"):
        cls("a", "", -1)


def test_equal_ones_are_one_in_a_set():
    @record
    class Place:
        line: int
        column: int = 0

    assert {Place(1), Place(1, 0), Place(1, 2)} == {Place(1), Place(1, 2)}
    match Place(3, 4):
        case Place(line, column):
            assert (line, column) == (3, 4)
