"""GPUs and how they are joined, by NVML. Only asked, never set; what one GPU can't tell is null for it alone."""

import contextlib
import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from benchhouse.schema.topology import Gpu
from benchhouse.worker.monitors.nvml import Library, NvmlError

_LIBRARY = "libnvidia-ml.so.1"
_MOST_LINKS = 18
_SWITCH = 2
Found = TypeVar("Found")


class NoGpus(Exception):  # noqa: N818 - a reason, kept in the evidence
    """Why nothing can be said about GPUs here."""


class _PciInfo(ctypes.Structure):
    _fields_ = (
        ("legacy", ctypes.c_char * 16), ("domain", ctypes.c_uint), ("bus", ctypes.c_uint), ("device", ctypes.c_uint),
        ("device_id", ctypes.c_uint), ("subsystem_id", ctypes.c_uint), ("address", ctypes.c_char * 32),
    )  # fmt: skip


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def read_gpus(path: str = _LIBRARY) -> tuple[list[Gpu], str | None, str | None]:
    """All GPUs, the driver's version and the newest CUDA that it knows."""
    try:
        library = Library(path)
        library.call("nvmlInit_v2")
    except (OSError, AttributeError) as error:
        raise NoGpus(f"NVML, the library of NVIDIA's driver, is not here ({path})") from error
    except NvmlError as error:
        raise NoGpus(f"NVML does not begin: {error}") from error
    try:
        count = library.number("nvmlDeviceGetCount_v2", ctypes.c_uint)
        gpus = [_gpu(library, index) for index in range(count)]
        return gpus, _or_none(lambda: library.text("nvmlSystemGetDriverVersion")), _or_none(lambda: _cuda(library))
    except NvmlError as error:
        raise NoGpus(f"NVML does not list GPUs: {error}") from error
    finally:
        with contextlib.suppress(NvmlError):
            library.call("nvmlShutdown")


def _gpu(library: Library, index: int) -> Gpu:
    handle = ctypes.c_void_p()
    try:
        library.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
    except NvmlError:
        return Gpu()  # it is there, and lost

    def number(call: str, *arguments: Any) -> int | None:
        return _or_none(lambda: library.number(call, ctypes.c_uint, handle, *arguments))

    bus = _or_none(lambda: _address(library, "nvmlDeviceGetPciInfo_v3", handle))
    nvlinks, peers = _nvlinks(library, handle)
    return Gpu(
        uuid=_or_none(lambda: library.text("nvmlDeviceGetUUID", handle)),
        name=_or_none(lambda: library.text("nvmlDeviceGetName", handle)),
        memory_bytes=_or_none(lambda: _memory(library, handle)),
        bus=bus,
        numa=_numa(bus),
        pcie_width=number("nvmlDeviceGetCurrPcieLinkWidth"),
        pcie_width_most=number("nvmlDeviceGetMaxPcieLinkWidth"),
        pcie_generation=number("nvmlDeviceGetCurrPcieLinkGeneration"),
        pcie_generation_most=number("nvmlDeviceGetMaxPcieLinkGeneration"),
        nvlinks=nvlinks,
        nvlink_peers=peers,
    )


def _nvlinks(library: Library, handle: ctypes.c_void_p) -> tuple[int | None, list[str]]:
    """How many links are up, and what is at their other ends, sorted."""
    states = []
    for link in range(_MOST_LINKS):
        try:
            state = library.number("nvmlDeviceGetNvLinkState", ctypes.c_uint, handle, ctypes.c_uint(link))
        except NvmlError:
            break
        states.append(state)
    peers = [
        _or_none(lambda link=link: _peer(library, handle, link)) or "unknown"  # type: ignore[misc]
        for link, state in enumerate(states)
        if state
    ]
    return (sum(map(bool, states)) if states else None), sorted(peers)


def _peer(library: Library, handle: ctypes.c_void_p, link: int) -> str:
    kind = _or_none(
        lambda: library.number("nvmlDeviceGetNvLinkRemoteDeviceType", ctypes.c_uint, handle, ctypes.c_uint(link))
    )
    if kind == _SWITCH:
        return "switch"
    return _address(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, ctypes.c_uint(link))


def _address(library: Library, call: str, *arguments: Any) -> str:
    info = _PciInfo()
    library.call(call, *arguments, ctypes.byref(info))
    return str(info.address.decode(errors="replace")).lower()


def _memory(library: Library, handle: ctypes.c_void_p) -> int:
    out = _Memory()
    library.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(out))
    return int(out.total)


def _cuda(library: Library) -> str:
    number = library.number("nvmlSystemGetCudaDriverVersion_v2", ctypes.c_int)
    return f"{number // 1000}.{number % 1000 // 10}"


def _numa(bus: str | None) -> int | None:
    """By sysfs, which writes the domain with four digits where NVML has eight; -1 where the firmware does not say."""
    if bus is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        node = int(Path(f"/sys/bus/pci/devices/{bus[4:] if bus.count(':') == 2 else bus}/numa_node").read_text())
        return node if node >= 0 else None
    return None


def _or_none(read: Callable[[], Found]) -> Found | None:
    try:
        return read()
    except NvmlError:
        return None
