"""GPUs through NVML, the library of NVIDIA's driver, with NVIDIA's own binding (nvidia-ml-py, the module pynvml)."""

import contextlib
import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchhouse.schema.telemetry import Series
from benchhouse.worker.monitors.procfs import series

_LIBRARY = "libnvidia-ml.so.1"
_ALL_LINKS = 0xFFFFFFFF
_KIB = 1024.0


_gpu, _energy = partial(series, family="gpu"), partial(series, family="energy")
_pcie, _nvlink = partial(series, family="pcie"), partial(series, family="nvlink")

BUSY = _gpu("gpu_busy", "1", "Share of the time in which a kernel ran on the GPU.")
MEMORY_BUSY = _gpu("gpu_memory_busy", "1", "Share of the time in which the GPU's memory was read or written.")
MEMORY_USED = _gpu("gpu_memory_used", "B", "Memory of the GPU in use.")
MEMORY_TOTAL = _gpu("gpu_memory_total", "B", "Memory of the GPU.")
SM_CLOCK = _gpu("gpu_sm_clock", "MHz", "Clock of the multiprocessors.")
MEMORY_CLOCK = _gpu("gpu_memory_clock", "MHz", "Clock of the memory.")
TEMPERATURE = _gpu("gpu_temperature", "degC", "Temperature of the chip.")
MEMORY_TEMPERATURE = _gpu("gpu_memory_temperature", "degC", "Temperature of the memory.")
THROTTLED = _gpu("gpu_throttled", "1", "1 while anything below holds the clocks down; its mean is a share of time.")
THROTTLED_POWER = _gpu("gpu_throttled_power", "1", "1 while the clocks are held down to keep the power limit.")
THROTTLED_HEAT = _gpu("gpu_throttled_heat", "1", "1 while the clocks are held down for heat, by software or hardware.")
THROTTLED_HARDWARE = _gpu("gpu_throttled_hardware", "1", "1 while the hardware slows down: heat, power brake, supply.")
ECC_CORRECTED = _gpu("gpu_ecc_corrected", "errors", "Memory errors corrected since the driver loaded.", counter=True)
ECC_UNCORRECTED = _gpu("gpu_ecc_uncorrected", "errors", "Memory errors that were not corrected.", counter=True)
POWER = _energy("gpu_power", "W", "Power drawn by the board.")
ENERGY = _energy("gpu_energy", "J", "Energy used since the driver was loaded.", counter=True)
PCIE_WIDTH = _pcie("pcie_width", "lanes", "Lanes of the PCIe link now.")
PCIE_WIDTH_MOST = _pcie("pcie_width_most", "lanes", "Lanes that GPU and slot can have.")
PCIE_GENERATION = _pcie("pcie_generation", "generation", "Generation of the PCIe link now; idle GPUs go down.")
PCIE_GENERATION_MOST = _pcie("pcie_generation_most", "generation", "Generation that GPU and slot can have.")
PCIE_SENT = _pcie("pcie_sent", "B/s", "Sent over PCIe, in the 20 ms before the sample.")
PCIE_RECEIVED = _pcie("pcie_received", "B/s", "Received over PCIe, in the 20 ms before the sample.")
PCIE_REPLAYS = _pcie("pcie_replays", "replays", "Packets sent again over PCIe.", counter=True)
NVLINK_ACTIVE = _nvlink("nvlink_active", "links", "NVLinks that are up.")
NVLINK_SENT = _nvlink("nvlink_sent", "B", "Bytes sent over all NVLinks.", counter=True)
NVLINK_RECEIVED = _nvlink("nvlink_received", "B", "Bytes received over all NVLinks.", counter=True)
NVLINK_CRC = _nvlink("nvlink_crc", "errors", "Checksum errors of NVLink data and flow control.", counter=True)
NVLINK_REPLAYS = _nvlink("nvlink_replays", "replays", "Packets sent again over NVLink.", counter=True)
NVLINK_RECOVERIES = _nvlink("nvlink_recoveries", "recoveries", "Times an NVLink was trained anew.", counter=True)

SERIES: tuple[Series, ...] = tuple(item for item in list(globals().values()) if isinstance(item, Series))
"""All series that NVML can provide for a GPU; a source has those that its GPU supports."""

# Reasons that reduce clocks despite work; idle, application clocks, and sync boost are settings, not problems.
POWER_CAP, HARDWARE, HEAT = 0x04 | 0x80, 0x08 | 0x40 | 0x80, 0x20 | 0x40
THROTTLES = (THROTTLED, THROTTLED_POWER, THROTTLED_HEAT, THROTTLED_HARDWARE)


def throttles(mask: int) -> list[float]:
    """Return the values of THROTTLES from the bits of the reasons."""
    return [float(bool(mask & bits)) for bits in (POWER_CAP | HARDWARE | HEAT, POWER_CAP, HEAT, HARDWARE)]


class NoNvml(Exception):  # noqa: N818 - a reason, kept in the evidence
    """The reason why NVML can't be used here."""


def initialise() -> Any:
    """Return the module pynvml after initializing NVML once more: each caller must call `nvmlShutdown` once."""
    try:
        ctypes.CDLL(_LIBRARY)  # importing pynvml takes 100 ms of CPU, which machines without a GPU avoid
    except OSError as error:
        raise NoNvml(f"NVML, the library of NVIDIA's driver, is not here ({_LIBRARY})") from error
    try:
        import pynvml
    except ImportError as error:
        raise NoNvml("NVML is here, but not its Python binding: pip install nvidia-ml-py") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoNvml(f"NVML does not start: {error} ({error.value})") from error
    return pynvml


# One call reads all of these: (series, pynvml's names of the fields that are added, scope, factor). The PCIe byte
# counters are not included: they have 32 bits, which a fast link exceeds several times a second.
_FIELDS: tuple[tuple[Series, tuple[str, ...], int, float], ...] = (
    (MEMORY_TEMPERATURE, ("MEMORY_TEMP",), 0, 1.0),
    (PCIE_REPLAYS, ("PCIE_REPLAY_COUNTER",), 0, 1.0),
    (NVLINK_SENT, ("NVLINK_THROUGHPUT_DATA_TX",), _ALL_LINKS, _KIB),
    (NVLINK_RECEIVED, ("NVLINK_THROUGHPUT_DATA_RX",), _ALL_LINKS, _KIB),
    (NVLINK_CRC, ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"), 0, 1.0),
    (NVLINK_REPLAYS, ("NVLINK_REPLAY_ERROR_COUNT_TOTAL",), 0, 1.0),
    (NVLINK_RECOVERIES, ("NVLINK_RECOVERY_ERROR_COUNT_TOTAL",), 0, 1.0),
)
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # of a field, by NVML's number of its type


@dataclass(frozen=True)
class NvmlCall:
    """One call of NVML, and the series whose values it returns."""

    call: str
    series: tuple[Series, ...]
    read: Callable[[], Sequence[float]]


def open_gpus() -> "list[GpuSource]":
    """Return a source for each GPU; none if NVML can't be used, which is normal on most machines."""
    try:
        nvml = initialise()
    except NoNvml:
        return []
    try:
        return [GpuSource(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


class GpuSource:
    """One GPU as a source. An unsupported value has no series; a value that is missing now is NaN."""

    # an H200 takes 50 ms: 21 for each direction of PCIe, because the driver measures that long; 5 for the energy
    slow = True

    def __init__(self, nvml: Any, index: int) -> None:
        self.name, self.model = f"gpu{index}", ""
        self.problems: list[str] = []
        self._nvml, self._lost, self._reported, self._open = nvml, False, False, True
        self._unknown_here = (
            nvml.NVML_ERROR_INVALID_ARGUMENT,
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_NO_PERMISSION,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        )
        self._readings: list[NvmlCall] = []
        nvml.nvmlInit()
        try:
            self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
            self.model = nvml.nvmlDeviceGetName(self._handle)
            self._readings += (reading for reading in self._candidates() if self._answers(reading))
        except nvml.NVMLError as error:
            self._report("NVML", error)
        self.series: Sequence[Series] = tuple(series for reading in self._readings for series in reading.series)

    def sample(self) -> Sequence[float]:
        values: list[float] = []
        for reading in self._readings:
            if not self._lost:
                try:
                    values += reading.read()
                    continue
                except self._nvml.NVMLError as error:
                    self._report(reading.call, error)
            values += [math.nan] * len(reading.series)
        return values

    def close(self) -> None:
        if self._open:
            self._open, self._lost = False, True
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def _report(self, call: str, error: Any) -> None:
        """Report once that values are missing. A GPU that is lost is not read again: such calls may take seconds."""
        if error.value == self._nvml.NVML_ERROR_GPU_IS_LOST:
            self._lost = True
            self.problems.append(f"{self.name} {self.model}: the GPU is lost, its series end here".replace(" :", ":"))
        elif not self._reported:
            self._reported = True
            self.problems.append(
                f"{self.name}: {call}: {error} ({error.value}); values are missing where it does not answer"
            )

    def _answers(self, reading: NvmlCall) -> bool:
        """Whether this GPU supports the reading; other errors may be temporary, so the series is kept."""
        try:
            reading.read()
        except self._nvml.NVMLError as error:
            self._raise_if_lost(error)
            return error.value not in self._unknown_here
        return True

    def _raise_if_lost(self, error: Any) -> None:
        if error.value == self._nvml.NVML_ERROR_GPU_IS_LOST:
            raise error

    def _candidates(self) -> Iterable[NvmlCall]:
        nvml = self._nvml
        yield NvmlCall("nvmlDeviceGetUtilizationRates", (BUSY, MEMORY_BUSY), self._utilisation)
        yield NvmlCall("nvmlDeviceGetMemoryInfo_v2", (MEMORY_USED, MEMORY_TOTAL), self._memory)
        yield self._number(SM_CLOCK, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)
        yield self._number(MEMORY_CLOCK, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM)
        yield self._number(POWER, "nvmlDeviceGetPowerUsage", factor=1e-3)
        yield self._number(ENERGY, "nvmlDeviceGetTotalEnergyConsumption", factor=1e-3)
        yield self._number(TEMPERATURE, "nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
        # The name before driver 535; newer drivers have it too.
        call = "nvmlDeviceGetCurrentClocksThrottleReasons"
        yield NvmlCall(call, THROTTLES, lambda: throttles(getattr(nvml, call)(self._handle)))
        corrected, uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        yield self._number(ECC_CORRECTED, "nvmlDeviceGetTotalEccErrors", corrected, nvml.NVML_VOLATILE_ECC)
        yield self._number(ECC_UNCORRECTED, "nvmlDeviceGetTotalEccErrors", uncorrected, nvml.NVML_VOLATILE_ECC)
        yield self._number(PCIE_WIDTH, "nvmlDeviceGetCurrPcieLinkWidth")
        yield self._number(PCIE_WIDTH_MOST, "nvmlDeviceGetMaxPcieLinkWidth")
        yield self._number(PCIE_GENERATION, "nvmlDeviceGetCurrPcieLinkGeneration")
        yield self._number(PCIE_GENERATION_MOST, "nvmlDeviceGetMaxPcieLinkGeneration")
        if known := self._supported_fields():
            yield self._fields(known)
        yield self._number(PCIE_SENT, "nvmlDeviceGetPcieThroughput", nvml.NVML_PCIE_UTIL_TX_BYTES, factor=1e3)
        yield self._number(PCIE_RECEIVED, "nvmlDeviceGetPcieThroughput", nvml.NVML_PCIE_UTIL_RX_BYTES, factor=1e3)
        if links := self._links():
            yield NvmlCall("nvmlDeviceGetNvLinkState", (NVLINK_ACTIVE,), lambda: (float(sum(map(self._is_up, links))),))

    def _number(self, series: Series, call: str, *arguments: int, factor: float = 1.0) -> NvmlCall:
        function = getattr(self._nvml, call)
        return NvmlCall(call, (series,), lambda: (function(self._handle, *arguments) * factor,))

    def _utilisation(self) -> Sequence[float]:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        return rates.gpu / 100, rates.memory / 100

    def _memory(self) -> Sequence[float]:
        """Return used and total memory as in nvidia-smi, without the driver's reserve. Needs a driver of 2021 or
        later."""
        memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle, self._nvml.nvmlMemory_v2)
        return float(memory.used), float(memory.total)

    def _supported_fields(self) -> list[int]:
        """Return the indices of supported fields in _FIELDS; none with drivers before 2018."""
        try:
            return [at for at in range(len(_FIELDS)) if not any(map(math.isnan, self._fields([at], quiet=True).read()))]
        except self._nvml.NVMLError as error:
            self._raise_if_lost(error)
            return []

    def _fields(self, places: Sequence[int], quiet: bool = False) -> NvmlCall:
        """Read several fields with one call; one that fails is NaN, the others remain valid."""
        wanted = [_FIELDS[at] for at in places]
        numbers = [
            (getattr(self._nvml, f"NVML_FI_DEV_{name}"), scope) for _, names, scope, _ in wanted for name in names
        ]

        def value(slot: Any) -> float:
            if not slot.nvmlReturn and 0 <= slot.valueType < len(_VALUES):
                return float(getattr(slot.value, _VALUES[slot.valueType]))
            error = self._nvml.NVMLError(slot.nvmlReturn)
            self._raise_if_lost(error)
            if not quiet:
                self._report(f"nvmlDeviceGetFieldValues, field {slot.fieldId}", error)
            return math.nan

        def read() -> Sequence[float]:
            slots = iter(self._nvml.nvmlDeviceGetFieldValues(self._handle, numbers))
            return [sum(value(next(slots)) for _ in names) * factor for _, names, _, factor in wanted]

        return NvmlCall("nvmlDeviceGetFieldValues", tuple(series for series, _, _, _ in wanted), read)

    def _links(self) -> list[int]:
        """Return the NVLinks that this GPU has, up or not."""
        links: list[int] = []
        for link in range(self._nvml.NVML_NVLINK_MAX_LINKS):
            try:
                self._is_up(link)
            except self._nvml.NVMLError as error:
                self._raise_if_lost(error)
                break
            links.append(link)
        return links

    def _is_up(self, link: int) -> int:
        return int(self._nvml.nvmlDeviceGetNvLinkState(self._handle, link))
