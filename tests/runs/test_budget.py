"""What a whole run may use: when it is spent the run stops, and goes on once the budget is raised."""

import json

from benchhouse.runs.budget import Spent
from benchhouse.runs.ledger import RunEvent
from benchhouse.schema.resources import Budget


def test_a_run_stops_at_each_budget_and_goes_on_under_a_larger_one(lab):
    """One run, which is resumed under one budget after the other. A trial takes 0.4 s, and a second costs 1."""

    def run(code=1, **budget):
        spin = {"workload": {"n": list(range(8)), "seconds": 0.4, "spin": True}, "price_per_hour": 3600}
        done = lab.bench("run", lab.scenario("slow", **spin, budget=budget), code=code)
        return done.stderr, {path.name for path in lab.folders()}

    err, two = run(trials=2)
    assert "the budget of 2 trials is spent" in err and len(two) == 2
    lab.is_tidy()
    assert json.loads(lab.bench("status", "@last", "--json").stdout)["state"] == "interrupted"
    assert run(trials=2)[1] == two, "the budget holds for the whole run"
    for budget, field, words in (("cpu", "cpu_s", " s CPU time is spent"), ("cost", "duration_s", " is spent")):
        spent = sum((trial.meta | trial.meta["usage"])[field] for trial in lab.trials())
        before = len(lab.folders())
        most = round(spent + 0.2, 1)
        err, sealed = run(**{budget: most})
        assert f"the budget of {most:g}{words}" in err, err
        assert len(sealed) == before + 1, "what was only queued does not start any more"
    err, _ = run(wall=0.5)
    assert "the wall-clock budget of 0.5 s is spent" in err
    run(code=0, trials=9, wall=600, cpu=600, cost=600)
    assert len(lab.trials()) == 8
    assert {trial.meta["run_id"] for trial in lab.trials()} == {lab.run_id()}
    lab.is_tidy()


def test_a_run_that_just_fits_its_budget_is_finished(lab):
    done = lab.bench("run", lab.scenario("once", workload={"n": [0, 1]}, budget={"trials": 2}))
    assert "spent" not in done.stderr
    assert lab.events()[-1]["event"] == "finished"


def event(time, kind, **more):
    return RunEvent(time=f"2026-01-01T00:00:{time:02}.000+00:00", event=kind, **more)


LATER = "2026-01-01T00:00:50.000+00:00"


def test_time_goes_on_for_jobs_that_were_submitted_and_left_to_themselves():
    submitted = [event(0, "submitted"), event(4, "ended")]
    assert Spent.recall(submitted, nodes=1, gpus=0, now=LATER).wall_s == 50
    stopped = [*submitted, event(9, "stopped"), event(30, "submitted"), event(31, "retry")]
    assert Spent.recall(stopped, nodes=1, gpus=0, now=LATER).wall_s == 9 + 20
    assert Spent.recall([*submitted, event(20, "resumed")], nodes=1, gpus=0, now=LATER).wall_s == 4


def test_earlier_sessions_count():
    events = [
        event(0, "started"),
        event(4, "ended", cpu_s=1.5, duration_s=3),
        event(30, "resumed"),
        event(35, "ended", duration_s=2),
        event(36, "interrupted"),
    ]
    spent = Spent.recall(events, nodes=2, gpus=0, now=LATER)
    assert (spent.trials, spent.cpu_s, spent.node_s, spent.wall_s) == (2, 1.5, 10, 10)
    assert spent.over(Budget(wall=12), None, session_s=1) is None
    assert spent.over(Budget(wall=12), None, session_s=2).what == "wall"


def test_a_clock_that_was_set_back_costs_nothing():
    assert Spent.recall([event(30, "started"), event(10, "ended")], nodes=1, gpus=0, now=LATER).wall_s == 0


def test_hours_of_nodes_and_gpus_count_what_still_runs():
    spent = Spent()
    spent.add(None, 1800.0, nodes=2, gpus=8)
    assert spent.over(Budget(node_hours=1.5, gpu_hours=5), None, 0.0) is None
    running = spent.with_running(1800.0, nodes=2, gpus=8)
    assert running.over(Budget(node_hours=1.5), None, 0.0).message == "the budget of 1.5 node-hours is spent"
    assert running.over(Budget(gpu_hours=8), None, 0.0).message == "the budget of 8 GPU-hours is spent"
