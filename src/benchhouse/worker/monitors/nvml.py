"""GPUs through NVML, the driver's own library, by ctypes: nothing to install, and no 100 ms to import a binding."""

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchhouse.schema.telemetry import Series

_LIBRARY = "libnvidia-ml.so.1"
_LOST = 15
_NOT_HERE = (2, 3, 4, 13)  # invalid argument, not supported, no permission, function not found
_ALL_LINKS = 0xFFFFFFFF
_MOST_LINKS = 18
_KIB = 1024.0


def _gpu(name: str, unit: str, description: str, **more: Any) -> Series:
    return Series(name=name, unit=unit, description=description, **({"family": "gpu"} | more))


BUSY = _gpu("gpu_busy", "1", "Share of the time in which a kernel ran on the GPU.")
MEMORY_BUSY = _gpu("gpu_memory_busy", "1", "Share of the time in which the GPU's memory was read or written.")
MEMORY_USED = _gpu("gpu_memory_used", "B", "Memory of the GPU in use.")
MEMORY_TOTAL = _gpu("gpu_memory_total", "B", "Memory of the GPU.")
SM_CLOCK = _gpu("gpu_sm_clock", "MHz", "Clock of the multiprocessors.")
MEMORY_CLOCK = _gpu("gpu_memory_clock", "MHz", "Clock of the memory.")
TEMPERATURE = _gpu("gpu_temperature", "degC", "Temperature of the chip.")
MEMORY_TEMPERATURE = _gpu("gpu_memory_temperature", "degC", "Temperature of the memory.")
THROTTLED = _gpu(
    "gpu_throttled", "1", "1 while anything below holds the clocks down, else 0; its mean is a share of time."
)
THROTTLED_POWER = _gpu("gpu_throttled_power", "1", "1 while the clocks are held down to keep the power limit.")
THROTTLED_HEAT = _gpu("gpu_throttled_heat", "1", "1 while the clocks are held down for heat, by software or hardware.")
THROTTLED_HARDWARE = _gpu("gpu_throttled_hardware", "1", "1 while the hardware slows down: heat, power brake, supply.")
ECC_CORRECTED = _gpu(
    "gpu_ecc_corrected", "errors", "Memory errors corrected since the driver was loaded.", kind="counter"
)
ECC_UNCORRECTED = _gpu("gpu_ecc_uncorrected", "errors", "Memory errors that were not corrected.", kind="counter")
POWER = _gpu("gpu_power", "W", "Power drawn by the board.", family="energy")
ENERGY = _gpu("gpu_energy", "J", "Energy used since the driver was loaded.", family="energy", kind="counter")
PCIE_WIDTH = _gpu("pcie_width", "lanes", "Lanes of the PCIe link now.", family="pcie")
PCIE_WIDTH_MOST = _gpu("pcie_width_most", "lanes", "Lanes that GPU and slot can have.", family="pcie")
PCIE_GENERATION = _gpu(
    "pcie_generation", "generation", "Generation of the PCIe link now; idle GPUs go down.", family="pcie"
)
PCIE_GENERATION_MOST = _gpu(
    "pcie_generation_most", "generation", "Generation that GPU and slot can have.", family="pcie"
)
PCIE_SENT = _gpu("pcie_sent", "B/s", "Sent over PCIe, in the 20 ms before the sample.", family="pcie")
PCIE_RECEIVED = _gpu("pcie_received", "B/s", "Received over PCIe, in the 20 ms before the sample.", family="pcie")
PCIE_REPLAYS = _gpu("pcie_replays", "replays", "Packets sent again over PCIe.", family="pcie", kind="counter")
NVLINK_ACTIVE = _gpu("nvlink_active", "links", "NVLinks that are up.", family="nvlink")
NVLINK_SENT = _gpu("nvlink_sent", "B", "Bytes sent over all NVLinks.", family="nvlink", kind="counter")
NVLINK_RECEIVED = _gpu("nvlink_received", "B", "Bytes received over all NVLinks.", family="nvlink", kind="counter")
NVLINK_CRC = _gpu(
    "nvlink_crc", "errors", "Checksum errors of NVLink data and flow control.", family="nvlink", kind="counter"
)
NVLINK_REPLAYS = _gpu("nvlink_replays", "replays", "Packets sent again over NVLink.", family="nvlink", kind="counter")
NVLINK_RECOVERIES = _gpu(
    "nvlink_recoveries", "recoveries", "Times an NVLink was trained anew.", family="nvlink", kind="counter"
)

SERIES: tuple[Series, ...] = tuple(item for item in list(globals().values()) if isinstance(item, Series))
"""Everything a GPU may show, by NVML or by nvidia-smi; a source has those that its GPU knows."""

# Reasons that hold clocks down though there is work; idle, application clocks and sync boost are wishes, not trouble.
POWER_CAP, HARDWARE, HEAT = 0x04 | 0x80, 0x08 | 0x40 | 0x80, 0x20 | 0x40
THROTTLES = (THROTTLED, THROTTLED_POWER, THROTTLED_HEAT, THROTTLED_HARDWARE)


def throttles(mask: int) -> list[float]:
    """The values of THROTTLES, from the bits of the reasons."""
    return [float(bool(mask & bits)) for bits in (POWER_CAP | HARDWARE | HEAT, POWER_CAP, HEAT, HARDWARE)]


class NvmlError(Exception):
    """A call that NVML answered with an error."""

    def __init__(self, call: str, code: int, words: str = "") -> None:
        super().__init__(f"{call}: {words or 'error'} ({code})")
        self.code = code


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong),
    )  # fmt: skip


class _Value(ctypes.Union):
    _fields_ = (
        ("double", ctypes.c_double), ("uint", ctypes.c_uint), ("ulong", ctypes.c_ulong),
        ("ulonglong", ctypes.c_ulonglong), ("longlong", ctypes.c_longlong), ("int", ctypes.c_int),
        ("ushort", ctypes.c_ushort),
    )  # fmt: skip


_VALUE_TYPES = ("double", "uint", "ulong", "ulonglong", "longlong", "int", "ushort")  # by the number NVML gives


class _Field(ctypes.Structure):
    _fields_ = (
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong), ("type", ctypes.c_int), ("code", ctypes.c_int), ("value", _Value),
    )  # fmt: skip


# One call reads all of these. (series, fields that are added, scope, factor)
# Not the PCIe byte counters (197, 198): they have 32 bits, which a fast link passes several times a second.
_FIELDS: tuple[tuple[Series, tuple[int, ...], int, float], ...] = (
    (MEMORY_TEMPERATURE, (82,), 0, 1.0),
    (PCIE_REPLAYS, (94,), 0, 1.0),
    (NVLINK_SENT, (138,), _ALL_LINKS, _KIB),
    (NVLINK_RECEIVED, (139,), _ALL_LINKS, _KIB),
    (NVLINK_CRC, (38, 45), 0, 1.0),
    (NVLINK_REPLAYS, (52,), 0, 1.0),
    (NVLINK_RECOVERIES, (59,), 0, 1.0),
)

Read = Callable[[], Sequence[float]]


class Library:
    """libnvidia-ml, loaded. It counts by itself how often it was begun and ended."""

    def __init__(self, path: str) -> None:
        self._functions = ctypes.CDLL(path)
        self._functions.nvmlErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._functions, name, None)
        code = 13 if function is None else function(*arguments)
        if code:
            words = self._functions.nvmlErrorString(code)
            raise NvmlError(name, code, words.decode(errors="replace") if words else "")

    def number(self, name: str, kind: Any, *arguments: Any) -> int:
        out = kind()
        self.call(name, *arguments, ctypes.byref(out))
        found: int = out.value
        return found

    def text(self, name: str, *arguments: Any) -> str:
        out = ctypes.create_string_buffer(96)
        self.call(name, *arguments, out, len(out))
        return out.value.decode(errors="replace")


def open_gpus(path: str = _LIBRARY) -> "list[Gpu] | None":
    """A source for each GPU; None where NVML can't be loaded or does not begin, which is no news on most machines."""
    try:
        library = Library(path)
        library.call("nvmlInit_v2")
    except (OSError, AttributeError, NvmlError):
        return None
    with contextlib.suppress(NvmlError):
        count = library.number("nvmlDeviceGetCount_v2", ctypes.c_uint)
        gpus = [Gpu(library, index) for index in range(count)]
        library.call("nvmlShutdown")
        return gpus
    return None


class Gpu:
    """One GPU as a source. What it can't tell at all is no series; what it can't tell now is NaN."""

    slow = True  # an H200 takes 50 ms: 21 for each way of PCIe, as the driver watches that long; 5 for the energy

    def __init__(self, library: Library, index: int) -> None:
        self.name, self.model = f"gpu{index}", ""
        self.problems: list[str] = []
        self._library, self._lost, self._told, self._open = library, False, False, True
        self._handle = ctypes.c_void_p()
        self._reads: list[tuple[int, Read]] = []
        series: list[Series] = []
        library.call("nvmlInit_v2")
        try:
            library.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self._handle))
            self.model = library.text("nvmlDeviceGetName", self._handle)
            for items, read in self._candidates():
                if self._answers(read):
                    series += items
                    self._reads.append((len(items), read))
        except NvmlError as error:
            self._trouble(error)
        self.series: Sequence[Series] = tuple(series)

    def sample(self) -> Sequence[float]:
        values: list[float] = []
        for count, read in self._reads:
            if not self._lost:
                try:
                    values += read()
                    continue
                except NvmlError as error:
                    self._trouble(error)
            values += [math.nan] * count
        return values

    def close(self) -> None:
        if self._open:
            self._open, self._lost = False, True
            with contextlib.suppress(NvmlError):
                self._library.call("nvmlShutdown")

    def _trouble(self, error: NvmlError) -> None:
        """Say once that values are missing. A GPU that is gone is not asked again: such calls may take seconds."""
        if error.code == _LOST:
            self._lost = True
            self.problems.append(f"{self.name} {self.model}: the GPU is lost, its series end here".replace(" :", ":"))
        elif not self._told:
            self._told = True
            self.problems.append(f"{self.name}: {error}; values are missing where it does not answer")

    def _answers(self, read: Read) -> bool:
        """Whether this GPU knows such a thing; another error may pass, so the series is kept."""
        try:
            read()
        except NvmlError as error:
            if error.code == _LOST:
                raise
            return error.code not in _NOT_HERE
        return True

    def _candidates(self) -> "Iterable[tuple[tuple[Series, ...], Read]]":
        yield (BUSY, MEMORY_BUSY), self._utilisation
        yield (MEMORY_USED, MEMORY_TOTAL), self._memory
        yield (SM_CLOCK,), self._uint("nvmlDeviceGetClockInfo", ctypes.c_uint(1))
        yield (MEMORY_CLOCK,), self._uint("nvmlDeviceGetClockInfo", ctypes.c_uint(2))
        yield (POWER,), self._uint("nvmlDeviceGetPowerUsage", factor=1e-3)
        yield (ENERGY,), self._uint("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong, factor=1e-3)
        yield (TEMPERATURE,), self._uint("nvmlDeviceGetTemperature", ctypes.c_uint(0))
        yield THROTTLES, self._throttles
        for item, error_type in ((ECC_CORRECTED, 0), (ECC_UNCORRECTED, 1)):
            kind = ctypes.c_uint(error_type), ctypes.c_uint(0)
            yield (item,), self._uint("nvmlDeviceGetTotalEccErrors", *kind, kind=ctypes.c_ulonglong)
        yield (PCIE_WIDTH,), self._uint("nvmlDeviceGetCurrPcieLinkWidth")
        yield (PCIE_WIDTH_MOST,), self._uint("nvmlDeviceGetMaxPcieLinkWidth")
        yield (PCIE_GENERATION,), self._uint("nvmlDeviceGetCurrPcieLinkGeneration")
        yield (PCIE_GENERATION_MOST,), self._uint("nvmlDeviceGetMaxPcieLinkGeneration")
        try:
            known = self._known_fields()
        except NvmlError as error:
            if error.code == _LOST:
                raise
            known = []  # drivers before 2018
        if known:
            yield tuple(_FIELDS[at][0] for at in known), self._fields(known)
        for item, counter in ((PCIE_SENT, 0), (PCIE_RECEIVED, 1)):
            yield (item,), self._uint("nvmlDeviceGetPcieThroughput", ctypes.c_uint(counter), factor=1e3)
        if links := self._links():
            yield (NVLINK_ACTIVE,), self._active(links)

    def _uint(self, call: str, *arguments: Any, kind: Any = ctypes.c_uint, factor: float = 1.0) -> Read:
        return lambda: (self._library.number(call, kind, self._handle, *arguments) * factor,)

    def _utilisation(self) -> Sequence[float]:
        out = _Utilisation()
        self._library.call("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(out))
        return out.gpu / 100, out.memory / 100

    def _memory(self) -> Sequence[float]:
        """As nvidia-smi tells it: what the driver keeps for itself is not in use. Needs a driver of 2021 or later."""
        out = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24)
        self._library.call("nvmlDeviceGetMemoryInfo_v2", self._handle, ctypes.byref(out))
        return float(out.used), float(out.total)

    def _throttles(self) -> Sequence[float]:
        name = "nvmlDeviceGetCurrentClocksThrottleReasons"  # its new name is missing in drivers before 535
        return throttles(self._library.number(name, ctypes.c_ulonglong, self._handle))

    def _known_fields(self) -> list[int]:
        return [at for at in range(len(_FIELDS)) if not any(map(math.isnan, self._fields([at], quiet=True)()))]

    def _fields(self, places: Sequence[int], quiet: bool = False) -> Read:
        """Several fields by one call; one that fails is NaN, the others stand."""
        wanted = [_FIELDS[at] for at in places]
        asked = [(field, scope) for _, fields, scope, _ in wanted for field in fields]
        buffer = (_Field * len(asked))()
        for slot, (field, scope) in zip(buffer, asked, strict=True):
            slot.field, slot.scope = field, scope

        def value(slot: _Field) -> float:
            if not slot.code and 0 <= slot.type < len(_VALUE_TYPES):
                return float(getattr(slot.value, _VALUE_TYPES[slot.type]))
            error = NvmlError(f"nvmlDeviceGetFieldValues, field {slot.field}", slot.code)
            if slot.code == _LOST:
                raise error
            if not quiet:
                self._trouble(error)
            return math.nan

        def read() -> Sequence[float]:
            self._library.call("nvmlDeviceGetFieldValues", self._handle, len(asked), buffer)
            slots = iter(buffer)
            return [sum(value(next(slots)) for _ in fields) * factor for _, fields, _, factor in wanted]

        return read

    def _links(self) -> list[int]:
        """NVLinks that this GPU has, up or not."""
        found = []
        for link in range(_MOST_LINKS):
            try:
                self._library.number("nvmlDeviceGetNvLinkState", ctypes.c_uint, self._handle, ctypes.c_uint(link))
            except NvmlError as error:
                if error.code == _LOST:
                    raise
                break
            found.append(link)
        return found

    def _active(self, links: Sequence[int]) -> Read:
        call = "nvmlDeviceGetNvLinkState"
        return lambda: (
            float(sum(self._library.number(call, ctypes.c_uint, self._handle, ctypes.c_uint(link)) for link in links)),
        )
