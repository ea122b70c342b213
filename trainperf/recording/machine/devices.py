"""NVIDIA devices beside the loop, through NVML: clocks, power, temperature, and who else is there.

Needs `nvidia-ml-py` (`pip install 'trainperf[nvml]'`).  Used is its documented interface alone; of
what a device, or a driver, does not support the value is missing.
"""

from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from pathlib import PurePath
from types import ModuleType
from typing import Any

from trainperf.core.artifacts.machine import Neighbour, SampledDevice
from trainperf.core.machine.clocks import HostClock


NO_NVML = "nvidia-ml-py is not installed: pip install 'trainperf[nvml]'"


def nvml_of(selectors: Sequence[str]) -> "tuple[ModuleType | None, str]":
    """The NVML module, initialised; or why there is none."""
    if not selectors:
        return None, "the training uses no NVIDIA device"
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None, NO_NVML
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return None, f"NVML cannot be used ({error})"
    return nvml, ""


class DeviceSource:
    """Some devices of the host.

    Args:
        nvml: The module `pynvml`, initialised.
        selectors: Which: `GPU-…` or `MIG-…` (a UUID), or a number as `nvidia-smi` counts them.
        clock: Monotonic, nanoseconds.
    """

    def __init__(self, nvml: Any, selectors: Sequence[str], clock: HostClock) -> None:  # noqa: ANN401 a module of its own
        self._nvml, self._clock = nvml, clock
        self._handles = [
            h for each in selectors if (h := self._try(self._handle, each)) is not None
        ]
        self._last_seen = [0] * len(self._handles)
        self.devices = tuple(map(self._described, self._handles))

    def read(self, own: Collection[int]) -> tuple[list[dict[str, float | None]], list[Neighbour]]:
        """Values of each device, and processes on it that are not among *own*."""
        values, others = [], []
        for place, handle in enumerate(self._handles):
            running = self._others(handle, own)
            busy = self._busy_share(place, handle, own)
            nvml = self._nvml
            used = self._try(nvml.nvmlDeviceGetUtilizationRates, handle)
            watts = self._try(nvml.nvmlDeviceGetPowerUsage, handle)
            values.append(
                {
                    "sm_mhz": self._try(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
                    "memory_mhz": self._try(
                        nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM
                    ),
                    "power_w": None if watts is None else watts / 1000,
                    "celsius": self._try(
                        nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
                    ),
                    "reasons": self._try(self._reasons, handle),
                    "busy": None if used is None else used.gpu / 100,
                    "others": None if running is None else float(len(running)),
                    "others_busy": busy,
                }
            )
            others += [self._neighbour(place, process) for process in running or ()]
        return values, others

    def _handle(self, selector: str) -> Any:  # noqa: ANN401 NVML's own
        if selector.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(selector))
        return self._nvml.nvmlDeviceGetHandleByUUID(selector)

    def _described(self, handle: Any) -> SampledDevice:  # noqa: ANN401 NVML's own
        nvml = self._nvml
        limit = self._try(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        return SampledDevice(
            name=_text(self._try(nvml.nvmlDeviceGetName, handle)),
            uuid=_text(self._try(nvml.nvmlDeviceGetUUID, handle)),
            most_mhz=self._try(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            limit_w=None if limit is None else limit / 1000,
        )

    def _reasons(self, handle: Any) -> float:  # noqa: ANN401 NVML's own
        newer = getattr(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        read = newer or self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        return float(read(handle))

    def _others(self, handle: Any, own: Collection[int]) -> list[Any] | None:  # noqa: ANN401 NVML's own
        """Processes that compute there and are not this training's.

        In a container NVML gives the numbers that the host has for them: where none is this
        training's, one of them, which must be, is left out, the first.
        """
        running = self._try(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if running is None:
            return None
        others = [process for process in running if process.pid not in own]
        return others if len(others) < len(running) else others[1:]

    def _busy_share(self, place: int, handle: Any, own: Collection[int]) -> float | None:  # noqa: ANN401 NVML's own
        """Of the multiprocessors' time what others took, in the latest sample of the driver."""
        read = self._nvml.nvmlDeviceGetProcessUtilization
        samples = self._try(read, handle, self._last_seen[place])
        if not samples:
            return None
        self._last_seen[place] = max(sample.timeStamp for sample in samples)
        if not any(sample.pid in own for sample in samples):
            return None  # another space of numbers: whose is whose cannot be told
        latest: dict[int, Any] = {sample.pid: sample for sample in samples}
        return float(sum(s.smUtil for pid, s in latest.items() if pid not in own)) / 100

    def _neighbour(self, place: int, process: Any) -> Neighbour:  # noqa: ANN401 NVML's own
        name = _text(self._try(self._nvml.nvmlSystemGetProcessName, process.pid))
        return Neighbour(
            at_ns=self._clock(),
            pid=process.pid,
            name=PurePath(name).name,
            device=place,
            memory_bytes=process.usedGpuMemory,
        )

    def _try(self, read: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401 NVML's own
        """`None` where the device or the driver does not support it."""
        try:
            return read(*arguments)
        except self._nvml.NVMLError:
            return None


def _text(value: bytes | str | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
