"""`ws.servers` and `ws.start` from Python, with real servers."""

import json
import sys

import pytest
from services.small_server import recipe

from benchhouse.api.placement import Placement
from benchhouse.api.servers import StartedServer, recipe_text
from benchhouse.api.workspace import Workspace
from benchhouse.schema.errors import BenchError
from benchhouse.schema.resources import Resources

pytestmark = pytest.mark.starts


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "small.yaml").write_text(json.dumps(recipe("answer")))
    workspace = Workspace(tmp_path)
    yield workspace
    workspace.servers.stop_all()


def test_a_server_is_started_checked_read_and_stopped(workspace):
    started = workspace.servers.start("small", replicas=2, timeout_s=60)
    assert isinstance(started, StartedServer) and started.phase == "ready" and started.start_s > 0
    assert len(set(started.endpoints)) == len(started.pids) == 2
    assert [server.id for server in workspace.servers.running()] == [started.id]
    assert workspace.servers.check(started.id).healthy
    output = workspace.servers.logs(started.id, lines=1)
    assert len(output.lines) == 2 and output.folder.is_dir(), "one line of each replica"
    assert workspace.servers.stop(started.id).stopped == (started.id,)
    assert workspace.servers.running() == []
    assert not workspace.servers.check(started.id).healthy


def test_all_servers_are_stopped_at_once(workspace):
    ids = {workspace.servers.start("small").id for _ in range(2)}
    assert set(workspace.servers.stop_all().stopped) == ids
    assert workspace.servers.stop_all().stopped == ()


def test_progress_is_told_to_the_listener_and_to_nobody_by_default(workspace, capsys):
    workspace.servers.start("small")
    assert capsys.readouterr().err == ""
    workspace.servers.start("small", progress=True)
    assert "starting small-" in capsys.readouterr().err


def test_only_a_batch_job_has_a_time_limit(workspace):
    with pytest.raises(BenchError, match="only a batch job has a time limit"):
        workspace.servers.start("small", placement=Placement(time_s=60))
    with pytest.raises(BenchError, match="only a batch job has a time limit"):
        workspace.servers.start("small", placement=Placement("local", time_s=60))
    assert workspace.servers.running() == []


@pytest.mark.parametrize(
    ("placement", "what"),
    [
        (Placement(resources={"gpus": 1}), "resources of its own"),
        (Placement("local", partition="gpu"), "a partition"),
        (Placement(account="p1"), "an account"),
    ],
)
def test_what_only_a_batch_job_has_is_refused_for_a_process(workspace, placement, what):
    with pytest.raises(BenchError, match=f"only a batch job has {what}"):
        workspace.servers.start("small", placement=placement)
    assert workspace.servers.running() == []


def test_a_partition_that_is_no_plain_word_never_reaches_a_script(workspace):
    with pytest.raises(BenchError, match=r"--partition: .* is not one plain word"):
        workspace.servers.start("small", placement=Placement("slurm", partition="a;reboot"))


def test_what_a_placement_asks_for_stands_before_what_the_recipe_says():
    recipe = Resources(gpus=1, cpus=4)
    assert Placement().asked(recipe) == recipe and Placement().asked(None) is None
    assert Placement(resources={"gpus": 0, "memory": 2**30}).asked(recipe) == Resources(gpus=0, cpus=4, memory=2**30)
    assert Placement(resources={"gpus": 2}).asked(None) == Resources(gpus=2)


def asking(workspace, server):
    argv = [sys.executable, "-c", "import os, urllib.request as r; r.urlopen(os.environ['BENCH_SERVICE_WEB']).read()"]
    return {
        "scenario": "asking",
        "experiment": "command",
        "services": {"web": {"server": server}},
        "target": {"name": "ask", "argv": argv},
        "retries": {"max_retries": 0},
    }


def test_a_run_attaches_to_a_server_that_was_started_before_and_leaves_it_running(workspace):
    started = workspace.servers.start("small", {"program": sys.executable})
    run = workspace.run(asking(workspace, started.id[:8]))
    assert run.exit_code == 0
    (trial,) = workspace.root.glob("results/asking/*/trial.json")
    service = json.loads(trial.read_text())["services"]["web"]
    assert service["use"]["server"] == started.id and service["recipe"]["name"] == "small"
    assert service["given"] == {"program": sys.executable}
    assert [server.id for server in workspace.servers.running()] == [started.id]


def test_a_run_against_a_server_that_is_over_or_unknown_does_not_begin(workspace):
    started = workspace.servers.start("small")
    workspace.servers.stop(started.id)
    with pytest.raises(BenchError, match=f"web is over: stopped .server {started.id}"):
        workspace.run(asking(workspace, started.id))
    with pytest.raises(BenchError, match="there is no server 'nobody' in this workspace"):
        workspace.plan(asking(workspace, "nobody"))


def test_images_of_the_named_site_are_used(workspace):
    (workspace.root / "far.yaml").write_text("site: far\nfolders: {containers: /far/images}\n")
    started = workspace.servers.start("small", placement=Placement(site=str(workspace.root / "far.yaml")))
    spec = json.loads((workspace.folder.services / started.id / "service.json").read_text())
    assert spec["images"] == "/far/images"


def test_a_recipe_reads_back_from_its_text(workspace, tmp_path):
    shown = workspace.servers.recipe("postgres")
    (tmp_path / "copy.yaml").write_text(recipe_text(shown))
    assert workspace.servers.validate(tmp_path / "copy.yaml") == shown


def test_a_recipe_that_can_not_be_read_is_listed_with_the_reason(workspace):
    (workspace.root / "recipes" / "bad.yaml").write_text("name: bad\nendpont: x\n")
    recipes = workspace.servers.recipes()
    assert {"small", "postgres"} <= {item.recipe for item in recipes}
    (broken,) = [item for item in recipes if item.broken]
    assert "did you mean 'endpoint'" in broken.broken


def test_start_takes_a_recipe_or_the_file_of_a_scenario(workspace):
    assert workspace.start("small").recipe == "small"
    path = workspace.root / "s.yaml"
    path.write_text("scenario: s\nexperiment: command\ntarget: {name: nothing, argv: ['true']}\n")
    submitted = workspace.start(str(path))
    assert workspace[submitted.run_id].wait().exit_code == 0
