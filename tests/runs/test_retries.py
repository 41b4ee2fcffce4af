"""A trial that was lost is tried again as often as the scenario says, over all turns of a run that outlives us."""

from types import SimpleNamespace

from tables import check_rows

from benchhouse.runs.orchestrate import Orchestrator
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.trial import Attempt, trial_id


def test_a_later_turn_hands_over_what_was_lost_until_no_retry_is_left(tmp_path):
    rows = [
        ([], True),
        (["lost"], True),
        (["lost", "lost"], True),  # once, and the two retries are not used up
        (["lost", "lost", "lost"], False),
        (["failed"], False),
        (["lost", "failed"], False),
        (["failed", "lost"], True),
    ]

    def check(outcomes, again):
        planned = SimpleNamespace(instance_digest="d", repetition=0, warmup=False)
        scenario = SimpleNamespace(scenario="s", retries=SimpleNamespace(max_retries=2))
        setup = SimpleNamespace(
            workspace=WorkspaceFolder(tmp_path),
            plan=SimpleNamespace(trials=lambda: iter([planned]), scenario=scenario),
            ledger=SimpleNamespace(folder=SimpleNamespace(run_id="r")),
            executor=None, python=None, attached=None,
        )  # fmt: skip
        run = Orchestrator(setup, lambda progress: None, None, None, rerun_failed=False)
        name = trial_id("r", "d", 0, False)
        if outcomes:
            run.history[name] = {at: Attempt(attempt=at, outcome=outcome) for at, outcome in enumerate(outcomes, 1)}
        run.last_turn_counts = True
        handed = [(item.trial_id, item.attempt, len(item.previous)) for item in run._missing()]
        if again:
            assert handed == [(name, len(outcomes) + 1, len(outcomes))] and run.outcomes == {}
        else:
            assert handed == [] and run.outcomes == {outcomes[-1]: 1} and run.unsealed == {name: outcomes[-1]}
        run.last_turn_counts = False  # a person resumes it
        assert [item.attempt for item in run._missing()] == [len(outcomes) + 1]

    check_rows(check, rows)
