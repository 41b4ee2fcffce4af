"""`bench images`: what is brought, built or added is pinned, and a changed one is named."""

import hashlib
import json
from pathlib import Path

import pytest
from services.containers import apptainer as apptainer
from services.containers import images as images
from services.containers import unpacked as unpacked
from services.registry import registry as registry


@pytest.fixture
def folder(lab):
    """Where images lie on this made-up site."""
    lab.variables["WORK"] = str(lab.root / "work")
    return lab.root / "work" / "containers"


def record(folder):
    return json.loads((folder / "images.json").read_text())["images"]


def test_a_tag_is_resolved_and_what_it_stood_for_is_pinned(lab, folder, registry, unpacked):
    labels = {"org.opencontainers.image.licenses": "GPL-2.0-only"}
    digest = registry.push("tools/box", "1.0", unpacked, labels)
    done = lab.bench("images", "pull", f"docker://{registry.address}/tools/box:1.0", "--json")
    pulled = json.loads(done.stdout)
    assert f"is {digest}" in done.stderr
    path = Path(pulled["path"])
    assert path == folder / f"box-{digest[7:19]}.sif"
    assert pulled["source"] == f"docker://{registry.address}/tools/box@{digest}"
    assert pulled["source_digest"] == digest and pulled["licence"] == "GPL-2.0-only"
    assert pulled["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert pulled["size"] == path.stat().st_size and pulled["apptainer"] and "@" in pulled["by"]
    registry.push("tools/box", "1.0", unpacked, {"changed": "yes"})  # the tag moves on, the digest does not
    again = lab.bench("images", "pull", f"{registry.address}/tools/box@{digest}", "--name", "same", "--json")
    assert json.loads(again.stdout)["source_digest"] == digest
    assert sorted(record(folder)) == [path.name, "same.sif"]
    assert sorted(item.name for item in folder.iterdir() if not item.name.startswith(".")) == [
        path.name, "images.json", "same.sif",
    ]  # fmt: skip
    lab.bench("images", "verify")


def test_a_definition_file_is_built_and_pinned_by_its_digest(lab, folder, images):
    definition = lab.workspace / "tool.def"
    definition.write_text(
        f"Bootstrap: localimage\nFrom: {images.plain}\n%labels\n    license MIT\n%environment\n    export TOOL=1\n"
    )
    built = json.loads(lab.bench("images", "build", definition, "--json").stdout)
    assert built["path"] == str(folder / "tool.sif") and built["licence"] == "MIT"
    assert built["source_digest"] == f"sha256:{hashlib.sha256(definition.read_bytes()).hexdigest()}"


@pytest.mark.parametrize("words", [("pull", "docker://busybox"), ("build", "x.def")])
def test_images_are_neither_pulled_nor_built_inside_a_job(lab, folder, words):
    lab.variables["SLURM_JOB_ID"] = "4711"
    done = lab.bench("images", *words, code=2)
    assert "this is Slurm job 4711" in done.stderr and "login node" in done.stderr
    assert not folder.exists()


def test_a_changed_image_is_named_and_so_is_one_that_is_gone(lab, folder, images):
    folder.mkdir(parents=True)
    for name in ("good", "bad", "gone"):
        (folder / f"{name}.sif").write_bytes(images.plain.read_bytes())
        lab.bench("images", "add", folder / f"{name}.sif", "--licence", "GPL-2.0-only")
    content = bytearray((folder / "bad.sif").read_bytes())
    content[-1] ^= 1  # of the same length
    (folder / "bad.sif").write_bytes(content)
    (folder / "gone.sif").unlink()
    listed = json.loads(lab.bench("images", "list", "--json").stdout)
    assert {Path(row["path"]).stem: row["state"] for row in listed} == {
        "good": "recorded", "bad": "recorded", "gone": "gone",
    }  # fmt: skip
    done = lab.bench("images", "verify", code=1)
    assert f"{folder}/bad.sif is not the one that was pinned" in done.stderr
    assert f"{folder}/gone.sif is gone" in done.stderr and "good.sif is" not in done.stderr
    assert "GPL-2.0-only" in done.stdout


def test_several_may_pin_at_once(lab, folder, images):
    folder.mkdir(parents=True)
    for number in range(6):
        (folder / f"{number}.sif").write_bytes(images.plain.read_bytes())
    adding = [lab.fork("images", "add", folder / f"{number}.sif") for number in range(6)]
    assert [process.wait(120) for process in adding] == [0] * 6
    assert sorted(record(folder)) == [f"{number}.sif" for number in range(6)]


def test_an_added_image_keeps_where_it_came_from(lab, folder, images):
    path = images.plain
    text = (images.folder / "images.json").read_text()
    (images.folder / "images.json").write_text(text.replace(f'"source": "{path}"', '"source": "docker://x"'))
    assert json.loads(lab.bench("images", "add", path, "--json").stdout)["source"] == "docker://x"


@pytest.mark.parametrize("name", ["x.txt", "nowhere.sif", "text.sif"])
def test_what_is_no_image_is_not_pinned(lab, name):
    (lab.workspace / "text.sif").write_text("#!/bin/sh\n")
    lab.bench("images", "add", name, code=2)
    assert not (lab.workspace / "images.json").exists()


@pytest.mark.parametrize("source", ["library://x/y", "docker://x@sha256:12", "docker://127.0.0.1:1/no/such"])
def test_a_source_that_can_not_be_pulled_is_refused_and_leaves_nothing(lab, folder, source):
    done = lab.bench("images", "pull", source, code=None)
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr and done.stderr.startswith("error:")
    assert not folder.exists() or not list(folder.glob("*.sif"))


def test_a_pull_that_fails_half_way_leaves_nothing(lab, folder, registry, apptainer):
    digest = f"sha256:{'0' * 64}"
    lab.bench("images", "pull", f"docker://{registry.address}/no/such@{digest}", code=1)
    assert not list(folder.glob("*.sif")) and not list(folder.glob(".*.new"))
    assert json.loads(lab.bench("images", "list", "--json").stdout) == []


def test_a_site_whose_variable_is_not_set_says_so(lab):
    (lab.workspace / "site.yaml").write_text("site: here\nfolders: {containers: $NO_WORK/containers}\n")
    done = lab.bench("images", "list", code=2)
    assert "$NO_WORK/containers, and that variable is not set" in done.stderr


def test_a_record_that_is_damaged_is_told(lab, folder):
    folder.mkdir(parents=True)
    (folder / "images.json").write_text("{")
    done = lab.bench("images", "list", code=2)
    assert f"{folder}/images.json can't be read" in done.stderr
