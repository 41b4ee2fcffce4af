"""pydantic asks every installed package for plugins when it makes its first validator: 30 ms of each command.

Our models want none, so our own processes leave that out.
Experiments, which are strangers' code, get pydantic as it is.
"""

import sys
from types import ModuleType

_LOADER = "pydantic.plugin._loader"


class _NoPlugins(ModuleType):
    def get_plugins(self) -> tuple[()]:
        return ()


def leave_out_plugins() -> None:
    """For a process that is ours alone. Where pydantic has looked already, nothing changes."""
    sys.modules.setdefault(_LOADER, _NoPlugins(_LOADER))


def take_plugins_back() -> None:
    """From now on pydantic looks for them again."""
    if isinstance(sys.modules.get(_LOADER), _NoPlugins):
        del sys.modules[_LOADER]
