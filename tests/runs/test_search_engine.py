"""Numbers and logs go to a search engine, at its pace; what it refuses for good is kept.

The server is a fake; that it understands its protocol is shown by the official client, which is held to it as well.
"""

import json

import pytest
from elasticsearch import Elasticsearch, helpers
from mocks.fake_search_engine import FakeSearchEngine

from benchhouse.runs.search_engine import SearchDocument, SearchEngine, templates
from benchhouse.schema.errors import BenchError


@pytest.fixture
def server():
    fake = FakeSearchEngine()
    yield fake
    fake.close()


def engine(server, waits):
    return SearchEngine(server.url, sleep=waits.append)


def some(count, **more):
    return [SearchDocument("b-measurements", f"id{number}", {"value": number, **more}) for number in range(count)]


def test_what_we_send_is_what_the_official_client_sends_and_reads(server):
    client = Elasticsearch(server.url)
    for name, body in templates("b").items():
        client.indices.put_index_template(name=name, **{"meta" if k == "_meta" else k: v for k, v in body.items()})
    theirs = server.templates.copy()
    actions = [{"_index": item.index, "_id": item.id, "_source": item.body} for item in some(3)]
    assert helpers.bulk(client, actions) == (3, [])
    stored = json.loads(json.dumps(server.indices))
    server.indices.clear()
    server.templates.clear()
    ours = engine(server, [])
    ours.put_templates("b")
    assert list(ours.send(some(3))) == []
    assert (server.indices, server.templates) == (stored, theirs)
    assert client.count(index="b-measurements")["count"] == 3
    hits = client.search(index="b-measurements")["hits"]["hits"]
    assert {hit["_id"]: hit["_source"] for hit in hits} == {item.id: item.body for item in some(3)}


def test_a_busy_server_is_given_time_and_less_at_once(server):
    waits, server.busy, server.slow = [], [429, 503], 100
    assert list(engine(server, waits).send(some(1200))) == []
    assert len(server.indices["b-measurements"]) == 1200
    assert waits[:2] == [0.5, 1.0] and server.sizes[:3] == [500, 250, 125] and max(server.sizes[3:]) <= 250


def test_a_server_that_stays_busy_ends_the_sending_and_what_it_took_stays(server):
    waits, server.busy = [], [429] * 20
    with pytest.raises(BenchError, match="stays too busy"):
        list(engine(server, waits).send(some(10)))
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0]
    server.busy = []
    for _ in range(2):  # the same ids: sent again, they are still the same documents
        assert list(engine(server, []).send(some(10))) == []
    assert len(server.indices["b-measurements"]) == 10


def test_what_is_refused_for_good_comes_back_with_its_reason(server):
    bad = SearchDocument("b-measurements", "bad", {"value": "text"})
    large = SearchDocument("b-logs", "large", {"line": "x" * 5000})
    server.largest = 3000
    refused = list(engine(server, []).send([*some(3), bad, large]))
    assert [(item.document.id, item.status) for item in refused] == [("bad", 400), ("large", 413)]
    assert "document_parsing_exception" in refused[0].reason and len(server.indices["b-measurements"]) == 3


def test_a_run_goes_there_by_itself_and_what_was_away_is_made_up_for(server, bench, tmp_path, monkeypatch):
    monkeypatch.setenv("SEARCH_API_KEY", "s3cret-key-value")
    settings = {"search": {"url": server.url, "api_key": "$SEARCH_API_KEY", "prefix": "team"}}
    (tmp_path / "workspace.yaml").write_text(json.dumps(settings))
    scenario = {"scenario": "hi", "labels": {"team": "core"}, "experiment": "command"}
    scenario |= {"target": {"argv": ["echo", "hello"]}, "workload": {"executions": 2}}
    (tmp_path / "hi.yaml").write_text(json.dumps(scenario))
    server.busy = [403]
    done = bench("run", "hi.yaml")
    assert done.code == 0 and "not shared" in done.err and "answers 403" in done.err
    shared = bench("warehouse", "share")
    assert shared.code == 0, shared.err
    numbers = list(server.indices["team-measurements"].values())
    assert {"wall_ms", "cpu_ms"} <= {item["metric"] for item in numbers}
    assert numbers[0]["labels"] == {"team": "core"} and numbers[0]["scenario"] == "hi"
    assert server.indices["team-logs"] and server.templates.keys() == {"team-measurements", "team-logs"}
    assert server.authorizations == {"ApiKey s3cret-key-value"}
    texts = [path.read_text(errors="replace") for path in (tmp_path / ".bench").rglob("*.json*")]
    assert "s3cret-key-value" not in "".join([*texts, done.out, done.err, shared.out, shared.err])
    monkeypatch.delenv("SEARCH_API_KEY")
    (tmp_path / ".bench" / "shared.jsonl").unlink()
    assert "is not set" in bench("warehouse", "share").out + bench("warehouse", "share").err
    monkeypatch.setenv("SEARCH_API_KEY", "s3cret-key-value")
    bench("warehouse", "share")
    sent = len(server.sizes)
    bench("warehouse", "share")
    assert len(server.sizes) == sent  # the journal knows


@pytest.mark.parametrize(
    ("search", "phrase"),
    [
        ({"url": "http://user:plainsecret@host:9200"}, "plain text"),
        ({"url": "http://host:9200", "api_key": "abcdef"}, "does not match"),
        ({"url": "host:9200"}, "does not match"),
        ({"url": "http://host", "prefix": "Team!"}, "does not match"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_their_place(search, phrase, bench, tmp_path):
    (tmp_path / "workspace.yaml").write_text(json.dumps({"search": search}))
    done = bench("warehouse", "share")
    assert done.code == 2 and "workspace.yaml:1:" in done.err and phrase in done.err
    assert "plainsecret" not in done.err
