"""How much of its roof does each operator reach, by a trace of the same fit?

The trace has times and no sizes, the audit has sizes and no device times: joined by the name of the
operator, both per step.  From three quarters of its roof on an operator is left alone, or fused
away: a better kernel would gain little.
"""

from collections.abc import Sequence

import msgspec

from trainperf.analysis.roofline.roofline import FINE, OperatorFloor, Roofline
from trainperf.core.artifacts.audit import short_name
from trainperf.traces.capture_files import CaptureReport
from trainperf.traces.results import Operator, RankTrace


SAME_CALLS = 0.1
"""Relative difference in calls per step up to which trace and audit saw the same work."""

_COPY, _CONVOLUTION = "copy_", "convolution"
_FAMILIES = {
    "_to_copy": _COPY,
    "clone": _COPY,
    "contiguous": _COPY,
    "mkldnn_convolution": _CONVOLUTION,
    "cudnn_convolution": _CONVOLUTION,
    "miopen_convolution": _CONVOLUTION,
    "_convolution": _CONVOLUTION,
}
"""Operators that the audit sees as one and a trace as another inside it, or the reverse."""


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of the step: what it took by the trace, and what it takes at least."""

    name: str
    calls: float
    """A step, in the trace."""
    measured_s: float
    """A step: on the device, on a CPU of its own time there."""
    floor_s: float
    """A step, in the audit."""
    share_of_roof: float | None
    """Floor over measured time; `None` where the two did not see the same calls."""

    @property
    def near_roof(self) -> bool | None:
        """Whether a better kernel would gain little: leave it alone, or fuse it away."""
        return None if self.share_of_roof is None else self.share_of_roof >= FINE


def reached(light: Roofline, captures: Sequence[CaptureReport]) -> tuple[Reached, ...]:
    """The operators that both have seen, the longest first; empty without a trace."""
    floors: dict[str, list[OperatorFloor]] = {}
    for floor in light.operators:
        if floor.use.place == "device":
            floors.setdefault(family(floor.use.name), []).append(floor)
    found = [
        _reached(operator, floors[operator.name])
        for operator in traced_operators(captures)
        if operator.name in floors
    ]
    return tuple(sorted(found, key=lambda one: -one.measured_s))


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """An operator in a trace; a mean step."""

    name: str
    """Its family: see `family`."""
    calls: float
    measured_s: float


def traced_operators(captures: Sequence[CaptureReport]) -> tuple[Traced, ...]:
    """Those with most time in the latest trace of the lowest rank, families together."""
    rank = _latest(captures)
    if rank is None or not rank.totals.steps:
        return ()
    steps, on_device = rank.totals.steps, rank.device_worked
    known: dict[str, Traced] = {}
    for operator in rank.top_operators:
        name = family(operator.name)
        before = known.get(name) or Traced(name=name, calls=0.0, measured_s=0.0)
        known[name] = Traced(
            name=name,
            calls=before.calls + operator.calls / steps,
            measured_s=before.measured_s + _own_s(operator, on_device=on_device) / steps,
        )
    return tuple(known.values())


def family(name: str) -> str:
    """The name under which trace and audit know the same work, e.g. `addmm`, `copy_`.

    The audit says `aten.addmm.default`, a trace says `aten::addmm`.
    """
    plain = short_name(name)
    return _FAMILIES.get(plain, plain)


def _latest(captures: Sequence[CaptureReport]) -> RankTrace | None:
    return next((report.ranks[0] for report in reversed(captures) if report.ranks), None)


def _own_s(operator: Operator, *, on_device: bool) -> float:
    return (operator.self_device_s or 0.0) if on_device else operator.self_cpu_s


def _reached(traced: Traced, floors: Sequence[OperatorFloor]) -> Reached:
    calls = sum(floor.use.calls for floor in floors)
    floor_s = sum(floor.floor_s for floor in floors)
    same = abs(traced.calls - calls) <= SAME_CALLS * calls
    known = same and floor_s > 0 and traced.measured_s > 0
    return Reached(
        name=traced.name,
        calls=traced.calls,
        measured_s=traced.measured_s,
        floor_s=floor_s,
        share_of_roof=floor_s / traced.measured_s if known else None,
    )
