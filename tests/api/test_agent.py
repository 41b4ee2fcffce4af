"""What an agent makes of a run that it can't look at."""

import pytest

from benchhouse.api.agent import RunActions
from benchhouse.api.chat import ChatActions
from benchhouse.automation.schedules.store import ScheduleSlot
from benchhouse.schema.errors import BenchError


def test_an_agent_outlives_a_disk_that_does_not_answer(workspace, greetings):
    run_id, notes = workspace.run(greetings | {"repetitions": 1}).id, list[str]()
    deeds, slot = (
        RunActions(workspace, notes.append),
        ScheduleSlot("n", 0.0, "running", run_id, "here", "me", 0.0, 0.0, ""),
    )
    events = workspace.folder.run(run_id).events
    away = events.rename(events.with_name("away"))
    events.mkdir()  # whoever reads it gets an error of the system
    assert deeds.ending(slot, 100.0) is None and "can't be looked at" in notes[0]
    with pytest.raises(BenchError):  # the agent notes it and looks again
        ChatActions(workspace, notes.append).progress(run_id, 100.0)
    events.rmdir()
    away.rename(events)
    assert deeds.ending(slot, 100.0).state == "succeeded"
