"""Models made of a JSON Schema take, refuse and give what the described ones do."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, FilePath, SecretStr, ValidationError

from benchhouse.catalog.input_schemas import model_of, schema_of
from benchhouse.catalog.listing import list_experiments
from benchhouse.plan.input_checks import normal
from benchhouse.schema.input_paths import InputPath, has_paths
from benchhouse.schema.quantities import Bytes, Seconds

EXAMPLES = [
    ("serving.load", "workload", {"rps": [1.5], "duration": "1m30s", "prompts": {"kind": "file", "file": "a.jsonl"}}),
    ("serving.load", "workload", {"rps": 4, "duration": 3, "prompts": {"prompt_tokens": {"kind": "normal"}}}),
    ("serving.load", "target", {"url": "http://localhost:1", "model": "m"}),
    ("serving.load", "workload", {"concurrency": 0}),
    ("storage.file", "workload", {"size": "1MiB", "pattern": "nonsense"}),
    ("storage.s3", "workload", {"concurrency": 2, "requests": 10, "size": "10kB", "operation": "put"}),
    ("vector.search", "workload", {"concurrency": 2, "vectors": 100, "data": {"kind": "synthetic", "dimensions": 8}}),
    ("vector.search", "workload", {"concurrency": 2, "data": {"kind": "synthetc"}}),
    ("vector.search", "target", {"driver": "faiss", "index": {"kind": "hnsw", "m": 8}}),
    ("command", "workload", {"unknown": 1}),
]


def meaning(model, data):
    """What a model makes of its input: its normal form, or which keys of it are refused."""
    try:
        return normal(model, data, Path(__file__).parent)
    except ValidationError as error:
        return {item["loc"][0] for item in error.errors()}


@pytest.mark.parametrize(("name", "part", "data"), EXAMPLES)
def test_our_own_experiments_mean_the_same_by_their_schemas(name, part, data, tmp_path_factory):
    listed = list_experiments(tmp_path_factory.getbasetemp() / "cache")
    code = next(item for item in listed if item.name == name).code()
    model = code.workload_model if part == "workload" else code.target_model
    made = model_of(schema_of(model), "Made")
    assert meaning(made, data) == meaning(model, data)
    assert has_paths(made) == has_paths(model)


class Flat(BaseModel):
    kind: Literal["flat"] = "flat"
    m: int = Field(4, ge=1, multiple_of=2)


class Tree(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["tree"]
    children: "list[Tree]" = []


class Everything(BaseModel):
    model_config = ConfigDict(extra="forbid")
    index: Annotated[Flat | Tree, Field(discriminator="kind")] = Flat(m=2)
    made: list[Flat] = Field(default_factory=lambda: [Flat(m=6)])
    file: FilePath = Path("nowhere")
    notes: InputPath = ""
    wait: Seconds | None = None
    size: Bytes = 1000
    password: SecretStr = SecretStr("")
    pair: tuple[int, str] = (1, "a")
    by_name: dict[str, float] = {}
    odd: int = Field(3, alias="top-k")
    share: float = Field(0.5, gt=0, lt=1)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"index": {"kind": "tree", "children": [{"kind": "tree"}]}, "wait": "2m", "size": "4KiB", "top-k": 5},
        {"index": {"kind": "bush"}},
        {"index": {"kind": "flat", "m": 3}},
        {"file": "test_input_schemas.py", "notes": "../a.txt", "pair": [2, "b"], "by_name": {"x": 1}},
        {"file": "gone"},
        {"share": 1, "size": "many", "extra": 1, "wait": "soon"},
        {"odd": 1},
    ],
)
def test_types_defaults_and_bounds_survive(data):
    assert meaning(model_of(schema_of(Everything), "Everything"), data) == meaning(Everything, data)


def test_defaults_that_a_factory_makes_are_described():
    assert model_of(None, "None") is None
    assert schema_of(Everything)["properties"]["made"]["default"] == [{"kind": "flat", "m": 6}]
