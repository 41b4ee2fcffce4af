"""The Slurm cluster of `bench infra`, for real: its files start it, a scenario runs there by its site profile."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sinfo", "srun", "sbatch")
HERE = all(shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") for name in PROGRAMS)


@pytest.fixture
def workspace():
    """A folder with a short name: sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="infra-"))
    yield folder
    script = folder / "infra" / "lab" / "cluster.sh"
    if script.exists():  # the test failed before the end
        subprocess.run(["bash", str(script), "stop"], check=False, timeout=120)
    shutil.rmtree(folder)


def daemons(folder):
    """Processes that were started with the cluster's configuration."""
    mine = f"SLURM_CONF={folder}/slurm.conf".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mine in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "comm").read_text().strip())
        except (OSError, PermissionError):
            continue
    return sorted(name for name in found if name in ("munged", "slurmctld", "slurmd"))


@pytest.mark.starts
@pytest.mark.skipif(not HERE, reason="Slurm is not installed: scripts/slurm-cluster.sh installs it")
def test_the_cluster_starts_runs_a_scenario_and_leaves_nothing(bench, workspace, monkeypatch):
    done = bench("infra", "create", "--provider", "slurm", "--name", "lab", "--nodes", "2", "--apply", cwd=workspace)
    assert done.code == 0, done.err
    folder = workspace / "infra" / "lab"
    assert daemons(folder) == ["munged", "slurmctld", "slurmd", "slurmd"]
    again = bench("infra", "create", "--provider", "slurm", "--name", "lab", "--apply", cwd=workspace)
    assert again.code == 0 and len(daemons(folder)) == 4  # what runs is not started twice

    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    scenario = "scenario: where\nexperiment: command\nworkload: {shell: 'echo $$SLURMD_NODENAME'}\nrepetitions: 1\n"
    (workspace / "where.yaml").write_text(scenario)
    ran = bench("run", "where.yaml", "--site", "infra/lab/site.yaml", cwd=workspace)
    assert ran.code == 0, ran.err
    printed = {path.read_text().strip() for path in workspace.glob("results/**/*stdout*") if path.is_file()} - {""}
    assert printed and printed <= {"lab-1", "lab-2"}

    assert bench("infra", "destroy", "--apply", cwd=workspace).code == 0
    assert daemons(folder) == [] and not folder.exists()
