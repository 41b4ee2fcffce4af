from pyarrow import parquet

from benchhouse.load.load_record import Call
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.records import Spool, write_parquet

WINDOW = 5_000_000_000


def spooled(path, *replies):
    spool = Spool(path)
    for number, reply in enumerate(replies):
        call = Call(number, WINDOW + number * 1_000_000_000, number > 0, None)
        call.sent_ns, call.ended_ns = call.due_ns + 1_000_000, call.due_ns + 50_000_000
        spool.add(call, reply, WINDOW)
    spool.close()
    return path


def test_times_are_seconds_of_the_window_and_what_was_not_told_is_null(tmp_path):
    first = CallResult(
        token_ns=[WINDOW + 20_000_000, WINDOW + 30_000_000], input_tokens=5, output_tokens=3, size=99, count=2
    )
    spool = spooled(tmp_path / "r.0.spool", first, CallResult(error="http_503"))
    write_parquet([spool], tmp_path / "r.parquet")
    good, bad = parquet.read_table(tmp_path / "r.parquet").to_pylist()
    assert good == {
        "index": 0, "measured": False, "due_s": 0.0, "sent_s": 0.001, "first_output_s": 0.02, "last_output_s": 0.03,
        "ended_s": 0.05, "error": None, "input_tokens": 5, "output_tokens": 3, "cached_tokens": None, "events": 2,
        "size": 99, "count": 2.0,
    }  # fmt: skip
    assert (bad["measured"], bad["due_s"], bad["error"]) == (True, 1.0, "http_503")
    assert bad["first_output_s"] is None and bad["output_tokens"] is None
    assert not spool.exists()


def test_half_a_record_of_a_process_that_was_killed_is_left_out(tmp_path):
    whole = spooled(tmp_path / "r.0.spool", CallResult(), CallResult())
    killed = spooled(tmp_path / "r.1.spool", CallResult(), CallResult(), CallResult())
    killed.write_bytes(killed.read_bytes()[:-7])
    write_parquet([whole, killed], tmp_path / "r.parquet")
    assert parquet.read_table(tmp_path / "r.parquet").num_rows == 4
