"""What workspace.yaml names gets every sealed trial, and a server that is away costs a warning, not a run."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "warehouse"))
from engines_at_hand import filled, new_database
from laboratory import wait_until
from services import seaweedfs as seaweedfs_servers
from services.postgres import Scissors, ask
from services.small_disk import small_disk  # noqa: F401 - a fixture
from trial_maker import flip_byte, make_trial

from benchhouse.evidence.deposits import deposits
from benchhouse.evidence.store import object_key
from benchhouse.http.s3_bucket import S3Refused
from benchhouse.runs import evidence_transfer, s3_object_store, sharing
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.ingest import collect

DEAD = "postgresql://nobody@127.0.0.1:1/none"


def write(folder, share=None, evidence=None, endpoint=""):
    lines = [f"  {key}: {value}" for key, value in (("share", share), ("evidence", evidence)) if value]
    lines += [f"  endpoint: {endpoint}"] if endpoint else []
    (folder / "workspace.yaml").write_text("\n".join(["warehouse:", *lines]) + "\n")


def test_all_is_sent_once_to_a_real_postgresql_and_s3(bench, tmp_path, monkeypatch, seaweedfs, postgres_server):
    for name, value in seaweedfs.environment.items():
        monkeypatch.setenv(name, value)
    workspace = filled(tmp_path / "ada")
    seaweedfs.bucket("sharing")
    address = new_database(postgres_server.endpoint)
    write(workspace.root, address, "s3://sharing/team", seaweedfs.url)
    before = bench("status", cwd=workspace.root)
    assert "shared: 0 of 28 trials in s3://sharing/team at" in before.err
    assert "28 not there yet:  bench warehouse share" in before.err
    listed = json.loads(bench("status", "--json", cwd=workspace.root).out)["shared"]
    assert [(place["noun"], place["there"], len(place["missing"])) for place in listed] == [
        ("trial", 0, 28),
        ("run", 0, 2),
    ]
    done = json.loads(bench("warehouse", "share", "--json", cwd=workspace.root).out)["destinations"]
    assert [(place["noun"], place["there"], place["moved"], place["missing"]) for place in done] == [
        ("trial", 28, 28, []),
        ("run", 2, 2, []),
    ]
    assert ask(address, "SELECT count(*) FROM benchhouse.trial_fact") == [(28,)]
    assert bench("evidence", "verify", "s3://sharing/team", "--endpoint", seaweedfs.url, cwd=workspace.root).code == 0

    again = sharing.share(workspace)
    assert [place.moved for place in again] == [0, 0]
    collect(workspace, "run-a", [make_trial(workspace, "run-a", 77)])
    more = sharing.share(workspace)
    assert [(place.there, place.moved) for place in more] == [(29, 1), (2, 1)], "a run that grew is sent again"
    workspace.shared_journal.unlink()
    known = sharing.share(workspace)
    assert [place.missing for place in known] == [[], []], "the journal only saves work: they have it already"
    assert ask(address, "SELECT count(*) FROM benchhouse.trial_fact") == [(29,)]


def test_a_share_that_is_killed_in_mid_batch_leaves_nothing_half(tmp_path, monkeypatch, seaweedfs):
    for name, value in seaweedfs.environment.items():
        monkeypatch.setenv(name, value)
    workspace, bucket = filled(tmp_path / "ada"), seaweedfs.bucket("killed")
    write(workspace.root, None, "s3://killed", seaweedfs.url)
    command = [sys.executable, "-m", "benchhouse", "-C", workspace.root, "warehouse", "share"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sharer:
        wait_until(lambda: len(list(bucket.keys("objects/"))) > 10, "the first objects")
        sharer.kill()
    before = set(bucket.keys("objects/"))
    for pointer in bucket.keys("trials/"):
        assert object_key(pointer.rpartition("/")[2]) in before, "a pointer comes after what it points to"
    (whole,) = sharing.share(workspace)
    assert (whole.there, whole.missing) == (28, [])
    assert evidence_transfer.verify("s3://killed", [], endpoint=seaweedfs.url)[::2] == (28, [])


def test_a_cut_connection_leaves_the_run_to_be_sent_and_the_next_call_goes_on(tmp_path, postgres_server):
    workspace = filled(tmp_path / "ada")
    address = new_database(postgres_server.endpoint)
    scissors = Scissors(address, b"INSERT INTO benchhouse_store.runs", cuts=1)
    write(workspace.root, scissors.endpoint)
    (broken,) = sharing.share(workspace)
    assert scissors.was_cut
    assert broken.missing
    assert broken.problem
    (whole,) = sharing.share(workspace)
    scissors.close()
    assert (whole.there, whole.missing) == (2, [])
    assert ask(address, "SELECT count(*) FROM benchhouse.trial_fact") == [(28,)]


def test_a_run_succeeds_while_nothing_can_be_shared_and_says_how_to_go_on(lab):
    write(lab.workspace, DEAD, "team-store")
    done = lab.bench("run", lab.scenario("once", repetitions=2))
    assert f"shared: 2 of 2 trials in {lab.workspace}/team-store" in done.stderr
    assert "not shared: 0 of 1 runs in postgresql://nobody@127.0.0.1:1/none; 1 not there yet (" in done.stderr
    assert "connection failed" in done.stderr
    assert "go on with:  bench warehouse share" in done.stderr
    assert lab.bench("warehouse", "share", code=1).stdout.count("team-store") == 1
    (lab.workspace / "workspace.yaml").write_text("warehouse: {shard: x}\n")
    assert "workspace.yaml:1:13" in lab.bench("run", lab.scenario("once", name="other"), code=2).stderr


def test_a_full_store_is_a_warning_and_what_fitted_is_known(tmp_path, small_disk):  # noqa: F811 - the fixture
    workspace = filled(tmp_path / "ada")
    write(workspace.root, None, small_disk / "store")
    (small_disk / "ballast").write_bytes(b"x" * 900_000)
    notes = []
    sharing.after_run(workspace, notes.append)
    assert "not there yet" in notes[0]
    assert "go on with:  bench warehouse share" in notes[0]
    (small_disk / "ballast").unlink()
    (whole,) = sharing.share(workspace)
    assert whole.missing == []
    assert whole.there == 28


def test_a_full_bucket_is_said_and_the_rest_goes_when_there_is_room(bench, tmp_path, monkeypatch):
    workspace = filled(tmp_path / "ada")
    monkeypatch.setattr(s3_object_store, "_WAITS_S", (0.01, 0.02))
    with seaweedfs_servers.running_small() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        others, bucket = server.bucket("others"), server.bucket("team")
        others.put("theirs", b"x", hashlib.sha256(b"x").hexdigest())
        write(workspace.root, None, "s3://team/evidence", server.url)
        sharing.share(workspace)
        content = bytes(200_000)
        with pytest.raises(S3Refused, match="InternalError"):
            for at in range(1000):
                bucket.put(f"ballast/{at}", content, hashlib.sha256(content).hexdigest())
        collect(workspace, "run-b", [make_trial(workspace, "run-b", 77)])

        full = bench("warehouse", "share", cwd=workspace.root)
        assert full.code == 1
        assert "28 of 29 trials in s3://team/evidence" in full.out
        assert "InternalError" in full.out
        assert "a store that is full answers so too" in full.out
        store = ("s3://team/evidence", "--endpoint", server.url)
        assert json.loads(bench("evidence", "verify", *store, "--json", cwd=workspace.root).out)["checked"] == 28

        others.remove(["theirs"])
        others.remove_bucket()
        (whole,) = sharing.share(workspace)
        assert (whole.there, whole.moved, whole.missing) == (29, 1, [])
        assert bench("evidence", "verify", *store, cwd=workspace.root).code == 0


def test_a_run_is_noted_as_deposited_when_all_of_it_is_there(tmp_path):
    workspace = filled(tmp_path / "ada")
    write(workspace.root, None, "store")
    spoilt = next(path for path in workspace.results.glob("*/*/metrics.csv") if b"run-b" in path.read_bytes())
    content = spoilt.read_bytes()
    flip_byte(spoilt)
    (part,) = sharing.share(workspace)
    assert len(part.missing) == 1
    assert {item.run_id for item in deposits(workspace)} == {"run-a"}
    spoilt.write_bytes(content)
    workspace.deposit_journal.unlink()  # as a kill leaves it, after the trials of run-a had arrived
    (whole,) = sharing.share(workspace)
    assert (whole.moved, whole.missing) == (1, [])
    assert {item.run_id for item in deposits(workspace)} == {"run-a", "run-b"}


@pytest.mark.parametrize("text", ["warehouse: {}\n", "warehouse: {share: 3}\n", "{}\n"])
def test_a_file_that_says_nothing_is_refused_at_its_place(bench, tmp_path, text):
    (tmp_path / "workspace.yaml").write_text(text)
    done = bench("warehouse", "share", cwd=tmp_path)
    assert done.code == 2
    assert "workspace.yaml:1" in done.err


def test_a_file_of_schedules_alone_shares_nothing_in_silence(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    workspace.settings.write_text("schedules: postgresql://127.0.0.1/none\n")
    said = []
    sharing.after_run(workspace, said.append)
    assert said == []


def test_without_a_file_nothing_is_shared_and_the_command_says_what_to_write(bench, tmp_path):
    done = bench("warehouse", "share", cwd=tmp_path)
    assert done.code == 2
    assert "workspace.yaml" in done.err
    assert "shared" not in bench("status", cwd=tmp_path).err
