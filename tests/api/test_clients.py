"""`ws.clients` from Python: real load clients of this machine against a real server that was started before."""

import json

import pytest
from services.lookups import lookups

from benchhouse.schema.errors import BenchError

pytestmark = pytest.mark.starts

DB = {"service": "db", "services": {"db": {"recipe": "postgres"}}}


def test_a_run_has_its_load_from_clients_and_its_server_from_before(workspace):
    server = workspace.servers.start("postgres")
    path = workspace.root / "s.yaml"
    path.write_text(json.dumps(lookups(**DB)))
    run = workspace.clients.run(path, count=2, servers={"db": server.id})
    assert run.status().outcomes.keys() <= {"succeeded", "invalid"}, "whether the machine is quiet is not asked here"
    (trial,) = workspace.root.glob("results/s/*/meta.json")
    facts = json.loads(trial.read_text())["custom"]
    assert facts["measured"] == 51 and facts["not_measured"] == 0
    assert sorted(facts["load_nodes"]) == ["client-0", "client-1"]
    assert workspace.clients.running() == [] and [item.id for item in workspace.servers.running()] == [server.id]
    assert "made-up" not in "".join(item.read_text() for item in trial.parent.rglob("*.json"))


def test_clients_stand_by_until_they_are_stopped(workspace):
    clients = workspace.clients.start(2)
    assert [client.id for client in workspace.clients.running()] == [client.id for client in clients]
    assert workspace.servers.running() == [] and workspace.servers.stop_all().stopped == (), "they are no servers"
    group = clients[0].id.rpartition("-")[0]
    assert workspace.clients.stop(group).stopped == tuple(client.id for client in clients)
    with pytest.raises(BenchError, match=f"there is no load client '{group}'"):
        workspace.clients.stop(group)


def test_what_is_wrong_with_a_scenario_is_told_before_a_client_is_started(workspace):
    with pytest.raises(BenchError, match="there is no server 'nobody'"):
        workspace.clients.run(lookups(**DB), servers={"db": "nobody"})
    with pytest.raises(BenchError, match=r"where its load comes from: workload\.nodes"):
        workspace.clients.run(lookups(**DB, workload={"nodes": "all", "operation": "lookup"}))
    assert not list(workspace.folder.services.glob("clients-*"))


def test_an_experiment_that_offers_no_load_has_no_clients(workspace):
    scenario = {"scenario": "s", "experiment": "command", "target": {"name": "t", "argv": ["true"]}}
    with pytest.raises(BenchError, match="nodes"):
        workspace.clients.run(scenario)
    assert not list(workspace.folder.services.glob("clients-*"))
