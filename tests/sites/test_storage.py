"""What a folder lies on, and what may still be put there."""

import os
import sys

import pytest
from services.small_disk import small_disk as small_disk

from benchhouse.schema.site import Site
from benchhouse.sites import storage
from benchhouse.sites.storage import Mount, Room


@pytest.fixture
def fake_program(tmp_path, monkeypatch):
    """A program of that name that prints what it is told, first on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def add(name, code):
        path = folder / name
        path.write_text(f"#!{sys.executable}\nimport sys, time\n{code}\n")
        path.chmod(0o755)

    return add


@pytest.fixture
def lies_on(monkeypatch):
    def say(kind, source="fs", point="/"):
        monkeypatch.setattr(storage, "mounts", lambda: [Mount(storage.Path(point), kind, source)])

    return say


def test_a_filesystem_is_found_by_its_longest_point(small_disk):
    mount = storage.mount_of(small_disk / "not" / "yet" / "there")
    assert (mount.point, mount.kind, mount.shared) == (small_disk, "tmpfs", False)


@pytest.mark.parametrize("kind", ["lustre", "gpfs", "nfs4", "beegfs"])
def test_filesystems_of_clusters_are_shared(kind):
    assert Mount(storage.Path("/p"), kind, "x").shared


def test_the_room_of_a_real_filesystem_is_told(small_disk):
    (room,) = storage.rooms(small_disk / "results", Site())
    assert 0 < room.size <= 1 << 20 and room.basis == f"free on {small_disk}"
    (small_disk / "big").write_bytes(b"x" * (512 << 10))
    assert storage.free(small_disk).size == room.size - (512 << 10)


LFS = """
if sys.argv[1] == "project":
    print("  4242 P /x")
elif sys.argv[3] == "-u":
    print("/mnt/tier2   1000*      0    3000       -      10       0       0       -")
elif sys.argv[3] == "-p":
    print("/mnt/tier2/a/very/long/name\\n 2048 1024 4096 6d23h59m 90 0 100 -")
else:
    print("/mnt/tier2 [5] 0 0 - 5 0 0 -")
"""


def test_quotas_of_lustre_are_asked_of_user_group_and_project(fake_program, lies_on, tmp_path):
    fake_program("lfs", LFS)
    lies_on("lustre")
    _, user, project = storage.rooms(tmp_path, Site())
    assert (user.size, user.files) == (2000 << 10, None) and "of this user" in user.basis
    assert (project.size, project.files) == (2048 << 10, 10) and "of project 4242" in project.basis


def test_a_quota_that_is_exceeded_leaves_nothing(fake_program, lies_on, tmp_path):
    words = "Disk quotas for user me (uid 0):\\nFilesystem blocks quota limit grace files quota limit grace"
    fake_program(
        "quota", f"print('{words}\\n/dev/x 5000* 1000 4000 604800 7 0 0 0\\n/dev/y 1 0 9 0 1 0 9 0'); sys.exit(1)"
    )
    lies_on("ext4", "/dev/x")
    _, quota = storage.rooms(tmp_path, Site())
    assert (quota.size, quota.files) == (0, None)


@pytest.mark.parametrize("code", ["sys.exit(2)", "print('nonsense')", "print('fs - - - -')", ""])
def test_a_command_that_says_nothing_of_use_is_passed_over(fake_program, lies_on, tmp_path, code):
    fake_program("lfs", code)
    lies_on("lustre")
    assert len(storage.rooms(tmp_path, Site())) == 1


def test_a_command_that_hangs_is_given_up(fake_program, lies_on, tmp_path, monkeypatch):
    monkeypatch.setattr("benchhouse.sites.commands.LIMIT_S", 0.2)
    fake_program("quota", "time.sleep(60)")
    lies_on("ext4")
    assert len(storage.rooms(tmp_path, Site())) == 1


def test_a_profiles_quota_counts_below_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WORK", str(tmp_path))
    monkeypatch.delenv("SCRATCH", raising=False)
    site = Site.model_validate(
        {"site": "x", "quotas": {"$WORK": {"size": "1MB"}, "$SCRATCH": {"files": 1}, "/else": {}}}
    )
    assert storage.rooms(tmp_path / "ws" / "results", site)[1:] == [
        Room(1_000_000, None, f"quota of {tmp_path} by site 'x'")
    ]
