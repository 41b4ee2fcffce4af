"""Trials on a real standalone Spark: what the conformance suite, on local Spark, can't ask."""

import json
import os
import signal
import socket
import threading

import pytest
from laboratory import wait_until
from pydantic import ValidationError
from services.spark_cluster import spark_cluster as spark_cluster

from benchhouse.executors.cluster_engine import Ask, Node
from benchhouse.executors.spark import unanswered
from benchhouse.executors.spark_engine import essence, properties, slots_in
from benchhouse.executors.task_slots import SPARK_SETS
from benchhouse.schema.clusters import SparkSettings

pytestmark = pytest.mark.timeout(900)  # two Javas and more have to start


def test_a_killed_executor_costs_only_its_trial(lab, spark_cluster):
    scenario = lab.scenario(
        "command", executor="spark", spark=spark_cluster.settings, parallel=2, repetitions=3,
        target={"shell": "env > `mktemp -p $LAB env-XXXXXX`; sleep 4"}, workload={"executions": 1},
    )  # fmt: skip
    process = lab.start("run", scenario)
    wait_until(lambda: len(list(lab.marks.glob("env-*"))) >= 2, "two trials side by side", 240)
    executors = spark_cluster.executors()
    assert len(executors) == 2  # each slot has its own
    os.kill(executors[0], signal.SIGKILL)
    _, said = process.communicate(timeout=400)
    assert process.returncode == 0, said
    assert [trial.outcome for trial in lab.trials()] == ["succeeded"] * 3
    lost = [event for event in lab.events() if event["event"] == "ended" and event["outcome"] == "lost"]
    assert len(lost) == 1
    assert "its slot on" in lost[0]["reason"]
    assert {trial.meta["placed"]["executor"] for trial in lab.trials()} == {"spark"}
    for path in lab.marks.glob("env-*"):
        seen = dict(line.partition("=")[::2] for line in path.read_text().splitlines())
        assert all(seen.get(name) == lab.environment().get(name) for name in SPARK_SETS)


def test_what_no_worker_has_is_refused_with_what_they_have(lab, spark_cluster):
    done = lab.bench(
        "run", lab.scenario("once", executor="spark", spark=spark_cluster.settings, resources={"memory": "8GB"}), code=2
    )
    assert "of memory (nodes: 127.0.0.1 has 2 cores, 0 GPUs, 2.0 GiB)" in done.stderr


def test_a_cluster_whose_workers_have_all_left_is_not_waited_for_without_end(lab, spark_cluster):
    """Its master stays, so nothing else would end the run."""
    scenario = lab.scenario(
        "slow",
        executor="spark",
        spark={**spark_cluster.settings, "patience": 2},
        workload={"seconds": 1, "n": [0, 1, 2]},
    )
    process = lab.start("run", scenario)
    wait_until(lambda: len(lab.folders()) >= 1, "a sealed trial", 300)
    spark_cluster.kill_worker()
    try:
        _, said = process.communicate(timeout=400)
        assert process.returncode == 1, said
        assert "no node is left in the Spark cluster: waiting 2" in said
        assert "(spark: {patience: ...})" in said
        assert "none came within 2" in said
        status = json.loads(lab.bench("status", "@last", "--json").stdout)
        assert status["state"] == "interrupted"
        assert status["next"] == f"bench run --resume {lab.run_id()} --executor local"
        empty = lab.bench("run", lab.scenario("once", executor="spark", spark=spark_cluster.settings), code=2)
        assert "the Spark cluster has no live worker" in empty.stderr
    finally:
        spark_cluster.add_worker()
    lab.bench("run", "--resume", status["run_id"], "--executor", "local")
    assert [trial.outcome for trial in lab.trials()] == ["succeeded"] * 3


def test_a_cluster_that_dies_for_good_ends_the_run_and_another_executor_finishes_it(lab, spark_cluster):
    lab.hold(1)
    scenario = lab.scenario(
        "slow", executor="spark", spark=spark_cluster.settings, workload={"seconds": 0, "n": [0, 1, 2, 3]}
    )
    process = lab.start("run", scenario)
    wait_until(lambda: len(lab.folders()) >= 1, "a sealed trial", 240)
    spark_cluster.kill()
    _, said = process.communicate(timeout=400)
    lab.release()
    run_id = lab.run_id()
    assert process.returncode == 1, said
    assert f"the Spark cluster ({spark_cluster.master}) is gone: " in said
    assert f"bench run --resume {run_id} --executor local" in said
    wait_until(lambda: not lab.left_running(), "the trial that ran to end", 240)
    lab.bench("run", "--resume", run_id, "--executor", "local")
    assert [trial.outcome for trial in lab.trials()] == ["succeeded"] * 4
    assert {trial.spec["executor"] for trial in lab.trials()} == {"spark", "local"}


@pytest.mark.parametrize(
    ("says", "why"), [(None, "refused"), (b"HTTP/1.0 400 no\r\n\r\n", "something other than Spark")]
)
def test_a_master_that_does_not_answer_is_told_with_what_to_do(lab, says, why):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if says is None:
            server.close()
        else:
            threading.Thread(target=lambda: server.accept()[0].sendall(says), daemon=True).start()
        spark = {"master": f"spark://127.0.0.1:{port}", "ui": "http://127.0.0.1:9"}
        done = lab.bench("run", lab.scenario("once", executor="spark", spark=spark), code=2)
    assert f"no Spark master answers at spark://127.0.0.1:{port}: " in done.stderr
    assert why in done.stderr
    assert not lab.folders()


def test_silence_is_no_answer():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert unanswered(f"spark://127.0.0.1:{server.getsockname()[1]}", {}, 0.2) == "no answer within 0.2 s"


def test_a_missing_java_says_how_to_install_it(lab):
    lab.variables |= {"PATH": str(lab.root / "empty"), "JAVA_HOME": ""}
    done = lab.bench("run", lab.scenario("once", executor="spark"), code=2)
    assert "Spark needs Java 17 or later, and there is no java on this machine" in done.stderr
    assert "apt-get install default-jre-headless" in done.stderr
    lab.variables |= {"JAVA_HOME": "/nowhere"}
    assert "JAVA_HOME is /nowhere" in lab.bench("run", lab.scenario("once", executor="spark"), code=2).stderr


@pytest.mark.parametrize(
    ("spark", "words"),
    [
        ({"master": "yarn"}, "is no master of Spark"),
        ({"master": "local[x]"}, "is no master of Spark"),
        ({"master": "local-cluster[2,1]"}, "is no master of Spark"),
        ({"conf": {"--driver-java-options": "x"}}, "is no property of Spark"),
        ({"conf": {"spark.task.cpus": "3"}}, "follows from resources"),
    ],
)
def test_what_spark_would_not_understand_is_refused(spark, words):
    with pytest.raises(ValidationError, match=words):
        SparkSettings(**spark)


# -- what an application asks for, by itself -----------------------------------------------------------------------


def test_on_a_cluster_each_trial_has_an_executor_as_large_as_itself(tmp_path):
    asked = properties("spark://h:7077", Ask(cpus=3, memory=2 << 30, gpus=1), 4, tmp_path)
    assert asked["spark.task.cpus"] == asked["spark.executor.cores"] == "3"
    assert asked["spark.executor.memory"] == "2048m"
    assert asked["spark.cores.max"] == "12"
    assert asked["spark.executor.resource.gpu.amount"] == asked["spark.task.resource.gpu.amount"] == "1"
    assert "spark.driver.host" not in asked


@pytest.mark.parametrize(
    ("ask", "slots", "room"),
    [
        (Ask(cpus=1), 3, 3),
        (Ask(cpus=2), 8, 2),
        (Ask(cpus=1, memory=6 << 30), 8, 1),
        (Ask(cpus=1, gpus=1), 8, 2),
    ],
)
def test_local_spark_runs_as_many_as_the_machine_holds(ask, slots, room):
    assert slots_in(Node(name="here", cpus=4, gpus=2, memory=8 << 30), ask, slots) == room


def test_local_spark_listens_to_nobody_else(tmp_path):
    asked = properties("local[2]", Ask(cpus=1), 2, tmp_path)
    assert asked["spark.driver.bindAddress"] == "127.0.0.1"
    assert asked["spark.authenticate"] == "true"


def test_settings_are_in_no_digest_and_mistakes_have_a_place(lab):
    digests = {
        json.loads(lab.bench("plan", lab.scenario("once", **where), "--json").stdout)["plan_digest"]
        for where in ({}, {"spark": {"master": "spark://elsewhere:7077"}, "dask": {"address": "tcp://elsewhere:8786"}})
    }
    assert len(digests) == 1
    done = lab.bench("validate", lab.scenario("once", spark={"mastr": "local"}), code=2)
    assert "did you mean 'master'" in done.stderr
    assert "s.yaml:1:" in done.stderr


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "x.Error: Traceback (most recent call last):\n  File x\n    y\nModuleNotFoundError: no z\n\n\tat o.a",
            "ModuleNotFoundError: no z",
        ),
        ("java.io.IOException: no room\n\tat org.apache.spark", "java.io.IOException: no room"),
        ("", ""),
    ],
)
def test_of_an_exception_the_line_that_says_most_is_told(said, told):
    assert essence(said) == told
