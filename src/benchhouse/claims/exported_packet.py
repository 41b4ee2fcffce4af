"""A packet in the form that exporters get: checked like in `bench claim verify`, then described."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchhouse.claims import claim_files
from benchhouse.claims.packet import TABLES, check_packet, unpack
from benchhouse.schema.digests import file_digest
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.exported import ExportedPacket, PackedColumn, PackedTable
from benchhouse.warehouse.tables import TABLES as KNOWN_TABLES


def describe(path: Path, licence: str, url: str, at: str) -> ExportedPacket:
    """Describe a packet. Raise BenchError (claim not safe) if it is not a packet, was changed, or does not hold."""
    if not path.is_file():
        raise BenchError(f"{path} is not a file", "give the packet of a claim: bench claim export CLAIM -o PACKET.tar")
    if not check_packet(path, None, None).ok:
        raise BenchError(
            f"{path}: the claim does not hold", f"see: bench claim verify {path}", Exit.CLAIM_NOT_SAFE
        )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="bench-packet-") as folder:
        packet, content, _ = unpack(path, Path(folder))
    claim = claim_files.parse(content, packet.claim_id, f"{path}: claim.json")
    return ExportedPacket(
        file=path.name,
        sha256=file_digest(path),
        size=path.stat().st_size,
        claim=claim,
        files={name: (entry.sha256, entry.bytes) for name, entry in packet.files.items()},
        tables=tuple(_tables(packet.files)),
        licence=licence,
        url=url,
        described_at=at,
    )


def _tables(files: Iterable[str]) -> Iterator[PackedTable]:
    for file in sorted(files):
        if file.startswith(f"{TABLES}/"):
            table = KNOWN_TABLES[file.split("/")[1]]
            columns = tuple(PackedColumn(item.name, item.kind, item.description) for item in table.columns)
            yield PackedTable(table.name, file, table.description, columns)
