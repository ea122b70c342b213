"""What can be said to a plain loop's monitor before the first epoch begins?"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from typing_extensions import Self

from trainperf.core.errors import ConfigError
from trainperf.loop.start import Wishes, device_of
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.selection import Objects
from trainperf.recording.profiling.options import ScheduledProfile


class Asked:
    """What a loop trains and what is to be looked at: kept until the fit begins."""

    def __init__(self, monitor: Monitor, objects: Objects, wishes: Wishes) -> None:
        self.monitor = monitor
        self._objects = objects
        self._wishes = wishes

    def watch(
        self,
        model: torch.nn.Module,
        optimizers: Optimizer | Sequence[Optimizer] = (),
        scaler: torch.amp.GradScaler | None = None,
        device: torch.device | str | None = None,
        schedulers: LRScheduler | Sequence[LRScheduler] = (),
    ) -> Self:
        """Say what the loop trains, before the first epoch: names the run and finds its device.

        Args:
            model: The module as it is trained; wrapped in DDP, its all-reduce tail is measured.
            optimizers: Those under the scaler.
            scaler: Its overflows are counted around `phase("optimizer")`.
            device: Where the model is; by default its first parameter's device.
            schedulers: Their steps are counted.

        Raises:
            ConfigError: The first epoch has begun already.
        """
        self._not_yet_begun("watch")
        self._objects = replace(
            self._objects,
            device=device_of(device, model),
            module=model,
            optimizers=[optimizers] if isinstance(optimizers, Optimizer) else list(optimizers),
            schedulers=[schedulers] if isinstance(schedulers, LRScheduler) else list(schedulers),
            scaler=scaler,
        )
        return self

    def profile(self, profile: ScheduledProfile) -> Self:
        """Say which steps are traced, before the first epoch.

        Raises:
            ConfigError: The first epoch has begun already.
        """
        self._not_yet_begun("profile")
        self._wishes = replace(self._wishes, profiler=profile)
        return self

    def audit(self, at: int = 20) -> Self:
        """Ask for an audit of one step: each of its operators goes to `audit.json`.

        That step takes longer, and no statistic counts it.

        Args:
            at: Its number in this fit, from 0.

        Raises:
            ConfigError: The first epoch has begun already, or there is no such step.
        """
        self._not_yet_begun("audit")
        if at < 0:
            raise ConfigError(f"at={at}: steps count from 0; try at=20")
        self._wishes = replace(self._wishes, audit_at=at)
        return self

    def loader_anatomy(self) -> Self:
        """Ask for a look into the loader before its first batch, for two seconds.

        What a batch costs in `__getitem__`, collate and transport goes to `loader.json`.

        Raises:
            ConfigError: The first epoch has begun already.
        """
        self._not_yet_begun("loader_anatomy")
        self._wishes = replace(self._wishes, loader_anatomy=True)
        return self

    def _not_yet_begun(self, asked: str) -> None:
        if self.monitor.started:
            raise ConfigError(f"{asked}(): the first epoch has begun; call it before batches()")
