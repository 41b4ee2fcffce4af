"""The hardware of this node, read from sysfs, cgroups, and NVML; once per process, not per trial."""

import contextlib
import os
import platform
import subprocess
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from benchhouse.processes.quotas import cpu_quota, memory_limit
from benchhouse.schema.topology import Cpu, GpuTopology, Nic, NumaNode, Topology
from benchhouse.worker.monitors.nvml import NoNvml, initialise

Value = TypeVar("Value")

_PATHS = {0: "internal", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}  # of nvmlGpuTopologyLevel_t
_WHY_NOT = {"numa": "the firmware does not say", "nvlinks": "NVML shows no NVLink on it"}


@lru_cache(maxsize=8)
def topology(folder: str) -> Topology:
    """Return the topology of the node, with the file system that contains `folder`."""
    kind = _filesystem(folder)
    if kind is None:
        unknown = node_topology().unknown | {"storage_fabric": "/proc/self/mountinfo can't be read"}
        return node_topology().model_copy(update={"unknown": unknown})
    return node_topology().model_copy(update={"filesystem": kind})


@cache
def node_topology() -> Topology:
    """Return the topology of the node alone; read before trials are forked, so that they reuse it."""
    unknown: dict[str, str] = {}
    gpus, driver, cuda = _gpus(unknown)
    return Topology(
        machine=platform.machine(),
        kernel=platform.release(),
        cpu=_cpu(unknown),
        numa=_numa(unknown),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        memory_limit_bytes=memory_limit(),
        gpus=gpus,
        gpu_driver=driver,
        cuda=cuda,
        nics=_nics(unknown),
        unknown=unknown,
    )


def _cpu(unknown: dict[str, str]) -> Cpu:
    root = Path("/sys/devices/system/cpu")
    sockets, cores = set(), set()
    for path in root.glob("cpu[0-9]*/topology"):
        socket, core = _read(path / "physical_package_id"), _read(path / "core_id")
        if socket is not None and core is not None:
            sockets.add(socket)
            cores.add((socket, core))
    if not cores:
        unknown["cpu_sockets"] = unknown["cpu_cores"] = f"{root}/cpu*/topology can't be read"
    governor = _read(root / "cpu0/cpufreq/scaling_governor")
    if governor is None:
        unknown["cpu_governor"] = "the kernel shows no cpufreq here (usual in virtual machines)"
    model = _cpu_model()
    if model is None:
        unknown["cpu_model"] = "/proc/cpuinfo names none"
    return Cpu(
        model=model,
        sockets=len(sockets) or None,
        cores=len(cores) or None,
        threads=os.cpu_count(),
        usable=len(os.sched_getaffinity(0)),
        quota=cpu_quota(),
        governor=governor,
    )


def _cpu_model() -> str | None:
    """Return the model from /proc/cpuinfo; on ARM that has only a number, and lscpu knows the name."""
    info = {
        key.strip(): value.strip()
        for key, _, value in (line.partition(":") for line in (_read(Path("/proc/cpuinfo")) or "").splitlines())
    }
    if info.get("model name"):
        return info["model name"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        lscpu = subprocess.run(["lscpu"], capture_output=True, text=True, timeout=10, env={"LC_ALL": "C"} | os.environ)
        for line in lscpu.stdout.splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Model name" and value.strip() not in ("", "-"):
                return value.strip()
    return info.get("CPU part") or None


def _numa(unknown: dict[str, str]) -> list[NumaNode]:
    nodes = []
    for path in sorted(Path("/sys/devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        fields = (_read(path / "meminfo") or "").split()
        kib = fields[fields.index("MemTotal:") + 1] if "MemTotal:" in fields[:-1] else ""
        nodes.append(
            NumaNode(
                node=int(path.name[4:]),
                cpus=_read(path / "cpulist") or "",
                memory_bytes=int(kib) * 1024 if kib.isdigit() else None,
                distances=[int(word) for word in (_read(path / "distance") or "").split()],
            )
        )
    if not nodes:
        unknown["numa_nodes"] = unknown["numa_layout"] = "the kernel shows no NUMA nodes in sysfs"
    return nodes


def _gpus(unknown: dict[str, str]) -> tuple[list[GpuTopology] | None, str | None, str | None]:
    """Return the GPUs, the driver's version, and CUDA's."""
    try:
        gpus, driver, cuda = read_gpus()
    except NoNvml as reason:
        gpus, driver, cuda = None, _read(Path("/sys/module/nvidia/version")), None
        unknown["gpus"] = str(reason)
    cuda = cuda or os.environ.get("CUDA_VERSION")
    for name, value in (("gpu_driver", driver), ("cuda", cuda)):
        if value is None:
            unknown[name] = unknown.get("gpus", "NVML does not say")
    for index, gpu in enumerate(gpus or ()):
        for field in sorted(name for name in GpuTopology.model_fields if getattr(gpu, name) is None):
            unknown[f"gpus.{index}.{field}"] = _WHY_NOT.get(field, "NVML does not say")
    return gpus, driver, cuda


def _nics(unknown: dict[str, str], root: Path = Path("/sys/class")) -> list[Nic]:
    """Return network devices and InfiniBand adapters, which libraries address by different names."""
    nics = []
    for path in [*sorted((root / "net").glob("*")), *sorted((root / "infiniband").glob("*"))]:
        if path.name == "lo":
            continue
        speed_mbps = _speed(path)
        if speed_mbps is None:
            unknown[f"nics.{path.name}.speed_mbps"] = "the device does not say its speed (down, or virtual)"
        driver = path / "device" / "driver"
        nics.append(
            Nic(
                name=path.name,
                driver=driver.resolve().name if driver.exists() else None,
                speed_mbps=speed_mbps,
                numa=_numa_of(path / "device" / "numa_node"),
            )
        )
    return nics


def _speed(path: Path) -> int | None:
    """Return the speed in Mbit/s; for an adapter, that of its first port, such as `400 Gb/sec (4X NDR)`."""
    speed = _read(path / "speed") or ""  # an error if the link is down, -1 if the device does not know
    if speed.isdigit():
        return int(speed)
    gigabits, _, unit = (_read(path / "ports" / "1" / "rate") or "").partition(" ")
    active = (_read(path / "ports" / "1" / "state") or "").endswith("ACTIVE")
    try:
        return round(float(gigabits) * 1000) if active and unit.startswith("Gb/sec") else None
    except ValueError:
        return None


def _numa_of(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text is not None and text.isdigit() else None  # -1: the firmware does not provide it


def _filesystem(folder: str) -> str | None:
    """Return the file system of the longest mount point above the folder; of equal ones, the last mounted."""
    best, kind = "", None
    real = os.path.realpath(folder)
    for line in (_read(Path("/proc/self/mountinfo")) or "").splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, kind = point, right.split()[0]
    return kind


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def read_gpus() -> tuple[list[GpuTopology], str | None, str | None]:
    """Return all GPUs, the driver's version, and the newest CUDA that it supports. Raises NoNvml."""
    nvml = initialise()
    driver = _Driver(nvml)
    try:
        gpus = driver.with_paths([driver.gpu(index) for index in range(nvml.nvmlDeviceGetCount())])
        return gpus, driver.value(nvml.nvmlSystemGetDriverVersion), driver.value(driver.cuda)
    except nvml.NVMLError as error:
        raise NoNvml(f"NVML does not list GPUs: {error} ({error.value})") from error
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


class _Driver:
    """Reads NVML one fact at a time, and never changes a setting; a fact that one GPU lacks is null only for that
    GPU."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def value(self, read: Callable[..., Value], *arguments: Any) -> Value | None:
        """Return the result of an NVML call; None if NVML does not provide it."""
        try:
            return read(*arguments)
        except self.nvml.NVMLError:
            return None

    def cuda(self) -> str:
        number = self.nvml.nvmlSystemGetCudaDriverVersion_v2()
        return f"{number // 1000}.{number % 1000 // 10}"

    def gpu(self, index: int) -> GpuTopology:
        nvml = self.nvml
        handle = self.value(nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            return GpuTopology()  # it exists, but is lost
        memory = self.value(nvml.nvmlDeviceGetMemoryInfo, handle)
        bus = _address(self.value(nvml.nvmlDeviceGetPciInfo, handle))
        nvlinks, peers = self.nvlinks(handle)
        return GpuTopology(
            uuid=self.value(nvml.nvmlDeviceGetUUID, handle),
            name=self.value(nvml.nvmlDeviceGetName, handle),
            memory_bytes=int(memory.total) if memory is not None else None,
            bus=bus,
            numa=_numa_of(Path(f"/sys/bus/pci/devices/{_short(bus)}/numa_node")) if bus else None,
            pcie_width=self.value(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            pcie_width_most=self.value(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
            pcie_generation=self.value(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            pcie_generation_most=self.value(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            nvlinks=nvlinks,
            nvlink_peers=peers,
        )

    def nvlinks(self, handle: Any) -> tuple[int | None, list[str]]:
        """Return the number of links that are up, and the sorted devices at their other ends."""
        states: list[int] = []
        for link in range(self.nvml.NVML_NVLINK_MAX_LINKS):
            state = self.value(self.nvml.nvmlDeviceGetNvLinkState, handle, link)
            if state is None:
                break
            states.append(state)
        peers = [self.peer(handle, link) for link, state in enumerate(states) if state]
        return (sum(map(bool, states)) if states else None), sorted(peers)

    def with_paths(self, gpus: list[GpuTopology]) -> list[GpuTopology]:
        """Return the GPUs, each with its path to every other one."""
        handles = [self.value(self.nvml.nvmlDeviceGetHandleByIndex, index) for index in range(len(gpus))]
        joined = []
        for gpu, handle in zip(gpus, handles, strict=True):
            paths: dict[str, str] = {}
            for other, its in zip(gpus, handles, strict=True):
                if other is not gpu and other.bus and handle is not None and its is not None:
                    level = self.value(self.nvml.nvmlDeviceGetTopologyCommonAncestor, handle, its)
                    paths |= {other.bus: _PATHS[level]} if level in _PATHS else {}
            joined.append(gpu.model_copy(update={"paths": paths}))
        return joined

    def peer(self, handle: Any, link: int) -> str:
        kind = self.value(self.nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == self.nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return "switch"
        return _address(self.value(self.nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)) or "unknown"


def _address(info: Any) -> str | None:
    """Return the address of a device on the PCI bus."""
    return str(info.busId).lower() if info is not None else None


def _short(bus: str) -> str:
    """Return the address as in sysfs, where the domain has four digits; in NVML it has eight."""
    return bus[4:] if bus.count(":") == 2 else bus
