"""Scenarios that would take hours to plan are refused, or cancelled, within a second."""

import time
from contextvars import copy_context

import pytest

from benchhouse.documents.problems import MOST_PROBLEMS, ProblemsError
from benchhouse.schema.cancellation import check_cancellation_by
from benchhouse.schema.errors import BenchError

MANY = "{range: {from: 1, to: 1000000, step: 1}}"
FEWER = "{range: {from: 1, to: 150, step: 1}}"
TOO_MANY = {
    "grid": f"workload:\n  size: 10\naxes:\n- grid: {{size2: {MANY}}}\n- grid:\n    share: {MANY}\n",
    "workload": f"workload:\n  pause: [1, 2]\n  share: {MANY}\n",
    "zip": f"workload: {{pause: [1, 2]}}\naxes:\n- zip: {{share: {MANY}, size: {MANY}}}\n",
    "excluded": f"workload:\n  pause: [1, 2]\n  share: {MANY}\nexclude: [{{pause: 1}}]\n",
    "endless": "axes:\n" + "".join(f"- grid: {{k{number}: {MANY}}}\n" for number in range(1000)),
}


def seconds_until_problems(plan_of, text):
    start = time.process_time()
    with pytest.raises(ProblemsError) as found:
        plan_of(text)
    return time.process_time() - start, found.value.problems


def test_points_are_counted_before_anything_is_expanded(plan_of):
    for name, text in TOO_MANY.items():
        spent_s, (problem,) = seconds_until_problems(plan_of, text)
        assert spent_s < 1, name
        assert "1,000,000 that may be planned" in problem.message, name
        assert problem.line and problem.line > 1, name
    _, (problem,) = seconds_until_problems(plan_of, TOO_MANY["workload"])
    assert "2,000,000 points" in problem.message
    assert plan_of("workload:\n  pause: {range: {from: 1, to: 1000, step: 1}}").points == 1000


def test_a_scenario_with_thousands_of_mistakes_is_refused_after_the_first_hundred(plan_of):
    names = {f"k{number}": 1 for number in range(1_000)}
    listed = ", ".join(f"{name}: 1" for name in names)
    texts = {
        "workload": f"workload: {{{listed}}}",
        "target": f"target: {{{listed}}}",
        "limits": f"limits: {{{listed}}}",
        "top": listed.replace(", ", "\n"),
        "values": f"workload: {{size: [{', '.join(names)}]}}",
        "targets": f"targets: [{', '.join(['same'] * 1_000)}]",
        "rules": f"workload: {{size: [1, 2]}}\nexclude: [{', '.join(['{size: 3}'] * 1_000)}]",
    }
    for name, text in texts.items():
        spent_s, problems = seconds_until_problems(plan_of, text)
        assert len(problems) == MOST_PROBLEMS, name
        assert spent_s < 1, name  # without a limit it is several seconds


def test_planning_ends_when_nobody_waits_for_it(plan_of):
    """Cancelled after a number of checks, as the time that the first ones take depends on the machine."""
    texts = {
        "points": (320, f"workload: {{pause: {FEWER}, share: {FEWER}}}"),
        "values": (400, "workload: {share: {range: {from: 1, to: 5000, step: 1}}}"),
        "rules": (1_250, f"workload: {{size: [1, 2]}}\nexclude: [{', '.join(['{size: 1}'] * 500)}]"),
    }

    def plan(text, most, checks):
        def check():
            checks.append(time.process_time())
            if len(checks) > most:
                raise BenchError("cancelled")

        check_cancellation_by(check)
        return plan_of(text).digest

    for name, (most, text) in texts.items():
        checks = []
        start = time.process_time()
        with pytest.raises(BenchError, match="cancelled"):
            copy_context().run(plan, text, most, checks)
        spent = [later - earlier for earlier, later in zip([start, *checks], checks, strict=False)]
        assert max(spent) < 1, (name, max(spent))
