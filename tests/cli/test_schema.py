"""`bench schema`: JSON Schemas that agree with what is accepted."""

import json
from pathlib import Path

import jsonschema
import pytest

from benchhouse.documents.yaml_reader import load_yaml, parse_yaml

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
NOUNS = ["scenario", "benchmark", "site", "trial", "metrics", "meta", "manifest", "telemetry"]
MANY_FORMS = """
scenario: s
uses: b
axes: [{grid: {x: {from: 1, to: 2, step: 1}, y: {range: {from: 1, to: 4, factor: 2}}}}, {points: [{z: 1}]}]
resources: {cpus_per_task: 2, mem_gb: 1.5}
limits: {wall: 10m, cpu: 60, memory: 1GB}
budget: {wall: 1h30m, cost: 5}
retries: {backoff: 100ms}
target: t
monitors: {interval: 0.5s, sources: [node], prometheus: [{url: "http://127.0.0.1:9100/metrics"}]}
"""


@pytest.mark.parametrize("noun", NOUNS)
def test_each_schema_is_a_json_schema(noun, bench):
    done = bench("schema", noun)
    assert done.code == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(done.out))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_editor_accepts_the_examples(path, bench):
    jsonschema.validate(load_yaml(path).data, json.loads(bench("schema", "scenario").out))


def test_an_editor_accepts_every_spelling_that_we_accept(bench):
    jsonschema.validate(parse_yaml(MANY_FORMS, "s").data, json.loads(bench("schema", "scenario").out))


@pytest.mark.parametrize("text", ["scenario: a b", "scenario: s\nsede: 1", "scenario: s\nlimits: {wall: soon}"])
def test_an_editor_refuses_what_we_refuse(text, bench):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(parse_yaml(text, "s").data, json.loads(bench("schema", "scenario").out))


def test_fields_are_described(bench):
    schema = json.loads(bench("schema", "scenario").out)
    bare = [
        name for name, field in schema["properties"].items() if not field.get("description") and "$ref" not in field
    ]
    assert bare == []


def test_an_unknown_noun_is_refused(bench):
    done = bench("schema", "dream")
    assert done.code == 2
    assert "scenario" in done.err
