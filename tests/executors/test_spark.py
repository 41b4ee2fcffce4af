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

from benchhouse.executors.cluster_engine import ClusterNode, SlotRequest
from benchhouse.executors.spark import unanswered
from benchhouse.executors.spark_engine import essence, properties, slots_in
from benchhouse.executors.task_slots import SPARK_SETS
from benchhouse.schema.clusters import SparkSettings

pytestmark = pytest.mark.timeout(900)  # two Javas and more have to start


@pytest.mark.slow("Spark's driver looks for its master for 15 seconds before the run ends, and six Javas start.")
def test_a_run_survives_a_lost_executor_waits_for_workers_and_ends_with_its_master(lab, spark_cluster):
    """Two trials run side by side. Their Spark loses an executor, then its only worker, and then its master."""
    code = "env > `mktemp -p $LAB env-XXXXXX`; while [ -e $LAB/hold ]; do sleep 0.1; done"
    lab.hold(0)
    scenario = lab.scenario(
        "command", executor="spark", spark={**spark_cluster.settings, "patience": 120}, parallel=2, repetitions=2,
        target={"shell": code}, workload={"executions": 1}, retries={"max_retries": 3, "backoff": 0.05},
    )  # fmt: skip
    done = lab.bench("run", lab.scenario("once", "large", **_on(spark_cluster), resources={"memory": "8GB"}), code=2)
    assert "of memory (nodes: 127.0.0.1 has 2 cores, 0 GPUs, 2.0 GiB)" in done.stderr

    process = lab.start("run", scenario)
    wait_until(lambda: len(list(lab.marks.glob("env-*"))) == 2, "two trials side by side", 280)
    executors = spark_cluster.executors()
    assert len(executors) == 2, "each slot has its own"
    os.kill(executors[0], signal.SIGKILL)
    lab.wait_for_lost(1)
    wait_until(lambda: len(list(lab.marks.glob("env-*"))) == 3, "the second attempt of the lost trial", 280)
    lost = [event for event in lab.events() if event["event"] == "ended" and event["outcome"] == "lost"]
    assert len(lost) == 1 and "its slot on" in lost[0]["reason"]
    for path in lab.marks.glob("env-*"):
        seen = dict(line.partition("=")[::2] for line in path.read_text().splitlines())
        assert all(seen.get(name) == lab.environment().get(name) for name in SPARK_SETS)

    spark_cluster.kill_worker()
    assert any("no node is left in the Spark cluster: waiting 2 m" in line for line in process.stderr)
    empty = lab.bench("run", lab.scenario("once", "empty", **_on(spark_cluster)), code=2)
    assert "the Spark cluster has no live worker" in empty.stderr

    spark_cluster.kill()
    _, messages = process.communicate(timeout=400)
    assert process.returncode == 1, messages
    assert f"the Spark cluster ({spark_cluster.master}) is gone: " in messages
    (run_id,) = {path.name for path in (lab.workspace / ".bench" / "runs").iterdir()}
    assert f"bench run --resume {run_id} --executor local" in messages
    assert json.loads(lab.bench("status", run_id, "--json").stdout)["state"] == "interrupted"
    wait_until(lambda: not lab.left_running(), "all that ran there to end", 240)
    lab.release()
    lab.bench("run", "--resume", run_id, "--executor", "local")
    assert [trial.outcome for trial in lab.trials()] == ["succeeded"] * 2


def _on(cluster):
    return {"executor": "spark", "spark": cluster.settings}


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
    asked = properties("spark://h:7077", SlotRequest(cpus=3, memory=2 << 30, gpus=1), 4, tmp_path)
    assert asked["spark.task.cpus"] == asked["spark.executor.cores"] == "3"
    assert asked["spark.executor.memory"] == "2048m"
    assert asked["spark.cores.max"] == "12"
    assert asked["spark.executor.resource.gpu.amount"] == asked["spark.task.resource.gpu.amount"] == "1"
    assert "spark.driver.host" not in asked


@pytest.mark.parametrize(
    ("ask", "slots", "room"),
    [
        (SlotRequest(cpus=1), 3, 3),
        (SlotRequest(cpus=2), 8, 2),
        (SlotRequest(cpus=1, memory=6 << 30), 8, 1),
        (SlotRequest(cpus=1, gpus=1), 8, 2),
    ],
)
def test_local_spark_runs_as_many_as_the_machine_holds(ask, slots, room):
    assert slots_in(ClusterNode(name="here", cpus=4, gpus=2, memory=8 << 30), ask, slots) == room


def test_local_spark_listens_to_nobody_else(tmp_path):
    asked = properties("local[2]", SlotRequest(cpus=1), 2, tmp_path)
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
