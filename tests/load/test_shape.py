import pytest
from pydantic import ValidationError
from tables import check_rows

from benchhouse.load.shape import Shape

STEPS = {"kind": "steps", "rates": [1, 2], "each": "5s"}


def test_a_load_that_contradicts_itself_is_refused_with_the_reason():
    rows = [
        ({}, r"give concurrency \(closed loop\) or rps \(open loop\)"),
        ({"concurrency": 1, "rps": 1}, "not both"),
        ({"rps": 0}, "rps\n.*greater than 0"),
        ({"rps": -5}, "rps\n.*greater than 0"),
        ({"rps": "nan"}, "rps"),
        ({"rps": 1e9}, "rps\n.*less than or equal"),
        ({"concurrency": 0}, "concurrency\n.*greater than or equal to 1"),
        ({"concurrency": -3}, "concurrency\n.*greater than or equal to 1"),
        ({"concurrency": 2, "arrivals": "poisson"}, "arrivals are of an open loop"),
        ({"concurrency": 2, "duration": 1, "requests": 5}, "duration or requests, not both"),
        ({"concurrency": 2, "duration": 0}, "duration\n.*greater than 0"),
        ({"concurrency": 2, "requests": 0}, "requests\n.*greater than or equal to 1"),
        ({"concurrency": 2, "warmup": -1}, "warmup"),
        ({"concurrency": 2, "timeout": 0}, "timeout\n.*greater than 0"),
        ({"rps": 2, "think_time": 1}, "think_time is of a closed loop"),
        ({"concurrency": 2, "max_in_flight": 10}, "max_in_flight is of an open loop"),
        ({"concurrency": 2, "processes": 3}, "3 processes need at least as many requests in flight"),
        ({"rps": 5, "max_in_flight": 1, "processes": 2}, "2 processes need at least as many"),
        ({"rps": 5, "processes": "many"}, "processes\n.*expected auto or a number from 1 to 256, found 'many'"),
        ({"rps": 5, "processes": 0}, "processes\n.*expected auto or a number from 1 to 256, found 0"),
        ({"rps": 5, "processes": 257}, "expected auto or a number"),
        ({"rps": 5, "processes": 1.5}, "expected auto or a number"),
        ({"rps": 5, "processes": True}, "expected auto or a number"),
        ({"rps": 5, "processes": None}, "expected auto or a number"),
        ({"rps": 5, "arrivals": STEPS}, "steps bring their own rate: leave rps out"),
        ({"arrivals": "constant"}, "give concurrency"),
        ({"arrivals": {"kind": "ramp", "to": 5}}, "give concurrency"),
        ({"rps": 5, "requests": 10, "arrivals": {"kind": "ramp", "to": 5}}, "a ramp needs a length"),
        ({"concurrency": 1, "slo": "ttft.p99<fast"}, "slo"),
        ({"concurrency": 1, "speed": 9}, "speed"),
    ]

    def check(given, said):
        with pytest.raises(ValidationError, match=said):
            Shape(**given)

    check_rows(check, rows)


def test_the_number_of_processes_is_left_to_the_engine_unless_it_is_given():
    assert Shape(rps=5).processes == "auto" and Shape(rps=5).shards == 1
    assert Shape(rps=5, processes=3).processes == Shape(rps=5, processes="3").shards == 3
    kinds = Shape.model_json_schema()["properties"]["processes"]["anyOf"]
    assert kinds == [{"const": "auto", "type": "string"}, {"maximum": 256, "minimum": 1, "type": "integer"}]


def test_arrivals_that_bring_their_rates_need_none(tmp_path):
    file = tmp_path / "t.txt"
    file.write_text("1\n2\n")
    assert Shape(arrivals=STEPS).open_loop
    trace = Shape(arrivals={"kind": "trace", "file": str(file)})
    assert trace.open_loop and trace.rps is None
    with pytest.raises(ValidationError, match="trace bring their own rate"):
        Shape(rps=1, arrivals={"kind": "trace", "file": str(file)})


def test_the_length_of_a_load_is_its_duration_or_its_requests():
    assert Shape(concurrency=1).window_s == 10.0
    assert Shape(concurrency=1, duration="2m").window_s == 120.0
    assert Shape(concurrency=1, requests=7).window_s is None
    assert Shape(concurrency=1, duration=5, warmup=2, cooldown=1).schedule_s == 8.0
    assert Shape(concurrency=1, requests=7).schedule_s is None


def test_a_written_out_shape_is_read_back_the_same():
    for shape in (Shape(concurrency=3, slo="ttft.p99<300ms"), Shape(rps=5), Shape(arrivals=STEPS)):
        assert Shape.model_validate(shape.model_dump()) == shape
