"""`ws.sites`, `ws.images` and `ws.fetch` from Python."""

import hashlib

import pytest

from benchhouse.api.sites import profile_text
from benchhouse.api.workspace import Workspace
from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.schema.errors import BenchError
from benchhouse.schema.image import Image, ImageList
from benchhouse.schema.site import Site


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.delenv("WORK", raising=False)
    return Workspace(tmp_path)


def test_the_profile_in_use_is_marked_and_is_the_default(workspace):
    assert [item.site for item in workspace.sites.profiles() if item.used] == ["local"]
    (workspace.root / "site.yaml").write_text("site: mine\ndescription: Here.\n")
    assert [item.site for item in workspace.sites.profiles() if item.used] == ["(this workspace)"]
    assert workspace.sites.profile().site == "mine"
    shipped = workspace.sites.profile("meluxina")
    assert Site.model_validate(parse_yaml(profile_text(shipped), "copy.yaml").data) == shipped


def test_a_check_is_written_as_the_profile_of_the_workspace_and_never_over_one(workspace):
    path = workspace.root / "site.yaml"
    checked = workspace.sites.check(write=path)
    assert {"slurm", "apptainer"} <= {item.what for item in checked.findings}
    assert workspace.sites.profile() == checked.profile
    with pytest.raises(BenchError, match="exists already"):
        workspace.sites.check(write=path)


def pin(folder, name, content):
    (folder / name).write_bytes(content)
    return Image(
        source="docker://x", sha256=hashlib.sha256(content).hexdigest(), size=len(content), mtime=0, created="", by=""
    )


def test_images_of_a_site_are_listed_and_verified(workspace):
    folder = workspace.root / "images"
    folder.mkdir()
    record = ImageList(images={name: pin(folder, name, name.encode()) for name in ("bad.sif", "gone.sif", "good.sif")})
    (folder / "images.json").write_text(record.model_dump_json())
    (folder / "gone.sif").unlink()
    (folder / "bad.sif").write_bytes(b"other")
    (workspace.root / "far.yaml").write_text(f"site: far\nfolders: {{containers: {folder}}}\n")
    site = str(workspace.root / "far.yaml")
    assert workspace.images.pinned() == [], "the site in use has none"
    assert [item.state for item in workspace.images.pinned(site)] == ["recorded", "gone", "recorded"]
    verified = workspace.images.verify(site)
    assert [item.state for item in verified] == ["changed", "gone", "unchanged"]
    assert verified[0].to_dict()["path"] == str(folder / "bad.sif")


def test_what_is_no_image_is_not_pinned(workspace):
    (workspace.root / "text.sif").write_text("#!/bin/sh\n")
    with pytest.raises(BenchError, match="not an Apptainer image"):
        workspace.images.add(workspace.root / "text.sif")
    with pytest.raises(BenchError, match=r"no \.sif file"):
        workspace.images.add(workspace.root / "nowhere.sif")


@pytest.fixture
def table(tmp_path, packages):
    """An experiment that declares a file, and that file."""
    path = tmp_path / "numbers.txt"
    path.write_bytes(b"1 2 3\n")
    code = (
        "from benchhouse import Data, experiment\n"
        f"TABLE = Data(name='numbers', source={path.as_uri()!r}, "
        f"sha256={hashlib.sha256(path.read_bytes()).hexdigest()!r}, licence='CC0')\n"
        "@experiment('add', version='1', data=[TABLE])\ndef run(): ...\n"
    )
    packages.add("adding", "adding_a", code, "add = adding_a:run")
    return path


def test_declared_data_is_fetched_once(workspace, table):
    (listed,) = [item for item in workspace.fetchable() if item.name == "numbers"]
    assert (listed.experiment, listed.licence) == ("add", "CC0")
    first, again = workspace.fetch("numbers", "numbers")
    assert first.path.read_bytes() == b"1 2 3\n" and not again.brought
    assert workspace.fetch() == []
    with pytest.raises(BenchError, match="no installed experiment declares data 'nothing'"):
        workspace.fetch("nothing")


def test_all_that_a_scenario_needs_is_fetched(workspace, table):
    data, python = workspace.fetch_for({"scenario": "s", "experiment": "add"})
    assert data.read_bytes() == b"1 2 3\n" and python.exists()
