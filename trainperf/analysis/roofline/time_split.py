"""Split of a step's time into compute, memory, launch, transfer, synchronisation and the rest.

`docs/concepts/speed-of-light.md` relates these dimensions to the phases of the step.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from trainperf.traces.results import TraceTotals


Basis = Literal["phases", "audit", "trace", "trace and audit"]

MODELLED = ("compute", "memory", "launch")
"""Dimensions into which an audit or a trace splits the work of operators."""

NAMES = (*MODELLED, "transfer", "synchronisation", "undivided", "other")

WORK = ("forward", "backward", "optimizer")
"""Phases in which operators run."""


class Dimensions(msgspec.Struct, frozen=True, kw_only=True):
    """Exclusive shares of a step."""

    shares: dict[str, float]
    """Of `NAMES` those that were measured, in their order; they sum to one.

    `undivided` is the part of the first three that neither an audit nor a trace splits, `other`
    data wait, callbacks, the loop, and everything else that is not the work of operators: the copy
    of the batch, too, where nothing measured it.
    """
    basis: Basis
    """Source of the split: the phases alone, or also an audited step or a trace."""


def dimensions(
    phases_s: Mapping[str, float],
    waits_s: Mapping[str, float],
    *,
    ahead: bool = False,
    spent_s: Mapping[str, float] | None = None,
    trace: TraceTotals | None = None,
) -> Dimensions | None:
    """The shares; `None` without steps, or where no phase of the work was measured.

    Args:
        phases_s: Label of each measured phase to its mean host time in a step; they sum to the
            mean step.
        waits_s: Label of a phase to the mean wait for other ranks in it; on an asynchronous device
            that of the loop is also for the device.
        ahead: Whether the host runs ahead of an asynchronous device.
        spent_s: What operators spend of a step on each of `MODELLED`; `None` without an audit.
        trace: Of a trace in which a device worked.
    """
    work_s, waiting_s = _computing_s(phases_s, waits_s, ahead=ahead)
    if trace is not None:
        return _from_trace(trace, spent_s)
    step_s = sum(phases_s.values())
    if step_s <= 0 or not any(phase in phases_s for phase in WORK):
        return None
    moving_s = phases_s.get("h2d")
    # Where no operator runs a host that computes launches: Python, autograd.
    left_s = 0.0 if ahead or not spent_s else max(0.0, work_s - sum(spent_s.values()))
    weights = spent_s and {**spent_s, "launch": spent_s["launch"] + left_s}
    return _named(
        {
            **_split(work_s / step_s, weights),
            "transfer": None if moving_s is None else moving_s / step_s,
            "synchronisation": waiting_s / step_s,
        },
        "audit" if spent_s else "phases",
    )


def _from_trace(totals: TraceTotals, weights: Mapping[str, float] | None) -> Dimensions:
    """The trace measures launching; an audit splits the kernels' time, by their floors.

    Shares of the time in which the device had or could have work.
    """
    busy, compute = totals.gpu_busy_fraction or 0.0, totals.compute_fraction or 0.0
    # Exposed communication is in seconds per step; busy time, known in both, converts it.
    share_per_s = busy / totals.gpu_busy_s if totals.gpu_busy_s else 0.0
    not_compute = max(0.0, busy - compute)
    communication = min((totals.comm_exposed_s or 0.0) * share_per_s, not_compute)
    split = _split(compute, weights and {**weights, "launch": 0.0})
    return _named(
        {
            **split,
            "launch": totals.idle_host_bound_fraction or 0.0,
            "transfer": not_compute - communication,
            "synchronisation": communication + (totals.idle_sync_fraction or 0.0),
        },
        "trace" if "undivided" in split else "trace and audit",
    )


def _named(shares: Mapping[str, float | None], basis: Basis) -> Dimensions:
    """What is left over is `other`; rounding must not make it negative."""
    measured = {name: part for name in NAMES if (part := shares.get(name)) is not None}
    measured["other"] = max(0.0, 1.0 - sum(measured.values()))
    return Dimensions(shares=measured, basis=basis)


def _computing_s(
    phases_s: Mapping[str, float], waits_s: Mapping[str, float], *, ahead: bool
) -> tuple[float, float]:
    """Seconds of the step in which operators run, and in which it waits for other ranks.

    On a device a wait is the device's time, and the same delay wherever it is seen: the largest
    counts, as far as the step has room for it beside what is no work.  What the host waits between
    two steps it mostly waits for the device, which works then: that counts as work.
    """
    inside_s = {phase: min(spent, phases_s.get(phase, 0.0)) for phase, spent in waits_s.items()}
    work_s = sum(phases_s.get(phase, 0.0) for phase in WORK)
    if not ahead:
        own_s = work_s - sum(inside_s.get(phase, 0.0) for phase in WORK)
        return own_s, sum(inside_s.values())
    work_s += inside_s.get("loop", 0.0)
    largest_s = max((spent for phase, spent in waits_s.items() if phase != "loop"), default=0.0)
    waiting_s = min(largest_s, work_s)
    return work_s - waiting_s, waiting_s


def _split(work: float, weights: Mapping[str, float] | None) -> dict[str, float]:
    """The work of operators in proportion to *weights*; undivided without them."""
    total = sum(weights.values()) if weights else 0.0
    if not weights or total <= 0:
        return {"undivided": work}
    return {name: work * weights[name] / total for name in MODELLED}
