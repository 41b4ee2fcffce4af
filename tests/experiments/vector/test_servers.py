"""`vector.search` against a real server: PostgreSQL with pgvector, as its recipe starts it."""

import os
import signal

import pytest
from services.started import running

from benchhouse.drivers.pgvector import PgVector
from benchhouse.experiments.vector.search import search
from benchhouse.recipes.postgres import RECIPE
from benchhouse.schema.experiment import ExperimentFailed

pytestmark = pytest.mark.clients

FLAT = {"driver": "pgvector", "index": "flat"}
SMALL = {"vectors": 500, "data": {"dimensions": 8}, "queries": 60, "warmup": 0}


def test_exact_search_on_a_server_has_recall_one(play, postgres_server):
    for more in [{}, {"selectivity": 0.2}, {"batch": 7}, {"concurrency": 4, "processes": 2}]:
        ctx = play(search, {**FLAT, "endpoint": postgres_server.endpoint}, {**SMALL, **more, "requests": 80})
        assert ctx.values["recall"] == [1.0]
        assert ctx.facts["measured"] == 80 and ctx.values["errors"] == [0]
        assert "memory_mb" not in ctx.values, "whose memory it is can't be known"


def test_vectors_come_in_over_a_connection_of_their_own(play, postgres_server):
    workload = {**SMALL, "duration": 0.6, "ingest_during": 0.5, "ingest_batch": 25, "concurrency": 2}
    ctx = play(search, {**FLAT, "endpoint": postgres_server.endpoint}, workload)
    assert ctx.values["recall"] == [1.0]
    assert ctx.values["ingest_during_rate"][0] > 0


def test_a_server_killed_in_mid_run_is_told_with_what_was_measured(play, monkeypatch):
    kept, searches, search_once = {}, [0], PgVector.search
    with running(RECIPE) as service:

        def killing(self, *asked):
            searches[0] += 1
            if searches[0] == 40:
                os.killpg(service.pid, signal.SIGKILL)
            return search_once(self, *asked)

        monkeypatch.setattr(PgVector, "search", killing)
        monkeypatch.setattr("benchhouse.experiments.vector.search.judge", lambda book, *_: kept.update(vars(book)))
        with pytest.raises(ExperimentFailed) as failed:
            play(search, {**FLAT, "endpoint": service.endpoint}, {**SMALL, "requests": 5000, "queries": 300})
    assert failed.value.code in ("reset", "refused", "server_error")
    assert 38 <= kept["succeeded"] < 4000, "PostgreSQL's own process of a connection may answer a little longer"
    assert 20 < kept["errors"].total() < 1000, "the load is given up"
    assert kept["stop_code"] == "server_gone"


def test_a_server_of_the_trial_is_started_measured_and_ended(lab):
    scenario = lab.scenario("vector.search", target=FLAT, workload={**SMALL, "requests": 50})
    lab.bench("run", scenario, "--json", code=None)
    (trial,) = lab.trials()
    assert trial.outcome in ("succeeded", "invalid"), trial.meta["failure"]
    value = {
        row["metric"]: row["value"] for row in trial.metrics["benchhouse"]["measurements"] if row["stat"] == "value"
    }
    assert value["recall"] == 1.0
    assert 0 < value["memory_mb"] < 200
    assert trial.meta["custom"]["services"]["postgres"]["start_s"] > 0


def test_a_server_that_is_not_there_is_a_named_failure(play):
    with pytest.raises(ExperimentFailed) as failed:
        play(search, {**FLAT, "endpoint": "postgresql://nobody@127.0.0.1:1/none"}, {**SMALL, "requests": 1})
    assert failed.value.code == "refused"
    assert failed.value.message.endswith("(is the server up, and is its address in target right?)")


def test_a_driver_of_something_else_is_told(play):
    with pytest.raises(ExperimentFailed, match="driver_failed: 's3' is no driver of a vector database"):
        play(search, {"driver": "s3"}, {**SMALL, "requests": 1})


def test_a_driver_that_needs_an_address_says_so(play):
    with pytest.raises(ExperimentFailed, match=r"driver_failed: weaviate is a server.*target.endpoint"):
        play(search, {"driver": "weaviate"}, {**SMALL, "requests": 1})
