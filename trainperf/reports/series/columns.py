"""The columns that charts draw: one value per step over all ranks, in SI units.

Numbers of several ranks are combined as the readings combine them (`trainperf.meters`): shares are
pooled, amounts add up over the slowest rank's time, memory is that of the largest rank.
"""

from collections.abc import Sequence

import numpy as np

from trainperf.core.phases import DISQUALIFYING, PHASES, TAGS, Phase
from trainperf.core.steps.block import Column, StepBlock
from trainperf.reports.series.decimate import MOST_GROUPS, Groups


class SeriesFold:
    """Groups of the steps from *first* to *last*, both included.

    Args:
        lead: Place of the rank whose phases are drawn; the mean over ranks without one.
        first: Number of the first step.
        last: Number of the last one; to the end of the run without one.
        most: Groups at most.
    """

    def __init__(
        self,
        lead: int | None = None,
        *,
        first: int = 0,
        last: int | None = None,
        most: int = MOST_GROUPS,
    ) -> None:
        self.groups = Groups(first, most)
        self._lead = lead
        self._last = last

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps: one block a rank, empty for one that took no part."""
        index = next(block.index for block in blocks if len(block))
        chosen = np.logical_and(
            index >= self.groups.first, True if self._last is None else index <= self._last
        )
        if not chosen.any():
            return
        parts = blocks
        if not chosen.all():
            parts = [block.select(chosen) if len(block) else block for block in blocks]
        self.groups.observe(index[chosen], columns(parts, self._lead))


def columns(blocks: Sequence[StepBlock], lead: int | None) -> dict[str, Column]:
    """Columns of one group of aligned blocks; *lead* is the place of the rank whose phases count.

    Without one they are the mean over ranks.  A rank that took no part in these steps has an
    empty block; where that is the leading one, these steps have no phases.
    """
    present = {place: block for place, block in enumerate(blocks) if len(block)}
    ranks = list(present.values())
    mine = ranks if lead is None else [present[lead]] if lead in present else []
    slowest_s = np.maximum.reduce([block.wall_ns for block in ranks]) / 1e9
    return {
        **_phases(mine),
        **_device(mine),
        **_tags(ranks[0], slowest_s),
        **_shares(ranks),
        **_rates(present, slowest_s),
        **_scaler(ranks),
        **_state(ranks),
        **_tails(present),
    }


def fact(block: StepBlock, name: str) -> Column:
    """A fact per step, NaN where it is missing."""
    values = block.fact(name)
    return np.full(len(block), np.nan) if values is None else values


def _phases(mine: Sequence[StepBlock]) -> dict[str, Column]:
    if not mine:
        return {}
    drawn = {
        f"phase:{phase.label}": _mean([block.host_ns(phase) for block in mine]) / 1e9
        for phase in PHASES
    }
    wall_s = _mean([block.wall_ns for block in mine]) / 1e9
    steady = (mine[0].tags & DISQUALIFYING) == 0
    return {**drawn, "wall": wall_s, "steady_wall": np.where(steady, wall_s, np.nan)}


def _tags(block: StepBlock, slowest_s: Column) -> dict[str, Column]:
    """The slowest rank's step time where a step has the tag."""
    present = int(np.bitwise_or.reduce(block.tags))
    return {
        f"tag:{tag.label}": np.where(block.tags & tag, slowest_s, np.nan)
        for tag in TAGS
        if present & tag
    }


def _device(mine: Sequence[StepBlock]) -> dict[str, Column]:
    if not mine or mine[0].schema.synchronous:
        return {}
    names = ("data_stall_ns", "h2d_device_ns", "tail_ns")
    return {name: _mean([fact(block, name) for block in mine]) / 1e9 for name in names}


def _shares(ranks: Sequence[StepBlock]) -> dict[str, Column]:
    waited = sum((block.host_ns(Phase.DATA_WAIT) for block in ranks), np.zeros(len(ranks[0])))
    wall = sum((block.wall_ns for block in ranks), np.zeros(len(ranks[0])))
    stalled = sum((fact(block, "data_stall_ns") for block in ranks), np.zeros(len(ranks[0])))
    return {
        "waited": waited,
        "stalled": stalled,
        "walls": wall,
        "stalled_walls": np.where(np.isnan(stalled), np.nan, wall),
        "wait_fraction": _quotient(waited, wall),
        "stall_fraction": _quotient(stalled, wall),
    }


def _rates(present: dict[int, StepBlock], slowest_s: Column) -> dict[str, Column]:
    rates: dict[str, Column] = {}
    for name in ("tokens_effective", "tokens_padded", "samples"):
        amount = sum((fact(block, name) for block in present.values()), np.zeros(len(slowest_s)))
        rates[name] = amount
        rates[f"{name}_per_s"] = _quotient(amount, slowest_s)
        for place, block in present.items():
            # The time that goes with an amount is that of the steps whose amount is known.
            missing = np.isnan(amount)
            rates[f"{name}:wall:{place}"] = np.where(missing, np.nan, block.wall_ns / 1e9)
    return rates


def _scaler(ranks: Sequence[StepBlock]) -> dict[str, Column]:
    zero = np.zeros(len(ranks[0]))
    return {
        "attempts": sum((fact(block, "attempts") for block in ranks), zero),
        "overflows": sum((fact(block, "overflows") for block in ranks), zero),
        "loss_scale": fact(ranks[0], "loss_scale"),
    }


def _state(ranks: Sequence[StepBlock]) -> dict[str, Column]:
    memory = ("allocated_bytes", "reserved_bytes", "peak_bytes", "resident_bytes")
    largest = {name: np.fmax.reduce([fact(block, name) for block in ranks]) for name in memory}
    losses = [fact(block, "loss") for block in ranks]
    return {**largest, "loss": sum(losses, np.zeros(len(ranks[0]))) / len(ranks)}


def _tails(present: dict[int, StepBlock]) -> dict[str, Column]:
    waits = {place: fact(block, "tail_ns") / 1e9 for place, block in present.items()}
    least = np.minimum.reduce(list(waits.values()))
    tails = {f"tail:{place}": wait for place, wait in waits.items()}
    if len(waits) < 2:
        return tails
    return {**tails, **{f"skew:{place}": wait - least for place, wait in waits.items()}}


def _mean(parts: Sequence[Column]) -> Column:
    return sum(parts, np.zeros(len(parts[0]))) / len(parts)


def _quotient(amount: Column, units: Column) -> Column:
    positive = units > 0
    return np.where(positive, amount / np.where(positive, units, 1.0), np.nan)
