"""Modules that stand in for others while something is imported that names them, and uses them only later, or never."""

import importlib
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any


class StandIn(ModuleType):
    """A module that knows some names. Once it is out of `sys.modules`, every other name is the real module's."""

    def __init__(self, name: str, /, also: Sequence[str] = (), **known: Any) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # a package: what is below is found in `sys.modules`
        self._imports = (name, *also)  # whoever imported it may have imported these with it
        self._known = tuple(known)
        vars(self).update(known)

    def step_aside(self) -> None:
        """From now on what it knew is the real module's too."""
        for name in self._known:
            vars(self).pop(name, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or sys.modules.get(self.__name__) is self:
            raise AttributeError(f"the stand-in for {self.__name__} has no {name}")
        for module in self._imports:
            importlib.import_module(module)
        return getattr(sys.modules[self.__name__], name)


def import_with(stand_ins: Mapping[str, StandIn], name: str) -> ModuleType:
    """The module `name`, imported while these stand in; without them where it needs more than they know."""
    before = set(sys.modules)
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module(name)
    except Exception:  # noqa: BLE001 - whatever it is, it is raised again below if no stand-in is to blame
        top = name.partition(".")[0]
        for made in set(sys.modules) - before:
            if made.partition(".")[0] == top:  # half made, or made with a stand-in
                del sys.modules[made]
    finally:
        for standing, module in stand_ins.items():
            if sys.modules.get(standing) is module:
                del sys.modules[standing]
            vars(module).pop("__path__", None)
    return importlib.import_module(name)
