"""artifact_lineage_dim beyond the trials: where evidence is stored, who signed claims about it, which packets hold it.

These facts change after a run: signing, packing, and pushing make the row again (`ingest.refresh`).
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
    """Return the workspace's facts about the run in `row` that its trials do not have."""
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
    """Return the claims about trials of the run that have a signature over their own bytes: id and keys.

    Verifying the signature itself requires a trusted key: `bench claim verify`.
    """
    claims = []
    for envelope in list_folder(workspace.claims):
        if envelope.suffix == ".dsse":
            try:
                content = envelope.with_suffix(".json").read_bytes()
                if run_id.encode() in content and (keys := _signers(envelope, content, run_id)):
                    claims.append(f"{envelope.stem} {keys}")
            except (OSError, ValueError, KeyError, TypeError):
                continue  # foreign or changed: it proves nothing
    return claims


def _signers(envelope: Path, claim: bytes, run_id: str) -> str:
    """Return the ids of the keys in an envelope over exactly this claim; empty if it is about another claim or run."""
    signed: dict[str, Any] = json.loads(envelope.read_bytes())
    subjects = json.loads(base64.b64decode(signed["payload"]))["subject"]
    about = [subject["digest"]["sha256"] for subject in subjects] == [hashlib.sha256(claim).hexdigest()]
    behind = any(trial["run_id"] == run_id for trial in json.loads(claim)["trials"])
    return ",".join(item["keyid"] for item in signed["signatures"]) if about and behind else ""
