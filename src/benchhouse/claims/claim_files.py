"""The claims of a workspace: files named by their digest, written once and never changed."""

from pathlib import Path

from benchhouse.documents.validation_errors import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.evidence.folder import list_folder
from benchhouse.evidence.writing import write_text
from benchhouse.processes.durable import make_folders
from benchhouse.processes.owned_names import sweep_temporaries
from benchhouse.schema.claim import CLAIM_ID, Claim, Policy
from benchhouse.schema.errors import BenchError, Exit, NotFoundError, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.query import Warehouse

_SHORTEST = 4
LARGEST = 64 << 20


def read_policy(workspace: WorkspaceFolder) -> Policy:
    """Return the rules of claims.yaml, or the default rules if there is no such file."""
    path = workspace.claim_policy
    return validated(load_yaml(path), Policy) if path.exists() else Policy()


def claim_path(workspace: WorkspaceFolder, claim_id: str) -> Path:
    return workspace.claims / f"{claim_id}.json"


def signature_path(workspace: WorkspaceFolder, claim_id: str) -> Path:
    return workspace.claims / f"{claim_id}.dsse"


def put(workspace: WorkspaceFolder, claim: Claim) -> Path:
    """Write a claim and pin the tables that it was computed from; writing the same claim twice gives one file."""
    path = claim_path(workspace, claim.id)
    try:
        make_folders(workspace.claims)
        sweep_temporaries(workspace.claims)
        if not path.exists() or path.read_bytes() != claim.text():
            write_text(path, claim.text().decode())
            path.chmod(0o444)
    except OSError as error:
        raise unwritable(workspace.claims, error) from error
    with Warehouse.open(workspace) as warehouse:
        place = path.relative_to(workspace.root).as_posix()
        new = [cell.ref for cell in claim.cells if warehouse.catalog.report_of(cell.ref) is None]
        warehouse.catalog.publish(place, new, {item.file for item in claim.spec.inputs})
    return path


def list_ids(workspace: WorkspaceFolder) -> list[str]:
    names = (path.stem for path in list_folder(workspace.claims) if path.suffix == ".json")
    return sorted(name for name in names if CLAIM_ID.fullmatch(name))


def find(workspace: WorkspaceFolder, token: str) -> str | None:
    """Return the id of the claim that starts with `token`; None if there is none. Raise BenchError if there are
    several.
    """
    if len(token) < _SHORTEST:
        return None
    ids = [name for name in list_ids(workspace) if name.startswith(token)]
    if len(ids) > 1:
        raise BenchError(f"'{token}' is the beginning of several claims: {', '.join(ids)}", "Give more characters.")
    return ids[0] if ids else None


def require(workspace: WorkspaceFolder, token: str) -> str:
    claim_id = find(workspace, token)
    if claim_id is None:
        raise NotFoundError(f"there is no claim '{token}'", "see: bench claim list")
    return claim_id


def read(workspace: WorkspaceFolder, claim_id: str) -> Claim:
    """Return a claim after verifying that its bytes have the digest in its name."""
    path = claim_path(workspace, claim_id)
    try:
        return parse(path.read_bytes()[: LARGEST + 1], claim_id, str(path))
    except OSError as error:
        raise BenchError(f"{path} can't be read: {error.strerror}", "see: bench claim list") from error


def parse(content: bytes, claim_id: str, name: str) -> Claim:
    """Return the claim in these bytes. Raise BenchError (claim not safe) if they are not those of `claim_id`."""
    try:
        if len(content) > LARGEST:
            raise ValueError("too large for a claim")
        claim = Claim.model_validate_json(content)
        if claim.text() != content or claim.id != claim_id:
            raise ValueError(f"its bytes have another digest than {claim_id}: it was changed")
        if not claim.cells or len(claim.queries) != 1 or not claim.trials:
            raise ValueError("it lacks its query, its rows or its trials")
        if any(query.digest() != key for key, query in claim.queries.items()):
            raise ValueError("its query has another digest than it says")
    except ValueError as error:  # pydantic's errors, too
        message = f"{name} is not the claim {claim_id}: {str(error).partition(chr(10))[0]}"
        hint = "Claims are never changed; make it again: bench claim make"
        raise BenchError(message, hint, Exit.CLAIM_NOT_SAFE) from error
    return claim
