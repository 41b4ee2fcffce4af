"""Files that ado wrote about a space are planned as that space.

The files in `data` are the output of ado 2.3.0 with the package that `ado_packages.install` makes:
`ado get space --use-latest -o yaml` for a created space, and `ado template space -e custom_experiments.doubling`.
"""

import json
from pathlib import Path

import pytest
import yaml
from ado_packages import ONE, install

from benchhouse.catalog.entries import installed

DATA = Path(__file__).parent / "data"
RESOURCE = (DATA / "ado-2.3.0-space-resource.yaml").read_text()
TEMPLATE = (DATA / "ado-2.3.0-space-template.yaml").read_text()


@pytest.fixture
def plan(bench, tmp_path, monkeypatch):
    """`plan(text)` plans the text as a scenario, with the experiments of the space installed."""
    install(tmp_path / "site", "ado-one", "ado_one", ONE, "[ado.custom_experiments]\none = ado_one\n", "0.3")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("BENCH_CACHE_DIR", str(tmp_path / "cache"))
    installed.cache_clear()

    def call(text):
        (tmp_path / "exported.yaml").write_text(text)
        return bench("plan", "exported.yaml", "--json")

    yield call
    installed.cache_clear()


def test_spaces_that_ado_wrote_are_planned_and_a_mistake_is_reported_at_its_line(plan):
    config = yaml.safe_dump(yaml.safe_load(RESOURCE)["config"])  # as `-o config` prints it
    expected = {RESOURCE: ("needing", 8), config: ("needing", 8), TEMPLATE: ("doubling", 100)}
    for text, (experiment, points) in expected.items():
        planned = plan(text)
        assert planned.code == 0, planned.err
        answer = json.loads(planned.out)
        assert (answer["experiment"], answer["points"]) == (f"custom_experiments.{experiment}", points)
    misspelled = RESOURCE.replace("identifier: needing", "identifier: neding")
    planned = plan(misspelled)
    line = next(number for number, text in enumerate(misspelled.splitlines(), 1) if "neding" in text)
    assert planned.code == 2
    assert f'"line": {line}' in planned.out, planned.out
