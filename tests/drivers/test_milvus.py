"""What is Milvus's own: an index that Lite lacks, and options that get lost on the way."""

import pytest
from drivers.vector_conformance import DIMENSIONS, OPTIONS, data
from drivers.vector_conformance import folder as folder

from benchhouse.drivers.milvus import Milvus
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.vector import Collection
from benchhouse.schema.errors import BenchError

pytestmark = pytest.mark.clients


@pytest.fixture
def lite(folder):
    made = []

    def make(index):
        driver = Milvus(str(folder), Collection("own", DIMENSIONS, "l2", index, OPTIONS[index]))
        driver.open()
        made.append(driver)
        return driver

    yield make
    for driver in made:
        driver.delete()
        driver.close()


def test_lite_refuses_pq_and_names_what_it_has(lite):
    with pytest.raises(BenchError, match="no index 'pq'") as refused:
        lite("pq").create()
    assert "flat, ivf, hnsw" in refused.value.hint


def test_options_that_the_server_has_not_heard_are_told(lite):
    """pymilvus 3 and Milvus Lite 3.2 misunderstand each other, and the index is made with Lite's defaults."""
    driver = lite("ivf")
    driver.create()
    driver.ingest(0, data(count=50), None)
    driver.version = "2.6.0"  # what a full Milvus would say: the options are then sent as pymilvus sends them
    with pytest.raises(CallFailed, match="without nlist=4"):
        driver.build()
