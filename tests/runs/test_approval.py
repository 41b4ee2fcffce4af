"""A plan within a budget, beyond it, and held to it while it runs."""

from dataclasses import replace
from pathlib import Path

import pytest
from tables import check_rows

from benchhouse.runs.allowance import held_to
from benchhouse.runs.approval import NeedsApprovalError, admit
from benchhouse.runs.preparation import Where, prepare_text
from benchhouse.schema.errors import Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.resources import Budget

SCENARIO = "scenario: quick\nexperiment: command\nworkload: {argv: ['true']}\n"


def prepared(folder: Path, *more: str):
    return prepare_text(WorkspaceFolder(folder), "\n".join([SCENARIO, *more]), "s.yaml", folder, Where())


def over(folder: Path, budget: Budget, *more: str) -> dict[str, tuple[float | None, float]]:
    """What a scenario asks for too much of, and how much."""
    plan = prepared(folder, *more)
    try:
        kept = admit(WorkspaceFolder(folder), replace(plan, budget=budget))
    except NeedsApprovalError as error:
        assert (error.exit_code, error.plan_digest) == (Exit.NEEDS_APPROVAL, plan.plan.digest)
        assert all(str(item) in error.message for item in error.over)
        return {item.what: (item.asked, item.allowed) for item in error.over}
    assert kept.plan.digest == plan.plan.digest and kept.budget == budget
    return {}


def test_trials_are_counted_as_the_scenario_may_use_them(tmp_path):
    rows = [
        ("repetitions: 10", 10, None),
        ("repetitions: 11", 10, 11),
        ("repetitions: 6\nwarmup: 5", 10, 11),
        ("repetitions: 50\nbudget: {trials: 10}", 10, None),
        ("repetitions: 50\nbudget: {trials: 20}", 10, 20),
        ("repetitions: {until: {ci: 2%, max: 30}}", 29, 30),
    ]

    def check(more, allowed, asked):
        assert over(tmp_path, Budget(trials=allowed), more) == ({"trials": (asked, allowed)} if asked else {})

    check_rows(check, rows)


def test_what_can_not_be_known_is_held_to_later_but_a_price_must_be_said(tmp_path):
    assert over(tmp_path, Budget(wall=0.001, cpu=0.001)) == {}  # it never ran here
    assert over(tmp_path, Budget(cost=1.0)) == {"cost": (None, 1.0)}
    assert over(tmp_path, Budget(cost=1.0), "price_per_hour: 2") == {}


def test_the_smaller_of_both_budgets_counts(tmp_path):
    own = prepared(tmp_path, "budget: {trials: 5, cpu: 10, wall: 2h}")
    kept = held_to(own, Budget(trials=8, cpu=3, cost=2))
    assert kept.plan.scenario.budget == Budget(trials=5, cpu=3, wall=7200, cost=2)
    assert kept.plan.digest == own.plan.digest and own.plan.scenario.budget == Budget(trials=5, cpu=10, wall=7200)


def test_time_and_money_are_guessed_from_earlier_trials(lab):
    path = lab.workspace / "s.yaml"
    path.write_text(SCENARIO + "repetitions: 3\n")
    lab.bench("run", path)
    more = ("repetitions: 1000", "price_per_hour: 3600")  # a second costs 1
    found = over(lab.workspace, Budget(wall=0.001, cost=0.001), *more)
    wall, cost = found["wall"], found["cost"]
    assert wall[0] > 1 and wall[1] == cost[1] == 0.001 and cost[0] == pytest.approx(wall[0])
    assert over(lab.workspace, Budget(wall=wall[0] + 1, cost=wall[0] + 1), *more) == {}
    hours = over(lab.workspace, Budget(node_hours=1e-6, gpu_hours=1e-6), *more, "resources: {gpus: 2}")
    assert hours["gpu_hours"][0] == pytest.approx(2 * hours["node_hours"][0]) == pytest.approx(wall[0] / 1800)
    capped = over(lab.workspace, Budget(wall=0.5), *more, "budget: {wall: 1s}")
    assert capped == {"wall": (1.0, 0.5)}
