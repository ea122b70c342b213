"""NVIDIA devices, through a stand-in that has NVML's documented interface.

No device is needed: `nvml_with` below answers as `nvidia-ml-py` documents its functions, in its
units (milliwatts, megahertz), and raises its error where one is not supported.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest

from trainperf.core.artifacts.machine import THERMAL_BITS
from trainperf.recording.machine import devices as module
from trainperf.recording.machine.devices import NO_NVML, DeviceSource, nvml_of


class NvmlError(Exception):
    """What it raises."""


@dataclass
class Device:
    """What it has to tell, in the interface's units."""

    running: dict[int, int] = field(default_factory=lambda: {10: 1 << 30})
    """Number of a process to the memory it holds."""
    used: dict[int, int] = field(default_factory=dict)
    """Number of a process to the percentage of the multiprocessors' time."""
    without: tuple[str, ...] = ()
    """Functions that it does not support."""


def by_uuid(uuid: str) -> str:
    """A handle is anything: here it is the UUID."""
    if uuid not in ("GPU-1", "MIG-2"):
        raise NvmlError("Not Found")
    return uuid


def nvml_with(device: Device) -> SimpleNamespace:
    """The module, with one device."""

    def utilization(_: str, __: int) -> list[SimpleNamespace]:
        if not device.used:
            raise NvmlError("Not Found")
        return [
            SimpleNamespace(pid=pid, smUtil=used, timeStamp=5) for pid, used in device.used.items()
        ]

    def running(_: str) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in device.running.items()
        ]

    functions: dict[str, Callable[..., object]] = {
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetUUID": lambda handle: handle.encode(),  # older versions give bytes
        "nvmlDeviceGetMaxClockInfo": lambda _, __: 1980,
        "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
        "nvmlDeviceGetNvLinkState": lambda _, link: int(link < 3),
        "nvmlDeviceGetClockInfo": lambda _, kind: {1: 1305}[kind],
        "nvmlDeviceGetPowerUsage": lambda _: 512_300,
        "nvmlDeviceGetTemperature": lambda _, __: 71,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 0x4,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0x40,
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=97, memory=40),
        "nvmlDeviceGetComputeRunningProcesses": running,
        "nvmlDeviceGetProcessUtilization": utilization,
        "nvmlSystemGetProcessName": lambda pid: f"/usr/bin/other{pid}",
    }
    for name in device.without:
        functions[name] = Mock(side_effect=NvmlError("Not Supported"))
    return SimpleNamespace(
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        NVML_NVLINK_MAX_LINKS=4,
        **functions,
    )


def source(device: Device) -> DeviceSource:
    """Of its one device."""
    return DeviceSource(nvml_with(device), ["1"])


def test_what_a_device_is_and_does_is_in_plain_units() -> None:
    """Watts, megahertz, degrees, shares."""
    devices = source(Device())
    (values,), others = devices.read({10}, 7)

    known = {"name": "NVIDIA H200", "uuid": "GPU-1", "most_mhz": 1980, "limit_w": 700, "nvlinks": 3}
    assert msgspec.structs.asdict(devices.devices[0]) == known
    now = {"sm_mhz": 1305, "power_w": 512.3, "celsius": 71, "reasons": 0x4, "busy": 0.97}
    assert values == pytest.approx({**now, "others": 0, "others_busy": None})
    assert others == []


def test_other_processes_are_told_from_the_trainings() -> None:
    """By number, with what they hold and how much of the device they take."""
    device = Device(running={10: 1 << 30, 77: 3 << 30}, used={10: 60, 77: 35})
    (values,), (other,) = source(device).read({10, 11}, 7)

    assert values["others"] == 1
    assert values["others_busy"] == pytest.approx(0.35)
    assert (other.pid, other.name, other.memory_bytes, other.device) == (77, "other77", 3 << 30, 0)
    assert other.at_ns == 7


def test_in_a_container_one_of_the_processes_must_be_the_trainings() -> None:
    """NVML has the host's numbers for them: then it is told by how many there are."""
    alone = source(Device(running={4711: 1 << 30}, used={4711: 99})).read({10}, 7)[0][0]
    shared = source(Device(running={4711: 1 << 30, 4712: 1 << 30})).read({10}, 7)[0][0]

    assert (alone["others"], alone["others_busy"]) == (0, None)
    assert shared["others"] == 1


def test_what_a_device_does_not_support_is_missing_and_the_rest_is_there() -> None:
    """Some virtual ones tell nothing of processes."""
    device = Device(
        without=(
            "nvmlDeviceGetTotalEnergyConsumption",
            "nvmlDeviceGetComputeRunningProcesses",
            "nvmlDeviceGetEnforcedPowerLimit",
            "nvmlDeviceGetNvLinkState",
        )
    )
    devices = source(device)
    (values,), others = devices.read({10}, 7)

    assert (devices.devices[0].limit_w, devices.devices[0].nvlinks) == (None, 0)
    assert values["others"] is None
    assert others == []
    assert values["power_w"] == pytest.approx(512.3)


def test_an_older_package_calls_the_reasons_otherwise() -> None:
    """Throttle reasons: the same bits."""
    nvml = nvml_with(Device())
    del nvml.nvmlDeviceGetCurrentClocksEventReasons
    (values,), _ = DeviceSource(nvml, ["1"]).read({10}, 7)

    assert int(values["reasons"] or 0) & THERMAL_BITS


def test_a_device_that_is_not_there_is_left_out() -> None:
    """An instance (MIG) that was destroyed; one that is there has another prefix."""
    devices = DeviceSource(nvml_with(Device()), ["9", "1", "2"])

    assert [device.uuid for device in devices.devices] == ["GPU-1", "MIG-2"]
    assert len(devices.read({10}, 7)[0]) == 2


def test_without_the_package_the_header_says_which_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a training that uses no such device needs none."""
    assert nvml_of([]) == (None, "the training uses no NVIDIA device")
    monkeypatch.setattr(module, "import_module", Mock(side_effect=ImportError))
    assert nvml_of(["0"]) == (None, NO_NVML)
    assert "trainperf[nvml]" in NO_NVML


def test_the_package_is_installed_here_and_finds_no_driver() -> None:
    """The real `pynvml`, whose functions and constants are those of the stand-in."""
    pynvml = pytest.importorskip("pynvml")
    used = [name for name in vars(nvml_with(Device())) if name.startswith(("nvml", "NVML"))]

    assert [name for name in used if not hasattr(pynvml, name)] == []
    assert pynvml.nvmlClocksEventReasonSwThermalSlowdown & THERMAL_BITS
    assert pynvml.nvmlClocksEventReasonHwThermalSlowdown & THERMAL_BITS
    assert pynvml.nvmlClocksEventReasonHwSlowdown & THERMAL_BITS
    assert pynvml.nvmlClocksEventReasonSwPowerCap == 0x04
    assert pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown == 0x80
