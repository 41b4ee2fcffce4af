"""The base of the groups of verbs, such as `ws.servers`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace


class VerbGroup:
    """Methods that belong together, on one workspace."""

    def __init__(self, workspace: "Workspace") -> None:
        self._workspace, self._folder = workspace, workspace.folder
