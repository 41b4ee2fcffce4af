"""A run's progress as it is made: the state when it changes, for all who listen, and an end."""

import json
from collections.abc import Iterator
from urllib.request import Request, urlopen


def events(url: str, last: str = "") -> Iterator[tuple[str, str, dict]]:
    """Kind, id and data of each event, until the server ends it."""
    with urlopen(Request(url, headers={"Last-Event-ID": last} if last else {}), timeout=60) as answer:
        event: dict[str, str] = {}
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name and value:
                event[name] = value
            elif "data" in event:
                yield event["event"], event.get("id", ""), json.loads(event["data"])
                event = {}


def test_a_run_is_told_as_it_goes_on_to_two_who_listen_and_ends(lab, serve):
    (lab.marks / "hold").write_text("1")
    lab.bench("submit", lab.scenario("slow", axes=[{"grid": {"n": [0, 1, 2]}}], workload={"seconds": 0}))
    url = f"{serve()}/api/runs/@last/events"
    first, second = events(url), events(url)
    kind, name, status = next(first)
    assert kind == "status" and status["state"] == "running" and name
    assert next(second)[0] == "status"
    (lab.marks / "hold").unlink()
    for listener in (first, second):
        rest = list(listener)
        assert [kind for kind, _, _ in rest][-2:] == ["status", "end"]
        assert rest[-2][2]["state"] == "finished" and rest[-2][2]["done"] == 3
    with urlopen(Request(url, headers={"Last-Event-ID": rest[-2][1]})) as answer:
        assert answer.status == 204  # told before, and over


def test_a_run_that_is_deleted_meanwhile_ends_with_a_problem(lab, serve):
    (lab.marks / "hold").write_text("0")
    lab.bench("submit", lab.scenario("slow", workload={"seconds": 0}))
    listener = events(f"{serve()}/api/runs/@last/events")
    assert next(listener)[0] == "status"
    for run in (lab.workspace / ".bench" / "runs").iterdir():
        (run / "run.json").unlink()
        (run / "events.jsonl").unlink()
    (problem,) = [data for kind, _, data in listener if kind == "problem"]
    assert problem["status"] == 404 and "its ledger is not here" in problem["title"]
    (lab.marks / "hold").unlink()
