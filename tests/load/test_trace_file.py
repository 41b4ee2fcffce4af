import os

import pytest
from pydantic import TypeAdapter, ValidationError
from tables import check_rows

from benchhouse.load.arrivals import Arrivals, TraceArrivals

NS = 1_000_000_000
READ = TypeAdapter(Arrivals)


def test_a_trace_is_replayed_from_its_first_arrival_whatever_its_form(trace):
    rows = [
        ("plain.txt", "100.5\n101\n101\n\n  104.25\n"),
        ("windows.txt", "100.5\r\n101\r\n101\r\n104.25"),
        ("table.csv", 'id,timestamp,prompt\n1,100.5,"a\nb"\n2,101,c\n3,101.0,d\n\n4,104.25,e\n'),
        ("marked.csv", "\ufefftimestamp,n\n100.5,1\n101,2\n101,3\n104.25,1\n"),
        (
            "lines.jsonl",
            '{"timestamp": 100.5}\n{"n": 1, "timestamp": 101}\n{"timestamp": 101.0}\n{"timestamp": "104.25"}\n',
        ),
    ]

    def check(name, text):
        file = trace(text, name)
        assert list(TraceArrivals(file=file).due(None, 1)) == [0, NS // 2, NS // 2, 3_750_000_000]
        assert list(TraceArrivals(file=file, speed=2).due(None, 1)) == [0, NS // 4, NS // 4, 1_875_000_000]

    check_rows(check, rows)


def test_a_trace_keeps_nanoseconds_of_the_epoch(trace):
    file = trace("1700000000.123456789\n1700000000.123456790\n1700000001.123456789\n")
    assert list(TraceArrivals(file=file).due(None, 1)) == [0, 1, NS]


def test_a_bad_trace_is_refused_with_file_and_line(trace):
    rows = [
        ("", "no timestamps"),
        ("\n \n", "no timestamps"),
        ("timestamp,n\n", "no timestamps"),
        ("1\n3\n2\n", r"trace.txt:3: timestamps must ascend, found 2"),
        ("timestamp\n5\n4\n", r"trace.txt:3: timestamps must ascend"),
        ("1\nnan\n", r"trace.txt:2: expected seconds.*'nan'"),
        ("1\ninf\n", r"trace.txt:2: expected seconds.*'inf'"),
        ("1\n1e999999\n", r"trace.txt:2: expected seconds"),
        ("time,n\n1,2\n", r"trace.txt:1: expected seconds, or a column `timestamp`"),
        ("n,timestamp\n1,2\n3\n", r"trace.txt:3: expected seconds.*''"),
        ('{"timestamp": 1}\n{"time": 2}\n', r"trace.txt:2: expected seconds"),
        ('{"timestamp": 1}\n{"timestamp": NaN}\n', r"trace.txt:2: expected seconds"),
        ('{"timestamp": null}\n', r"trace.txt:1: expected seconds"),
        ('{"timestamp": [1]}\n', r"trace.txt:1: expected seconds"),
        ('{"timestamp": 1\n', r"trace.txt:1: expected seconds"),
        (b"1\n\xff\xfe\n", r"trace.txt:2: expected seconds"),
    ]

    def check(text, said):
        with pytest.raises(ValidationError, match=said):
            READ.validate_python({"kind": "trace", "file": trace(text)})

    check_rows(check, rows)


def test_a_trace_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValidationError, match="No such file"):
        TraceArrivals(file=str(tmp_path / "none.txt"))
    with pytest.raises(ValidationError, match="Is a directory"):
        TraceArrivals(file=str(tmp_path))


def test_a_trace_changed_after_its_check_is_found_out(trace):
    file = trace("1\n2\n3\n")
    made = TraceArrivals(file=file)
    trace("1\n9\n3\n")
    os.utime(file, (1, 1))
    with pytest.raises(ValueError, match="must ascend"):
        list(made.due(None, 1))
    with pytest.raises(ValidationError, match="must ascend"):
        TraceArrivals(file=file)


def test_the_digest_of_a_trace_follows_its_content_not_its_place(trace):
    one, same, other = (
        TraceArrivals(file=trace(text, name)) for name, text in (("a", "1\n2\n"), ("b", "1\n2\n"), ("c", "1\n3\n"))
    )
    assert one.digest() == same.digest() != other.digest()
    assert len(one.digest()) == 64
