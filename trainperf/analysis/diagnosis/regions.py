"""Regions of computing: one audited step laid over the mean of the steady ones.

One step was audited and many are timed.  On a CPU the audit has timed each operator, and what
passed before it, with its own overhead in both; how long the phases take when nobody looks on is
known from the steady steps.  Of a phase

    seconds = work of its operators + Python and dispatch around their calls

the work is what the audit timed, but for calls so short that its own overhead is most of them; the
rest of the phase lies before the calls in proportion to what the audit saw there, and nowhere is it
longer than what the audit saw.  E.g. of a forward of 4 ms two products computed 3 ms, and 50 small
operators next to nothing: 1 ms is Python and dispatch, mostly before these.  What even that does
not explain belongs to no operator.

What grows from step to step, such as a metric over all that it was given, was shorter in the step
that was audited.  Lines are sampled in all steps: one that clearly has more of the samples than of
the audited step is as long as the samples say.

On another device the audit has sizes and no times: a trace has them, or they are modelled.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from trainperf.analysis.diagnosis.account import WORK, Basis, Region, total_s
from trainperf.analysis.roofline.roofline import PHASE_OF, OperatorFloor, Roofline, launch_s_of
from trainperf.analysis.roofline.speed_of_light import family
from trainperf.analysis.roofline.time_split import MODELLED
from trainperf.analysis.summary.schema import PhaseLines
from trainperf.core.findings import LIMITS
from trainperf.core.groups import grouped, summed
from trainperf.core.machine.chips import Chip
from trainperf.core.stats.quantiles import wilson


SLOWED = 2.0
"""Steady steps on a busy machine take at most so many times what the audited one computed."""

SHORT_CALLS = 4
"""A call is work from so many times the shortest call on: the audit's overhead is in both."""


def on_host(light: Roofline, loop_s: dict[str, float], slowed: float = 1.0) -> tuple[Region, ...]:
    """Of a CPU: each phase with its own operators, or all together where phases are not told apart.

    Args:
        light: The audited step against its chip.
        loop_s: Slots of the steady steps; those of `WORK` and `other` hold the computing.
        slowed: How many times longer the steady steps take because others use the CPUs.
    """
    groups = grouped((PHASE_OF[floor.use.part], floor) for floor in light.own)
    computed_s = {slot: sum(map(_busy_s, rows)) for slot, rows in groups.items()}
    # A plain loop without brackets, or a `backward()` nobody announced, has all in one slot.
    if any(
        loop_s.get(slot, 0.0) < spent_s / (2 * SLOWED) and spent_s > sum(computed_s.values()) / 20
        for slot, spent_s in computed_s.items()
    ):
        groups, loop_s = {"forward": [*light.own]}, {"forward": _pool_s(loop_s)}
    return tuple(
        region
        for slot, rows in groups.items()
        for region in _laid_over(rows, slot, loop_s.get(slot, 0.0), launch_s_of(light.chip), slowed)
    )


def unexplained_s(regions: Iterable[Region], loop_s: Mapping[str, float]) -> dict[str, float]:
    """Slot to the seconds of a mean step that neither the audited one nor samples explain.

    Whose they are nothing tells: of operators on what grows from step to step, for instance, they
    are those of these alone, though each region has its part of them.
    """
    explained_s = summed((region.slot, region.explained_s) for region in regions)
    return {
        slot: max(0.0, loop_s.get(slot, 0.0) - spent_s) for slot, spent_s in explained_s.items()
    }


def as_sampled(regions: Sequence[Region], phase: PhaseLines, phase_s: float) -> tuple[Region, ...]:
    """Regions of a phase, each line's at least as long as samples of many steps show it to be.

    One step was audited: what grows from step to step was shorter in it.  Where a line has clearly
    more of the samples than of the audited step, its work is that much more, and the rest of the
    phase less.  Nothing is said of a phase in which Python computes, too, or which holds passes
    whose lines are others.

    Args:
        regions: Of all phases.
        phase: Lines seen in one of them.
        phase_s: Seconds of that phase, which hold its regions.
    """
    inside = [region for region in regions if region.slot == phase.slot]
    computes = phase.host is not None and phase.host.line.fraction >= LIMITS.worth
    if computes or any(region.use.part != phase.slot for region in inside):
        return tuple(regions)
    grown: dict[int, Region] = {}
    for line in phase.lines:
        mine = [r for r in inside if line.where in (r.use.called_at, r.use.line)]
        low, high = wilson(line.fraction, line.samples)
        least_s, spent_s = low * phase_s, line.fraction * phase_s
        if least_s > total_s(mine) > 0 and spent_s - total_s(mine) >= LIMITS.worth * phase_s:
            for region in mine:
                longer = region.times(spent_s / total_s(mine))
                # Its work grows, not Python; what may be more of it yet is as unexplained as what
                # was not seen in the audit.
                grown[id(region)] = replace(
                    longer,
                    run_s=longer.seconds - region.python_s,
                    python_s=region.python_s,
                    explained_s=longer.seconds * (2 - high / line.fraction),
                )
    rest = [region for region in inside if id(region) not in grown]
    left = _ratio(phase_s - total_s(grown.values()), total_s(rest), 1.0)
    return tuple(
        grown.get(id(region)) or region.times(left if region.slot == phase.slot else 1.0)
        for region in regions
    )


def spent_on(
    regions: Sequence[Region], chip: Chip | None, *, on_host: bool
) -> dict[str, float] | None:
    """Seconds of a step by what they are spent on; `None` without regions.

    A region's are its launches and the Python before them, and the rest by what bounds it: traffic
    counts whether memory or a cache serves it, since the operator waits for either.

    Args:
        regions: Of a mean step.
        chip: That they are of.
        on_host: Whether they were timed on the host; on a device launches hide behind its work.
    """
    if not regions or chip is None:
        return None
    spent_s = dict.fromkeys(MODELLED, 0.0)
    for region in regions:
        moving_s = region.use.moved_bytes / chip.memory_bytes_per_s
        bound = "compute" if region.compute_s >= moving_s else "memory"
        launch_s = region.use.calls * launch_s_of(chip)
        launch_s = min(launch_s, region.run_s) if on_host or launch_s > region.ideal_s else 0.0
        spent_s["launch"] += region.python_s + launch_s
        spent_s[bound] += region.run_s - launch_s
    return spent_s


def pooled(regions: Sequence[Region], loop_s: Mapping[str, float]) -> dict[str, float]:
    """The slots, in one where regions ran in others than they say; what is left is in none."""
    inside_s = summed((region.slot, region.seconds) for region in regions)
    if all(inside <= 1.001 * loop_s.get(slot, 0.0) for slot, inside in inside_s.items()):
        return dict(loop_s)
    computed_s = sum(inside_s.values())
    left_s = max(0.0, _pool_s(loop_s) - computed_s)
    return {**loop_s, **dict.fromkeys(WORK, 0.0), "forward": computed_s, "other": left_s}


def _pool_s(loop_s: Mapping[str, float]) -> float:
    """Where a model may compute."""
    return sum(loop_s.get(slot, 0.0) for slot in (*WORK, "other"))


def _laid_over(
    rows: Sequence[OperatorFloor],
    slot: str,
    phase_s: float,
    usual_s: float,
    slowed: float,
) -> Iterator[Region]:
    calls = np.array([row.use.calls for row in rows])
    busy_s = np.array([_busy_s(row) for row in rows])
    before_s = np.array([row.use.before_s for row in rows])
    # What the audit adds to a call is in the shortest one, too: a launch on a machine so busy.
    shortest_s = min(max((busy_s / calls).min(), usual_s), SHORT_CALLS * usual_s)
    beyond_s = np.maximum(0.0, busy_s - shortest_s * calls)
    # Calls that are all overhead computed nothing.
    work_s = np.where(busy_s >= SHORT_CALLS * shortest_s * calls, beyond_s, 0.0)
    adds_s = (before_s / calls).min()
    usually_s = (np.median(before_s / calls) - adds_s) * calls
    before_s = np.maximum(0.0, before_s - adds_s * calls)
    short_s = np.minimum(before_s, usually_s) + usual_s * calls
    long_s = np.maximum(0.0, before_s - usually_s)
    # On CPUs that others use, too, all of it takes longer by what the thread waits for one.
    quiet_s = phase_s / slowed
    # No call is quicker than a launch: work that the audit slowed down leaves time for calls.
    around_s = min(max(quiet_s - work_s.sum(), usual_s * calls.sum()), quiet_s)
    # A long stretch may be an interruption of the audited step: it gets what nothing else explains.
    often = _ratio(around_s, short_s.sum(), 1.0)
    once = _ratio(around_s - often * short_s.sum(), long_s.sum(), 1.0)
    python_s = often * short_s + once * long_s
    run_s = _ratio(quiet_s - python_s.sum(), work_s.sum(), SLOWED) * work_s
    seconds = slowed * np.stack([run_s, python_s, beyond_s + short_s + long_s], axis=1)
    for row, (run, python, explained) in zip(rows, seconds.tolist(), strict=True):
        yield _region(row, slot, run, python, explained)


def _region(
    floor: OperatorFloor, slot: str, run_s: float, python_s: float = 0.0, explained_s: float = 0.0
) -> Region:
    """A row of the audit in a mean step: its floors are no longer than what it takes there."""
    return Region(
        use=floor.use,
        slot=slot,
        run_s=run_s,
        python_s=python_s,
        ideal_s=min(floor.floor_s, run_s + python_s),
        fused_s=min(floor.fused_floor_s, run_s + python_s),
        compute_s=min(floor.compute_s or 0.0, run_s),
        explained_s=explained_s,
    )


def _ratio(part_s: float, whole_s: float, most: float) -> float:
    """How much of it there is, at most so many times as much."""
    return min(max(part_s, 0.0) / whole_s, most) if whole_s > 0 else 0.0


def _busy_s(row: OperatorFloor) -> float:
    """What it computed; an audit of an earlier release knows only what it took."""
    return row.use.busy_s or row.use.host_s


def on_device(
    own: Sequence[OperatorFloor],
    work_s: float,
    traced_s: Mapping[str, float],
) -> tuple[tuple[Region, ...], Basis]:
    """Of another device: by the times of a trace, else in proportion to their floors.

    Args:
        own: What the device does in the audited step.
        work_s: Seconds of a step in which the model computes.
        traced_s: Families of operators of a trace to their seconds; what is not among these takes
            less than each of them.
    """
    weight_s = sum(max(floor.floor_s, floor.launch_s) for floor in own)
    scale = work_s / weight_s if weight_s else 0.0
    times_s = {id(f): scale * max(f.floor_s, f.launch_s) for f in own}
    families = summed((family(floor.use.name), times_s[id(floor)]) for floor in own)
    shortest_s = min(traced_s.values(), default=0.0)
    longer = {
        name: traced_s.get(name, min(spent_s, shortest_s)) / spent_s
        for name, spent_s in families.items()
        if traced_s and spent_s
    }
    regions = (
        _region(f, PHASE_OF[f.use.part], times_s[id(f)] * longer.get(family(f.use.name), 1.0))
        for f in own
    )
    return tuple(regions), "traced" if traced_s else "modelled"
