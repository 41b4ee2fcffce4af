"""software_version_dim says what served, not only what asked."""

import json

import pytest
from trial_maker import make_trial

from benchhouse.evidence.folder import read_meta, read_spec
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.recipe import Recipe
from benchhouse.warehouse.dimensions import dimension_rows
from benchhouse.worker.server_versions import cached_version

IMAGE = "a" * 64


@pytest.mark.parametrize(
    ("custom", "spec", "version", "image"),
    [
        ({}, {}, None, None),
        ({"server_version": "0.9.1"}, {}, "0.9.1", None),
        ({"server": "PostgreSQL 17.2"}, {}, "PostgreSQL 17.2", None),
        ({"services": {"vllm": {"recipe": "vllm", "image": IMAGE}}}, {}, None, IMAGE),
        ({"services": {"vllm": {"image": IMAGE, "reference": "lab/vllm:1@sha256:b"}}}, {}, "lab/vllm:1", IMAGE),
        ({"services": {"pg": {"recipe": "postgres", "version": "17.2"}}}, {}, "17.2", None),
        ({}, {"artifacts": {"servers": {"server": f"lab/vllm:v0.9.1@sha256:{IMAGE}"}}}, "lab/vllm:v0.9.1", IMAGE),
        ({"services": {"a": {"version": "1"}, "b": {"version": "2"}}}, {}, None, None),  # which one is measured?
        ({"services": {"a": {"version": "1"}, "b": {"version": "2"}}}, {"target": {"url": "service:b"}}, "2", None),
        ({"services": "three of them"}, {}, None, None),
    ],
)  # fmt: skip
def test_version_and_image_of_the_server_that_is_measured(workspace, custom, spec, version, image):
    folder = TrialFolder(make_trial(workspace))
    asked, told = read_spec(folder).model_copy(update=spec), read_meta(folder).model_copy(update={"custom": custom})
    row = dimension_rows(asked, told)["software_version_dim"]
    assert (row["server_version"], row["server_image"]) == (version, image)
    unknown = json.loads(row["unknown"])
    assert ("server_version" in unknown, "server_image" in unknown) == (version is None, image is None)


def test_a_program_is_asked_for_its_version_once_and_again_when_it_changed(tmp_path):
    program, asked = tmp_path / "server", tmp_path / "asked"
    recipe = Recipe(
        name="server", program=(str(program),), command=("{program}",), endpoint="http://{host}:{port}",
        version_command=("{program}", "--version"), ports={"port": 0},
    )  # fmt: skip

    def install(version):
        program.write_text(f"#!/bin/sh\necho x >> {asked}\necho server {version}\n")
        program.chmod(0o755)

    assert cached_version(recipe, None, tmp_path / "cache") == ""  # it is not here
    install("1.2.3")
    assert [cached_version(recipe, None, tmp_path / "cache") for _ in range(3)] == ["1.2.3"] * 3
    assert asked.read_text().count("x") == 1
    install("1.3.0-rc1")
    assert cached_version(recipe, None, tmp_path / "cache") == "1.3.0-rc1"
