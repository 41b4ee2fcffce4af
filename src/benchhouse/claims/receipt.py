"""A packet from elsewhere is checked from itself alone: laid out in a folder of its own, walked, and forgotten."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchhouse.claims import packet as packets
from benchhouse.claims import shelf, signatures
from benchhouse.claims.verification import Checked, walk
from benchhouse.schema.claim import Claim
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.warehouse.catalog import Catalog
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securesystemslib.signer._key import Key  # the package exports it without saying so

_MOST_UNPACKED = 8 << 30  # of Parquet, which is compressed


def check_packet(path: Path, keys: "Mapping[str, Key] | None") -> Checked:
    """Raises BenchError (claim not safe) for what is no packet, or one that was changed."""
    with tempfile.TemporaryDirectory(prefix="bench-packet-") as folder:
        workspace = WorkspaceFolder(Path(folder))
        packet, content, envelope = packets.unpack(path, workspace.root)
        claim = shelf.parse(content, packet.claim_id, f"{path}: claim.json")
        _check_inputs(path, claim, packet, workspace)
        placed = {trial.trial_id: f"{packets.EVIDENCE}/{trial.trial_id}" for trial in claim.trials}
        with Catalog.open_for_rebuild(workspace) as catalog:
            catalog.finish()
        with Warehouse.open(workspace) as warehouse:
            traced = walk(
                warehouse,
                claim,
                f"{path.name}: claim.json",
                str(path),
                lambda row: TrialFolder(workspace.root / placed.get(row["trial_id"], "not packed")),
                placed,
            )
        signature = signatures.check(claim, envelope, keys)
        what = "all files of its evidence" if packet.with_raw else "of its evidence what the number is computed from"
        return Checked(
            claim_id=claim.id,
            label=claim.label,
            statement=claim.statement,
            ok=traced.ok and not signature.is_wrong,
            trace=traced,
            signature=signature,
            notes=[f"the packet holds {len(packet.files)} files, every digest as it says; {what}"],
        )


def _check_inputs(path: Path, claim: Claim, packet: packets.Packet, workspace: WorkspaceFolder) -> None:
    """The query reads the packet's tables and nothing else; each is what the claim pins, and not too large."""
    trials = {trial.trial_id for trial in claim.trials}
    read = {f"{packets.TABLES}/{one.file}": one for one in claim.spec.inputs}
    for name in packet.files:
        if name.startswith(f"{packets.EVIDENCE}/") and name.split("/")[1] not in trials:
            raise packets.refused(path, f"{name} is evidence of no trial of the claim")
        if name.startswith(f"{packets.TABLES}/") and name not in read:
            raise packets.refused(path, f"{name} is read by no query of the claim")
    unpacked = 0
    for name, one in read.items():
        entry = packet.files.get(name)
        if one.table not in TABLES or not one.file.startswith(f"{one.table}/") or entry is None:
            raise packets.refused(path, f"its query reads {one.file}, which is not in the packet")
        if entry.sha256 != one.sha256:
            raise packets.refused(path, f"{one.file} is not the file that the claim's query was computed from")
        unpacked += _unpacked_bytes(path, workspace.warehouse / one.file)
        if unpacked > _MOST_UNPACKED:
            raise packets.refused(path, f"{one.file} unpacks to more than {_MOST_UNPACKED >> 30} GiB")


def _unpacked_bytes(path: Path, file: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise packets.refused(path, f"{file.name} is no Parquet file: {error}") from error
    return sum(found.row_group(at).total_byte_size for at in range(found.num_row_groups))
