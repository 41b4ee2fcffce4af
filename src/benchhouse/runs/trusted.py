"""trusted.yaml of a workspace, read with the place of every mistake."""

from benchhouse.documents.misfits import validated
from benchhouse.documents.yaml_reader import load_yaml
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.trust import TrustedFile


def read_trusted(workspace: WorkspaceFolder) -> TrustedFile | None:
    """What the file says; None where there is none: then nobody is limited, as on a laptop."""
    if not workspace.trusted.is_file():
        return None
    return validated(load_yaml(workspace.trusted), TrustedFile)
