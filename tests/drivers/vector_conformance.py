"""What every driver of a vector database must do. A class of tests a driver:

    class TestMine(VectorConformance):
        driver = Mine

        @pytest.fixture
        def place(self, folder):
            return Place(str(folder), lambda: os.listdir(folder))

The same tests then run for each index and distance that the driver claims. A server says so by `pid` (see `Place`),
and must also survive being frozen and killed, of its own, which the fixture `doomed` starts.
"""

import contextlib
import gc
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy
import pytest

from benchhouse.drivers import vector_shared
from benchhouse.load.protocols.calls import ERRORS, CallFailed
from benchhouse.load.protocols.vector import LABELS, Collection
from benchhouse.schema.errors import BenchError

DIMENSIONS, COUNT, K = 8, 300, 10
OPTIONS = {
    "flat": {},
    "ivf": {"nlist": 4, "nprobe": 4},
    "hnsw": {"m": 16, "ef_construction": 100, "ef_search": 100},
    "pq": {"pq_m": DIMENSIONS, "pq_bits": 8},
}
EFFORTS = {
    "ivf": ({"nlist": 16, "nprobe": 1}, {"nlist": 16, "nprobe": 16}),
    "hnsw": (
        {"m": 4, "ef_construction": 8, "ef_search": 1},
        {"m": 16, "ef_construction": 100, "ef_search": 100},
    ),
}
LEAST_RECALL = {"flat": 1.0, "ivf": 0.95, "hnsw": 0.95, "pq": 0.6}
NAMES = {"refused", "reset", "timeout", "dns", "server_error"}


@dataclass(frozen=True)
class Place:
    """Where a driver works: what it is given as endpoint, what lies there now, and the process of a server."""

    endpoint: str
    contents: Callable[[], Iterable[str]]
    pid: int | None = None
    on_disk: bool = True  # else nothing is ever seen there


@pytest.fixture
def folder():
    """Empty, in memory: some databases wait for the disk after each vector."""
    made = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def data(seed: int = 0, count: int = COUNT) -> numpy.ndarray:
    return numpy.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(numpy.float32)


def labels(count: int = COUNT) -> numpy.ndarray:
    return numpy.random.default_rng(7).integers(0, LABELS, count)


def neighbours(vectors: numpy.ndarray, queries: numpy.ndarray, k: int, distance: str) -> numpy.ndarray:
    """By brute force, in float64."""
    vectors, queries = vectors.astype(float), queries.astype(float)
    if distance == "cosine":
        vectors = vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)
    far = -(queries @ vectors.T)
    if distance == "l2":
        far = ((queries[:, None, :] - vectors[None, :, :]) ** 2).sum(axis=2)
    return numpy.argsort(far, axis=1)[:, :k]


def recall(found: numpy.ndarray, truth: numpy.ndarray) -> float:
    return numpy.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), truth.tolist(), strict=True)])


class VectorConformance:
    driver: type
    indexes: tuple[str, ...] = ()  # where the place has fewer than the driver claims
    ignores_options = False  # of a fake

    @pytest.fixture
    def place(self) -> Place:
        pytest.fail("a suite says where its driver's data live: give it a fixture `place`")

    @pytest.fixture
    def doomed(self) -> Place:
        """A server that the test may kill; those that are no server need none."""
        pytest.skip("it runs inside this process")

    @classmethod
    def pytest_generate_tests(cls, metafunc):
        if "index" in metafunc.fixturenames:
            metafunc.parametrize("index", cls.indexes or cls.driver.indexes)

    @pytest.fixture
    def make(self, place):
        """Open drivers; deleted and closed after the test."""
        made = []

        def open_one(index="", distance="", name="conform", with_labels=False, endpoint="", options=None):
            index = index or (self.indexes or self.driver.indexes)[0]
            distance = distance or self.driver.distances[0]
            asked = Collection(name, DIMENSIONS, distance, index, options or OPTIONS[index], labels=with_labels)
            driver = self.driver(endpoint or place.endpoint, asked)
            driver.open()
            made.append(driver)
            return driver

        yield open_one
        for driver in reversed(made):
            with contextlib.suppress(CallFailed):
                driver.delete()
            driver.close()

    def filled(self, make, vectors, parts=1, **asked):
        driver = make(**asked)
        driver.create()
        first = 0
        marks = labels(len(vectors)) if asked.get("with_labels") else None
        for part in numpy.array_split(numpy.arange(len(vectors)), parts) if len(vectors) else ():
            driver.ingest(first, vectors[part], None if marks is None else marks[part])
            first += len(part)
        driver.build()
        return driver

    # The life of a collection.

    def test_a_whole_life_and_one_cut_short_leave_nothing_behind_and_the_name_is_free_again(self, make, place):
        before = sorted(place.contents())
        driver = self.filled(make, data())
        if place.on_disk:
            assert sorted(place.contents()) != before, "the suite must be able to see what is there"
        assert driver.version
        assert driver.stats().vectors == COUNT
        size = driver.stats().bytes
        assert size is None or size > COUNT * DIMENSIONS / 2
        driver.delete()
        driver.delete()
        driver.close()
        assert sorted(place.contents()) == before
        for ingested in (0, 20):
            driver = make()
            driver.create()
            if ingested:
                driver.ingest(0, data(count=ingested), None)
                driver.build()
                assert driver.stats().vectors == ingested, "nothing is left of the first one of this name"
            driver.delete()
            driver.close()
            driver.close()
            assert sorted(place.contents()) == before
        make().delete()
        assert sorted(place.contents()) == before, "delete before create touches nothing"

    def test_nothing_stays_open_after_close(self, make):
        def live():
            driver = make()
            driver.create()
            driver.ingest(0, data(count=5), None)
            driver.build()
            driver.search(data(1, 1), 1)
            driver.delete()
            driver.close()
            return _open_files()

        before = live()  # what a library opens once, it may keep
        for _ in range(2):
            after = live()
        deadline = time.monotonic() + 60
        while after > before and time.monotonic() < deadline:  # gRPC takes a moment
            time.sleep(0.05)
            after = _open_files()
        assert after <= before

    def test_a_collection_of_that_name_is_left_intact(self, make):
        vectors = data()
        owner = self.filled(make, vectors)
        truth = owner.search(vectors[:5], K)
        if self.driver.shared:
            with pytest.raises(BenchError, match="already"):
                owner.create()
        else:
            other = make()
            with pytest.raises(BenchError, match="already"):
                other.create()
            other.delete()
        assert owner.stats().vectors == COUNT
        assert (owner.search(vectors[:5], K) == truth).all()

    # Truth.

    def test_neighbours_are_those_of_brute_force(self, make, index):
        """With each distance; those of further indexes with the first distance alone."""
        first = index == (self.indexes or self.driver.indexes)[0]
        for distance in self.driver.distances if first else self.driver.distances[:1]:
            vectors, queries = data(), data(1, 40)
            found = self.filled(make, vectors, index=index, distance=distance, name=f"by_{distance}").search(queries, K)
            truth = neighbours(vectors, queries, K, distance)
            assert found.shape == (40, K)
            assert found.dtype == numpy.int64
            if LEAST_RECALL[index] == 1:
                assert (found == truth).all(), "exact, and best first"
            assert recall(found, truth) >= LEAST_RECALL[index]

    def test_the_options_of_an_index_are_heard(self, make, index):
        """A search with little effort misses what one with much finds; a database may well ignore what it is told."""
        if index not in EFFORTS or self.ignores_options:
            pytest.skip("it has no options")
        vectors, queries = data(count=1000), data(1, 100)
        truth = neighbours(vectors, queries, 1, self.driver.distances[0])
        little, much = (
            recall(self.filled(make, vectors, index=index, options=options, name=name).search(queries, 1), truth)
            for name, options in zip(("little", "much"), EFFORTS[index], strict=True)
        )
        assert little < much - 0.05
        assert much > 0.95

    def test_a_filter_lets_only_labels_below_through(self, make, index):
        if not self.driver.filters:
            pytest.skip("it has no filters")
        vectors, queries, marks = data(), data(1, 20), labels()
        driver = self.filled(make, vectors, index=index, with_labels=True)
        for below in (LABELS // 2, LABELS // 10):
            among = numpy.flatnonzero(marks < below)
            found = driver.search(queries, K, below)
            assert set(found.ravel().tolist()) <= {*among.tolist(), -1}
            truth = among[neighbours(vectors[among], queries, K, self.driver.distances[0])]
            assert recall(found, truth) >= LEAST_RECALL[index] - 0.1 * (index != "flat")
        assert (driver.search(queries, K, 0) == -1).all()
        assert recall(driver.search(queries, K), neighbours(vectors, queries, K, self.driver.distances[0])) > 0.5

    def test_ids_count_from_first_in_batches_and_threads_find_what_one_finds(self, make):
        vectors, queries = data(), data(1, 24)
        owner = self.filled(make, vectors, parts=4)
        assert owner.search(vectors[[0, 74, 75, 150, 299]], 1)[:, 0].tolist() == [0, 74, 75, 150, 299]
        alone = owner.search(queries, K)
        drivers = [owner if self.driver.shared else make() for _ in range(4)]
        with ThreadPoolExecutor(4) as crew:
            parts = numpy.array_split(queries, 4)
            found = crew.map(lambda one, part: [one.search(query[None], K) for query in part], drivers, parts)
            assert (numpy.concatenate([each for part in found for each in part]) == alone).all()

    def test_a_small_collection_finds_all_it_has_and_refuses_what_is_no_vector_of_its_own(self, make):
        vectors = data(count=60)
        empty = self.filled(make, vectors[:0], name="empty")
        assert (empty.search(data(1, 2), 3) == -1).all()
        assert empty.stats().vectors == 0

        four = self.filled(make, vectors[:4], name="four")
        found = four.search(vectors[:2], 7)
        assert [sorted(row[:4]) for row in found.tolist()] == [[0, 1, 2, 3]] * 2
        assert (found[:, 4:] == -1).all()

        driver = make()
        driver.create()
        driver.ingest(5000, vectors[30:], None)
        driver.ingest(70, vectors[:30], None)
        driver.build()
        assert driver.search(vectors[[0, 29, 30, 59]], 1)[:, 0].tolist() == [70, 99, 5000, 5029]
        with pytest.raises(BenchError, match="label"):
            driver.search(data(1, 1), 1, 500)
        for bad in (numpy.nan, numpy.inf):
            wrong = data(1, 3)
            wrong[1, 2] = bad
            with pytest.raises(BenchError, match="NaN"):
                driver.ingest(200, wrong, None)
            with pytest.raises(BenchError, match="NaN"):
                driver.search(wrong, 1)
        for wrong in (data(1, 2)[:, :-1].copy(), data(1, 1)[0]):
            with pytest.raises(BenchError, match="dimensions"):
                driver.ingest(200, wrong, None)
            with pytest.raises(BenchError, match="dimensions"):
                driver.search(wrong, 1)
        assert driver.stats().vectors == 60

    # Bad input.

    def test_what_it_lacks_is_refused_and_what_it_has_is_named(self, place):
        for index, distance in (("octree", self.driver.distances[0]), (self.driver.indexes[0], "hamming")):
            with pytest.raises(BenchError) as refused:
                self.driver(place.endpoint, Collection("conform", DIMENSIONS, distance, index))
            has = self.driver.indexes if index == "octree" else self.driver.distances
            assert all(name in refused.value.hint for name in has)

    # Servers: gone, silent, frozen, killed.

    def test_an_address_without_such_a_server_is_a_named_failure(self, make, place, monkeypatch):
        """No server listens there, or one that never answers, or a server of another kind."""
        if place.pid is None:
            pytest.skip("it runs inside this process")
        monkeypatch.setattr(vector_shared, "CONNECT_S", 2.0)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with pytest.raises(CallFailed) as failed:
            make(endpoint=_with_port(place.endpoint, port))
        assert failed.value.kind == "refused"
        assert failed.value.detail

        monkeypatch.setattr(vector_shared, "CONNECT_S", 0.7)
        with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(CallFailed) as failed:
            make(endpoint=_with_port(place.endpoint, silent.getsockname()[1]))
        assert failed.value.kind == "timeout"

        monkeypatch.setattr(vector_shared, "CONNECT_S", 1.0)
        with HTTPServer(("127.0.0.1", 0), _Hello) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            with pytest.raises((BenchError, CallFailed)) as refused:
                make(endpoint=_with_port(place.endpoint, other.server_port))
            other.shutdown()
        assert "client" not in str(refused.value)

    def test_a_frozen_server_is_a_timeout_and_a_killed_one_an_error(self, doomed, make, monkeypatch):
        monkeypatch.setattr(vector_shared, "ANSWER_S", 1.5)
        driver = self.filled(make, data(count=50), endpoint=doomed.endpoint)
        with _frozen(doomed.pid):
            began = time.monotonic()
            with pytest.raises(CallFailed) as failed:
                driver.search(data(1, 1), 1)
            assert failed.value.kind == "timeout"
            assert 1 < time.monotonic() - began < 6
        driver = driver if self.driver.shared else make(endpoint=doomed.endpoint)
        driver.search(data(1, 1), 1)
        kinds: list[str] = []

        def search_on():
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and len(kinds) < 3:
                try:
                    driver.search(data(1, 1), 1)
                except CallFailed as problem:
                    kinds.append(problem.kind)

        searching = threading.Thread(target=search_on)
        searching.start()
        time.sleep(0.2)
        began = time.monotonic()
        _signal(_family(doomed.pid), signal.SIGKILL)
        searching.join()
        assert time.monotonic() - began < 10
        assert len(kinds) == 3
        assert set(kinds) <= NAMES - {"dns"} <= set(ERRORS)
        assert set(kinds) & {"reset", "refused"}


class _Hello(BaseHTTPRequestHandler):
    timeout = 1  # for those who say nothing that HTTP knows

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_):
        pass


def _open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def _family(pid: int) -> list[int]:
    """A process and all that came from it, also those with a session of their own, as PostgreSQL's have."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += _family(int(child))
    return [*found, pid]


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _stands_still(pid: int) -> bool:
    """All its threads: a signal that stops a process takes a moment to reach each of them."""
    states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) <= {"T", "Z"}


@contextlib.contextmanager
def _frozen(pid: int):
    family = _family(pid)
    _signal(family, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 60
        while not all(_stands_still(each) for each in family):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield
    finally:
        _signal(family, signal.SIGCONT)


def _with_port(endpoint: str, port: int) -> str:
    head, _, rest = endpoint.rpartition(":")
    return f"{head}:{port}{rest.lstrip('0123456789')}"
