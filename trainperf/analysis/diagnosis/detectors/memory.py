"""Detectors of memory: it ran out, grows, or is at its limit."""

import math
from datetime import timedelta
from statistics import median

from trainperf.analysis.diagnosis.account import StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.roofline.memory_savings import savings
from trainperf.core.artifacts.memory import Holder, MemoryLedger, OutOfMemory
from trainperf.core.choice import all_that_hold
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, plural, share, size
from trainperf.core.readings import (
    ALLOC_RETRIES,
    DEVICE_ALLOCS,
    FRAGMENTATION_BYTES,
    MEMORY_PEAK_BYTES,
    MEMORY_RESERVED_PEAK_BYTES,
    MEMORY_SLOPE_BYTES_PER_STEP,
    RESIDENT_PEAK_BYTES,
    STEP_MEAN_S,
)
from trainperf.meters.fold import Reading


LEAST_STEPS, LEAST_S = 300, 30.0
"""Steady steps, and seconds of them, that it takes to tell a leak from a warm-up: oneDNN's cache of
primitives grew by megabytes a step over 72 steps, and by nothing over 1,500."""

GROWN_BYTES = 32 << 20
"""Less may be an allocator's (TraceML looks from 100 MB on)."""

DAY_S = timedelta(days=1).total_seconds()


def out_of_memory(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """The last thing that happened was an allocation that failed.

    The request counts for what was under way: activations in forward and backward, state in the
    optimizer.  What then is largest is named.

    Wrong where: another process held the memory, or one batch was much longer than the others.
    To confirm: the same step in `trainperf.benchmark` with half the batch; `max_memory_allocated`
    before the failure.
    """
    memory = facts.documents.memory
    ended = None if memory is None else memory.out_of_memory
    if not facts.ran_out:
        return None
    if memory is None or ended is None:
        return Cause(
            id="out_of_memory",
            title="the fit ran out of memory",
            evidence=(f"{facts.run.end_reason} ended it; what filled the memory was not measured",),
            changes=(Use(change="shrink_activations"),),
            confidence="medium",
            severity="high",
            urgent=True,
        )
    filled = filling(memory, ended)
    blamed = "workspace" if ended.workspace else max(filled, key=lambda name: filled[name])
    during = {"optimizer": "the update", "elsewhere": "the loop"}.get(ended.during, ended.during)
    return Cause(
        id="out_of_memory",
        title=f"the fit ran out of memory in {during}: {blamed} filled it",
        evidence=(
            _request(ended, memory),
            "held: " + ", ".join(f"{name} {size(held)}" for name, held in filled.items() if held),
            *_what_saves(memory, 1),
        ),
        changes=(Use(change=f"shrink_{blamed.replace(' ', '_')}"),),
        where=ended.where,
        confidence="high" if ended.during != "elsewhere" else "medium",
        severity="high",
        urgent=True,
    )


def _what_saves(memory: MemoryLedger | None, most: int) -> list[str]:
    """What saves most memory, by so many ways; none without an audit."""
    saved = {} if memory is None else savings(memory)
    return [f"{what} saves up to {size(held)}" for what, held in [*saved.items()][:most]]


def filling(memory: MemoryLedger, ended: OutOfMemory) -> dict[str, int]:
    """Bytes by what they are for at the end, the failed request with what asked for it."""
    requested = ended.requested_bytes or 0
    for_state = requested if ended.during == "optimizer" else 0
    beyond = (ended.allocated_bytes or 0) - memory.static_bytes
    return {
        "activations": max(memory.activations_bytes or 0, beyond) + requested - for_state,
        "optimizer state": memory.optimizer_bytes + for_state,
        "parameters": memory.parameters_bytes + memory.buffers_bytes,
        "gradients": memory.gradients_bytes,
    }


def _request(ended: OutOfMemory, memory: MemoryLedger) -> str:
    more = f"{size(ended.requested_bytes)} more" if ended.requested_bytes else "more"
    held = f", {size(ended.allocated_bytes)} allocated at most" if ended.allocated_bytes else ""
    limit = f", of {size(memory.capacity_bytes)} in total" if memory.capacity_bytes else ""
    return f"{more} was requested{held}{limit}"


def long_enough(facts: Facts) -> bool:
    """Whether a run can tell a leak from a warm-up."""
    steps = facts.run.steady_steps
    return steps >= LEAST_STEPS and steps * (facts.value(STEP_MEAN_S) or 0.0) >= LEAST_S


def _growth(facts: Facts) -> Reading | None:
    """Bytes that each step adds; `None` where they are too few, or not known."""
    slope = facts.summary.reading(MEMORY_SLOPE_BYTES_PER_STEP)
    if slope is None or (slope.low or 0.0) <= 0:
        return None
    return slope if (slope.value or 0.0) * facts.run.steady_steps >= GROWN_BYTES else None


def _room_bytes(facts: Facts) -> float | None:
    """What the device, or on a CPU run the machine, has left at the peak."""
    capacity = facts.number("device_memory_bytes")
    held = facts.value(MEMORY_PEAK_BYTES) or facts.value(RESIDENT_PEAK_BYTES)
    return None if capacity is None or held is None else max(0.0, capacity - held)


def _pace(slope: Reading, room: float) -> str:
    """How fast, and how long it can go on: each with its interval."""
    value, low, high = slope.value or 0.0, slope.low or 0.0, slope.high or 0.0
    steps, soonest, latest = [count(round(room / pace, -2)) for pace in (value, high, low)]
    return (
        f"{size(value)} per step (95 % CI {size(low)}–{size(high)}): memory is full in {steps} "
        f"steps ({soonest}–{latest})"
    )


def gathering(facts: Facts) -> tuple[Holder, ...]:
    """Containers with something of nearly every step, where the fit's end looked for them."""
    memory, least = facts.documents.memory, LIMITS.mostly * facts.run.steps
    return tuple(each for each in (memory.held if memory else ()) if each.count >= least)


def leak(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """What is held after a step grows, to the end, and will fill the memory.

    Judged from 300 steady steps and 30 s on: fewer cannot tell a leak from a warm-up.  A container
    that keeps the autograd graph of nearly every step is one in any run.  It costs memory and no
    time, until there is none left: so there is no gain to promise.

    Wrong where: a cache fills and then stops, or a list is emptied at the end of an epoch: longer
    runs show it.
    To confirm: the reading `memory_slope_bytes_per_step` of a run of several times the length;
    `trainperf.smoke.assert_no_graph_held` on what the step returns.
    """
    slope, room, least = _growth(facts), _room_bytes(facts), LIMITS.mostly * facts.run.steps
    held = gathering(facts) if facts.run.steps >= LIMITS.steps else ()
    # The largest, one that keeps graphs first.
    holder = max(held, key=lambda each: (each.graphs >= least, each.size_bytes), default=None)
    graphs = holder is not None and holder.graphs >= least
    held_bytes = 0.0 if holder is None else holder.size_bytes / facts.run.steps
    # What a graph keeps alive comes on top of what is held.
    per_step = held_bytes if slope is None else slope.value or 0.0
    if not graphs and held_bytes < LIMITS.mostly * per_step:
        holder = None  # it is something else that grows
    step_s = facts.value(STEP_MEAN_S) or math.inf
    lasts_s = math.inf if room is None or not per_step else room / per_step * step_s
    # A fit of ordinary length is over within a week.
    if not graphs and (slope is None or not long_enough(facts) or lasts_s > 7 * DAY_S):
        return None
    name = "" if holder is None else holder.name
    change = "detach" if graphs else "clear_what_gathers" if name else "find_the_leak"
    return Cause(
        id="leak",
        title=f"{name or 'a container'} keeps the autograd graph of every step"
        if graphs
        else "memory grows with every step" + (f" in {name}" if name else ""),
        evidence=(
            *((_pace(slope, room),) if slope and room is not None else ()),
            _holding(holder) if holder else "no container was found that holds it",
            *((f"made at {holder.made_at}",) if holder and holder.made_at else ()),
        ),
        changes=(Use(change=change, values={"name": name or "the container"}),),
        where="" if holder is None else holder.where or holder.made_at,
        confidence="high" if holder else "medium",
        severity="high" if lasts_s <= DAY_S else "medium",
        urgent=lasts_s <= DAY_S,
    )


def worker_memory(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """Memory that the loader's workers share with nobody grows for as long as they live.

    Samples that lie in lists or dictionaries of Python objects are copied page by page into each
    worker, as each of them is counted when it is read.  Judged of workers that were looked at for
    half a minute.

    Wrong where: a worker fills a cache of a size that was meant.
    To confirm: the same training with samples in arrays: the workers' memory stays.
    """
    lines = facts.documents.lines
    old = [each for each in (lines.workers if lines else ()) if each.between_s >= LEAST_S]
    growing = [each for each in old if each.own_bytes[1] - each.own_bytes[0] >= GROWN_BYTES]
    if not growing or len(growing) < LIMITS.mostly * len(old):
        return None
    rates = [60 * (each.own_bytes[1] - each.own_bytes[0]) / each.between_s for each in growing]
    largest = max(growing, key=lambda each: each.own_bytes[1])
    number = plural(len({each.worker for each in growing}), "worker")
    grew = " to ".join(map(size, largest.own_bytes))
    return Cause(
        id="worker_memory",
        title=f"each of {number} of the loader grows by {size(median(rates))} a minute",
        evidence=(f"worker {largest.worker}: {grew} of its own in {duration(largest.between_s)}",),
        changes=(Use(change="samples_in_arrays"),),
        confidence="medium",
        severity="medium",
    )


def _holding(holder: Holder) -> str:
    """Who holds what, in one line."""
    graphs = f", {count(holder.graphs)} with their graph" if holder.graphs else ""
    named = f"{holder.kind} {holder.name}" if holder.name else f"an unnamed {holder.kind}"
    return (
        f"{named} holds {count(holder.count)} tensors or arrays{graphs}: {size(holder.size_bytes)}"
    )


def memory_limit(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """Hardly any memory is left: a longer sequence, or a fragmented cache, ends the fit.

    By what tensors held on an accelerator, and by the resident set where the host computes.  What
    the allocator reserved beyond that counts where it keeps nearly all that there is, or where it
    had to start over in steady steps: each time it waits for all that the device has been given.
    Room costs no time that was measured, so no gain is promised.

    Wrong where: another process holds a part of the memory, or the longest batch has been there
    already.
    To confirm: `max_memory_allocated` of an epoch; the readings `alloc_retries` and
    `fragmentation_bytes` of a longer run.
    """
    capacity = facts.number("device_memory_bytes")
    if not capacity or facts.ran_out:
        return None
    used = facts.peak_bytes or 0.0
    reserved = facts.value(MEMORY_RESERVED_PEAK_BYTES) or 0.0
    holes = facts.value(FRAGMENTATION_BYTES) or 0.0
    retries, steps = facts.worst(ALLOC_RETRIES) or 0.0, facts.run.steady_steps
    # The first few may belong to the last steps of the warm-up; one in a thousand is too few.
    retried = steps >= LIMITS.steps and retries >= max(3, steps / 1000)
    torn = reserved >= (1 - LIMITS.critical) * capacity and holes >= LIMITS.critical * reserved
    # TraceML's pressure bands: 0.92 and 0.97.
    grows = torn and facts.run.backend.growing
    full = used / capacity >= 0.92 or (torn and not grows)
    changes = all_that_hold(
        (Use(change="room_for_allocator"), retried),
        (Use(change="leave_room"), full),
        (Use(change="expandable_segments"), grows),
    )
    if not changes:
        return None
    return Cause(
        id="memory_limit",
        title=f"the run uses {share(max(used, reserved) / capacity)} of the available memory",
        evidence=(
            f"{size(used)} of {size(capacity)} at the peak",
            *((f"{size(reserved)} reserved, {size(holes)} of it unused",) if torn else ()),
            *((f"the allocator retried {count(retries)} times",) if retried else ()),
            *_what_saves(facts.documents.memory, 2),
        ),
        changes=changes,
        severity="high"
        if used / capacity >= 0.97 or (retried and retries >= steps / 10)
        else "medium",
    )


def driver_allocations(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """The allocator asks the driver for memory in steady steps, where it should live on its own.

    Nothing that it keeps fits: batches of ever other shapes, or memory that is given back to the
    driver in every step.  Each time the host waits for the driver, and often for the device, too;
    how long is not recorded.

    Wrong where: the longest batches come late, and ask once each.
    To confirm: the reading `device_allocs` of a longer run; `torch.cuda.memory_stats()`.
    """
    asks, steps = facts.worst(DEVICE_ALLOCS) or 0.0, facts.run.steady_steps
    if steps < LIMITS.steps or asks < LIMITS.critical * steps:
        return None
    return Cause(
        id="driver_allocations",
        title=f"the allocator asks the driver for memory {asks / steps:.1f} times a step",
        evidence=(f"{count(asks)} times in {count(steps)} steady steps",),
        changes=(Use(change="expandable_segments"),),
        confidence="medium",
        severity="medium",
    )
