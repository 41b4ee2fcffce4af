"""A packet: one plain tar with a claim and everything that proves it. Equal claims give equal bytes.

The tar is not compressed, so it cannot unpack to more than its own size. There is exactly one way to write it, so a
reader can write it again and compare: any change is detected, even in padding. A packet from elsewhere is verified from
its own content alone: it is unpacked into a temporary folder, traced, and deleted.
"""

import hashlib
import io
import re
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Literal, cast

from pydantic import Field, ValidationError

from benchhouse.claims import claim_files, signatures
from benchhouse.claims.verification import ClaimCheck, walk
from benchhouse.evidence.manifest import ManifestEntry
from benchhouse.evidence.writing import replacing
from benchhouse.processes.owned_names import sweep_temporaries
from benchhouse.schema.claim import CLAIM_ID, Claim, Policy
from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.model import Model
from benchhouse.warehouse.catalog import TableCatalog
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.tables import TABLES as KNOWN_TABLES

if TYPE_CHECKING:
    from securesystemslib.signer._key import Key  # the package exports it without listing it

INDEX, CLAIM, SIGNATURE = "packet.json", "claim.json", "claim.dsse"
TABLES, EVIDENCE = "tables", "evidence"
_MEMBERS = 200_000
_NAME_LENGTH = 1_000
_MOST_UNPACKED = 8 << 30  # limit for Parquet files, which are compressed
_BLOCK = 1 << 20
_TRIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TABLE_FILE = re.compile(r"[a-z][a-z0-9_]*/[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.parquet")


class Packet(Model):
    """packet.json: the content of the packet; read first and trusted last."""

    schema_version: Literal[1] = 1
    claim_id: str
    with_raw: bool = Field(description="All files of the evidence, or those that the number is computed from.")
    files: dict[str, ManifestEntry] = Field(description="All files but this one.")
    self_digest: str = Field("", description="Digest of the fields above.")

    def content_digest(self) -> str:
        return digest(self.model_dump(exclude={"self_digest"}))

    def signed_off(self) -> "Packet":
        return self.model_copy(update={"self_digest": self.content_digest()})

    def text(self) -> bytes:
        return self.model_dump_json(indent=1).encode() + b"\n"


def export(workspace: WorkspaceFolder, claim: Claim, envelope: bytes | None, target: Path, *, with_raw: bool) -> Packet:
    """Write the packet of a claim whose lineage was verified."""
    held: dict[str, bytes | Path] = {CLAIM: claim.text()}
    if envelope is not None:
        held[SIGNATURE] = envelope
    held |= {f"{TABLES}/{item.file}": workspace.warehouse / item.file for item in claim.spec.inputs}
    for trial in claim.trials:
        folder = TrialFolder(workspace.root / trial.folder)
        for path in _evidence(folder, with_raw=with_raw):
            held[f"{EVIDENCE}/{trial.trial_id}/{path.relative_to(folder.path).as_posix()}"] = path
    try:
        files = {name: _describe(content) for name, content in sorted(held.items())}
        packet = Packet(claim_id=claim.id, with_raw=with_raw, files=files).signed_off()
        sweep_temporaries(target.parent)
        with replacing(target) as temporary, temporary.open("wb") as file:
            write_tar(file, packet, held)
    except OSError as error:
        raise unwritable(target, error) from error
    return packet


def _evidence(folder: TrialFolder, *, with_raw: bool) -> Iterable[Path]:
    if with_raw:
        return sorted(path for path in folder.path.rglob("*") if path.is_file() and not path.is_symlink())
    needed = (folder.manifest, folder.spec, folder.meta, folder.metrics, folder.metrics_csv,
              folder.samples, folder.histograms)  # fmt: skip
    return [path for path in needed if path.is_file()]


def _describe(content: bytes | Path) -> ManifestEntry:
    if isinstance(content, Path):
        return ManifestEntry(sha256=file_digest(content), bytes=content.stat().st_size)
    return ManifestEntry(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


def write_tar(file: IO[bytes], packet: Packet, held: Mapping[str, bytes | Path]) -> None:
    """Write a packet in its only valid form."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in [(INDEX, packet.text()), *sorted(held.items())]:
            member = tarfile.TarInfo(name)
            member.mode = 0o644
            if isinstance(content, Path):
                member.size = content.stat().st_size
                with content.open("rb") as source:
                    tar.addfile(member, source)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def unpack(path: Path, folder: Path) -> tuple[Packet, bytes, bytes | None]:
    """Unpack a packet into an empty folder; return index, claim, and signature. Anything unexpected in it is refused.

    Tables go to `.bench/warehouse/`, evidence to `evidence/TRIAL/`. Raise BenchError (claim not safe) if it is refused.
    """
    if path.exists() and not path.is_file():  # opening a pipe would wait for a writer
        raise refused(path, "it is no file")
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            held = _extract(tar, folder, path.stat().st_size)
        content = (folder / INDEX).read_bytes()
        packet = Packet.model_validate_json(content)
        if packet.text() != content or packet.self_digest != packet.content_digest():
            raise _Refused("packet.json does not have its own digest: it was changed")
        if not CLAIM_ID.fullmatch(packet.claim_id):
            raise _Refused("packet.json names no claim")
        _compare(packet, held)
        again = _Hashing()
        write_tar(cast("IO[bytes]", again), packet, held)
        if again.hash.hexdigest() != file_digest(path):
            raise _Refused("its bytes are not those that a packet with these files has")
        claim = held[CLAIM].read_bytes()
        return packet, claim, held[SIGNATURE].read_bytes() if SIGNATURE in held else None
    except FileNotFoundError as error:
        if not path.exists():
            raise BenchError(f"no such file: {path}", "make one: bench claim export ID") from error
        raise refused(path, "it holds no packet.json or no claim.json") from error
    except (tarfile.TarError, EOFError) as error:
        raise refused(path, f"it is no plain tar: {error}") from error
    except ValidationError as error:
        raise refused(path, f"packet.json can't be read: {str(error).partition(chr(10))[0]}") from error
    except (_Refused, ValueError, KeyError, OSError, RecursionError) as error:
        raise refused(path, str(error)) from error


class _Refused(Exception):  # noqa: N818 - its message is shown to the user unchanged
    pass


def refused(path: Path, why: str) -> BenchError:
    return BenchError(f"{path} is refused: {why}", "Ask for it again where it came from.", Exit.CLAIM_NOT_SAFE)


def _extract(tar: tarfile.TarFile, folder: Path, room: int) -> dict[str, Path]:
    held: dict[str, Path] = {}
    total = 0
    for count, member in enumerate(tar):
        name = _shown(member.name)
        if count >= _MEMBERS:
            raise _Refused(f"it has more than {_MEMBERS} files")
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
            raise _Refused(f"{name} is not a plain file")
        total += member.size
        if member.size < 0 or total > room:
            raise _Refused(f"{name} says that it is larger than the packet")
        place = _place(member.name)
        if member.name in held:
            raise _Refused(f"{name} is in it twice")
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        source = tar.extractfile(member)
        with target.open("xb") as file:
            while source and (block := source.read(_BLOCK)):
                file.write(block)
        held[member.name] = target
    del held[INDEX]
    return held


def _place(name: str) -> str:
    """Return the place of a member below the folder; only the members of a valid packet have one."""
    parts = PurePosixPath(name).parts
    plain = "/".join(parts) == name and len(name) <= _NAME_LENGTH and "\0" not in name and "\\" not in name
    if plain and ".." not in parts and not name.startswith("/"):
        if name in (INDEX, CLAIM, SIGNATURE):
            return name
        if parts[0] == TABLES and _TABLE_FILE.fullmatch("/".join(parts[1:])):
            return f".bench/warehouse/{'/'.join(parts[1:])}"
        if parts[0] == EVIDENCE and len(parts) > 2 and _TRIAL.fullmatch(parts[1]):
            return name
    raise _Refused(f"{_shown(name)} has no place in a packet")


def _shown(name: str) -> str:
    return ascii(name[:80])


def _compare(packet: Packet, held: Mapping[str, Path]) -> None:
    if different := sorted(packet.files.keys() ^ held.keys()):
        raise _Refused(f"{_shown(different[0])} is in packet.json or in the packet, not in both")
    for name, path in held.items():
        if _describe(path) != packet.files[name]:
            raise _Refused(f"{_shown(name)} was changed: its sha256 differs")


class _Hashing(io.RawIOBase):
    """A file that only counts and hashes what is written to it."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.written

    def write(self, content: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        self.hash.update(content)
        self.written += len(content)
        return len(content)


# -- packets from elsewhere


def check_packet(path: Path, keys: "Mapping[str, Key] | None", own: Policy | None) -> ClaimCheck:
    """Verify a packet. Raise BenchError (claim not safe) if it is not a packet, or was changed."""
    with tempfile.TemporaryDirectory(prefix="bench-packet-") as folder:
        workspace = WorkspaceFolder(Path(folder))
        packet, content, envelope = unpack(path, workspace.root)
        claim = claim_files.parse(content, packet.claim_id, f"{path}: claim.json")
        _check_inputs(path, claim, packet, workspace)
        placed = {trial.trial_id: f"{EVIDENCE}/{trial.trial_id}" for trial in claim.trials}

        def folder_of(trial_id: str) -> TrialFolder:
            return TrialFolder(workspace.root / placed.get(trial_id, "not packed"))

        with TableCatalog.open_for_rebuild(workspace) as catalog:
            catalog.finish()
        with Warehouse.open(workspace) as warehouse:
            where = f"{path.name}: claim.json"
            traced, verdict = walk(
                warehouse, claim, where, str(path), lambda row: folder_of(row["trial_id"]), own, placed
            )
        signature = signatures.check(claim, envelope, keys)
        what = "all files of its evidence" if packet.with_raw else "of its evidence what the number is computed from"
        return ClaimCheck(
            claim_id=claim.id,
            label=claim.label,
            statement=claim.statement,
            ok=traced.ok and not signature.is_wrong and (verdict is None or verdict.holds(claim)),
            trace=traced,
            signature=signature,
            policies=verdict,
            notes=[f"the packet holds {len(packet.files)} files, every digest as it says; {what}"],
        )


def _check_inputs(path: Path, claim: Claim, packet: Packet, workspace: WorkspaceFolder) -> None:
    """Check that the query reads only the packet's tables, and that each is pinned by the claim and not too large."""
    trials = {trial.trial_id for trial in claim.trials}
    inputs = {f"{TABLES}/{item.file}": item for item in claim.spec.inputs}
    for name in packet.files:
        if name.startswith(f"{EVIDENCE}/") and name.split("/")[1] not in trials:
            raise refused(path, f"{name} is evidence of no trial of the claim")
        if name.startswith(f"{TABLES}/") and name not in inputs:
            raise refused(path, f"{name} is read by no query of the claim")
    unpacked = 0
    for name, item in inputs.items():
        entry = packet.files.get(name)
        if item.table not in KNOWN_TABLES or not item.file.startswith(f"{item.table}/") or entry is None:
            raise refused(path, f"its query reads {item.file}, which is not in the packet")
        if entry.sha256 != item.sha256:
            raise refused(path, f"{item.file} is not the file that the claim's query was computed from")
        unpacked += _unpacked_bytes(path, workspace.warehouse / item.file)
        if unpacked > _MOST_UNPACKED:
            raise refused(path, f"{item.file} unpacks to more than {_MOST_UNPACKED >> 30} GiB")


def _unpacked_bytes(path: Path, file: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise refused(path, f"{file.name} is no Parquet file: {error}") from error
    return sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
