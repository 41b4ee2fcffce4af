"""`training.dataloader`: its arithmetic with planted times, and torch's own loader over files, Parquet and S3."""

import json
import sys

import pytest
from experiments.conftest import FolderCache
from pydantic import ValidationError
from services.trainer import trainer_python

from benchhouse.experiments.training.dataloader import Epoch, LoaderWorkload, load_data, rate, utilization
from benchhouse.experiments.training.samples import make_files
from benchhouse.schema.experiment import ExperimentFailed


def planted(workers: int, batches: int, batch_s: float, compute_s: float, samples: int = 4) -> Epoch:
    """Each worker takes `batch_s` for a batch, all begin at 0; the consumer takes `compute_s` for each."""
    done, seen = 0.0, []
    for number in range(batches):
        got = max(done, (number // workers + 1) * batch_s)
        seen.append({"asked": done, "got": got, "done": got + compute_s, "samples": samples})
        done = got + compute_s
    return Epoch(0.0, seen)


def test_the_rate_is_that_of_the_workers_whatever_the_loader_had_ready():
    assert rate([planted(3, 30, 0.3, 0.0)], 3) == pytest.approx(3 * 4 / 0.3)
    assert rate([planted(3, 31, 0.3, 0.0)], 3) == pytest.approx(3 * 4 / 0.3)
    assert rate([planted(1, 5, 0.2, 0.0)] * 2, 0) == pytest.approx(4 / 0.2)


def test_the_utilisation_is_that_of_mlperf_storage():
    assert utilization([planted(2, 50, 0.1, 0.1)], 0.1) == pytest.approx(1.0)
    # Two workers deliver two batches every 0.4 s, of which the consumer computes for 0.2 s.
    by_hand = 40 * 0.1 / (40 / 2 * 0.4)
    assert utilization([planted(2, 41, 0.4, 0.1)], 0.1) == pytest.approx(by_hand)


def records(ctx):
    lines = (ctx.artifacts / "rank-0.attempt-0.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"epoch"')]


def test_a_sleep_a_sample_bounds_the_rate_and_the_figures_are_those_of_the_records(play):
    workload = {"sample_size": 64, "samples": 96, "batch": 4, "workers": 2, "sample_time": "5ms"}
    ctx = play(load_data, {"python": trainer_python()}, {**workload, "compute": "4ms"})
    (rate_,), (utilized,) = ctx.values["samples_per_s"], ctx.values["accelerator_utilization"]
    assert 100 < rate_ <= 2 / 0.005
    done = [record["done"] for record in records(ctx) if "batch" in record]
    assert utilized == pytest.approx(23 * 0.004 / (done[-1] - done[0]), rel=0.001)
    assert ctx.histograms["data_wait"].n == 22 and ctx.facts["torch"]
    assert "accelerator_waits" in ctx.warnings


def test_rows_of_parquet_come_each_once_an_epoch_over_two_ranks(play):
    workload = {"kind": "parquet", "samples": 48, "sample_size": "1kB", "batch": 4, "workers": 1, "row_group": 6}
    ctx = play(load_data, {"python": trainer_python()}, {**workload, "ranks": 2, "epochs": 2})
    assert len(ctx.values["epoch_time"]) == 2 and ctx.facts["page_cache"] == "dropped"
    assert sum(record["samples"] for record in records(ctx) if "batch" in record) == 48  # half of each epoch


def test_samples_that_are_not_what_was_made_fail_the_trial(play, tmp_path):
    cache = FolderCache(tmp_path / "cache")
    make_files(cache.folder / "samples" / "files-8x64-0", 8, 64, 0)
    (damaged,) = cache.folder.rglob("00000003.bin")
    damaged.write_bytes(bytes(64))
    with pytest.raises(ExperimentFailed, match="wrong_samples: epoch 0: 8 samples came, or their content"):
        play(
            load_data, {"python": trainer_python()}, {"samples": 8, "sample_size": 64, "batch": 2, "workers": 0}, cache
        )


def test_the_same_seed_makes_the_same_samples(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_files(tmp_path / name, 3, 100, seed)
    first, again, other = ((tmp_path / name / "000000" / "00000002.bin").read_bytes() for name in "abc")
    assert first == again != other and len(first) == 100


def test_samples_come_from_s3(play, seaweedfs, monkeypatch):
    for name, value in seaweedfs.environment.items():
        monkeypatch.setenv(name, value)
    bucket = seaweedfs.bucket("samples")
    target = {"python": trainer_python(), "s3": {"endpoint": seaweedfs.url, "bucket": "samples"}}
    ctx = play(load_data, target, {"samples": 64, "sample_size": "10kB", "batch": 4, "workers": 1})
    assert ctx.values["bandwidth"][0] == pytest.approx(ctx.values["samples_per_s"][0] * 0.01)
    assert "leftovers" not in ctx.warnings and list(bucket.keys("")) == []


def test_a_python_without_torch_is_told(play):
    with pytest.raises(ExperimentFailed, match=r"module_missing: .* has no torch: install it there"):
        play(load_data, {"python": sys.executable}, {"kind": "memory", "samples": 256})


def test_bad_input_is_refused_with_what_to_do(play):
    with pytest.raises(ValidationError, match="10 samples are 0 batches a rank: with these workers give 128"):
        LoaderWorkload(samples=10)
    with pytest.raises(ValidationError, match="give path or s3, not both"):
        play(load_data, {"path": "/tmp", "s3": {}}, {})
    with pytest.raises(ExperimentFailed, match="bad_load: kind: memory reads nothing"):
        play(load_data, {"path": "/tmp"}, {"kind": "memory", "samples": 256})
    with pytest.raises(ExperimentFailed, match="command_not_found: no program 'no-such-python'"):
        play(load_data, {"python": "no-such-python"}, {"kind": "memory", "samples": 256})
