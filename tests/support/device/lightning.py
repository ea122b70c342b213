"""What Lightning asks of a kind of device that it does not know."""

from typing import Any

import torch
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from support.device.collectives import BACKEND
from support.device.frontend import NAME, device_count, set_device


class Threaded(Accelerator):
    """The device in threads, as a user would write it for hardware of their own."""

    def setup_device(self, device: torch.device) -> None:
        """Make it the current one."""
        set_device(device)

    def teardown(self) -> None:
        """Leave it as it is."""

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """Tell nothing."""
        return {}

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        """Take a number of them."""
        return devices

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        """Return the first of them."""
        return [torch.device(NAME, index) for index in range(devices)]

    @staticmethod
    def auto_device_count() -> int:
        """Return all."""
        return device_count()

    @staticmethod
    def is_available() -> bool:
        """Tell that it is there."""
        return True

    @staticmethod
    def name() -> str:
        """Return its type."""
        return NAME


class Ranks(DDPStrategy):
    """DDP over such devices, whose streams are none of CUDA's."""

    def determine_ddp_device_ids(self) -> None:
        """Name none: with one Lightning would build DDP in a stream of CUDA."""


def on_device(ranks: int = 1) -> dict[str, Any]:
    """Return options of a Trainer that trains there, each rank on a device of its own."""
    devices = [torch.device(NAME, index) for index in range(ranks)]
    strategy = SingleDeviceStrategy(devices[0])
    if ranks > 1:
        place = {"cluster_environment": LightningEnvironment(), "process_group_backend": BACKEND}
        strategy = Ranks(parallel_devices=devices, **place)
    return {"accelerator": Threaded(), "devices": ranks, "strategy": strategy}
