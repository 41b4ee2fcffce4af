"""Every driver of a vector database, through the one suite; that of FAISS is in a file of its own."""

import json
import os
import urllib.request

import pytest
from drivers.vector_conformance import Place, VectorConformance
from drivers.vector_conformance import folder as folder
from services.fake_weaviate import FAKE
from services.pgvector import need_pgvector
from services.started import running

from benchhouse.drivers.chroma import Chroma
from benchhouse.drivers.lancedb import LanceDB
from benchhouse.drivers.milvus import Milvus
from benchhouse.drivers.pgvector import PgVector
from benchhouse.drivers.qdrant import Qdrant
from benchhouse.drivers.weaviate import Weaviate
from benchhouse.recipes import chroma as chroma_recipe
from benchhouse.recipes import milvus_lite as milvus_recipe
from benchhouse.recipes import postgres as postgres_recipe

pytestmark = pytest.mark.clients


class OnFolder(VectorConformance):
    """A database inside this process, whose endpoint is a folder."""

    @pytest.fixture
    def place(self, folder):
        return Place(str(folder), lambda: os.listdir(folder))


class TestLanceDB(OnFolder):
    driver = LanceDB


class TestChromaOnFolder(OnFolder):
    driver = Chroma


class TestQdrantOnFolder(OnFolder):
    driver = Qdrant
    indexes = ("flat",)


class TestMilvusOnFolder(OnFolder):
    driver = Milvus
    indexes = ("flat", "ivf", "hnsw")


def chroma_place(service):
    def collections():
        at = f"{service.endpoint}/api/v2/tenants/default_tenant/databases/default_database/collections"
        with urllib.request.urlopen(at) as answer:
            return [each["name"] for each in json.load(answer)]

    return Place(service.endpoint, collections, service.pid)


class TestChromaServer(VectorConformance):
    driver = Chroma

    @pytest.fixture
    def place(self, chroma):
        return chroma_place(chroma)

    @pytest.fixture
    def doomed(self):
        with running(chroma_recipe.RECIPE) as service:
            yield chroma_place(service)


def tables(endpoint):
    """Tables, indexes and extensions that are not PostgreSQL's own."""
    import psycopg

    with psycopg.connect(endpoint) as connection:
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
            "UNION ALL SELECT extname FROM pg_extension"
        )
        return [name for (name,) in found]


class TestPgVector(VectorConformance):
    driver = PgVector

    @pytest.fixture
    def place(self, postgres_server):
        need_pgvector(postgres_server)
        return Place(postgres_server.endpoint, lambda: tables(postgres_server.endpoint), postgres_server.pid)

    @pytest.fixture
    def doomed(self):
        words = (*postgres_recipe.RECIPE.command, "-c", "dynamic_shared_memory_type=mmap")  # goes with its folder
        with running(postgres_recipe.RECIPE.model_copy(update={"command": words})) as service:
            yield Place(service.endpoint, lambda: tables(service.endpoint), service.pid)


def milvus_place(service):
    from pymilvus import MilvusClient

    def collections():
        client = MilvusClient(service.endpoint, dedicated=True)
        try:
            return client.list_collections()
        finally:
            client.close()

    return Place(service.endpoint, collections, service.pid)


class TestMilvusServer(VectorConformance):
    driver = Milvus
    indexes = ("flat", "hnsw")

    @pytest.fixture
    def place(self, milvus):
        return milvus_place(milvus)

    @pytest.fixture
    def doomed(self):
        with running(milvus_recipe.RECIPE) as service:
            yield milvus_place(service)


def weaviate_place(service):
    def classes():
        with urllib.request.urlopen(f"{service.endpoint.partition('?')[0]}/v1/schema") as answer:
            return [each["class"] for each in json.load(answer)["classes"]]

    return Place(service.endpoint, classes, service.pid)


class TestWeaviateAgainstAFake(VectorConformance):
    """The protocol alone: the fake searches by brute force, whatever the index and its options."""

    driver = Weaviate
    ignores_options = True

    @pytest.fixture
    def place(self, fake_weaviate):
        return weaviate_place(fake_weaviate)

    @pytest.fixture
    def doomed(self):
        with running(FAKE) as service:
            yield weaviate_place(service)
