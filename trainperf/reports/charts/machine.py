"""Columns of the machine beside the loop: what it did at each step, over all hosts and devices.

A step has the value of the sample that speaks of its middle.  Of several devices the lowest clock
and the highest temperature are drawn, and the power of all; of several hosts the one that is worst
off.
"""

from collections.abc import Callable

import numpy as np

from trainperf.analysis.run.machine import MachineSeries, attempt_ns
from trainperf.analysis.run.replay import Replay
from trainperf.core.arrays import Column
from trainperf.core.steps.block import StepBlock


_OF_DEVICES: dict[str, Callable[[list[Column]], Column]] = {
    "sm_mhz": np.fmin.reduce,
    "celsius": np.fmax.reduce,
    "power_w": lambda columns: np.sum(columns, axis=0),
}
_OF_HOSTS = ("cpu_own", "others_cpus", "waited", "memory_pressure", "io_pressure")


class MachineTracks:
    """What the machine did at each step, as columns for `SeriesFold`.

    Args:
        replay: The pass that the steps come from: it knows their attempt.
    """

    def __init__(self, replay: Replay) -> None:
        self._series, _ = replay.machines
        self._replay = replay
        self._restarts, self._last_ns = 0, -np.inf

    def columns(self, block: StepBlock) -> dict[str, Column]:
        """Values at these steps, NaN where nothing was sampled."""
        # Of many ranks the steps come from elsewhere: their times begin anew with an attempt.
        self._restarts += int(block.start_ns[0] < self._last_ns)
        self._last_ns = float(block.start_ns[-1])
        attempt = max(self._replay.attempt, self._restarts)
        if not self._series:
            return {}
        middle = block.start_ns + block.wall_ns / 2 + attempt_ns(attempt)
        columns: dict[str, Column] = {
            f"machine:{name}": np.fmax.reduce(
                [_at(middle, series, series.column(name)) for series in self._series]
            )
            for name in _OF_HOSTS
        }
        for name, combined in _OF_DEVICES.items():
            of_devices = [
                _at(middle, series, series.device(device, name))
                for series in self._series
                for device in range(len(series.header.devices))
            ]
            if of_devices:
                columns[f"machine:{name}"] = combined(of_devices)
        return columns


def _at(moments_ns: Column, series: MachineSeries, values: Column) -> Column:
    place = series.place_of(moments_ns)
    return np.where(place >= 0, values[place], np.nan)
