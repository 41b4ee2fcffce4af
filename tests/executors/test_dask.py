"""Trials on a real Dask cluster: what the conformance suite can't ask of every executor."""

import json
import os
import socket

import pytest
from executors.test_gang import summary_of, training
from laboratory import Lab, wait_until
from pydantic import ValidationError
from services.dask_cluster import DaskCluster, TlsCluster
from services.dask_cluster import tls_cluster as tls_cluster

from benchhouse.documents.problems import ProblemsError
from benchhouse.executors.cluster_engine import SlotRequest, WorkerSlot
from benchhouse.executors.dask import read_security
from benchhouse.executors.dask_engine import DaskEngine, Held, counted, described
from benchhouse.executors.task_slots import DASK_SETS
from benchhouse.schema.clusters import DaskSettings

pytestmark = pytest.mark.timeout(900)


def run(lab: Lab, experiment: str, cluster: DaskCluster | TlsCluster, *more, code=0, **scenario):
    path = lab.scenario(
        experiment, executor="dask", dask={"address": cluster.address, **scenario.pop("dask", {})}, **scenario
    )
    return lab.bench("run", path, *more, code=code, timeout_s=400)


@pytest.mark.slow("Dask notices a lost worker after its own timeout, twice, and two workers start again")
def test_lost_workers_cost_only_their_trials_and_without_any_worker_the_run_ends(lab, dask_cluster):
    """Three trials run on both workers. First the worker with one thread is killed, and then the other one, while the
    scheduler stays."""
    lab.hold(0)
    scenario = lab.scenario(
        "slow",
        executor="dask",
        dask={"address": dask_cluster.file.as_posix(), "patience": 2},
        parallel=3,
        retries={"max_retries": 3, "backoff": 0.05},
        workload={"seconds": 0, "n": [0, 1, 2, 3]},
    )
    process = lab.start("run", scenario)
    lab.wait_for_mark("slow-*", 3)
    dask_cluster.kill("two")
    try:
        lab.wait_for_lost(1)
        (lost,) = [event for event in lab.events() if event["event"] == "ended" and event["outcome"] == "lost"]
        assert "its slot on" in lost["reason"] and "has left the cluster" in lost["reason"]
        dask_cluster.kill("one")
        _, messages = process.communicate(timeout=400)
        assert process.returncode == 1, messages
        assert "no node is left in the Dask cluster: waiting 2" in messages
        assert "none came within 2" in messages
        status = json.loads(lab.bench("status", "@last", "--json").stdout)
        assert status["state"] == "interrupted"
        assert status["next"] == f"bench run --resume {lab.run_id()} --executor local"
        assert "has no live worker" in run(lab, "once", dask_cluster, code=2, name="refused").stderr
    finally:
        for name in {"one", "two"} - dask_cluster.processes.keys():
            dask_cluster.add(name)
    lab.release()
    lab.bench("run", "--resume", status["run_id"])
    assert [trial.outcome for trial in lab.trials()] == ["succeeded"] * 4
    assert {trial.spec["executor"] for trial in lab.trials()} == {"dask"}
    assert any(trial.meta["attempts"][0]["outcome"] == "lost" for trial in lab.trials())


def test_trials_that_need_a_whole_worker_run_alone_and_without_the_variables_of_dask(lab, dask_cluster):
    alone = "mkdir $LAB/alone && env > $LAB/env && sleep 0.5 && rmdir $LAB/alone"
    more = {"resources": {"cpus": 2}, "repetitions": 2, "parallel": 2}
    run(lab, "command", dask_cluster, target={"shell": alone}, workload={"executions": 1}, **more)
    assert [trial.outcome for trial in lab.trials()] == ["succeeded"] * 2, "a second trial at the same time would fail"
    assert {trial.meta["placed"]["id"] for trial in lab.trials()} == {"one"}
    seen = dict(line.partition("=")[::2] for line in (lab.marks / "env").read_text().splitlines())
    assert {name: seen.get(name) for name in DASK_SETS} == {name: os.environ.get(name) for name in DASK_SETS}
    assert seen["LAB"] == str(lab.marks)
    done = run(lab, "once", dask_cluster, dask={"resources": {"licence": 2}}, code=2)
    assert "2 licence" in done.stderr
    assert "two has 1 cores, 0 GPUs" in done.stderr and "1 licence" in done.stderr


def test_a_cluster_that_dies_for_good_ends_the_run_and_another_executor_finishes_it(lab, tls_cluster):
    lab.hold(1)
    scenario = lab.scenario(
        "slow",
        executor="dask",
        workload={"seconds": 0, "n": [0, 1, 2, 3]},
        dask={"address": tls_cluster.address, "security": str(tls_cluster.security)},
    )
    process = lab.start("run", scenario)
    wait_until(lambda: len(lab.folders()) >= 1, "a sealed trial", 300)
    tls_cluster.kill()
    _, said = process.communicate(timeout=300)
    lab.release()
    run_id = lab.run_id()
    assert process.returncode == 1, said
    assert f"the Dask cluster ({tls_cluster.address}) is gone: its scheduler no longer answers" in said
    assert f"bench run --resume {run_id} --executor local" in said
    assert json.loads(lab.bench("status", run_id, "--json").stdout)["state"] == "interrupted"
    wait_until(lambda: not lab.left_running(), "the trial that ran to end", 240)
    before = len(lab.folders())
    lab.bench("run", "--resume", run_id, "--executor", "local")
    trials = lab.trials()
    assert [trial.outcome for trial in trials] == ["succeeded"] * 4
    assert sorted(trial.spec["executor"] for trial in trials) == ["dask"] * before + ["local"] * (4 - before)
    rows = json.loads(lab.bench("query", "--json", "SELECT executor FROM benchmark_run_fact").stdout)["rows"]
    assert rows == [{"executor": "dask, local"}]


@pytest.mark.parametrize("listens", [False, True])
def test_an_address_that_does_not_answer_is_told_with_what_to_do(lab, listens):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        if not listens:
            silent.close()
        done = lab.bench("run", lab.scenario("once", executor="dask", dask={"address": address}), code=2)
    assert f"no Dask scheduler answers at {address}: " in done.stderr
    assert "dask scheduler" in done.stderr
    assert not lab.folders()


def test_a_cluster_of_its_own_opens_no_port_and_is_gone_after_the_run(lab):
    lab.bench("run", lab.scenario("once", executor="dask", workload={"n": [0, 1]}))
    assert {trial.meta["placed"]["worker"].partition("://")[0] for trial in lab.trials()} == {"inproc"}
    lab.is_tidy()


@pytest.mark.parametrize("address", ["127.0.0.1:8786", "tcp://", "tcp://host", "http://host:1", "scheduler.json", ""])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValidationError, match="is no address of Dask"):
        DaskSettings(address=address)


def test_a_mistake_in_the_settings_is_told_with_its_place(lab):
    dask = {"adress": "local", "security": "relative.yaml"}
    done = lab.bench("validate", lab.scenario("once", executor="dask", dask=dask), code=2)
    assert "did you mean 'address'" in done.stderr
    assert "is no absolute path" in done.stderr
    assert done.stderr.count("s.yaml:1:") == 2


def test_a_security_file_is_checked_with_file_line_and_column(tmp_path):
    path = tmp_path / "security.yaml"
    path.write_text("ca_file: relative.pem\nclient_crt: /x.pem\nclient_key: /nowhere/key.pem\n")
    with pytest.raises(ProblemsError) as caught:
        read_security(str(path))
    told = str(caught.value)
    assert f"{path}:1:10" in told and "absolute" in told
    assert f"{path}:2:1" in told and "client_cert" in told
    (tmp_path / "ca.pem").touch()
    path.write_text(f"ca_file: {tmp_path}/ca.pem\nclient_cert: {tmp_path}/no.pem\nclient_key: {tmp_path}/no.key\n")
    with pytest.raises(ProblemsError, match=r"there is no file .*no\.pem"):
        read_security(str(path))


# -- the count of what workers have, by itself ---------------------------------------------------------------------


def worker(**more):
    return {"name": "w", "nthreads": 4, "memory_limit": 8 << 30, "resources": {}} | more


def test_a_worker_is_as_large_as_its_threads_its_limit_and_what_it_declares():
    node = described("tcp://a:1", worker(resources={"GPU": 2, "licence": 1}))
    assert (node.cpus, node.gpus, node.memory, node.custom) == (4, 2, 8 << 30, {"licence": 1})
    assert described("tcp://a:1", worker(resources={"cpus": 2})).cpus == 2
    assert described("tcp://a:1", worker(memory_limit=0)).memory is None


def test_dask_counts_what_a_worker_declares_so_that_others_are_counted_too():
    ask = SlotRequest(cpus=2, gpus=1, memory=100, custom={"licence": 1})
    assert counted(ask, {"CPU": 4, "GPU": 1, "licence": 3}) == {"CPU": 2, "GPU": 1, "licence": 1}
    assert counted(SlotRequest(cpus=2), {}) == {}


@pytest.mark.parametrize(
    ("ask", "taken", "goes_to"),
    [
        (SlotRequest(cpus=1), [], ["roomy"]),
        (SlotRequest(cpus=2), [SlotRequest(cpus=3)], ["small"]),
        (SlotRequest(cpus=4), [SlotRequest(cpus=1)], []),
        (SlotRequest(cpus=1, memory=6 << 30), [SlotRequest(cpus=1, memory=4 << 30)], []),
        (SlotRequest(cpus=1, gpus=1), [], []),
        (SlotRequest(cpus=1, custom={"licence": 1}), [SlotRequest(cpus=1, custom={"licence": 1})], []),
        (SlotRequest(cpus=1, nodes=2), [SlotRequest(cpus=3)], ["small", "roomy"]),
        (SlotRequest(cpus=1, nodes=2), [SlotRequest(cpus=4)], ["small", "beside"]),
        (SlotRequest(cpus=2, nodes=2), [SlotRequest(cpus=4)], []),
        (SlotRequest(cpus=1, nodes=3), [], []),  # the third shares a host with the second
    ],
)
def test_a_slot_goes_where_it_fits_beside_our_others(ask, taken, goes_to):
    engine = DaskEngine()
    engine.workers = {
        "small": worker(nthreads=2, memory_limit=1 << 30, host="a"),
        "roomy": worker(resources={"licence": 1}, host="b"),
        "beside": worker(nthreads=1, memory_limit=1, host="b"),
    }
    for at, other in enumerate(taken):
        engine.held[str(at)] = Held(WorkerSlot(name=str(at), ask=other, folder="/x", python=("p",)), "roomy", None)
    assert engine._roomiest(ask) == goes_to


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a worker a host name of its own")
def test_a_training_over_two_hosts_with_a_resource_of_their_own_has_ranks_on_both(lab, dask_cluster):
    names = ("left", "right")
    for name in names:
        dask_cluster.add(name)
    try:
        run(lab, "training.run", dask_cluster, dask={"resources": {"pair": 1}}, **training())
    finally:
        for name in names:
            dask_cluster.kill(name)
    (trial,) = lab.trials()
    facts = trial.meta["custom"]
    first, second = facts["nodes"]
    assert {first, second} == set(names) and facts["world"] == 4 and facts["measured_steps"] == 6
    assert [place["node"] for place in facts["ranks"]] == [first, first, second, second]
    (sampled,) = summary_of(trial).nodes
    assert sampled.name == second and not sampled.problem and sampled.samples
    lab.is_tidy()
