"""artifact_lineage_dim beyond the trials: where evidence lies, who signed claims about it, which packets hold it.

These change after a run: whoever signs, packs or pushes has the row made again (`ingest.refresh`).
"""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from benchhouse.evidence.deposits import deposits
from benchhouse.evidence.folder import list_folder
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.table import Row


def lineage_columns(workspace: WorkspaceFolder, row: Row) -> Row:
    """What the workspace knows more than the trials of the run in `row`."""
    run_id = str(row["run_id"])
    known = deposits(workspace, [run_id])
    signed = sorted(_signed_claims(workspace, run_id))
    return {
        "raw_uri": (workspace.root.absolute() / row["raw_uri"]).as_uri(),
        "store_uris": sorted({item.uri for item in known if item.kind == "store"}),
        "packets": sorted({f"{item.uri}#sha256={item.sha256}" for item in known if item.kind == "packet"}),
        "signed_claims": signed,
        "signing_state": "signed" if signed else "unsigned",
    }


def _signed_claims(workspace: WorkspaceFolder, run_id: str) -> list[str]:
    """Claims about trials of the run that have a signature of their own bytes: id and key.

    Whether the signature itself is right takes a key that is trusted: `bench claim verify`.
    """
    claims = []
    for envelope in list_folder(workspace.claims):
        if envelope.suffix == ".dsse":
            try:
                content = envelope.with_suffix(".json").read_bytes()
                if run_id.encode() in content and (keys := _signers(envelope, content, run_id)):
                    claims.append(f"{envelope.stem} {keys}")
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not of ours, or changed: nothing that vouches for anything
    return claims


def _signers(envelope: Path, claim: bytes, run_id: str) -> str:
    """Ids of the keys in an envelope that is about exactly this claim; none where it is about another."""
    signed: dict[str, Any] = json.loads(envelope.read_bytes())
    subjects = json.loads(base64.b64decode(signed["payload"]))["subject"]
    about = [subject["digest"]["sha256"] for subject in subjects] == [hashlib.sha256(claim).hexdigest()]
    behind = any(trial["run_id"] == run_id for trial in json.loads(claim)["trials"])
    return ",".join(item["keyid"] for item in signed["signatures"]) if about and behind else ""
