"""What was answered is answered again from memory only for the same question to the same bytes."""

from trial_maker import make_trial

from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse import queries
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.known_answers import KnownAnswers
from benchhouse.warehouse.query import Warehouse


def trials(workspace):
    with Warehouse.open(workspace) as warehouse:
        return queries.trials(warehouse, ["run-a"])


def test_trials_that_were_collected_since_are_in_the_answer(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    collect(workspace, "run-a", [make_trial(workspace)])
    first = trials(workspace)
    first.rows.clear()  # whoever asked may do with it as he likes
    assert len(trials(workspace).rows) == 1
    collect(workspace, "run-a", [make_trial(workspace, repetition=2)])
    assert len(trials(workspace).rows) == 2


def test_a_damaged_file_is_noticed_though_its_answer_is_known(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    collect(workspace, "run-a", [make_trial(workspace)])
    known = trials(workspace)
    (path,) = (workspace.warehouse / "trial_fact").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert trials(workspace).rows == known.rows
    assert path.read_bytes() == whole  # made again from the evidence


def test_the_oldest_answers_make_room():
    known = KnownAnswers[int]()
    keys = [("root", "SELECT", str(at), ()) for at in range(40)]
    for at, key in enumerate(keys):
        known.keep(key, at, 10_000)
    assert [known.find(key) for key in keys] == [None] * 10 + list(range(10, 40))
    known.keep(("root", "SELECT", "huge", ()), 1, 10_000_000)
    assert known.find(("root", "SELECT", "huge", ())) is None
