"""A packet is enough, and nothing but a packet is taken for one."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from claim_maker import NUMBER, claims_of, export, make

from benchhouse.claims import packet as packets
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder


@pytest.fixture
def elsewhere(tmp_path: Path) -> WorkspaceFolder:
    folder = tmp_path / "another machine"
    folder.mkdir()
    return WorkspaceFolder(folder)


@pytest.fixture
def packet(workspace: WorkspaceFolder, tmp_path: Path) -> Path:
    return export(workspace, make(workspace), tmp_path / "claim.tar")


def refusal(elsewhere: WorkspaceFolder, path: Path) -> str:
    with pytest.raises(BenchError) as refused:
        claims_of(elsewhere).verify(str(path))
    assert refused.value.exit_code == Exit.CLAIM_NOT_SAFE
    assert list(elsewhere.root.iterdir()) == []
    return refused.value.message


def rewrite(source: Path, target: Path, *, change=lambda members: members, kind: str = "w") -> Path:
    """The packet's members, changed, in a tar of their own."""
    with tarfile.open(source) as tar:
        members = [(member, tar.extractfile(member).read()) for member in tar]
    with tarfile.open(target, kind, format=tarfile.PAX_FORMAT) as tar:
        for member, content in change(members):
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return target


def added(name: str = "evidence/x/y", content: bytes = b"x", **fields):
    def change(members):
        member = tarfile.TarInfo(name)
        member.size = len(content)
        for key, value in fields.items():
            setattr(member, key, value)
        return [*members, (member, content)]

    return change


def test_a_packet_is_checked_in_an_empty_folder_without_the_workspace(workspace, packet, elsewhere):
    import shutil

    shutil.rmtree(workspace.root)
    checked = claims_of(elsewhere).verify(str(packet))
    assert checked.ok, checked
    assert checked.signature.state == "unsigned"
    assert len(checked.trace.steps[3].details) == 5
    assert list(elsewhere.root.iterdir()) == []


def test_a_comparison_and_raw_evidence_travel_too(workspace, tmp_path, elsewhere):
    claim = make(workspace, NUMBER, "run-s:name=flat")
    packet = export(workspace, claim, tmp_path / "raw.tar", with_raw=True)
    assert claims_of(elsewhere).verify(str(packet)).ok
    with tarfile.open(packet) as tar:
        names = tar.getnames()
    folder = workspace.root / claim.trials[0].folder
    held = {name.removeprefix(f"evidence/{folder.name}/") for name in names if folder.name in name}
    assert held == {path.name for path in folder.iterdir()}


def test_the_same_claim_gives_the_same_bytes(workspace, packet, tmp_path):
    again = export(workspace, make(workspace), tmp_path / "again.tar")
    assert again.read_bytes() == packet.read_bytes()


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.5, 0.7, 0.9, 0.9999])
def test_a_flipped_bit_anywhere_is_found(packet, elsewhere, share):
    content = bytearray(packet.read_bytes())
    content[int(share * len(content))] ^= 4
    packet.write_bytes(content)
    assert "refused" in refusal(elsewhere, packet)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (added("../outside"), "no place"),
        (added("/etc/outside"), "no place"),
        (added("evidence/../../outside"), "no place"),
        (added("evidence/x/../../../outside"), "no place"),
        (added("tables/trial_fact/../../x.parquet"), "no place"),
        (added("README"), "no place"),
        (added("evidence/x\\y/z"), "no place"),
        (added("evidence/x/link", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "not a plain file"),
        (added("evidence/x/link", b"", type=tarfile.LNKTYPE, linkname="claim.json"), "not a plain file"),
        (added("evidence/x/pipe", b"", type=tarfile.FIFOTYPE), "not a plain file"),
        (added("evidence/x/folder", b"", type=tarfile.DIRTYPE), "not a plain file"),
        (added("claim.json"), "twice"),
        (added("evidence/x/more"), "not in both"),
        (lambda members: members[:-1], "not in both"),
        (lambda members: members[1:], "packet.json"),
        (lambda members: [members[0], *reversed(members[1:])], "its bytes are not those"),
        (lambda members: [(setattr(m, "mtime", 7), (m, c))[1] for m, c in members], "its bytes are not those"),
    ],
)
def test_a_hostile_packet_is_refused(packet, tmp_path, elsewhere, change, why):
    assert why in refusal(elsewhere, rewrite(packet, tmp_path / "hostile.tar", change=change))
    assert not list(tmp_path.glob("**/outside"))


def test_a_compressed_or_sparse_bomb_is_refused_unread(packet, tmp_path, elsewhere):
    packed = rewrite(packet, tmp_path / "packed.tar", kind="w:gz")
    assert "no plain tar" in refusal(elsewhere, packed)
    member = tarfile.TarInfo("evidence/x/huge")
    member.size = 1 << 40
    bomb = tmp_path / "bomb.tar"
    bomb.write_bytes(packet.read_bytes()[:-10240] + member.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
    assert "refused" in refusal(elsewhere, bomb)
    for content in (b"", b"hello", bytes(10240)):
        bomb.write_bytes(content)
        assert "refused" in refusal(elsewhere, bomb)


def test_tables_and_evidence_that_belong_to_no_claim_are_refused(workspace, packet, tmp_path, elsewhere):
    claim = make(workspace)
    held = {packets.CLAIM: claim.text()}
    held |= {f"tables/{one.file}": (workspace.warehouse / one.file).read_bytes() for one in claim.spec.inputs}
    extra = {"evidence/stranger/x": b"x"}

    def pack(held):
        files = {name: packets._describe(content) for name, content in held.items()}
        index = packets.Packet(claim_id=claim.id, with_raw=False, files=files).signed_off()
        with (tmp_path / "made.tar").open("wb") as file:
            packets.write_tar(file, index, held)
        return tmp_path / "made.tar"

    assert "evidence of no trial" in refusal(elsewhere, pack(held | extra))
    assert "read by no query" in refusal(elsewhere, pack(held | {"tables/trial_fact/run-x.parquet": b"x"}))
    first = f"tables/{claim.spec.inputs[0].file}"
    assert "not in the packet" in refusal(elsewhere, pack({k: v for k, v in held.items() if k != first}))
    assert "not the file that" in refusal(elsewhere, pack(held | {first: b"PAR1"}))
    without = claims_of(elsewhere).verify(str(pack(held)))  # whole, but it proves nothing
    assert [step.name for step in without.trace.steps if not step.ok] == ["evidence"]


@pytest.mark.timeout(20)
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, elsewhere):
    os.mkfifo(tmp_path / "claim.tar")
    assert "it is no file" in refusal(elsewhere, tmp_path / "claim.tar")


def test_a_file_that_is_not_there_is_said(elsewhere):
    with pytest.raises(BenchError, match="no such file"):
        claims_of(elsewhere).verify("nothing.tar")


def test_a_packet_that_can_not_be_written_leaves_nothing_nor_does_one_that_was_killed(
    workspace, tmp_path, monkeypatch, leave_behind
):
    claim, folder = make(workspace), tmp_path / "packets"
    leave_behind(folder, "claim.tar")

    def refuse(file, *_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(BenchError, match="No space left"):
        patch.setattr(packets, "write_tar", refuse)
        export(workspace, claim, folder / "claim.tar")
    assert list(folder.iterdir()) == []
