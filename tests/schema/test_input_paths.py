"""Which inputs are paths, and what becomes of relative ones."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, FilePath

from benchhouse.schema.input_paths import InputPath, has_paths, hint_at, rebase_paths, resolve_paths, restore_paths


class Table(BaseModel):
    kind: Literal["table"] = "table"
    path: str = "a name"


class Stored(BaseModel):
    kind: Literal["file"] = "file"
    path: InputPath = ""


class Inputs(BaseModel):
    name: str = ""
    model: FilePath | None = None
    folder: Path = Path(".")
    text: InputPath = ""
    several: list[Path] = []
    named: dict[str, Path] = {}
    data: Annotated[Table | Stored, Field(discriminator="kind")] = Table()


class Plain(BaseModel):
    name: str = ""
    inner: Table = Table()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"name": "x"}, {"name": "x"}),
        ({"model": "x.bin"}, {"model": "/home/x.bin"}),
        ({"folder": "../data"}, {"folder": "/data"}),
        ({"text": "./x"}, {"text": "/home/x"}),
        ({"text": ""}, {"text": ""}),
        ({"text": "/x"}, {"text": "/x"}),
        ({"several": ["a", "/b"]}, {"several": ["/home/a", "/b"]}),
        ({"named": {"a": "b"}}, {"named": {"a": "/home/b"}}),
        ({"data": {"kind": "file", "path": "x"}}, {"data": {"kind": "file", "path": "/home/x"}}),
        ({"data": {"kind": "table", "path": "x"}}, {"data": {"kind": "table", "path": "x"}}),
        ({"data": {"path": "x"}}, {"data": {"path": "/home/x"}}),
    ],
)
def test_relative_paths_start_in_the_folder_and_can_be_written_back(given, expected):
    resolved, written = resolve_paths(Inputs, given, Path("/home"))
    assert resolved == expected
    assert resolve_paths(Inputs, restore_paths(resolved, written), Path("/home"))[0] == expected


def test_a_home_folder_stays_as_it_was_written(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    resolved, written = resolve_paths(Inputs, {"text": "~/x"}, Path("/ws"))
    assert resolved == {"text": "/home/me/x"}
    assert restore_paths(resolved, written) == {"text": "~/x"}


def test_models_without_paths_are_known():
    assert has_paths(Inputs)
    assert not has_paths(Plain)


def test_what_a_benchmark_elsewhere_says_is_written_as_the_scenario_would():
    source, folder = Path("/ws/benchmarks"), Path("/ws/scenarios")
    assert rebase_paths(hint_at(Inputs, ("text",)), "x.npy", source, folder) == "../benchmarks/x.npy"
    assert rebase_paths(hint_at(Inputs, ("data", "path")), "x.npy", source, folder) == "../benchmarks/x.npy"
    assert rebase_paths(hint_at(Inputs, ("name",)), "x.npy", source, folder) == "x.npy"
    assert rebase_paths(hint_at(Inputs, ("data",)), {"path": "x"}, source, folder) == {"path": "../benchmarks/x"}
