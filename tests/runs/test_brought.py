"""What a scenario brings reaches its trials: its dataset, and resources that vary."""

import hashlib
import json
from pathlib import Path

import pytest


def test_a_dataset_is_copied_read_and_told_and_a_changed_one_is_refused(lab):
    given = lab.workspace / "given.bin"
    given.write_bytes(b"0123456789" * 1000)
    workload = {"pattern": "read", "file_size": "64KiB", "block_size": "4KiB"}
    lab.run("storage.file", workload=workload, artifacts={"dataset": {"path": "given.bin", "licence": "CC0"}})
    (trial,) = lab.trials()
    told, sha256 = trial.meta["dataset"], hashlib.sha256(given.read_bytes()).hexdigest()
    assert (told["sha256"], told["bytes"], told["licence"]) == (sha256, 10_000, "CC0")
    assert trial.meta["custom"]["blocks_checked"] > 0 and trial.meta["custom"]["blocks_wrong"] == 0
    spec = json.loads((trial.folder / "trial.json").read_bytes())
    assert spec["parameters"]["content"] == {"file": "given.bin", "sha256": sha256}
    page = Path(lab.bench("report").stdout.strip()).read_text()
    assert "given.bin, CC0" in page
    given.write_bytes(b"other")
    again = lab.bench("run", trial.folder / "effective_config.yaml", code=2)
    assert "it is not the file that was meant, or it has changed since" in again.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"text": "x"}\n', "rows.jsonl:1: a row has one of prompt, messages, conversations"),
        (b'{"prompt": "caf\xe9"}\n', "rows.jsonl:1:16: not UTF-8: byte 0xe9"),
        (b"", "rows.jsonl: no prompts in this file"),
    ],
)
def test_a_row_of_a_dataset_that_is_no_prompt_is_told_by_the_users_file_and_line(lab, content, says):
    (lab.workspace / "rows.jsonl").write_bytes(content)
    workload = {"requests": 1, "concurrency": 1}
    target = {"url": "http://127.0.0.1:9", "model": "m"}
    artifacts = {"dataset": "rows.jsonl"}
    lab.run("serving.load", code=1, target=target, workload=workload, artifacts=artifacts)
    (trial,) = lab.trials()
    assert trial.meta["failure"]["message"].startswith(says)


def test_the_licence_of_each_model_is_kept_with_its_trials(lab):
    """Also where nothing answers: a trial is about its model whatever becomes of it."""
    target = {"url": "http://127.0.0.1:9", "model": ["small", "large"]}
    brought = {"artifacts": {"models": {"small": "Apache-2.0"}}}
    lab.run("serving.load", target=target, workload={"concurrency": 1, "requests": 1, "warmup": 0}, code=1, **brought)
    models = sorted((trial.meta["model"]["name"], trial.meta["model"]["licence"]) for trial in lab.trials())
    assert models == [("large", ""), ("small", "Apache-2.0")]


def test_each_trial_has_the_resources_of_its_point(lab):
    lab.run("plain", resources={"cpus": [1, 2]})
    specs = [json.loads((trial.folder / "trial.json").read_bytes()) for trial in lab.trials()]
    assert sorted(spec["resources"]["cpus"] for spec in specs) == [1, 2]
    assert all(spec["axes"] == ["resources.cpus"] for spec in specs)
    shown = lab.bench("query", "SELECT DISTINCT point FROM trial_fact ORDER BY 1", "--json").stdout
    assert "cpus=1" in shown and "cpus=2" in shown
    compared = lab.bench("compare", "@last:resources.cpus=1", "@last:resources.cpus=2").stderr
    assert "resources.cpus: 1 | 2" in compared


def test_runs_whose_resources_differ_are_told_apart(lab):
    lab.run("plain", resources={"cpus": 1})
    lab.run("plain", resources={"cpus": 2, "memory": "1GiB"})
    compared = lab.bench("compare", "@last-1", "@last").stderr
    assert "resources.cpus: 1 | 2" in compared
    assert "resources.memory: any | 1.0 GiB" in compared
