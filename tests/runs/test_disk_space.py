"""Whether results will fit is asked before a sweep fills the disk."""

import json

import pytest
from services.small_disk import small_disk as small_disk

from benchhouse.runs import estimate, preparation
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.sites.storage import Room

SCENARIO = 'scenario: {name}\nexperiment: command\ntarget: {{argv: ["true"]}}\nrepetitions: {n}\n'


@pytest.fixture
def workspace(tmp_path):
    return WorkspaceFolder(tmp_path)


@pytest.fixture
def prepare(workspace):
    def call(name="s", n=1):
        (workspace.root / "s.yaml").write_text(SCENARIO.format(name=name, n=n))
        return preparation.prepare(workspace, workspace.root / "s.yaml")

    return call


@pytest.fixture
def left(monkeypatch):
    """A filesystem that has so much left."""

    def say(size=None, files=None):
        monkeypatch.setattr(
            estimate, "rooms", lambda path, site: [Room(1 << 50, None, "free"), Room(size, files, "a quota")]
        )

    return say


def test_without_history_the_least_of_any_trial_is_counted(prepare, workspace):
    need = estimate.needed(workspace, prepare(), 1000)
    assert (need.size, need.files) == (need.least_size, need.least_files) == (1000 * 40960, 10_000)
    assert "no earlier trial" in need.basis


def test_the_least_is_no_more_than_a_real_trial_takes(bench, tmp_path):
    (tmp_path / "s.yaml").write_text(SCENARIO.format(name="s", n=2) + "monitors: false\n")
    assert bench("run", "s.yaml").code == 0
    folders = [path for path in (tmp_path / "results" / "s").iterdir() if path.name[0] != "."]
    on_disk = [sum(item.lstat().st_blocks * 512 for item in [path, *path.rglob("*")]) for path in folders]
    files = [1 + len(list(path.rglob("*"))) for path in folders]
    assert min(on_disk) >= 40960 and min(files) >= 10
    for name in ("s", "other"):  # another scenario of the same experiment
        (tmp_path / "t.yaml").write_text(SCENARIO.format(name=name, n=100))
        plan = json.loads(bench("plan", "t.yaml", "--json").out)
        assert plan["storage"]["files"] == 100 * files[0]
        assert plan["storage"]["bytes"] == pytest.approx(100 * sum(on_disk) / 2, rel=0.1)
        assert plan["storage"]["basis"] == "as 2 earlier trials"
    assert "storage      about " in bench("plan", "t.yaml").out


@pytest.mark.parametrize("least", [{"size": 40 << 20}, {"files": 9_999}])
def test_what_can_not_fit_is_refused(prepare, workspace, left, least):
    left(**least)
    with pytest.raises(BenchError, match=r"can't fit: 2,000 trials need about .* \(a quota\)"):
        estimate.check_room(workspace, prepare(), 2000)


def test_what_may_not_fit_is_told(prepare, workspace, left, monkeypatch):
    left(size=100 << 20)
    monkeypatch.setattr(estimate, "_earlier", lambda *_: iter([1, 3]))
    monkeypatch.setattr(estimate, "_size_of", lambda megabytes: (megabytes << 20, 10))
    assert "may not fit: about 180.0 MiB" in estimate.check_room(workspace, prepare(), 90)
    assert estimate.check_room(workspace, prepare(), 50) == ""
    with pytest.raises(BenchError, match="can't fit"):
        estimate.check_room(workspace, prepare(), 101)


def test_a_small_run_asks_nobody(prepare, workspace, monkeypatch):
    monkeypatch.setattr(estimate, "rooms", lambda *_: pytest.fail("asked"))
    assert estimate.check_room(workspace, prepare(), 100) == ""


def test_a_sweep_is_refused_before_it_fills_a_real_disk(bench, small_disk):
    (small_disk / "s.yaml").write_text(SCENARIO.format(name="s", n=5000))
    done = bench("-C", small_disk, "run", small_disk / "s.yaml")
    assert done.code == 1
    assert "the results can't fit: 5,000 trials need about" in done.err and f"free on {small_disk}" in done.err
    assert "bench -C DIR" in done.err
    assert not (small_disk / ".bench" / "runs").exists() and not (small_disk / "results").exists()
