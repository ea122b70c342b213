"""NVIDIA devices beside the loop, through NVML: clocks, power, temperature, and who else is there.

Needs `nvidia-ml-py` (`pip install 'trainperf[nvml]'`).  Used is its documented interface alone; of
what a device, or a driver, does not support the value is missing.
"""

from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import PurePath
from types import ModuleType
from typing import Any

from trainperf.core.artifacts.machine import Neighbour, SampledDevice


NO_NVML = "nvidia-ml-py is not installed: pip install 'trainperf[nvml]'"


def nvml_of(uuids: Sequence[str]) -> "tuple[ModuleType | None, str]":
    """The NVML module, initialised; or why there is none."""
    if not uuids:
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
        nvml: The module `pynvml`, initialised; `None` for no devices.
        uuids: Which, each a device's or an instance's (MIG), without its prefix.
    """

    def __init__(self, nvml: Any, uuids: Sequence[str]) -> None:  # noqa: ANN401 a module of its own
        self._nvml = nvml
        names = [f"{kind}-{uuid}" for uuid in uuids if nvml for kind in ("GPU", "MIG")]
        handles = [self._ask("nvmlDeviceGetHandleByUUID", name) for name in names]
        self._handles = [handle for handle in handles if handle is not None]
        self._last_us = [0] * len(self._handles)
        """Time of each device's latest sample of its processes."""
        self.devices = tuple(map(self._described, self._handles))

    def read(
        self, own: Collection[int], at_ns: int
    ) -> tuple[list[dict[str, float | None]], list[Neighbour]]:
        """Values of each device, *at_ns* of the fit, and processes on it that are not *own*."""
        values, neighbours = [], []
        for place, handle in enumerate(self._handles):
            others = self._others(handle, own)
            used = self._ask("nvmlDeviceGetUtilizationRates", handle)
            watts = self._ask("nvmlDeviceGetPowerUsage", handle)
            reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
            if reasons is None:  # an older package
                reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
            values.append(
                {
                    "sm_mhz": self._ask("nvmlDeviceGetClockInfo", handle, self._nvml.NVML_CLOCK_SM),
                    "power_w": None if watts is None else watts / 1000,
                    "celsius": self._ask(
                        "nvmlDeviceGetTemperature", handle, self._nvml.NVML_TEMPERATURE_GPU
                    ),
                    "reasons": reasons,
                    "busy": None if used is None else used.gpu / 100,
                    "others": None if others is None else float(len(others)),
                    "others_busy": self._busy_share(place, handle, own),
                }
            )
            neighbours += [
                Neighbour(
                    at_ns=at_ns,
                    pid=process.pid,
                    name=PurePath(_text(self._ask("nvmlSystemGetProcessName", process.pid))).name,
                    device=place,
                    memory_bytes=process.usedGpuMemory,
                )
                for process in others or ()
            ]
        return values, neighbours

    def _described(self, handle: Any) -> SampledDevice:  # noqa: ANN401 NVML's own
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        most_links = getattr(self._nvml, "NVML_NVLINK_MAX_LINKS", 0)
        links = (self._ask("nvmlDeviceGetNvLinkState", handle, at) for at in range(most_links))
        return SampledDevice(
            name=_text(self._ask("nvmlDeviceGetName", handle)),
            uuid=_text(self._ask("nvmlDeviceGetUUID", handle)),
            most_mhz=self._ask("nvmlDeviceGetMaxClockInfo", handle, self._nvml.NVML_CLOCK_SM),
            limit_w=None if limit is None else limit / 1000,
            nvlinks=sum(map(bool, links)),
        )

    def _others(self, handle: Any, own: Collection[int]) -> list[Any] | None:  # noqa: ANN401 NVML's own
        """Processes that compute there and are not this training's.

        In a container NVML gives the numbers that the host has for them: where none is this
        training's, one of them, which must be, is left out, the first.
        """
        running = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if running is None:
            return None
        others = [process for process in running if process.pid not in own]
        return others if len(others) < len(running) else others[1:]

    def _busy_share(self, place: int, handle: Any, own: Collection[int]) -> float | None:  # noqa: ANN401 NVML's own
        """Of the multiprocessors' time what others took, in the latest sample of the driver."""
        samples = self._ask("nvmlDeviceGetProcessUtilization", handle, self._last_us[place])
        if not samples:
            return None
        self._last_us[place] = max(sample.timeStamp for sample in samples)
        if not any(sample.pid in own for sample in samples):
            return None  # another space of numbers: whose is whose cannot be told
        latest = {sample.pid: sample.smUtil for sample in samples}
        return float(sum(used for pid, used in latest.items() if pid not in own)) / 100

    def _ask(self, function: str, *arguments: Any) -> Any:  # noqa: ANN401 NVML's own
        """`None` where the package, the device or the driver does not support it."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except (AttributeError, self._nvml.NVMLError):
            return None


def _text(value: bytes | str | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
