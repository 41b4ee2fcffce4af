"""What Slurm's commands print, as seen on 22.05 and 24.11."""

from benchhouse.schema.site import Partition, Quality
from benchhouse.sites import slurm_facts

NODES = """\
cpu*|node01|8|4000|(null)|2-00:00:00
cpu*|node02|16|4000|(null)|2-00:00:00
gpu|gpu01|128|512000|gpu:a100:4(S:0-1)|1:00:00
gpu|gpu02|128+|512000+|gpu:a100:2(S:0,1),gpu:v100:1,nvme:1|1:00:00
old|node01|8|4000|(null)|infinite

slurm_load_node error
"""


def test_partitions_are_as_large_as_their_largest_node():
    partitions, default = slurm_facts.read_partitions(NODES)
    assert default == "cpu" and list(partitions) == ["cpu", "gpu", "old"]
    assert partitions["cpu"] == Partition(nodes=2, cpus=16, memory=4000 << 20, max_time=172800)
    assert partitions["gpu"] == Partition(nodes=2, cpus=128, memory=512000 << 20, gpus=4, max_time=3600)
    assert partitions["old"].max_time is None


def test_gpus_are_counted():
    cases = {
        "(null)": 0, "": 0, "gpu": 1, "gpu:4": 4, "gpu:a100:4(S:0-1)": 4, "nvme:1,gpu:h100-80gb:8": 8,
        "gpu:a:2,gpu:b:2": 4, "mygpu:4": 0,
    }  # fmt: skip
    assert {gres: slurm_facts.read_gpus(gres) for gres in cases} == cases


def test_times_are_read():
    cases = {
        "2-00:00:00": 172800, "01:00:00": 3600, "30:00": 1800, "infinite": None, "UNLIMITED": None, "": None,
    }  # fmt: skip
    assert {text: slurm_facts.read_time(text) for text in cases} == cases


def test_settings_and_the_controllers_clock_are_read():
    text = (
        "Configuration data as of 2026-11-15T19:31:51\nMaxArraySize            = 1001\nX = a = b\n\nSlurmctld(...) UP\n"
    )
    found = slurm_facts.read_config(text)
    assert found == {"as of": "2026-11-15T19:31:51", "MaxArraySize": "1001", "X": "a = b"}


def test_accounts_and_qualities_are_read():
    found = slurm_facts.read_associations("p200000|default,dev|default\nroot|default||\n\n")
    assert (found.accounts, found.qualities, found.default_quality) == (
        ["p200000", "root"],
        ["default", "dev"],
        "default",
    )
    qualities = slurm_facts.read_qualities("normal||\ndev|00:30:00|4\n")
    assert qualities == {"normal": Quality(), "dev": Quality(max_time=1800, max_jobs=4)}


def test_nonsense_is_nothing():
    assert slurm_facts.read_partitions("bash: sinfo: command not found") == ({}, "")
    assert slurm_facts.read_associations("").accounts == []
