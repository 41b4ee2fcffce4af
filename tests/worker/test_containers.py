"""Servers that start in a container, where their program is not installed and their image is pinned."""

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
from laboratory import wait_until
from services.containers import apptainer as apptainer
from services.containers import images as images

from benchhouse.schema.experiment import ExperimentFailed
from benchhouse.schema.recipe import Ready, Recipe
from benchhouse.worker.services import single_server

DIGEST = f"sha256:{'5' * 64}"
RECIPE = Recipe(
    name="box",
    licence="GPL-2.0-only",
    program=("no-such-program-on-any-host",),
    image=f"docker.io/library/box@{DIGEST}",
    command=("httpd", "-f", "-p", "127.0.0.1:{port}", "-h", "{folder}"),
    files={"index.html": "hello", "env.txt": "{greeting}"},
    parameters={"greeting": "hi"},
    environment={"GREETING": "{greeting} $(id)"},
    endpoint="http://127.0.0.1:{port}",
    ready=Ready(kind="http", timeout=120),
)


@pytest.fixture
def pinned(images):
    """The image without Python, recorded as if it had been pulled by that digest."""
    path = images.folder / "images.json"
    record = json.loads(path.read_text())
    record["images"]["plain.sif"] |= {"source": f"docker://mirror/box@{DIGEST}", "source_digest": DIGEST}
    path.write_text(json.dumps(record))
    return images.folder


def get(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def answers(url):
    try:
        return get(url)
    except OSError:
        return ""


def processes_of(folder):
    done = subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, text=True, check=False)
    return done.stdout.split()


def test_a_server_and_its_commands_run_in_its_image_and_end_with_all_that_they_are(pinned, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "other.html").write_text("from the data folder")
    more = {
        "prepare": (("sh", "-c", "echo made by busybox > {folder}/made.txt"),),
        "ready": Ready(kind="command", command=("sh", "-c", "test -f {folder}/made.txt && test ! -e /usr/bin/env")),
        "binds": (f"{tmp_path}/data:/srv/data:ro",),
        "command": ("sh", "-c", 'ln -s /srv/data/other.html {folder}; exec "$@"', "sh", *RECIPE.command),
    }
    recipe = RECIPE.model_copy(update=more)
    with single_server(recipe, tmp_path / "s", {"greeting": "$(touch /tmp/evil)"}, images=str(pinned)) as server:
        wait_until(lambda: answers(server.endpoint), "the server")
        assert get(server.endpoint) == "hello" and get(f"{server.endpoint}/other.html") == "from the data folder"
        assert get(f"{server.endpoint}/env.txt") == "$(touch /tmp/evil)" and not Path("/tmp/evil").exists()
        assert get(f"{server.endpoint}/made.txt") == "made by busybox\n"
        assert server.image == json.loads((pinned / "images.json").read_text())["images"]["plain.sif"]["sha256"]
        found = [Path(f"/proc/{pid}/environ").read_bytes() for pid in processes_of(server.folder)]
        inner = [text for text in found if b"APPTAINER_CONTAINER" in text and b"GREETING=" in text]
        assert inner and not any(b"APPTAINERENV_" in text or b"PYTEST_CURRENT_TEST" in text for text in inner)
    assert not processes_of(server.folder) and not server.folder.exists()
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(ExperimentFailed, match="which is not there"):
        single_server(recipe, tmp_path / "t", images=str(pinned)).__enter__()


def test_an_image_that_was_not_pulled_or_has_changed_is_not_entered(pinned, tmp_path):
    with pytest.raises(ExperimentFailed, match=f"bench images pull docker.io/library/box@{DIGEST}"):
        single_server(RECIPE, tmp_path / "s", images=str(tmp_path)).__enter__()
    with (pinned / "plain.sif").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ExperimentFailed, match="is not the one that was pinned"):
        single_server(RECIPE, tmp_path / "s", images=str(pinned)).__enter__()


def test_a_program_of_the_machine_is_preferred_to_the_image(tmp_path):
    recipe = RECIPE.model_copy(
        update={"program": ("python3",), "command": ("{program}", "-m", "http.server", "-d", "{folder}", "{port}")}
    )
    with single_server(recipe, tmp_path / "s", images=str(tmp_path)) as server:
        assert get(server.endpoint) == "hello" and server.image == ""


def test_a_trial_outside_measures_a_server_inside(lab, images, pinned):
    """What is left for an image without Python: the driver stays outside, the service runs inside."""
    lab.variables["WORK"] = str(lab.root)
    pinned.rename(lab.root / "containers")
    recipes = lab.workspace / "recipes"
    recipes.mkdir()
    recipes.joinpath("box.yaml").write_text(
        json.dumps(RECIPE.model_dump(mode="json", exclude_defaults=True) | {"schema_version": 1})
    )
    scenario = {"workload": {"act": "ok"}, "services": {"web": {"recipe": "box"}}}
    lab.run("mischief", **scenario)
    (trial,) = lab.trials()
    image = json.loads((lab.root / "containers" / "images.json").read_text())["images"]["plain.sif"]["sha256"]
    assert trial.meta["custom"]["services"]["web"]["image"] == image
    assert trial.meta["container_digest"] is None
    lab.is_tidy()
    scenario["services"]["web"]["mode"] = "attached"
    lab.run("mischief", name="attached", **scenario)
    assert lab.trials("attached")[0].outcome == "succeeded"
    lab.is_tidy()
