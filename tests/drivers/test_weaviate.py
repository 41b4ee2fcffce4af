"""The Weaviate driver asks as the vendor's own client asks. No server was ever asked: there is none to install."""

import json
import urllib.request
import warnings
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from drivers.vector_conformance import DIMENSIONS, OPTIONS, data, labels

from benchhouse.drivers.weaviate import Weaviate
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection
from benchhouse.schema.errors import BenchError

pytestmark = pytest.mark.clients


@pytest.fixture
def endpoint(fake_weaviate):
    return fake_weaviate.endpoint


def asked(endpoint, since=0):
    with urllib.request.urlopen(f"{endpoint.partition('?')[0]}/fake/requests") as answer:
        return json.load(answer)[since:]


def with_the_vendors_client(endpoint):
    """The same life as below, in the words of weaviate-client."""
    weaviate = pytest.importorskip("weaviate")
    from weaviate.classes.config import Configure, DataType, Property, VectorDistances
    from weaviate.classes.data import DataObject
    from weaviate.classes.query import Filter

    at = urlsplit(endpoint)
    grpc_port = int(parse_qs(at.query)["grpc"][0])
    hnsw = Configure.VectorIndex.hnsw(
        distance_metric=VectorDistances.L2_SQUARED, max_connections=16, ef_construction=100, ef=100
    )
    label = Property(name="label", data_type=DataType.INT, index_filterable=True, index_range_filters=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client = weaviate.connect_to_custom(
            at.hostname, at.port, False, at.hostname, grpc_port, False, skip_init_checks=True
        )
        with client:
            none = Configure.Vectorizer.none()
            things = client.collections.create(
                "things", vectorizer_config=none, vector_index_config=hnsw, properties=[label]
            )
            things.data.insert_many(
                [
                    DataObject(uuid=UUID(int=number + 1), properties={"label": int(mark)}, vector=vector.tolist())
                    for number, (vector, mark) in enumerate(zip(data(count=5), labels(5), strict=True))
                ]
            )
            query = data(1, 1)[0].tolist()
            things.query.near_vector(query, limit=3, return_properties=[])
            things.query.near_vector(
                query, limit=3, filters=Filter.by_property("label").less_than(400), return_properties=[]
            )
            things.aggregate.over_all(total_count=True)
            client.collections.delete("things")


def test_every_request_is_the_one_that_the_vendors_client_makes(endpoint):
    before = len(asked(endpoint))
    with_the_vendors_client(endpoint)
    theirs = asked(endpoint, since=before)
    driver = Weaviate(endpoint, Collection("things", DIMENSIONS, "l2", "hnsw", OPTIONS["hnsw"], labels=True))
    driver.open()
    driver.create()
    driver.ingest(0, data(count=5), labels(5))
    driver.search(data(1, 1), 3)
    driver.search(data(1, 1), 3, 400)
    driver.stats()
    driver.delete()
    driver.close()
    ours = asked(endpoint, since=before + len(theirs))
    assert [each.get("method", each.get("path")) for each in theirs] == [
        "/v1/schema", "BatchObjects", "Search", "Search", "Aggregate",
    ]  # fmt: skip
    assert ours == theirs


def test_an_address_without_grpc_behind_it_says_where_to_name_the_port(endpoint, monkeypatch):
    from benchhouse.drivers import vector_shared

    monkeypatch.setattr(vector_shared, "CONNECT_S", 0.5)
    driver = Weaviate(endpoint.partition("?")[0] + "?grpc=1", Collection("things", DIMENSIONS, "l2", "flat"))
    with pytest.raises(CallFailed, match="grpc=PORT"):
        driver.open()
    driver.close()


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(BenchError, match="is a server"):
        Weaviate(str(tmp_path), Collection("things", DIMENSIONS, "l2", "flat"))
