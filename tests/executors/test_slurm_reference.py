"""The reference scenario of the requirements, as it stands there, on a real Slurm cluster and in a real image.

Only the program `vllm` in that image is a fake: the mock server behind vLLM's command line.
"""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from laboratory import wait_until
from mocks.llm import build
from services.containers import apptainer as apptainer
from services.containers import images as images
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import needs_slurm

pytestmark = [needs_slurm, pytest.mark.slow("builds an image and measures a server in it twice")]
FAST = "-comp zstd -Xcompression-level 1 -all-root"  # the default compression takes ten times as long
EXAMPLE = Path(__file__).parents[2] / "examples" / "llm_vllm_baseline.yaml"
FAKE_VLLM = """#!/bin/sh
[ "$1" = --version ] && echo "0.0 (fake)" && exit
for word in "$@"; do case $word in --port=*) port=${word#*=} ;; esac; done
exec /usr/local/bin/mock_llm --ttft-ms 5 --itl-ms 1 --port "$port"
"""
DEFINITION = """Bootstrap: localimage
From: {base}

%files
    {home}/vllm /usr/local/bin/vllm
    {home}/mock_llm /usr/local/bin/mock_llm
"""


@pytest.fixture
def work(lab, cluster, images, apptainer, tmp_path):
    """$WORK as the scenario expects it: image, dataset and folders. There is no site profile."""
    work, home = lab.root / "work", tmp_path / "fake_vllm"
    for folder in (work / "data", work / "results", work / "containers", home):
        folder.mkdir(parents=True)
    (work / "data" / "prompts.jsonl").write_text(
        '{"prompt": "why is the sky blue"}\n{"prompt": "how do ships float"}\n'
    )
    (home / "vllm").write_text(FAKE_VLLM)
    (home / "mock_llm").write_bytes(build().read_bytes())
    for name in ("vllm", "mock_llm"):
        (home / name).chmod(0o755)
    (home / "vllm.def").write_text(DEFINITION.format(base=images.python, home=home))
    lab.variables |= {"WORK": str(work), "SLURM_CONF": cluster.conf}
    image = work / "containers" / "vllm.sif"
    subprocess.run([apptainer, "--silent", "build", "--mksquashfs-args", FAST, image, home / "vllm.def"], check=True)
    lab.bench("images", "add", image)
    images.use_prepared_layers(lab.root / "cache")
    return work


def test_the_reference_scenario_runs_as_typed(lab, work):
    """Its first trials, one on each GPU node; the other 52 are taken out of the queue again."""
    done = lab.bench("submit", "-c", EXAMPLE)
    assert "note: partition, account: runs on Slurm\n" in done.stderr
    assert f"jobs run in {work}/containers/vllm.sif, by Apptainer" in done.stderr
    assert "submitted 54 trials" in done.stderr
    wait_until(lambda: len(lab.folders("llm_vllm_baseline")) >= 2, "two sealed trials", 200)
    lab.bench("stop", "@last")
    script = next((lab.workspace / ".bench" / "runs" / lab.run_id() / "jobs").glob("*/job.sh")).read_text()
    flags = ["array=0-53", "partition=gpu", "account=pXXXXX", "nodes=1", "cpus-per-task=8", "mem=32768M", "gres=gpu:1"]
    assert all(f"#SBATCH --{flag}\n" in script for flag in flags), script
    image = json.loads((work / "containers" / "images.json").read_text())["images"]["vllm.sif"]
    sha256 = hashlib.sha256((work / "data" / "prompts.jsonl").read_bytes()).hexdigest()
    measured = [trial for trial in lab.trials("llm_vllm_baseline") if trial.outcome in ("succeeded", "invalid")]
    assert len(measured) >= 2, [trial.meta["failure"] for trial in lab.trials("llm_vllm_baseline")]
    for trial in measured:
        assert trial.meta["partition"] == "gpu" and trial.meta["slurm_node_list"].startswith("gpu0")
        assert trial.meta["container_digest"] == image["sha256"]
        assert trial.meta["dataset"]["sha256"] == trial.meta["custom"]["prompts"]["file_sha256"] == sha256
        assert trial.meta["model"] == {"name": "mistral-7b-instruct", "licence": ""}
        assert trial.metrics["service"] == "vllm" and trial.metrics["throughput"]["value"] > 0
        assert lab.bench("validate", trial.folder / "metrics.json").returncode == 0
