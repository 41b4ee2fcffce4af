"""How long requests were held together, from whatever a trial kept of them."""

import pyarrow as pa
import pytest
from pyarrow import parquet
from tables import check_table

from benchhouse.results.request_files import files_of, hold_of
from benchhouse.schema.layout import TrialFolder

TOOK_MS = [5.0] * 20 + [300.0, 290.0, 280.0] + [5.0] * 20


def write_requests(folder, ended=True):
    due = [0.01 * at for at in range(len(TOOK_MS))]
    took = [ms / 1e3 for ms in TOOK_MS]
    end = [1.0 * at if ended else None for at in range(len(due))]  # one after the other, however long each took
    begin = [at - ms for at, ms in zip(end, took, strict=True)] if ended else due
    columns = {"measured": [True] * len(due), "due_s": begin, "ended_s": pa.array(end, pa.float64())}
    parquet.write_table(pa.table(columns), folder.artifacts / "requests.parquet")


def write_samples(folder, unit="ms", metric="latency", window=""):
    lines = [f"{metric},{window},{at},{value},{unit}" for at, value in enumerate(TOOK_MS)]
    folder.samples.write_text("\n".join(["metric,window,index,value,unit", *lines]) + "\n")


@pytest.fixture
def folder(tmp_path):
    made = TrialFolder(tmp_path)
    made.artifacts.mkdir()
    return made


def test_requests_are_read_before_samples_and_samples_before_seconds(folder):
    assert hold_of(folder, ["latency"]) is None and files_of(folder) == []
    head = "second,sent,completed,errors,in_flight,due,good\n"
    seconds = ["0,5,5,0,0,5,5", "1,5,0,0,5,5,0", "2,5,0,0,10,5,0", "3,5,15,0,0,5,1", "4,0,0,0,0,0,0"]
    (folder.artifacts / "intervals.csv").write_text(head + "\n".join(seconds) + "\n")
    assert hold_of(folder, ["latency"]) == 2.0
    write_samples(folder)
    assert hold_of(folder, ["latency"]) == pytest.approx(0.29)
    write_requests(folder)
    folder.samples.unlink()
    assert hold_of(folder, ["latency"]) == pytest.approx(0.29)
    assert files_of(folder) == ["artifacts/requests.parquet"]


@check_table(
    "given, held",
    [({"unit": "us"}, 290e-6), ({"unit": "B"}, None), ({"metric": "size"}, None), ({"window": "rank:1"}, None)],
)
def test_only_samples_of_that_time_over_the_whole_trial_count(folder, given, held):
    write_samples(folder, **given)
    found = hold_of(folder, ["latency"])
    assert found is None if held is None else found == pytest.approx(held)


@check_table("content", [b"", b"PAR1 no", b"metric,window\nlatency,\n", b"metric\xff\n1\n"])
def test_damaged_files_are_left_to_verify(folder, content):
    (folder.artifacts / "requests.parquet").write_bytes(content)
    folder.samples.write_bytes(content)
    (folder.artifacts / "intervals.csv").write_bytes(content)
    assert hold_of(folder, ["latency"]) in (None, 0.0)


def test_requests_without_an_end_tell_nothing(folder):
    write_requests(folder, ended=False)
    assert hold_of(folder, ["latency"]) is None
