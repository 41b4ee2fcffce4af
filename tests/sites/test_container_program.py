"""Whether there is an Apptainer where trials run, asked from a login node that has none; by a real Slurm."""

import json
import os
from pathlib import Path

import pytest
from services.containers import apptainer as apptainer
from services.slurm_cluster import cluster as cluster
from services.slurm_cluster import needs_slurm

from benchhouse.sites import container_program
from benchhouse.sites.profiles import load_site

pytestmark = needs_slurm
SITE = "site: ours\nexecutor: slurm\nruntime: apptainer\nslurm: {partition: cpu}\n"


@pytest.fixture
def check(bench, tmp_path, cluster, monkeypatch):
    """`bench site check` on a login node of the cluster: what is said of Apptainer, and the profile that it writes."""
    monkeypatch.setenv("SLURM_CONF", cluster.conf)
    monkeypatch.setenv("PATH", os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin")))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(container_program, "on_this_node", lambda site: None)

    def call(site, *options):
        (tmp_path / "site.yaml").write_text(site)
        done = bench("site", "check", "--json", *options, "--write", "new.yaml")
        assert done.code == 0, done.err
        (said,) = [item for item in json.loads(done.out)["findings"] if item["what"] == "apptainer"]
        profile = load_site(tmp_path / "new.yaml")
        (tmp_path / "new.yaml").unlink()
        return said, profile

    return call


def test_a_login_node_without_apptainer_leaves_the_runtime_of_the_profile_to_be_proven(check):
    said, profile = check(SITE + "modules: [Apptainer]\n")
    assert said["state"] == "unknown" and said["note"].endswith("whether compute nodes do: bench site check --job")
    assert (profile.runtime, profile.modules) == ("apptainer", ("Apptainer",))
    (line,) = [line for line in profile.to_confirm if line.startswith("runtime: ")]
    assert line.startswith(
        "runtime: apptainer, as the profile 'ours' says; this node has none; whether compute nodes do"
    )
    assert check("site: bare\n")[1].runtime is None


def test_a_job_finds_what_compute_nodes_have(apptainer, check):
    folder = Path(apptainer).parent
    said, profile = check(f"{SITE}environment: {{PATH: '{folder}:/usr/bin:/bin'}}\n", "--job")
    assert said["state"] == "good" and "version" in said["value"] and "on a compute node" in said["note"]
    assert profile.runtime == "apptainer"
    assert not [line for line in profile.to_confirm if line.startswith("runtime")]


def test_what_compute_nodes_lack_is_missing_whatever_the_login_node_has(check, monkeypatch):
    monkeypatch.setattr(container_program, "on_this_node", lambda site: "apptainer version 1.4.5")
    said, profile = check(SITE)
    assert said["state"] == "good" and said["note"].startswith("this node has it; whether compute nodes do")
    assert profile.runtime == "apptainer" and any(line.startswith("runtime") for line in profile.to_confirm)
    assert check(SITE, "--job")[1].runtime is None


def test_a_job_that_finds_none_says_so(check):
    said, profile = check(SITE, "--job")
    assert said["state"] == "missing" and "a compute node has none" in said["note"]
    assert profile.runtime is None
    assert [line for line in profile.to_confirm if "a compute node has no apptainer" in line]


def test_a_cluster_that_refuses_the_job_leaves_it_unknown(check):
    said, profile = check(SITE.replace("cpu", "no_such_partition"), "--job")
    assert said["state"] == "unknown" and "a job got no answer" in said["note"]
    assert profile.runtime == "apptainer"
