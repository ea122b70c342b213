"""Detectors of trainings that are wrong or end: memory, gradients, modes, schedules."""

import math
from dataclasses import dataclass

from trainperf.analysis.diagnosis.account import StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.roofline.memory_savings import savings
from trainperf.core.artifacts.memory import Holder, MemoryLedger, OutOfMemory
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, plural, share, size, times
from trainperf.core.readings import (
    ALLOC_FAILURES,
    ALLOC_RETRIES,
    FRAGMENTATION_BYTES,
    MEMORY_PEAK_BYTES,
    MEMORY_RESERVED_PEAK_BYTES,
    MEMORY_SLOPE_BYTES_PER_STEP,
    RESIDENT_PEAK_BYTES,
    STEP_MEAN_S,
)


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
    if memory is None or ended is None:
        if facts.end_reason not in ("OutOfMemoryError", "MemoryError"):
            return None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Memory that grows step by step, so fast that a fit of ordinary length does not end."""

    bytes_per_step: float
    low: float
    high: float
    """Ends of the 95 % interval of that."""
    room_bytes: float
    """Until the memory of the device, or of the machine, is full."""
    soon: bool
    """Whether it is full within a day of training."""


def growth(facts: Facts, *, cause_shown: bool = False) -> Growth | None:
    """The growth that matters; `None` where there is none, or not enough was recorded of it.

    Args:
        facts: Of the run.
        cause_shown: Whether what grows is found, so that it cannot be a warm-up.
    """
    slope, room = facts.reading(MEMORY_SLOPE_BYTES_PER_STEP), room_bytes(facts)
    if slope is None or slope.value is None or slope.low is None or slope.high is None:
        return None
    if slope.low <= 0 or slope.value * facts.steady_steps < GROWN_BYTES or room is None:
        return None
    lasts = lasts_s(facts, slope.value)
    # A fit of ordinary length is over within a week.
    if not (cause_shown or long_enough(facts)) or lasts > 7 * DAY_S:
        return None
    return Growth(
        bytes_per_step=slope.value,
        low=slope.low,
        high=slope.high,
        room_bytes=room,
        soon=lasts <= DAY_S,
    )


def long_enough(facts: Facts) -> bool:
    """Whether a run can tell a leak from a warm-up."""
    steps = facts.steady_steps
    return steps >= LEAST_STEPS and steps * (facts.value(STEP_MEAN_S) or 0.0) >= LEAST_S


def room_bytes(facts: Facts) -> float | None:
    """What the device, or on a CPU run the machine, has left at the peak."""
    capacity = facts.number("device_memory_bytes")
    held = facts.value(MEMORY_PEAK_BYTES) or facts.value(RESIDENT_PEAK_BYTES)
    return None if capacity is None or held is None else max(0.0, capacity - held)


def lasts_s(facts: Facts, bytes_per_step: float) -> float:
    """Seconds of training until that room is filled at so much a step."""
    room, step_s = room_bytes(facts), facts.value(STEP_MEAN_S)
    if room is None or step_s is None or bytes_per_step <= 0:
        return math.inf
    return room / bytes_per_step * step_s


def _held(facts: Facts) -> tuple[Holder, ...]:
    memory = facts.documents.memory
    return () if memory is None or facts.steps < LIMITS.steps else memory.held


def _pace(leak: Growth) -> str:
    """How fast, and how long it can go on: each with its interval."""
    soonest, latest = leak.room_bytes / leak.high, leak.room_bytes / leak.low
    return (
        f"{size(leak.bytes_per_step)} per step (95 % CI {size(leak.low)}–{size(leak.high)}): "
        f"memory is full in {count(round(leak.room_bytes / leak.bytes_per_step, -2))} steps "
        f"({count(round(soonest, -2))}–{count(round(latest, -2))})"
    )


def _holding(holder: Holder) -> str:
    """Who holds what, in one line."""
    graphs = f", {count(holder.graphs)} with their graph" if holder.graphs else ""
    named = f"{holder.kind} {holder.name}" if holder.name else f"an unnamed {holder.kind}"
    return (
        f"{named} holds {count(holder.count)} tensors or arrays{graphs}: {size(holder.size_bytes)}"
    )


def graph_held(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """A container has gathered tensors that hang on a graph, about one per step or more.

    It costs memory and no time, until there is none left: so there is no gain to promise.

    Wrong where: the container is emptied later, at the end of an epoch for instance.
    To confirm: `trainperf.smoke.assert_no_graph_held` on what the step returns; the list's length
    after an epoch.
    """
    holder = _graph_holder(facts)
    if holder is None:
        return None
    measured = (
        facts.steady_steps >= LIMITS.steps and facts.value(MEMORY_SLOPE_BYTES_PER_STEP) is not None
    )
    grows = growth(facts, cause_shown=True) if measured else None
    # What a graph keeps alive comes on top: by itself what is held fills the memory this late.
    soon = grows.soon if grows else lasts_s(facts, holder.size_bytes / facts.steps) <= DAY_S
    name = holder.name or f"a {holder.kind}"
    return Cause(
        id="graph_held",
        title=f"{name} keeps the autograd graph of every step",
        evidence=(
            _holding(holder),
            *((_pace(grows),) if grows else ()),
            *((f"made at {holder.made_at}",) if holder.made_at else ()),
        ),
        changes=(Use(change="detach", values={"name": name}),),
        where=holder.where or holder.made_at,
        severity="high" if soon else "low" if measured else "medium",
        urgent=soon,
    )


def _graph_holder(facts: Facts) -> Holder | None:
    """A container that has an autograd graph of nearly every step."""
    least = LIMITS.mostly * facts.steps
    return next((holder for holder in _held(facts) if holder.graphs >= least), None)


def leak(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """What is held after a step grows, to the end, and will fill the memory.

    Judged from 300 steady steps and 30 s on: fewer cannot tell a leak from a warm-up.  Where a
    graph is known to be held the growth is that.  What gathers is named where the fit's end found
    it.

    Wrong where: a cache fills and then stops: longer runs show it.
    To confirm: the reading `memory_slope_bytes_per_step` of a run of several times the length.
    """
    grows = growth(facts)
    if grows is None or _graph_holder(facts) is not None:
        return None
    most = LIMITS.mostly * grows.low * facts.steady_steps
    gathers = (
        h for h in _held(facts) if h.count >= LIMITS.mostly * facts.steps and h.size_bytes >= most
    )
    holder = next(gathers, None)
    named = holder is not None and bool(holder.name)
    return Cause(
        id="leak",
        title="memory grows with every step" + (f" in {holder.name}" if holder and named else ""),
        evidence=(
            _pace(grows),
            _holding(holder) if holder else "no container was found that holds it",
        ),
        changes=(
            Use(
                change="clear_what_gathers" if named else "find_the_leak",
                values={"name": holder.name if holder else ""},
            ),
        ),
        where=holder.where if holder else "",
        confidence="high" if holder else "medium",
        severity="high" if grows.soon else "medium",
        urgent=grows.soon,
    )


def alloc_retries(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """The device's allocator fails in steady steps, waits for the device and empties its cache.

    What a retry costs is not measured, so no gain is promised: freeing waits for all that the
    device has been given, and memory has to be asked for anew.

    Wrong where: the retries end once the largest batch has been there: the cache is then large
    enough.
    To confirm: the reading `alloc_retries` of a longer run; `torch.cuda.memory_stats()`.
    """
    steps, retries = (
        facts.steady_steps,
        facts.worst(ALLOC_RETRIES) or facts.value(ALLOC_RETRIES) or 0.0,
    )
    # The first few may belong to the last steps of the warm-up; one in a thousand is too few.
    if steps < LIMITS.steps or retries < max(3, steps / 1000) or _ran_out(facts):
        return None
    held, capacity = facts.value(MEMORY_RESERVED_PEAK_BYTES), facts.number("device_memory_bytes")
    failed = facts.value(ALLOC_FAILURES) or 0.0
    return Cause(
        id="alloc_retries",
        title=f"the allocator ran out of memory and retried {count(retries)} times in "
        f"{plural(steps, 'steady step')}",
        evidence=(
            f"{retries / steps:.2g} retries per step, each of which waits for the device",
            *(
                (f"{size(held)} of {size(capacity)} reserved at the peak",)
                if held and capacity
                else ()
            ),
            *(
                (f"{plural(round(failed), 'allocation')} failed for good and were caught",)
                if failed
                else ()
            ),
        ),
        changes=(Use(change="room_for_allocator"),),
        severity="high" if retries >= steps / 10 else "medium",
    )


def _ran_out(facts: Facts) -> bool:
    """Whether the fit has ended because of it, so that nothing less needs to be said."""
    memory = facts.documents.memory
    ended = memory is not None and memory.out_of_memory is not None
    return ended or facts.end_reason in ("OutOfMemoryError", "MemoryError")


def memory_limit(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """The peak leaves little room: a longer sequence, or a fragmented cache, ends the fit.

    Judged by what tensors held on an accelerator, and by the resident set where the host computes;
    what the allocator merely reserved it would give back.  Room costs no time, so no gain is
    promised.

    Wrong where: another process holds a part of the memory, or the longest batch has been there
    already.
    To confirm: `max_memory_allocated` of an epoch; a batch of the longest sequences in
    `trainperf.benchmark`.
    """
    reading = RESIDENT_PEAK_BYTES if facts.host_computes else MEMORY_PEAK_BYTES
    used, capacity = facts.worst(reading), facts.number("device_memory_bytes")
    # TraceML's pressure bands: 0.92 and 0.97.
    if used is None or not capacity or used / capacity < 0.92 or _ran_out(facts):
        return None
    memory = facts.documents.memory
    saved = [
        f"{each.what} saves up to {size(each.size_bytes)}, and {each.costs}"
        for each in (savings(memory) if memory is not None else ())
    ]
    return Cause(
        id="memory_limit",
        title=f"the run uses {share(used / capacity)} of the available memory",
        evidence=(f"{size(used)} of {size(capacity)} at the peak", *saved[:2]),
        changes=(Use(change="leave_room"),),
        severity="high" if used / capacity >= 0.97 else "medium",
    )


def fragmentation(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """The allocator holds much more than tensors ever did, and nearly all that there is.

    Below that the holes do no harm.  An upper bound: the two peaks need not fall together.

    Wrong where: the two peaks fell at different moments.
    To confirm: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, and the reading
    `fragmentation_bytes` then.
    """
    holes, reserved = facts.value(FRAGMENTATION_BYTES), facts.value(MEMORY_RESERVED_PEAK_BYTES)
    capacity = facts.number("device_memory_bytes")
    if holes is None or not reserved or not capacity:
        return None
    if holes < LIMITS.critical * reserved or reserved < (1 - LIMITS.critical) * capacity:
        return None
    return Cause(
        id="fragmentation",
        title=f"{share(holes / reserved)} of the reserved memory is fragmented",
        evidence=(f"{size(reserved)} of {size(capacity)} reserved, {size(holes)} of it unused",),
        changes=(Use(change="expandable_segments"),),
        confidence="medium",
        severity="medium",
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
    """A model in eval mode draws random numbers for its answers: `eval()` does not reach it.

    `F.dropout(x)` drops by default, and attention drops by `dropout_p`, whatever the mode is.

    Wrong where: the model samples on purpose, as a generator of text or images does.
    To confirm: the same request twice: the answers differ.
    """
    settings = facts.settings
    if settings.get("train_mode") or settings.get("answers_drawn") is not True:
        return None
    part = str(settings.get("answers_drawn_in") or "")
    return Cause(
        id="dropout_left_on",
        title="answers depend on random numbers in eval mode"
        + (f", drawn in {part}" if part else ""),
        evidence=("the random generator moved in a forward, and no module is in train mode",),
        changes=(Use(change="dropout_by_mode"),),
        where=str(settings.get("answers_drawn_at") or ""),
        confidence="medium",
        severity="high",
        urgent=True,
    )
