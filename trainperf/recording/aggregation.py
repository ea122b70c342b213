"""Live readings over all ranks: what `aggregate=True` adds to the loggers of rank 0.

At log interval every rank sends a summary of fixed size, its meters' sums since the last one, over
a `RankGroup`.  Rank 0 shows what has come at its next log interval.  While a rank is late the sums
go on, and are sent with the next; what took longer than the time-out is not shown.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from functools import partial

import numpy as np

from trainperf.core.stats.reductions import (
    First,
    LargestLast,
    Last,
    Maximum,
    Rate,
    Ratio,
    Reduction,
    SharedRate,
    Total,
)
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import Row, RunInfo
from trainperf.meters import Meter, Scope
from trainperf.meters.fold import Fold, Reading, readings
from trainperf.recording.guard import Guard
from trainperf.recording.rank_group import RankGroup, Vector
from trainperf.recording.sinks.base import Sink


_KINDS: tuple[type[Reduction], ...] = (
    Ratio,
    Rate,
    SharedRate,
    Total,
    Maximum,
    First,
    Last,
    LargestLast,
)
"""Statistics of three numbers or fewer: percentiles are not sent."""

_SLOT = 4
"""Numbers of a meter: which of the kinds it is, counted from 1, and its fields."""

_HEAD = 4
"""Numbers before them: which meters, windows, steps, steady steps."""


class AggregationSink(Sink):
    """Readings over all ranks, given to the other sinks of rank 0.

    Args:
        meters: Whose statistics are sent, where they are small.
        others: Sinks that get the readings.
        guard: Under which they do.
        group: Of the ranks.
    """

    name = RankGroup.name

    def __init__(
        self, meters: Sequence[Meter], others: Sequence[Sink], guard: Guard, group: RankGroup
    ) -> None:
        self._group, self._others, self._guard = group, others, guard
        self._windows = Fold([meter for meter in meters if meter.scope is not Scope.ALL])
        self._fit = Fold([meter for meter in meters if meter.scope is Scope.ALL])
        self._rows: list[Row] = []
        self._info = RunInfo()
        self._schema = StepSchema()
        self._unsent = self.windows = self.aggregated = 0

    def begin(self, info: RunInfo) -> None:
        """Look for the other ranks."""
        self._info, self._schema = info, StepSchema(info.columns, info.device)
        self._group.begin()

    def rows(self, rows: Sequence[Row]) -> None:
        """Keep them for the next summary."""
        self._rows += rows

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """At log interval: show what has come, and send what there is."""
        del readings
        block, self._rows = StepBlock.from_rows(self._schema, self._rows), []
        self._windows.observe(block)
        self._fit.observe(block)
        self.windows += 1
        self._unsent += 1
        gathered = self._group.take()
        if gathered is not None:
            self._show(step, gathered)
        if self._group.idle:
            self._group.send(packed(self._windows, self._fit, self._unsent))
            self._windows.reset()
            self._unsent = 0

    def close(self) -> None:
        """Leave the group."""
        self._group.close()

    def notes(self) -> dict[str, str]:
        """How many windows were shown, and why no more came, on rank 0."""
        if self._info.rank:
            return {}
        why = self._group.lost or self._group.waits
        return {
            "aggregation": f"{self.aggregated} of {self.windows} windows were aggregated over "
            f"{self._info.world_size} ranks while training{why and f'; {why}'}"
        }

    def _show(self, step: int, rows: Vector) -> None:
        folds = [unpacked(row, (self._windows, self._fit)) for row in rows]
        if None in folds:
            return  # a rank measures something else
        self.aggregated += int(rows[0][1])
        of_windows, of_fits = zip(*filter(None, folds), strict=True)
        shared = {
            **readings(_at_one_pace(of_windows), self._info),
            **readings(_at_one_pace(of_fits), self._info),
        }
        for sink in self._others:
            self._guard.run(sink.name, partial(sink.all_ranks, step, shared))


def length(meters: Sequence[Meter]) -> int:
    """Numbers of a summary."""
    return _HEAD + _SLOT * len(meters)


def packed(windows: Fold, fit: Fold, number: int) -> Vector:
    """A rank's summary of so many windows."""
    meters = (*windows.meters, *fit.meters)
    vector = np.zeros(length(meters))
    vector[:_HEAD] = _which(meters), number, windows.steps, windows.steady_steps
    for place, meter in enumerate(meters):
        reduction = windows.reduction(meter.name) or fit.reduction(meter.name)
        if reduction is not None and type(reduction) in _KINDS:
            fields = astuple(reduction)  # type: ignore[call-overload]  # all kinds are dataclasses
            at = _HEAD + _SLOT * place
            vector[at] = _KINDS.index(type(reduction)) + 1
            vector[at + 1 : at + 1 + len(fields)] = fields
    return vector


def unpacked(vector: Vector, like: tuple[Fold, Fold]) -> tuple[Fold, Fold] | None:
    """The folds of a rank, of the same meters; `None` where it sent those of others."""
    meters = (*like[0].meters, *like[1].meters)
    if vector[0] != _which(meters):
        return None
    steps, steady = int(vector[2]), int(vector[3])
    reductions: dict[str, Reduction] = {}
    for place, meter in enumerate(meters):
        code, *fields = vector[_HEAD + _SLOT * place :][:_SLOT].tolist()
        if code:
            kind = _KINDS[int(code) - 1]
            number = len(kind.__dataclass_fields__)  # type: ignore[attr-defined]  # as above
            values = fields[:number]
            make: Callable[..., Reduction] = kind
            reductions[meter.name] = make(*values[:-1], int(values[-1]))
    return (
        Fold.holding(like[0].meters, reductions, steps, steady),
        Fold.holding(like[1].meters, reductions, steps, steady),
    )


def _which(meters: Sequence[Meter]) -> float:
    return float(zlib.crc32(",".join(meter.name for meter in meters).encode()))


def _at_one_pace(ranks: Sequence[Fold]) -> list[Fold]:
    """The same folds, rates over as long a time on each rank.

    Windows end at another step on each rank, and amounts of unlike times do not add up.
    """
    level: list[Fold] = []
    for fold in ranks:
        state = {meter.name: fold.reduction(meter.name) for meter in fold.meters}
        rates = {
            name: type(rate)(rate.amount / rate.seconds, 1.0, rate.n)
            for name, rate in state.items()
            if isinstance(rate, Rate) and rate.seconds
        }
        there = {name: reduction for name, reduction in state.items() if reduction is not None}
        level.append(Fold.holding(fold.meters, {**there, **rates}, fold.steps, fold.steady_steps))
    return level
