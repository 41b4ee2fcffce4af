"""Import ado without Ray: ado needs it to import, a function written for ado never; it is more than half of the time.

While ado is imported, `ray` is a stand-in that knows the few names which ado looks at then. Afterwards it is taken out
of `sys.modules`: whoever imports Ray gets Ray, and so does ado itself as soon as it uses a name of it.
"""

import importlib
import sys
from types import ModuleType
from typing import Any, Literal

_ADO = "ado.modules.actuators.custom_experiments"
_NAMES = ("ray", "ray.util", "ray.util.queue", "ray.util.state", "ray.util.state.common", "ray.remote_function")


def import_ado() -> ModuleType:
    """ado's module of custom experiments. Where a release of ado needs more of Ray than is stood in for, with Ray."""
    if "ray" in sys.modules or _ADO in sys.modules:
        return importlib.import_module(_ADO)
    before = set(sys.modules)
    stand_ins = _stand_ins()
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module(_ADO)
    except Exception:  # noqa: BLE001 - whatever it is, it is raised again by the import with Ray if Ray is not to blame
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "ado":  # half made, or made with what is not Ray
                del sys.modules[name]
    finally:
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
            vars(module).pop("__path__", None)
            module.step_aside()
    return importlib.import_module(_ADO)


class _StandIn(ModuleType):
    """A module of Ray that knows some names; once it stepped aside, every name is the real one's."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # a package: what is below is found in `sys.modules`
        self._known = tuple(known)
        vars(self).update(known)

    def step_aside(self) -> None:
        for name in self._known:
            vars(self).pop(name, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or sys.modules.get(self.__name__) is self:
            raise AttributeError(f"the stand-in for {self.__name__} has no {name}")
        for module in _NAMES:  # ado has imported them all, as far as it knows
            importlib.import_module(module)
        return getattr(sys.modules[self.__name__], name)


class _Queue:
    """What ado derives its queue from: Ray's, from the first one that is made."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        real = importlib.import_module("ray.util.queue").Queue
        for made in cls.__mro__:
            if _Queue in made.__bases__:
                made.__bases__ = tuple(real if base is _Queue else base for base in made.__bases__)
        return object.__new__(cls)


class _TaskState:
    """ado looks whether Ray still has the states that it waits for; only what runs on Ray ever waits."""

    state: Literal[
        "RUNNING", "RUNNING_IN_RAY_GET", "RUNNING_IN_RAY_WAIT", "FAILED", "PENDING_NODE_ASSIGNMENT",
        "PENDING_OBJ_STORE_MEM_AVAIL",
    ]  # fmt: skip


def _stand_ins() -> dict[str, _StandIn]:
    queue = _StandIn("ray.util.queue", Queue=_Queue)
    common = _StandIn("ray.util.state.common", TaskState=_TaskState)
    state = _StandIn("ray.util.state", common=common)
    util = _StandIn("ray.util", queue=queue, state=state)
    function = _StandIn("ray.remote_function", RemoteFunction=object)
    ray = _StandIn("ray", util=util, remote_function=function)
    return dict(zip(_NAMES, (ray, util, queue, state, common, function), strict=True))
