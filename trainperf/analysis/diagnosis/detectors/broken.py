"""Detectors of trainings that are wrong or end: memory, gradients, modes, schedules."""

import math
import re

from trainperf.analysis.diagnosis.account import StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.roofline.memory_savings import savings
from trainperf.core.artifacts.memory import Holder, MemoryLedger, OutOfMemory
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, share, size, times
from trainperf.core.readings import (
    ALLOC_RETRIES,
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

DAY_S = 86_400.0


# -- memory that ran out, or will
# -------------------------------------------------------------------


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
            evidence=(f"{facts.end_reason} ended it; what filled the memory was not measured",),
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
            *(f"{each.what} saves up to {size(each.size_bytes)}" for each in savings(memory)[:1]),
        ),
        changes=(Use(change=f"shrink_{blamed.replace(' ', '_')}"),),
        where=ended.where,
        confidence="high" if ended.during != "elsewhere" else "medium",
        severity="high",
        urgent=True,
    )


def filling(memory: MemoryLedger, ended: OutOfMemory) -> dict[str, int]:
    """Bytes by what they are for at the end, the failed request with what asked for it."""
    requested = ended.requested_bytes or 0
    beyond = max(0, (ended.allocated_bytes or 0) - memory.static_bytes)
    stepping = ended.during == "optimizer"
    return {
        "activations": max(memory.activations_bytes or 0, beyond) + (0 if stepping else requested),
        "optimizer state": memory.optimizer_bytes + (requested if stepping else 0),
        "parameters": memory.parameters_bytes + memory.buffers_bytes,
        "gradients": memory.gradients_bytes,
    }


def _request(ended: OutOfMemory, memory: MemoryLedger) -> str:
    more = f"{size(ended.requested_bytes)} more" if ended.requested_bytes else "more"
    held = f", {size(ended.allocated_bytes)} allocated at most" if ended.allocated_bytes else ""
    limit = f", of {size(memory.capacity_bytes)} in total" if memory.capacity_bytes else ""
    return f"{more} was requested{held}{limit}"


# -- memory that grows
# -----------------------------------------------------------------------------


def long_enough(facts: Facts) -> bool:
    """Whether a run can tell a leak from a warm-up."""
    steps = facts.steady_steps
    return steps >= LEAST_STEPS and steps * (facts.value(STEP_MEAN_S) or 0.0) >= LEAST_S


def _growth(facts: Facts) -> Reading | None:
    """Bytes that each step adds; `None` where they are too few, or not known."""
    slope = facts.reading(MEMORY_SLOPE_BYTES_PER_STEP)
    if slope is None or not slope.value or not slope.low or not slope.high or slope.low <= 0:
        return None
    return slope if slope.value * facts.steady_steps >= GROWN_BYTES else None


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


def _holder(facts: Facts) -> Holder | None:
    """The largest container with something of nearly every step, one that keeps graphs first."""
    memory, least = facts.documents.memory, LIMITS.mostly * facts.steps
    held = () if memory is None or facts.steps < LIMITS.steps else memory.held
    gather = (each for each in held if each.count >= least)
    return max(gather, key=lambda each: (each.graphs >= least, each.size_bytes), default=None)


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
    slope, room, holder = _growth(facts), _room_bytes(facts), _holder(facts)
    graphs = holder is not None and holder.graphs >= LIMITS.mostly * facts.steps
    if not graphs and (slope is None or room is None or not long_enough(facts)):
        return None
    held = 0.0 if holder is None else holder.size_bytes / facts.steps
    # What a graph keeps alive comes on top of what is held.
    per_step = held if slope is None else slope.value or 0.0
    if not graphs and held < LIMITS.mostly * per_step:
        holder = None  # it is something else that grows
    step_s = facts.value(STEP_MEAN_S) or math.inf
    lasts_s = math.inf if room is None or not per_step else room / per_step * step_s
    # A fit of ordinary length is over within a week.
    if not graphs and lasts_s > 7 * DAY_S:
        return None
    name, change = "" if holder is None else holder.name, "find_the_leak"
    if graphs:
        change = "detach"
    elif name:
        change = "clear_what_gathers"
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
    used = facts.worst(RESIDENT_PEAK_BYTES if facts.host_computes else MEMORY_PEAK_BYTES) or 0.0
    reserved = facts.value(MEMORY_RESERVED_PEAK_BYTES) or 0.0
    holes = facts.value(FRAGMENTATION_BYTES) or 0.0
    retries, steps = facts.worst(ALLOC_RETRIES) or 0.0, facts.steady_steps
    # The first few may belong to the last steps of the warm-up; one in a thousand is too few.
    retried = steps >= LIMITS.steps and retries >= max(3, steps / 1000)
    torn = reserved >= (1 - LIMITS.critical) * capacity and holes >= LIMITS.critical * reserved
    # TraceML's pressure bands: 0.92 and 0.97.
    full = used / capacity >= 0.92
    helps = {"room_for_allocator": retried, "leave_room": full, "expandable_segments": torn}
    changes = tuple(Use(change=change) for change, apt in helps.items() if apt)
    if not changes:
        return None
    memory = facts.documents.memory
    saved = [
        f"{each.what} saves up to {size(each.size_bytes)}, and {each.costs}"
        for each in (savings(memory) if memory is not None else ())
    ]
    return Cause(
        id="memory_limit",
        title=f"the run uses {share(max(used, reserved) / capacity)} of the available memory",
        evidence=(
            f"{size(used)} of {size(capacity)} at the peak",
            *((f"{size(reserved)} reserved, {size(holes)} of it unused",) if torn else ()),
            *((f"the allocator retried {count(retries)} times",) if retried else ()),
            *saved[:2],
        ),
        changes=changes,
        severity="high"
        if used / capacity >= 0.97 or (retried and retries >= steps / 10)
        else "medium",
    )


# -- what is learned, or answered
# -------------------------------------------------------------------


def zero_grad(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """Between two updates no gradient was zeroed: every update follows all batches so far.

    It costs no time.  It spoils what is learned, so it comes before what is merely slow.

    Wrong where: the loop zeroes gradients only from a later update on: the first two are looked at.
    To confirm: print a gradient's norm before the first backward of a step: it is 0, or there is no
    gradient yet, where they are zeroed.
    """
    if facts.settings.get("gradients_zeroed") is not False:
        return None
    return Cause(
        id="zero_grad",
        title="gradients are never zeroed: each update follows the sum of all batches so far",
        evidence=("between the first updates the gradient was only ever added to",),
        changes=(Use(change="zero_grad"),),
        severity="high",
        urgent=True,
    )


def scheduler_per_micro_batch(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001
    """The scheduler steps with every micro-batch, or more than once an update.

    Nothing gets faster without it: the learning rate is not what was asked for, so the run ends
    with another loss.  On several ranks Accelerate steps a schedule that it has prepared once for
    each of them: what looks like that is left alone.

    Wrong where: the schedule was written for micro-batches, its length included.
    To confirm: print the learning rate at the end of an epoch, and hold it against the one you
    planned.
    """
    stepped, updates = facts.number("scheduler_steps"), facts.number("updates")
    passes = facts.number("micro_batches")
    if stepped is None or not updates or passes is None or updates < LIMITS.steps:
        return None
    fast = stepped / updates
    prepared = "accelerate" in facts.software and facts.world_size > 1
    by_accelerate = prepared and abs(fast - facts.world_size) <= LIMITS.notable * facts.world_size
    if fast < 1.5 or by_accelerate:  # one is right, and less is a schedule by the epoch
        return None
    with_each = abs(stepped - passes) <= LIMITS.notable * passes
    return Cause(
        id="scheduler_per_micro_batch",
        title=f"the learning-rate schedule runs {times(fast)} as fast as the updates",
        evidence=(
            (
                f"{facts.settings.get('schedulers') or 'the scheduler'}: {count(stepped)} steps in "
                f"{count(updates)} updates"
            ),
            f"{count(passes)} micro-batches make these updates",
        ),
        changes=(Use(change="schedule_per_update" if with_each else "schedule_once"),),
        severity="high",
        urgent=True,
    )


def train_mode(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """An inference loop's model was not put into eval mode, and its answers depend on that.

    Dropout drops, and batch norm follows the batch and moves its running statistics.  It is wrong
    before it is slow: so no gain is promised.

    Wrong where: dropout is wanted in answers, as for Monte Carlo dropout.
    To confirm: the same request twice, next to other requests: both answers are equal in eval mode.
    """
    kinds = None if facts.loop.trains else facts.settings.get("train_mode")
    if not kinds:
        return None
    drawn = facts.settings.get("answers_drawn") is True
    return Cause(
        id="train_mode",
        title="the model answers in train mode: the same request gets other answers",
        evidence=(
            f"in train mode: {kinds}",
            *(("the answers depend on random numbers",) if drawn else ()),
        ),
        changes=(Use(change="eval_mode"),),
        severity="high",
        urgent=True,
    )


def dropout_left_on(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """A model in eval mode drops at random for its answers: `eval()` does not reach it.

    `F.dropout(x)` drops by default, whatever the mode is.  A model that samples on purpose, as a
    generator of text or images does, draws from other operators: the audited step tells.

    Wrong where: the dropout is wanted in answers, as for Monte Carlo dropout.
    To confirm: the same request twice: the answers differ.
    """
    settings, audit = facts.settings, facts.documents.audit
    drops = audit is not None and any(_DROPS.search(use.name) for use in audit.operators)
    if settings.get("train_mode") or settings.get("answers_drawn") is not True or not drops:
        return None
    part = str(settings.get("answers_drawn_in") or "")
    return Cause(
        id="dropout_left_on",
        title="dropout is left on in eval mode" + (f", in {part}" if part else ""),
        evidence=("the random generator moved in a forward, and no module is in train mode",),
        changes=(Use(change="dropout_by_mode"),),
        where=str(settings.get("answers_drawn_at") or ""),
        confidence="medium",
        severity="high",
        urgent=True,
    )


_DROPS = re.compile("dropout|bernoulli")
"""Operators that drop: those that sample are `multinomial`, `normal` or `uniform`."""
