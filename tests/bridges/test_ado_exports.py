"""What the real ado writes when it is asked for a space is read here as the space that it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ado_packages import ONE, install

from benchhouse.catalog.entries import installed

ADO = Path(sys.executable).with_name("ado")
SPACE = """\
entitySpace:
  - {identifier: n, propertyDomain: {values: [1, 2]}}
  - {identifier: kind, propertyDomain: {values: [a, b]}}
  - {identifier: share, propertyDomain: {domainRange: [0, 1], interval: 0.5}}
  - {identifier: batch, propertyDomain: {values: [8]}}
experiments:
  - actuatorIdentifier: custom_experiments
    experimentIdentifier: needing
    parameterization: [{property: {identifier: flag}, value: true}]
"""


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """A template, and a space that was created and asked for again, by ado's own commands."""
    root = tmp_path_factory.mktemp("ado-exports")
    (root / "site").mkdir()
    install(root / "site", "ado-one", "ado_one", ONE, "[ado.custom_experiments]\none = ado_one\n", "0.3")
    (root / "asked.yaml").write_text(SPACE)
    environment = os.environ | {
        "HOME": str(root),
        "XDG_CONFIG_HOME": str(root / "config"),
        "PYTHONPATH": str(root / "site"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }

    def ado(*command):
        done = subprocess.run([ADO, *command], env=environment, cwd=root, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    ado("create", "space", "-f", "asked.yaml", "--new-sample-store")
    resource = ado("get", "space", "--use-latest", "-o", "yaml")
    config = yaml.safe_dump(yaml.safe_load(resource)["config"])  # as `-o config` has it
    template = ado("template", "space", "-e", "custom_experiments.doubling")
    return root, {"resource": resource, "config": config, "template": template}


@pytest.fixture
def plan(exports, bench, tmp_path, monkeypatch):
    root, written = exports
    monkeypatch.setenv("PYTHONPATH", str(root / "site"))
    monkeypatch.syspath_prepend(root / "site")
    monkeypatch.setenv("BENCH_CACHE_DIR", str(root / "cache"))
    installed.cache_clear()

    def it(which, change=lambda text: text):
        (tmp_path / "exported.yaml").write_text(change(written[which]))
        return bench("plan", "exported.yaml", "--json")

    yield it
    installed.cache_clear()


@pytest.mark.parametrize(
    ("which", "experiment", "points"),
    [
        ("resource", "custom_experiments.needing", 8),
        ("config", "custom_experiments.needing", 8),
        ("template", "custom_experiments.doubling", 100),
    ],
)
def test_a_space_that_ado_wrote_is_planned(which, experiment, points, plan):
    planned = plan(which)
    assert planned.code == 0, planned.err
    told = json.loads(planned.out)
    assert (told["experiment"], told["points"]) == (experiment, points)


def test_a_mistake_in_an_exported_space_is_told_where_it_stands(plan, tmp_path):
    planned = plan("resource", lambda text: text.replace("identifier: needing", "identifier: neding"))
    lines = (tmp_path / "exported.yaml").read_text().splitlines()
    number = next(index for index, line in enumerate(lines, 1) if "neding" in line)
    assert planned.code == 2
    assert f'"line": {number}' in planned.out, planned.out
