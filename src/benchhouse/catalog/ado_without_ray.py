"""Import ado without Ray: ado needs it to import, a function written for ado never; it is more than half of the time.

While ado is imported, `ray` is a stand-in that knows the few names which ado looks at then. Afterwards it is taken out
of `sys.modules`: whoever imports Ray gets Ray, and so does ado itself as soon as it uses a name of it.
"""

import importlib
import sys
from types import ModuleType
from typing import Any, Literal

from benchhouse.catalog.stand_ins import StandIn, import_with

ADO = "ado.modules.actuators.custom_experiments"
_NAMES = ("ray", "ray.util", "ray.util.queue", "ray.util.state", "ray.util.state.common", "ray.remote_function")


def import_ado() -> ModuleType:
    """ado's module of custom experiments. Where a release of ado needs more of Ray than is stood in for, with Ray."""
    if isinstance(sys.modules.get(ADO), StandIn):
        del sys.modules[ADO]
    if "ray" in sys.modules or ADO in sys.modules:
        return importlib.import_module(ADO)
    stand_ins = _stand_ins()
    try:
        return import_with(stand_ins, ADO)
    finally:
        for module in stand_ins.values():
            module.step_aside()


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


def _stand_ins() -> dict[str, StandIn]:
    queue = StandIn("ray.util.queue", _NAMES, Queue=_Queue)
    common = StandIn("ray.util.state.common", _NAMES, TaskState=_TaskState)
    state = StandIn("ray.util.state", _NAMES, common=common)
    util = StandIn("ray.util", _NAMES, queue=queue, state=state)
    function = StandIn("ray.remote_function", _NAMES, RemoteFunction=object)
    ray = StandIn("ray", _NAMES, util=util, remote_function=function)
    return dict(zip(_NAMES, (ray, util, queue, state, common, function), strict=True))
