"""GPUs and how they are joined, by NVML. Only asked, never set; what one GPU can't tell is null for it alone."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from benchhouse.schema.topology import Gpu
from benchhouse.worker.monitors.nvml import NoNvml, initialise

Value = TypeVar("Value")


class NoGpus(Exception):  # noqa: N818 - a reason, kept in the evidence
    """Why nothing can be said about GPUs here."""


def read_gpus() -> tuple[list[Gpu], str | None, str | None]:
    """All GPUs, the driver's version and the newest CUDA that it knows."""
    try:
        nvml = initialise()
    except NoNvml as reason:
        raise NoGpus(str(reason)) from reason
    driver = _Driver(nvml)
    try:
        gpus = [driver.gpu(index) for index in range(nvml.nvmlDeviceGetCount())]
        return gpus, driver.value(nvml.nvmlSystemGetDriverVersion), driver.value(driver.cuda)
    except nvml.NVMLError as error:
        raise NoGpus(f"NVML does not list GPUs: {error} ({error.value})") from error
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


class _Driver:
    """NVML, asked one fact at a time."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def value(self, read: Callable[..., Value], *arguments: Any) -> Value | None:
        """None where NVML does not say."""
        try:
            return read(*arguments)
        except self.nvml.NVMLError:
            return None

    def cuda(self) -> str:
        number = self.nvml.nvmlSystemGetCudaDriverVersion_v2()
        return f"{number // 1000}.{number % 1000 // 10}"

    def gpu(self, index: int) -> Gpu:
        nvml = self.nvml
        handle = self.value(nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            return Gpu()  # it is there, and lost
        memory = self.value(nvml.nvmlDeviceGetMemoryInfo, handle)
        bus = _address(self.value(nvml.nvmlDeviceGetPciInfo, handle))
        nvlinks, peers = self.nvlinks(handle)
        return Gpu(
            uuid=self.value(nvml.nvmlDeviceGetUUID, handle),
            name=self.value(nvml.nvmlDeviceGetName, handle),
            memory_bytes=int(memory.total) if memory is not None else None,
            bus=bus,
            numa=_numa(bus),
            pcie_width=self.value(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            pcie_width_most=self.value(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
            pcie_generation=self.value(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            pcie_generation_most=self.value(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            nvlinks=nvlinks,
            nvlink_peers=peers,
        )

    def nvlinks(self, handle: Any) -> tuple[int | None, list[str]]:
        """How many links are up, and what is at their other ends, sorted."""
        states: list[int] = []
        for link in range(self.nvml.NVML_NVLINK_MAX_LINKS):
            state = self.value(self.nvml.nvmlDeviceGetNvLinkState, handle, link)
            if state is None:
                break
            states.append(state)
        peers = [self.peer(handle, link) for link, state in enumerate(states) if state]
        return (sum(map(bool, states)) if states else None), sorted(peers)

    def peer(self, handle: Any, link: int) -> str:
        kind = self.value(self.nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == self.nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return "switch"
        return _address(self.value(self.nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)) or "unknown"


def _address(info: Any) -> str | None:
    """The address of a device on the PCI bus."""
    return str(info.busId).lower() if info is not None else None


def _numa(bus: str | None) -> int | None:
    """By sysfs, which writes the domain with four digits where NVML has eight; -1 where the firmware does not say."""
    if bus is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        node = int(Path(f"/sys/bus/pci/devices/{bus[4:] if bus.count(':') == 2 else bus}/numa_node").read_text())
        return node if node >= 0 else None
    return None
