"""`benchhouse.open`: a workspace in a folder, or one that is served elsewhere."""

import os
from typing import TYPE_CHECKING, overload

from benchhouse.api.workspace import Workspace

if TYPE_CHECKING:
    from benchhouse.api.remote import RemoteWorkspace


@overload
def open_workspace(folder: str | os.PathLike[str] | None = None) -> Workspace: ...
@overload
def open_workspace(folder: str, *, token: str) -> "RemoteWorkspace": ...
def open_workspace(
    folder: str | os.PathLike[str] | None = None, *, token: str | None = None
) -> "Workspace | RemoteWorkspace":
    """Open the workspace in `folder`, otherwise $BENCH_WORKSPACE, otherwise the current folder. If `folder` is the
    address of a `bench serve`, return a `RemoteWorkspace` over HTTP, with `token` or $BENCH_TOKEN."""
    if isinstance(folder, str) and folder.startswith(("http://", "https://")):
        from benchhouse.api.remote import RemoteWorkspace

        return RemoteWorkspace(folder, token)
    workspace = Workspace(folder)
    workspace.catch_up()
    return workspace
