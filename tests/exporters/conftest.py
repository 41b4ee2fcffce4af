"""Runs to be exported: one of good and failed points with odd names, one with INVALID trials and figures."""

import json

import pytest
from laboratory import Lab

from benchhouse.api.workspace import Workspace

ODD = 'a/b "ü" \\ {x}\n..'
SCENARIO = {
    "scenario": "greetings",
    "experiment": "command",
    "targets": [
        {"name": ODD, "argv": ["true"]},
        {"name": "plain", "argv": ["true"]},
        {"name": "broken", "argv": ["false"]},
    ],
    "workload": {"executions": 2},
    "repetitions": 3,
    "monitors": False,
}


@pytest.fixture(scope="session")
def greetings(tmp_path_factory, shared_cache):
    """Tests only read it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_CACHE_DIR", str(shared_cache))
        workspace = Workspace(tmp_path_factory.mktemp("greetings"))
        workspace.run(SCENARIO)
    return workspace


@pytest.fixture(scope="session")
def doubted(tmp_path_factory):
    """n=0 and n=2 are good but for `wait.p99`, which is INVALID everywhere; n=1 is INVALID."""
    lab = Lab(tmp_path_factory.mktemp("doubted"))
    for mark in ("bad", "off"):
        (lab.marks / mark).touch()
    lab.scenario("certified", workload={"n": [0, 1, 2], "values": 50}, repetitions=3)
    lab.bench("run", "s.yaml", code=1)
    return lab


@pytest.fixture
def numbers():
    """What the report's own API says of a run: `(point, metric, stat)` and its row."""

    def of(workspace, run="@last"):
        return {(row.label, row.metric, row.stat): row for row in workspace.points(run)}

    return of


@pytest.fixture
def exported(greetings):
    """The text of an export of `greetings`."""
    return lambda kind: greetings.export("@last", kind).text


@pytest.fixture
def exported_json(exported):
    return lambda kind: json.loads(exported(kind))
