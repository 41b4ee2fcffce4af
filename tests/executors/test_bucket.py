"""Runs whose nodes share no file system with the orchestrator: what a bucket carries, and what its failures cost."""

import hashlib
import json
import os
import time
from pathlib import Path

import pytest
from executors.conformance import OUTCOMES, SWEEP, Place, apart
from laboratory import Lab, wait_until
from services.refusing_proxy import Refusal, refusing
from services.seaweedfs import SeaweedFS

from benchhouse.executors import bucket_parcel
from benchhouse.executors.bucket_parcel import RunBucket
from benchhouse.executors.cluster_bucket import BucketMirror
from benchhouse.executors.cluster_node import LEFT, ORDERS, REPORTS, append
from benchhouse.schema.errors import BenchError

RUN = "s3://mirror/runs/r1"


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return apart(request)


@pytest.fixture
def environ(seaweedfs: SeaweedFS) -> dict[str, str]:
    bucket = seaweedfs.bucket("mirror")
    bucket.remove(list(bucket.keys("")))
    return seaweedfs.environment | {"AWS_ENDPOINT_URL": seaweedfs.url}


class Ends:
    """Both ends of a run with one slot, in this process: files of the orchestrator, and what the slot sends."""

    def __init__(self, root: Path, environ: dict[str, str]) -> None:
        self.root, self.environ, self.said = root, environ, list[str]()
        self.home = root / "ws" / ".bench" / "runs" / "r1" / "slots"
        self.results = root / "ws" / "results" / "s"
        self.slot = RunBucket(RUN, environ, self.said.append, lambda: None)

    def mirror(self) -> BucketMirror:
        return BucketMirror(self.home, RUN, self.said.append, self.environ)

    def order(self, trial: str, slot: str = "a") -> None:
        """As the executor does it."""
        folder = self.results / ".partial" / f"{trial}.1"
        folder.mkdir(parents=True)
        (folder / "trial.json").write_text("{}")
        (folder / "effective_config.yaml").write_text("{}\n")
        (self.home / slot).mkdir(parents=True, exist_ok=True)
        append(self.home / slot / ORDERS, {"id": trial, "folder": str(folder), "log": str(self.root / f"{trial}.log")})

    def seal(self, trial: str, **content: bytes) -> Path:
        folder = self.root / "node" / trial
        folder.mkdir(parents=True)
        for name, data in content.items():
            (folder / name).write_bytes(data)
        files = {name: {"sha256": hashlib.sha256(data).hexdigest()} for name, data in content.items()}
        (folder / "manifest.json").write_text(json.dumps({"trial_id": trial, "files": files}))
        return folder

    def send(self, folder: Path, slot: str = "a", at: int = 0) -> int:
        """A report that this trial has ended, as the slot sends it; its bytes."""
        line = json.dumps({"id": folder.name, "exit": 0}).encode() + b"\n"
        files = [(f"{folder.name}/folder/{path.name}", path) for path in sorted(folder.iterdir())]
        bucket_parcel.send(self.slot, "reports", slot, at, line, files)
        return len(line)

    def reports(self, slot: str = "a") -> list[dict[str, object]]:
        path = self.home / slot / REPORTS
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def ends(tmp_path: Path, environ: dict[str, str]) -> Ends:
    return Ends(tmp_path, environ)


def test_a_sealed_folder_of_many_pieces_is_home_before_its_end_is_heard(ends: Ends):
    mirror = ends.mirror()
    mirror.begin()
    ends.order("t1")
    wait_until(lambda: ends.slot.keys("orders/"), "the order to be there")
    big = os.urandom(40 << 20)
    ends.send(ends.seal("t1", metrics=b"1", artifact=big))
    assert len(ends.slot.keys("pieces/")) == 2
    wait_until(ends.reports, "the report")
    assert (ends.results / "t1" / "artifact").read_bytes() == big
    assert ends.reports() == [{"id": "t1", "exit": 0}]
    mirror.close()
    assert ends.slot.keys() == []
    assert not list((ends.results / ".partial").iterdir())
    assert not (ends.home / LEFT).exists()


def test_what_did_not_come_as_it_was_sealed_is_no_trial(ends: Ends):
    mirror = ends.mirror()
    mirror.begin()
    ends.order("t1")
    folder = ends.seal("t1", metrics=b"1")
    (folder / "metrics").write_bytes(b"2")
    ends.send(folder)
    wait_until(ends.reports, "the report")
    mirror.close()
    assert ends.reports() == [{"id": "t1", "exit": 1}]
    assert not (ends.results / "t1").exists()
    assert "did not come as it was sealed: metrics" in (ends.root / "t1.log").read_text()


def test_half_a_parcel_is_none(ends: Ends):
    """The slot was killed while it sent: there are pieces, and no last object."""
    mirror = ends.mirror()
    mirror.begin()
    ends.order("t1")
    ends.slot.put("pieces/a/reports/000000000000/000000", b"x" * 1000)
    mirror.settle()
    assert ends.reports() == []
    mirror.close()
    assert ends.slot.keys() == []


def test_what_was_sent_when_nobody_listened_comes_home_once(ends: Ends):
    ends.order("t1")
    ends.order("t2")
    (ends.home / LEFT).write_text(RUN)
    at = ends.send(ends.seal("t1", metrics=b"1"))
    ends.send(ends.seal("t2", metrics=b"2"), at=at)
    (ends.results / "t2").mkdir()  # home already, and its parcel could not be removed any more
    (ends.results / "t2" / "metrics").write_bytes(b"first")
    mirror = ends.mirror()
    assert mirror.recover() == 2
    assert (ends.results / "t1" / "metrics").read_bytes() == b"1"
    assert (ends.results / "t2" / "metrics").read_bytes() == b"first"
    assert ends.slot.keys() == []
    assert any("came home" in text for text in ends.said)
    assert mirror.recover() == 0


def test_a_slot_that_was_given_up_and_one_of_another_session_bring_nothing(ends: Ends):
    mirror = ends.mirror()
    mirror.begin()
    ends.order("t1")
    append(ends.home / "a" / ORDERS, {"end": "it was given up", "given_up": True})
    wait_until(lambda: ends.slot.keys("orders/"), "the orders to be there")
    ends.send(ends.seal("t1", metrics=b"1"))
    ends.send(ends.seal("t9", metrics=b"1"), slot="stranger")
    wait_until(lambda: not ends.slot.keys("reports/"), "both to be taken away")
    mirror.close()
    assert not (ends.results / "t1").exists()
    assert not (ends.results / "t9").exists()


@pytest.mark.parametrize("name", ["../../x", "t1/folder/../../x", "/etc/x", "t7/folder/x"])
def test_a_parcel_can_t_write_elsewhere(ends: Ends, name: str):
    mirror = ends.mirror()
    mirror.begin()
    ends.order("t1")
    wait_until(lambda: ends.slot.keys("orders/"), "the order to be there")
    path = ends.root / "evil"
    path.write_bytes(b"x")
    bucket_parcel.send(ends.slot, "reports", "a", 0, b'{"id": "t1", "exit": 0}\n', [(name, path)])
    with pytest.raises(BenchError, match=r"no plain file of a trial|was not given"):
        while True:
            mirror.check()
            time.sleep(0.02)
    mirror.close()
    assert sorted(path.name for path in ends.root.iterdir()) == ["evil", "ws"]


def test_every_end_has_the_name_that_it_has_everywhere(place: Place, lab: Lab):
    done = place.furnish(lab).bench("run", lab.scenario("mischief", **SWEEP), "--json", code=1, timeout_s=400)
    trials = lab.by("act")
    assert {act: trial.outcome for act, trial in trials.items()} == OUTCOMES
    assert json.loads(done.stdout)["outcomes"]["lost"] == 1
    assert {trial.meta["placed"]["executor"] for trial in trials.values()} == {place.name}
    lab.is_tidy()


def test_wrong_credentials_are_refused_before_a_run_begins(place: Place, lab: Lab):
    place.furnish(lab).variables["AWS_SECRET_ACCESS_KEY"] = "wrong"
    done = lab.bench("run", lab.scenario("once"), code=2)
    assert "bucket apart at http://127.0.0.1" in done.stderr
    assert "AWS_SECRET_ACCESS_KEY" in done.stderr
    assert not lab.folders()
    assert not (lab.workspace / ".bench" / "runs").exists() or not list((lab.workspace / ".bench" / "runs").iterdir())


@pytest.mark.slow("the bucket stays away until its clients have tried several times")
def test_a_bucket_that_is_away_is_waited_for_and_a_trial_costs_few_requests(
    place: Place, lab: Lab, seaweedfs: SeaweedFS
):
    place.furnish(lab)
    lab.hold(4)
    with refusing(seaweedfs.url) as proxy:
        lab.variables["AWS_ENDPOINT_URL"] = proxy.url
        process = lab.start("run", lab.scenario("slow", workload={"seconds": 0, "n": [0, 1, 2, 3, 4]}))
        lab.wait_for_mark("slow-4-0")
        proxy.refusals += [Refusal("/apart", 503, 10, "GET"), Refusal("/apart", 503, 6, "PUT")]
        wait_until(lambda: all(item.times <= 0 for item in proxy.refusals), "the bucket to be asked in vain")
        lab.release()
        _, said = process.communicate(timeout=240)
        assert process.returncode == 0, said
    assert "is away: InternalError: not well; one that is full answers so too; trying again" in said
    assert "answers again, after" in said
    assert [trial.meta["attempts"][-1]["attempt"] for trial in lab.trials()] == [1] * 5
    lab.is_tidy()
    put = [path for method, path in proxy.asked if method == "PUT"]
    assert sum(f"/{lab.run_id()}/orders/" in path for path in put) <= 5 + 1 + 6  # that it is to end; what was refused
    assert sum(f"/{lab.run_id()}/reports/" in path for path in put) <= 5 + 3 + 6  # placed, ready and ended
    assert list(seaweedfs.bucket("apart").keys(f"runs/{lab.run_id()}/")) == []


def test_a_trial_that_is_sealed_after_its_orchestrator_was_killed_counts(place: Place, lab: Lab, seaweedfs: SeaweedFS):
    lab.hold(0)
    process = place.furnish(lab).start("run", lab.scenario("slow", workload={"seconds": 0, "n": [0, 1]}, parallel=1))
    lab.wait_for_mark("slow-0-0")
    process.kill()
    process.wait()
    reports = f"runs/{lab.run_id()}/reports/"
    before = len(list((bucket := seaweedfs.bucket("apart")).keys(reports)))
    lab.release()
    wait_until(lambda: len(list(bucket.keys(reports))) > before, "the sealed trial to be in the bucket")
    (lab.marks / "slow-0-0").unlink()
    done = lab.bench("stop", "@last")
    assert "1 sealed trial of an earlier session came home" in done.stderr
    lab.bench("run", "--resume", "@last", timeout_s=240)
    assert [trial.outcome for trial in lab.trials()] == ["succeeded"] * 2
    assert not list(lab.marks.glob("slow-0-0")), "it was not run again"
    assert list(bucket.keys(f"runs/{lab.run_id()}/")) == []
    lab.is_tidy()


def test_no_trial_sees_the_bucket_s_credentials_and_no_file_has_them(place: Place, lab: Lab, seaweedfs: SeaweedFS):
    place.furnish(lab).run("command", target={"argv": ["env"]}, workload={"executions": 1, "warmup": 1})
    assert "LAB=" in (shown := (lab.trials()[0].folder / "artifacts" / "warmup.stdout").read_text())
    assert "AWS_" not in shown
    secret = seaweedfs.environment["AWS_SECRET_ACCESS_KEY"].encode()
    assert not [path for path in lab.root.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_a_dataset_goes_along(place: Place, lab: Lab):
    given = lab.workspace / "given.bin"
    given.write_bytes(os.urandom(64 << 10))
    workload = {"pattern": "read", "file_size": "64KiB", "block_size": "4KiB"}
    place.furnish(lab).run("storage.file", workload=workload, artifacts={"dataset": "given.bin"})
    (trial,) = lab.trials()
    assert trial.outcome == "succeeded", trial.meta["failure"]
    assert trial.meta["dataset"]["sha256"] == hashlib.sha256(given.read_bytes()).hexdigest()
