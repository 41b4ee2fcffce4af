"""What a scenario brings reaches its trials: its dataset, and resources that vary."""

import hashlib
import json
from pathlib import Path


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


def test_a_row_that_is_no_prompt_is_named_by_its_place_and_failed_trials_keep_the_licence_of_their_model(lab):
    """The other mistakes in a row are in tests/experiments/serving/test_datasets.py."""
    (lab.workspace / "rows.jsonl").write_bytes(b'{"prompt": "caf\xe9"}\n')
    target = {"url": "http://127.0.0.1:9", "model": ["small", "large"]}
    artifacts = {"dataset": "rows.jsonl", "models": {"small": "Apache-2.0"}}
    workload = {"concurrency": 1, "requests": 1, "warmup": 0}
    lab.run("serving.load", code=1, target=target, workload=workload, artifacts=artifacts)
    trials = lab.trials()
    for trial in trials:
        assert trial.meta["failure"]["message"].startswith("rows.jsonl:1:16: not UTF-8: byte 0xe9")
    models = sorted((trial.meta["model"]["name"], trial.meta["model"]["licence"]) for trial in trials)
    assert models == [("large", ""), ("small", "Apache-2.0")]


def test_each_trial_has_the_resources_of_its_point_and_comparisons_name_them(lab):
    lab.run("plain", resources={"cpus": [1, 2]})
    specs = [json.loads((trial.folder / "trial.json").read_bytes()) for trial in lab.trials()]
    assert sorted(spec["resources"]["cpus"] for spec in specs) == [1, 2]
    assert all(spec["axes"] == ["resources.cpus"] for spec in specs)
    shown = lab.bench("query", "SELECT DISTINCT point FROM trial_fact ORDER BY 1", "--json").stdout
    assert "cpus=1" in shown and "cpus=2" in shown
    compared = lab.bench("compare", "@last:resources.cpus=1", "@last:resources.cpus=2").stderr
    assert "resources.cpus: 1 | 2" in compared
    lab.run("plain", resources={"cpus": 2, "memory": "1GiB"})
    compared = lab.bench("compare", "@last-1:resources.cpus=1", "@last").stderr
    assert "resources.cpus: 1 | 2" in compared
    assert "resources.memory: any | 1.0 GiB" in compared
