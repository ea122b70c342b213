"""Readings from blocks of steps: what each meter makes of them is merged, in order."""

from collections.abc import Sequence

from trainperf.core.stats.reductions import Reduction
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import Reading, RunInfo
from trainperf.meters.base import Meter, Scope


__all__ = [
    "NOT_COVERED",
    "NO_EVENT",
    "NO_STEADY_STATE",
    "Fold",
    "Reading",
    "not_covered",
    "readings",
]

NO_STEADY_STATE = "no steady state: the warm-up was not seen to end in the steps recorded"


NO_EVENT = "not measured: the event never occurred"


NOT_COVERED = "not covered"
"""Begin of the reason why an imported log has no value."""


def not_covered(reading: Reading | None) -> bool:
    """Whether the log that the run was imported from cannot have it."""
    return reading is not None and (reading.reason or "").startswith(NOT_COVERED)


class Fold:
    """The state of a set of meters over the blocks seen so far."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self.meters = tuple(meters)
        self.steps = 0
        self.steady_steps = 0
        self.reductions: dict[str, Reduction] = {}
        """What each meter has folded so far."""

    def observe(self, block: StepBlock, steady: StepBlock | None = None) -> None:
        """Take the next block of steps; its steady ones, where the caller has them."""
        if not len(block):
            return
        if steady is None:
            steady = block.steady()
        self.steps += len(block)
        self.steady_steps += len(steady)
        for meter in self.meters:
            chosen = block if meter.scope is Scope.ALL else steady
            reduction = meter.observe(chosen) if len(chosen) else None
            if reduction is not None:
                before = self.reductions.get(meter.name)
                self.reductions[meter.name] = (
                    reduction if before is None else before.merge(reduction)
                )

    def reset(self) -> None:
        """The next window starts; only meters of the whole fit (`Scope.ALL`) go on."""
        whole = {meter.name for meter in self.meters if meter.scope is Scope.ALL}
        self.reductions = {name: state for name, state in self.reductions.items() if name in whole}
        self.steps = self.steady_steps = 0


def readings(folds: Sequence[Fold], info: RunInfo) -> dict[str, Reading]:
    """Readings of one or several ranks whose folds stand on the same steps."""
    return {meter.name: _reading(meter, folds, info) for meter in folds[0].meters}


def _reading(meter: Meter, folds: Sequence[Fold], info: RunInfo) -> Reading:
    of_ranks = [fold.reductions.get(meter.name) for fold in folds]
    present = [reduction for reduction in of_ranks if reduction is not None]
    # A probe that sees other steps may give what this run cannot measure.
    if not present or meter.name in info.reasons:
        return _without(meter, _reason(meter, folds, info))
    combined = type(present[0]).across(present) if len(present) > 1 else present[0]
    value = combined.value()
    if value is None:
        return _without(meter, NO_EVENT)
    low, high = combined.interval() or (None, None)
    per_rank = tuple(r.value() if r else None for r in of_ranks) if len(of_ranks) > 1 else ()
    # Ranks ran the same steps: pooling their amounts does not make them more.
    steps = max(reduction.n for reduction in present)
    return Reading(
        value=value,
        unit=meter.unit,
        n=steps,
        low=low,
        high=high,
        per_rank=per_rank,
        title=meter.title,
    )


def _without(meter: Meter, reason: str) -> Reading:
    return Reading(value=None, unit=meter.unit, reason=reason, title=meter.title)


def _reason(meter: Meter, folds: Sequence[Fold], info: RunInfo) -> str:
    absent = [name for name in meter.needs if name not in info.columns]
    unsettled = meter.scope is Scope.STEADY and not any(fold.steady_steps for fold in folds)
    reasons = (
        *(info.reasons.get(key) for key in (meter.name, *meter.needs)),
        *(f"not measured: nothing recorded {name}" for name in absent),
        "" if any(fold.steps for fold in folds) else "no step was recorded",
        NO_STEADY_STATE if unsettled else "",
        "not measured in these steps",
    )
    return next(filter(None, reasons))
