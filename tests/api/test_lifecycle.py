"""`ws.start`: server, monitor and clients come up in order for a load, and go in reverse, whatever happens."""

import json

import pytest
from services.lookups import lookups

from benchhouse.api.execution import RunListener
from benchhouse.api.lifecycle import OfferedLoad
from benchhouse.api.placement import Placement
from benchhouse.schema.errors import BenchError

pytestmark = pytest.mark.starts


class Notes(RunListener):
    def __init__(self):
        self.lines = []

    def note(self, text):
        self.lines.append(text)

    def steps(self):
        """up: server, down: monitor, ..."""
        return [" ".join(line.split()[:2]) for line in self.lines if line.startswith(("up: ", "down: "))]


def left(workspace):
    up = [*workspace.servers.running(), *workspace.clients.running()]
    return [*up, *(item for item in workspace.monitors.all() if item.state == "running")]


UP = ["up: server", "up: monitor", "up: load"]


def test_a_load_brings_up_all_that_it_needs_in_order_and_takes_it_down_in_reverse(workspace):
    notes = Notes()
    run = workspace.start("postgres", load=OfferedLoad(lookups(), clients=1), progress=notes)
    assert run.status().outcomes.keys() <= {"succeeded", "invalid"}, "whether the machine is quiet is not asked here"
    assert notes.steps() == [*UP, "down: load", "down: monitor", "down: server"]
    (trial,) = workspace.root.glob("results/s/*/meta.json")
    assert json.loads(trial.read_text())["custom"]["measured"] == 51
    (monitor,) = workspace.monitors.all()
    assert monitor.state == "ended" and any(reading.series == "rss" for reading in monitor.seen), "of the server too"
    assert left(workspace) == []


class Interrupted(Notes):
    def begin(self, run_id, plan):
        raise KeyboardInterrupt


def test_an_interruption_leaves_nothing_behind(workspace):
    notes = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        workspace.start("postgres", load=OfferedLoad(lookups(), clients=1), progress=notes)
    assert notes.steps() == [*UP, "down: load", "down: monitor", "down: server"]
    assert left(workspace) == []


@pytest.mark.parametrize(
    ("recipe", "parameters", "scenario", "message"),
    [
        ("postgres", {}, lookups(target={"endpoint": "postgresql://elsewhere"}), "asks for service:postgres"),
        ("postgres", {"size": "3"}, lookups(), "has no parameter 'size'"),
        ("nothing", {}, lookups(target={"endpoint": "service:nothing"}), "there is no recipe 'nothing'"),
        ("postgres", {}, lookups(workload={"operation": "lokup"}), "lokup"),
    ],
)
def test_nothing_is_started_for_a_load_that_makes_no_sense(workspace, recipe, parameters, scenario, message):
    with pytest.raises(BenchError, match=message):
        workspace.start(recipe, parameters, load=OfferedLoad(scenario))
    assert not workspace.folder.services.exists() or not list(workspace.folder.services.iterdir())


def test_a_scenario_takes_no_options_of_a_recipe(workspace):
    path = workspace.root / "s.yaml"
    path.write_text(json.dumps(lookups()))
    for options in ({"parameters": {"a": "b"}}, {"placement": Placement("slurm")}, {"load": OfferedLoad(path)}):
        with pytest.raises(BenchError, match="is a scenario"):
            workspace.start(str(path), **options)
