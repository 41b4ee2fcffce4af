"""What is asked of a trial is in its folder before it runs, as a scenario that asks for exactly this again."""

import json

from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.evidence.request import effective_config, make_folder
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.logs import LogSettings
from benchhouse.schema.resources import Limits, Resources, RuntimeSettings
from benchhouse.schema.service import ServiceUse, TrialService
from benchhouse.schema.telemetry import MonitorSettings
from benchhouse.schema.trial import TrialSpec

LEAST = {
    "schema_version": 1, "scenario": "demo", "experiment": "e", "version": "1", "workload": {"k": 3}, "repetitions": 1,
    "seed": 7, "resources": {"nodes": 1, "cpus": 1, "gpus": 0}, "executor": "local", "runtime": {"kind": "process"},
}  # fmt: skip


def read(text: str):
    return parse_yaml(text, "effective_config.yaml").data


def test_what_is_not_said_is_left_out(spec):
    assert read(effective_config(spec)) == LEAST


def test_all_that_is_said_is_in_it_and_secrets_stay_references(spec, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    use = ServiceUse(recipe="qdrant", parameters={"key": "$DB_PASSWORD $HOME"})
    whole = spec.model_copy(
        update={
            "target": {"url": "http://me:$DB_PASSWORD@host/$HOME"},
            "parameters": {"text": "$DB_PASSWORD$HOME"},
            "folder": "/data/$x",
            "resources": Resources(nodes=2, memory=5 << 20),
            "limits": Limits(wall=3.0),
            "runtime": RuntimeSettings(image="i"),
            "partition": "gpu",
            "account": "a",
            "qos": "q",
            "artifacts": {"dataset": "$HOME"},
            "binds": ["/a:$HOME"],
            "environment": {"A": "$HOME"},
            "services": {"db": TrialService(use=use)},
            "logs": LogSettings(cap=9),
            "monitors": MonitorSettings(interval=2.0, textfile="/tmp/$x"),
        }
    )
    assert read(effective_config(whole)) == LEAST | {
        "target": {"url": "http://me:$DB_PASSWORD@host/$$HOME"},
        "workload": {"text": "$DB_PASSWORD$$HOME"},
        "folder": "/data/$$x",
        "resources": {"nodes": 2, "cpus": 1, "gpus": 0, "memory": 5 << 20},
        "limits": {"wall": 3.0},
        "runtime": {"kind": "process", "image": "i"},
        "partition": "gpu",
        "account": "a",
        "qos": "q",
        "artifacts": {"dataset": "$$HOME"},
        "binds": ["/a:$$HOME"],
        "environment": {"A": "$$HOME"},
        "services": {"db": {"recipe": "qdrant", "parameters": {"key": "$DB_PASSWORD $$HOME"}}},
        "logs": {"cap": 9},
        "monitors": {"interval": 2.0, "textfile": "/tmp/$$x"},
    }
    assert "monitors: false" in effective_config(spec.model_copy(update={"monitors": False}))


def test_nothing_of_an_attempt_that_was_killed_stays(tmp_path, spec):
    folder = TrialFolder(tmp_path / "deep" / "er")
    make_folder(folder, spec)
    (folder.path / "old").mkdir()
    (folder.path / "old" / "file").touch()
    make_folder(folder, spec)
    assert sorted(path.name for path in folder.path.iterdir()) == ["effective_config.yaml", "trial.json"]
    assert TrialSpec.model_validate(json.loads(folder.spec.read_text())) == spec
    assert folder.spec.read_text().startswith('{\n  "') and folder.spec.read_text().endswith("}\n")
    assert folder.effective_config.read_text() == effective_config(spec)
