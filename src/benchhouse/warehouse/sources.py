"""Tables that are not made of evidence: JSON files of the workspace, read as they are at the moment of the question."""

import os
from collections.abc import Iterable

from benchhouse.schema.digests import file_digest
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.query import QueryInput
from benchhouse.warehouse.tables import TABLES


def source_files(workspace: WorkspaceFolder, tables: Iterable[str]) -> list[QueryInput]:
    """The files behind these tables, with their digests; `file` is relative to the warehouse, as all inputs are."""
    found = []
    for name in tables:
        if not TABLES[name].source:
            continue
        for path in sorted(workspace.root.glob(TABLES[name].source)):
            if path.is_file() and path.stat().st_size:
                file = os.path.relpath(path, workspace.warehouse)
                found.append(QueryInput(table=name, run_id="", file=file, sha256=file_digest(path)))
    return found
