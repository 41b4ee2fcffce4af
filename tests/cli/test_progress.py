"""How far a run is, where there is no terminal."""

from types import SimpleNamespace

from benchhouse.report.terminal.progress import RunProgress


def test_a_log_has_a_line_where_something_changed_and_otherwise_one_a_minute(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("benchhouse.report.terminal.progress.time", SimpleNamespace(monotonic=lambda: now[0]))
    progress = RunProgress()
    for second in range(150):
        now[0] = float(second)
        progress.update(SimpleNamespace(done=int(second > 100), total=2, outcomes={}, last=""))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["0/2 trials", "0/2 trials", "1/2 trials"]
