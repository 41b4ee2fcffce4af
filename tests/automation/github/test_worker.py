"""Orders are carried out once and answered once, whatever GitHub does: a fake GitHub over HTTP, and a real store."""

import random
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from services.fake_github import TOKEN, fake_github
from services.small_disk import small_disk as small_disk

from benchhouse.automation.github.client import GitHub
from benchhouse.automation.github.deliveries import CommandOrder, Delivery
from benchhouse.automation.github.store import GitHubStore
from benchhouse.automation.github.worker import CommandWorker, RunProgressText
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder

NOW = 1_800_000_060 - 1_767_225_600  # seconds of the fake's clock: a minute after our first look
PEOPLE = {"ada": ("ada", "run"), "rex": ("rex", "read")}


@dataclass
class FakeDeeds:
    """Runs that take as many looks as `looks` says."""

    looks: int = 2
    started: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    looked: int = 0

    def person(self, login):
        return PEOPLE.get(login)

    def start(self, command, run_id, by):
        if command.about == "broken":
            raise BenchError("no scenario @mallory `broken`", "look")
        if run_id not in [item[1] for item in self.started]:
            self.started.append((command.about, run_id, by))

    def progress(self, run_id, since_s):
        self.looked += 1
        if self.looked > self.looks:
            return RunProgressText("finished", True, "all is well")
        return RunProgressText(f"{self.looked} done")

    def answer(self, command, by, order, runs):
        return f"{command.name} {command.about} of {len(runs)}"

    def note(self, text):
        self.notes.append(text)


class Killed(BaseException):
    """As by kill -9: nothing in the worker catches it."""


@dataclass
class Stage:
    worker: CommandWorker
    fake: object
    deeds: FakeDeeds
    time: list[float]

    def ask(self, text, login="ada", key="c1"):
        order = CommandOrder(key, "team/bench", login, text, 7, at="2026-01-01T00:00:00Z")
        delivery = Delivery(f"delivery-{key}", key, "issue_comment", "team/bench", (order,))
        assert self.worker.store.take([delivery], self.time[0]) == [True]

    def steps(self, count=12, seconds=10.0):
        for _ in range(count):
            self.worker.step()
            self.time[0] += seconds

    def order(self):
        return self.worker.store.recent(1)[0]


@pytest.fixture
def stage(tmp_path):
    time = [1_800_000_000.0]
    with fake_github() as fake, closing(GitHubStore(WorkspaceFolder(tmp_path))) as store:
        deeds = FakeDeeds()
        github = GitHub(fake.api, TOKEN, lambda: time[0])
        worker = CommandWorker(store, github, deeds, lambda: time[0], "me", lambda name: False, dice=random.Random(1))
        yield Stage(worker, fake, deeds, time)


def poll(stage):
    stage.worker.repositories = ("team/bench",)
    stage.worker.step()


def test_a_run_has_one_progress_comment_and_one_final_message(stage):
    stage.ask("/bench run nightly")
    stage.steps()
    assert [item[0] for item in stage.deeds.started] == ["nightly"] and stage.deeds.started[0][2] == "ada"
    progress, final = stage.fake.said()
    assert progress.startswith("finished") and final.startswith("all is well")
    assert list(stage.fake.edits.values()) == [2]
    assert stage.order().state == "done"


@pytest.mark.parametrize(
    ("text", "login", "said"),
    [
        ("/bench run nightly", "mallory", None),
        ("/bench run nightly", "rex", "is for the role run, and rex has the role read"),
        ("/bench status x", "rex", "status x of 0"),
        ("> /bench run nightly", "ada", None),
        ("/bench run broken", "ada", "```\nno scenario @mallory `broken`"),
        ("/bench run a b", "ada", "takes one word"),
        ("/bench run a\n/bench run b", "ada", "one command"),
    ],
)
def test_commands_need_the_role_that_they_name(stage, text, login, said):
    stage.ask(text, login)
    stage.steps()
    assert stage.deeds.started == [] and stage.order().state == "done"
    assert [said in body for body in stage.fake.said()] == ([True] if said else [])


def test_while_github_is_away_the_run_goes_on_and_the_answer_waits(stage):
    stage.ask("/bench run nightly")
    stage.fake.troubles = [(503, {}, b""), (502, {}, b""), (500, {}, b"<html>"), (200, {}, b"<html>log in first")]
    stage.steps(40)
    assert len(stage.deeds.started) == 1 and len(stage.fake.said()) == 2
    assert stage.order().state == "done"


@pytest.mark.parametrize(
    ("status", "headers", "body", "least_s"),
    [
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1800000300"}, b"", 300),
        (429, {"Retry-After": "120"}, b"", 120),
        (403, {}, b'{"message": "You have exceeded a secondary rate limit"}', 60),
        (401, {}, b'{"message": "Bad credentials"}', 2),
    ],
)
def test_it_asks_no_sooner_than_github_says(stage, status, headers, body, least_s):
    stage.ask("/bench status x")
    stage.fake.troubles = [(status, headers, body)]
    stage.worker.step()
    stage.time[0] += least_s - 1
    stage.worker.step()
    assert len(stage.fake.requests) == 1 and not stage.fake.said()
    stage.steps(20)
    assert len(stage.fake.said()) == 1


def test_a_clock_that_was_ahead_holds_nothing_up(stage):
    stage.ask("/bench run nightly")
    stage.time[0] += 400 * 86400
    stage.steps(2)
    stage.time[0] -= 400 * 86400
    stage.steps()
    assert len(stage.deeds.started) == 1 and len(stage.fake.said()) == 2 and stage.order().state == "done"


@pytest.mark.parametrize("status", [301, 307, 403, 404, 410, 422])
def test_what_github_denies_is_given_up_and_said_once(stage, status):
    stage.ask("/bench status x")
    stage.fake.troubles = [(status, {"Location": "http://127.0.0.1:1/elsewhere"}, b"{}")]
    stage.steps()
    assert len(stage.fake.requests) == 1 and stage.order().state == "done"
    assert stage.order().answer.startswith("not answered: GitHub answers")
    assert TOKEN not in "".join(stage.deeds.notes)


def test_an_answer_that_was_lost_on_its_way_is_not_given_twice(stage):
    stage.ask("/bench run nightly")
    stage.fake.deaf = True  # GitHub writes the comment, and we don't hear of it
    stage.steps(1)
    stage.fake.deaf = False
    stage.steps(30)
    stage.ask("/bench status x", key="c2")
    stage.fake.deaf = True
    stage.steps(1)
    stage.fake.deaf = False
    stage.steps(30)
    assert [body.partition("\n")[0] for body in stage.fake.said()] == ["finished", "all is well", "status x of 1"]


@pytest.mark.parametrize("moment", range(16))
def test_a_kill_at_any_write_leaves_one_run_and_one_answer(stage, moment):
    """The store is killed before its n-th write, and a new worker goes on with what is on disk."""
    writes = [0]

    class Mortal(GitHubStore):
        def change(self, key, **fields):
            if writes[0] == moment:
                writes[0] += 1
                raise Killed
            writes[0] += 1
            super().change(key, **fields)

    stage.worker.store.__class__ = Mortal
    stage.ask("/bench run nightly")
    for _ in range(40):
        try:
            stage.worker.step()
        except Killed:
            stage.deeds.looked = 0
        stage.time[0] += 70
    assert len(stage.deeds.started) == 1
    assert [body.partition("\n")[0] for body in stage.fake.said()] == ["finished", "all is well"]


def test_of_two_workers_one_works(stage):
    other = CommandWorker(
        stage.worker.store, stage.worker.github, FakeDeeds(), lambda: stage.time[0], "you", lambda name: False
    )
    stage.worker.step()
    stage.ask("/bench status x")
    other.step()
    assert not stage.fake.said()
    stage.worker.stop()
    stage.time[0] += 30
    other.step()
    other.step()
    assert len(stage.fake.said()) == 1


def test_new_comments_are_polled_once_and_edits_are_not(stage):
    stage.fake.write("/bench run before")  # a year before we do
    stage.fake.seconds = NOW
    poll(stage)
    old = stage.fake.write("hello")
    stage.fake.write("/bench status x")
    stage.fake.write("/bench status mallory", login="mallory")
    stage.fake.edit(old, "/bench run edited")
    stage.fake.write("/bench run ghost")["user"] = None  # GitHub's answer where an account was deleted
    stage.steps(10, 30)
    assert stage.deeds.started == [] and len(stage.fake.said()) == 1
    assert {kept.order.login for kept in stage.worker.store.recent(9)} == {"ada", "mallory"}
    statuses = [status for method, path, status in stage.fake.requests if path.endswith("/issues/comments")]
    assert statuses[-3:] == [304, 304, 304]  # nothing new costs nothing


def test_many_comments_are_read_page_by_page(stage):
    stage.fake.seconds = NOW
    poll(stage)
    for number in range(250):
        stage.fake.write(f"/bench status {number}")
    stage.steps(3, 31)
    assert len(stage.worker.store.recent(500)) == 250


def test_it_survives_days_without_a_network(stage):
    stage.fake.seconds = NOW
    poll(stage)
    api = stage.worker.github
    stage.worker.github = GitHub("http://127.0.0.1:1", TOKEN, lambda: stage.time[0])
    asked_before = len(stage.fake.requests)
    for _ in range(3 * 24 * 12):
        stage.worker.step()
        stage.time[0] += 300.0
    assert len(stage.deeds.notes) == 1 and len(stage.fake.requests) == asked_before  # said once, not each time
    stage.fake.write("/bench status x")
    stage.worker.github = api
    stage.steps(40, 60)
    assert len(stage.fake.said()) == 1


def test_polling_waits_longer_after_each_failure_and_obeys_a_limit(stage):
    stage.fake.seconds = NOW
    poll(stage)
    stage.fake.troubles = [(502, {}, b"")] * 3 + [(200, {}, b"<html>")] + [(429, {"Retry-After": "3600"}, b"")]
    begin, times = stage.time[0], []
    for _ in range(6000):
        before = len(stage.fake.requests)
        stage.worker.step()
        if len(stage.fake.requests) > before:
            times.append(stage.time[0] - begin)
        stage.time[0] += 1.0
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert waits[0] >= 30 and max(waits) >= 3600 and len(waits) >= 6


def test_a_full_disk_begins_nothing_is_said_once_and_is_over_when_there_is_room(small_disk, stage):
    with closing(GitHubStore(WorkspaceFolder(small_disk))) as store:
        stage.worker.store = store
        stage.ask("/bench run nightly")
        with (small_disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
        order = CommandOrder("c2", "team/bench", "ada", "/bench status " + "x" * 60_000, 7, at="2026-01-01T00:00:00Z")
        with pytest.raises(BenchError, match="can't be used"):  # a webhook is answered 503, and not lost by GitHub
            for number in range(50):
                store.take([Delivery(f"d-{number}", f"d-{number}", "issue_comment", "team/bench", (order,))], 0.0)
        stage.steps(20)
        assert len(stage.deeds.notes) <= 2 and len(stage.deeds.started) <= 1
        (small_disk / "filler").unlink()
        stage.steps(30, 70.0)
        assert [item[0] for item in stage.deeds.started] == ["nightly"]
        assert [kept.state for kept in store.recent(9) if kept.order.key == "c1"] == ["done"]
        assert sum(body.startswith("all is well") for body in stage.fake.said()) == 1
