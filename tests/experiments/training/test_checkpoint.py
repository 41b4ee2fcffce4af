"""`training.checkpoint` with torch's own distributed checkpoint: on a disk, on a full one, on S3, and cut short."""

import subprocess
import sys

import pytest
from pydantic import ValidationError
from services.small_disk import small_disk as small_disk
from services.trainer import trainer_python

from benchhouse.experiments.training.checkpoint import CheckpointWorkload, _check, checkpoint
from benchhouse.schema.experiment import ExperimentFailed

SMALL = {"size": "4MB", "tensors": 2, "saves": 1}
SAVES_ONE = """
import sys, torch
import torch.distributed.checkpoint as dcp
dcp.save({"model": {"w": torch.rand(1000, 50), "scale": torch.tensor(3.0)}, "step": 12}, checkpoint_id=sys.argv[1])
"""


def test_an_asynchronous_save_of_two_ranks_holds_the_state_of_its_call(play):
    """The program changes the state as soon as training may go on: what is loaded must be what was there before."""
    ctx = play(checkpoint, {"python": trainer_python()}, {**SMALL, "ranks": 2, "mode": "async", "saves": 2})
    assert ctx.facts["state_bytes"] == 4_000_000 and ctx.facts["verified"].startswith("2 loads by the digest")
    assert all(0 < overhead < 0.01 for overhead in ctx.values["stored_overhead"])
    pairs = list(zip(ctx.values["blocking_time"], ctx.values["save_time"], strict=True))
    assert len(pairs) == 2 and all(blocking < total for blocking, total in pairs)
    for name in ("save", "load"):
        rates = [4.0 / seconds for seconds in ctx.values[f"{name}_time"]]
        assert ctx.values[f"{name}_bandwidth"] == pytest.approx(rates)
    assert ctx.facts["durable"].startswith("each file by fsync")


def test_a_synchronous_save_goes_to_s3(play, seaweedfs, monkeypatch):
    for name, value in seaweedfs.environment.items():
        monkeypatch.setenv(name, value)
    bucket = seaweedfs.bucket("checkpoints")
    target = {"python": trainer_python(), "s3": {"endpoint": seaweedfs.url, "bucket": "checkpoints"}}
    ctx = play(checkpoint, target, SMALL)
    assert ctx.values["blocking_time"] == ctx.values["save_time"] and 0 < ctx.values["stored_overhead"][0] < 0.01
    assert "cached" not in ctx.values and list(bucket.keys("")) == []


def test_a_checkpoint_that_is_cut_short_has_no_number(play, tmp_path):
    folder = tmp_path / "existing"
    subprocess.run([trainer_python(), "-c", SAVES_ONE, folder], check=True, capture_output=True)
    target, workload = {"python": trainer_python(), "existing": str(folder)}, {"saves": 2}
    ctx = play(checkpoint, target, workload)
    assert ctx.facts["state_bytes"] == 200_004 and len(ctx.values["load_time"]) == 2 and "save_time" not in ctx.values
    (shard,) = folder.glob("*.distcp")
    shard.write_bytes(shard.read_bytes()[:-1000])
    with pytest.raises(ExperimentFailed, match="checkpoint_broken: the checkpoint can't be loaded: Pytorch"):
        play(checkpoint, target, workload)
    (folder / ".metadata").unlink()
    with pytest.raises(ExperimentFailed, match=r"checkpoint_broken: target\.existing .* has no \.metadata"):
        play(checkpoint, target, workload)


def test_a_disk_that_fills_up_during_a_save_is_told(play, small_disk):
    target = {"python": trainer_python(), "path": str(small_disk)}
    size = {"size": 1_048_000, "tensors": 1, "saves": 1}  # fits without what a checkpoint has beside the state
    with pytest.raises(ExperimentFailed, match=r"no_space: the checkpoint can't be saved: .*No space left on device"):
        play(checkpoint, target, {**size, "fsync": False})
    assert list(small_disk.iterdir()) == []
    with pytest.raises(ExperimentFailed, match=r"no_space: .* has no room for 2 MB \(1\.0 MiB free\)"):
        play(checkpoint, target, {**size, "size": "2MB"})


def test_a_state_that_came_back_otherwise_fails_the_trial(play):
    class Told:
        fail = staticmethod(lambda code, message: (_ for _ in ()).throw(ExperimentFailed(code, message)))

    saved = [[{"digest": "a"}, {"digest": "b"}]]
    with pytest.raises(ExperimentFailed, match="state_differs: save 0: what rank 1 loaded is not what it had saved"):
        _check(saved, [[{"digest": "a"}, {"digest": "c"}]], Told)


def test_bad_input_is_refused_with_what_to_do(play):
    with pytest.raises(ValidationError, match="each of 16 tensors needs a number a rank: give at least 128"):
        CheckpointWorkload(size=100, ranks=2)
    with pytest.raises(ValidationError, match="give one of path, s3 and existing"):
        play(checkpoint, {"path": "/tmp", "s3": {}}, {})
    with pytest.raises(ExperimentFailed, match=r"module_missing: .* has no torch"):
        play(checkpoint, {"python": sys.executable}, SMALL)
