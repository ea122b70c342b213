"""Detectors of launches: tiny operators, Python loops, an idle device."""

from dataclasses import replace
from math import inf

from trainperf.analysis.diagnosis.account import (
    Claim,
    DeviceAccount,
    Region,
    StepAccount,
    of_python,
    of_regions,
    of_slots,
)
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.lines import calls_of, place_of, sampled
from trainperf.analysis.diagnosis.detectors.operator_causes import (
    MANY_CALLS,
    cause_in_operators,
    is_tiny,
    often_and_short,
    passes,
)
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.memory_room import room_for
from trainperf.analysis.diagnosis.regions import SHORT_CALLS
from trainperf.analysis.roofline.roofline import LAUNCH_S
from trainperf.core.choice import all_that_hold, texts_of
from trainperf.core.findings import LIMITS, REFILL_BYTES, REFILL_S
from trainperf.core.formatting.units import count, duration, share
from trainperf.core.groups import largest


@worth(LIMITS.notable)
def small_micro_batches(account: StepAccount, facts: Facts) -> Cause | None:
    """An update is made of micro-batches that would fit into the memory as one.

    What passes around the calls of their operators, Python and dispatch, is paid in each of them:
    for one it would be paid once.  What larger products gain besides has no bound.  On a device
    launches that come too late are `launch_bound`.

    Wrong where: micro-batches are so small for another reason than memory, e.g. unlike lengths.
    To confirm: `trainperf prove` with one batch of as many samples, and the same loss.
    """
    number, rows = facts.micro_batches, passes(account)
    if account.device is not None or number < 2 or room_for(account, facts, number) is None:
        return None
    around = of_python(rows)
    claim = replace(around, removes_s=(1 - 1 / number) * around.removes_s)
    return cause_in_operators(
        Cause(
            id="small_micro_batches",
            title=f"{number} micro-batches pay for {count(calls_of(rows))} calls, where one would "
            "fit",
            evidence=(),
            changes=(_one_micro_batch(account, facts, claim.removes_s),),
            claim=claim,
        ),
        rows,
        account,
        facts,
        detail=f", {duration(around.removes_s)} of it around the calls",
    )


@worth(LIMITS.notable)
def equal_passes(account: StepAccount, facts: Facts) -> Cause | None:
    """A module is called again and again with tensors of one shape, where one call would do.

    Samples, frames or draws one by one, none of which needs what another one has computed.  With
    all of them in one batch each operator is called once: of what its calls take beyond their work
    one part in so many is left.  What is done with the result of each counts, too.  Nothing is said
    where all activations together would not fit into the memory, nor of micro-batches as they come
    from the loader, which are `small_micro_batches`.

    Wrong where: results depend on who is in the batch, as by a norm over it.
    To confirm: `trainperf prove` with one call for all, and the same loss.
    """
    called = [row for row in passes(account) if row.use.repeated and row.use.passes > 1]
    multiply = {row.use.repeated for row in called if row.use.matmul_flops}
    loops_s = (
        ((row.use.repeated, row.use.passes), row.seconds)
        for row in called
        if row.use.repeated in multiply
    )
    name, number = largest(loops_s, ("", 1))
    loaded = number != round(facts.samples_in(account.step_s)) or facts.number("batch_size") == 1
    rows = [
        row
        for row in called
        if (row.use.repeated, row.use.passes) == (name, number) and row.use.calls >= number - 1
    ]
    if (
        not account.host_decides
        or (number == facts.micro_batches and loaded)
        or room_for(account, facts, more_bytes=sum(row.use.written_bytes for row in rows)) is None
    ):
        return None
    claim = of_regions(rows, stays_s=sum(_at_once_s(row, number, facts) for row in rows))
    # Of the gaps before passes that are heard as micro-batches one comes after an update.
    gaps_s = account.spent("between") if number == facts.micro_batches else 0.0
    around = [row for row in rows if not f"{row.use.module}.".startswith(f"{name}.")]
    where, _ = place_of(around or rows)
    return cause_in_operators(
        Cause(
            id="equal_passes",
            title=f"{name} is called {number} times, which could be once: {{part}} of the step",
            evidence=(),
            changes=(
                Use(change="one_pass", values={"name": name, "number": number, "where": where}),
            ),
            claim=replace(
                claim,
                owns_s={**claim.owns_s, "between": gaps_s},
                removes_s=claim.removes_s + gaps_s * (1 - 1 / number),
            ),
        ),
        rows,
        account,
        facts,
        detail=f" in {count(calls_of(rows))} calls, for work of "
        f"{duration(sum(row.ideal_s for row in rows))}"
        + (f", and {duration(gaps_s)} between them" if gaps_s else ""),
        at=around,
    )


def _at_once_s(row: Region, number: int, facts: Facts) -> float:
    """What the calls of a region take as one for so many: its work, and a part of the rest.

    What it writes is work, though a cache may take it; what it reads may be the same weights.
    Calls that do little else than their work take no less.
    """
    rate = inf if facts.light is None else facts.light.chip.memory_bytes_per_s
    work_s = min(row.run_s, max(row.ideal_s, row.use.written_bytes / rate))
    work_s = work_s if row.seconds > 4 * work_s else row.run_s
    return work_s + (row.seconds - work_s) / number


@worth(LIMITS.notable)
def equal_modules(account: StepAccount, facts: Facts) -> Cause | None:
    """A Python loop calls equal modules, none of which needs another one's result.

    Experts or heads in a `ModuleList`.  What each call takes beyond its work is paid for each of
    them: in one product over all it would be paid once.  Calls that take less than four times their
    work do not count, nor modules without a product, e.g. tables of unlike lengths.

    Wrong where: a module works on few rows that are picked for it, of unlike number.
    To confirm: `trainperf prove` with the weights of all in one tensor, and the same loss.
    """
    equal = [row for row in passes(account) if row.use.siblings]
    multiply = {row.use.siblings for row in equal if row.use.matmul_flops}
    rows = [r for r in equal if r.use.siblings in multiply and r.seconds > 4 * r.ideal_s]
    if not account.host_decides:
        return None
    name = largest(((row.use.siblings, row.seconds) for row in rows), "")
    return cause_in_operators(
        Cause(
            id="equal_modules",
            title="a Python loop over equal modules takes {part} of the step",
            evidence=(),
            changes=(Use(change="one_product", values={"name": name}),),
            claim=of_regions(rows, stays_s=sum(row.fused_s for row in rows)),
        ),
        rows,
        account,
        facts,
        detail=f" in {count(calls_of(rows))} calls, for work of "
        f"{duration(sum(row.ideal_s for row in rows))}",
    )


def launch_bound(account: StepAccount, facts: Facts) -> Cause | None:
    """The step waits for launches: its operators take longer to call than to compute.

    An audited step shows which, on a device only where the always-on marks say that it waits for
    the host.  What has to stay is the roofline of the same work.  Where one line calls operators
    again and again for one batch, each time for no longer than some launches, it is that Python
    loop, and a single operator may do the work of all its calls.  A step with too many operators to
    be audited is captured: short ones that are called by the hundred, ten thousand times in all,
    count then.
    Without such operators a capture shows how long the device was idle because launches came too
    late, or the marks that it had caught up at the end of most forwards and backwards: how much
    that costs they do not tell.

    Wrong where: the audited step is smaller than most: larger batches hide launches; or something
    drains the device once in every step for another reason, e.g. a metric.
    To confirm: `trainperf try --only compile SCRIPT`; `trainperf prove` with a larger batch, in
    samples per second; a trace shows idle time before launches.
    """
    return (
        _tiny_operators(account, facts)
        or _loop_in_capture(account, facts)
        or _idle_device(account, facts)
    )


def _tiny_operators(account: StepAccount, facts: Facts) -> Cause | None:
    every = passes(account)
    looping = often_and_short(every, facts)
    loops = calls_of(looping) >= MANY_CALLS
    rows = looping if loops else [row for row in every if is_tiny(row, facts)]
    claim = of_regions(rows, stays_s=sum(row.fused_s for row in rows))
    # In a healthy step of a few ms small operators add up to a tenth.
    least = LIMITS.critical if loops else 3 * LIMITS.notable
    most_calls = MANY_CALLS <= calls_of(rows) >= calls_of(every) / 2
    if not account.host_decides or not most_calls or account.share(claim.removes_s) < least:
        return None
    calls = count(calls_of(rows))
    return cause_in_operators(
        Cause(
            id="launch_bound",
            title=f"a Python loop launches {calls} tiny operators in a step"
            if loops
            else f"{calls} tiny operators keep the step busy launching",
            evidence=(),
            changes=(
                *all_that_hold(
                    (Use(change="one_operator", values={"where": place_of(rows)[0]}), loops)
                ),
                *_fewer_launches(account, facts, claim.removes_s),
            ),
            claim=claim,
        ),
        rows,
        account,
        facts,
        detail=f", for work of {duration(sum(row.ideal_s for row in rows))}",
    )


def _loop_in_capture(account: StepAccount, facts: Facts) -> Cause | None:
    """The same where no step was audited, by the host's operators of the latest capture."""
    trace, line = facts.traces[-1] if facts.traces else None, facts.owner_of_phase("forward")
    work = of_slots(account, "forward", "backward")
    on_host = trace is not None and trace.device is None and work.removes_s > 0
    if trace is None or not on_host or facts.documents.audit or not account.host_decides:
        return None
    steps, took_s = len(trace.steps), sum(step.step_s for step in trace.steps)
    least = MANY_CALLS * steps * facts.micro_batches
    often = [
        each
        for each in trace.top_cpu_operators
        if each.calls >= least and each.self_cpu_s < each.calls * SHORT_CALLS * LAUNCH_S
    ]
    part = sum(each.self_cpu_s for each in often) / took_s if took_s else 0.0
    # A deep model calls the same operators by the hundred, too.
    if part < LIMITS.critical or sum(each.calls for each in often) < MANY_CALLS * least:
        return None
    lost_s, where = min(part * account.step_s, work.removes_s), line.where if line else ""
    named = ", ".join(
        f"{each.name.removeprefix('aten::')} {each.calls // steps:,} times" for each in often[:4]
    )
    return Cause(
        id="launch_bound",
        title=f"a Python loop launches {count(sum(each.calls for each in often) / steps)} tiny "
        "operators in a step",
        evidence=(
            f"{named} in a captured step: {share(part)} of it by themselves",
            *sampled(line),
        ),
        changes=(Use(change="one_operator", values={"where": where or "their line"}),),
        claim=Claim(
            owns_s={slot: s / work.removes_s * lost_s for slot, s in work.owns_s.items()},
            removes_s=lost_s,
        ),
        where=where,
        bounded=False,
        confidence="medium",
    )


def _fewer_launches(account: StepAccount, facts: Facts, lost_s: float) -> tuple[Use, ...]:
    """What makes a step launch less for its samples, as far as the memory allows it."""
    number, vary = facts.micro_batches, facts.settings.get("shapes_vary")
    return all_that_hold(
        (
            _one_micro_batch(account, facts, lost_s * (1 - 1 / number)),
            number > 1 and room_for(account, facts, number),
        ),
        (Use(change="compile_dynamic" if vary else "compile_step"), True),
        (Use(change="larger_batch"), room_for(account, facts, 2)),
        (Use(change="compute_on_cpu"), _fits_a_core(account, facts)),
    )


def _fits_a_core(account: StepAccount, facts: Facts) -> bool:
    """Whether one slow core would do the work of a device's step in less than half of the step.

    It is taken to do a FLOP in the time in which it reads a byte; what launches is the same.
    """
    work = sum(max(use.flops, use.moved_bytes) for use in facts.uses)
    little = bool(facts.uses) and work / REFILL_BYTES * REFILL_S < LIMITS.mostly * account.step_s
    return little and account.device is not None and facts.run.world_size == 1


def _one_micro_batch(account: StepAccount, facts: Facts, saved_s: float) -> Use:
    return Use(
        change="larger_micro_batches",
        values={
            "number": count(facts.micro_batches),
            "rows": max(1, round(facts.samples_in(account.step_s))),
        },
        step_s=account.step_s - saved_s,
    )


def _idle_device(account: StepAccount, facts: Facts) -> Cause | None:
    device = account.device or DeviceAccount()
    idle_s, bound = device.host_s or 0.0, device.host_bound or 0.0
    idle = account.share(idle_s) >= 2 * LIMITS.worth
    # A device that starved in the loader has caught up for a reason that has its own name.
    starved = account.share(device.data_s or 0.0) >= LIMITS.notable
    if not idle and (bound < LIMITS.mostly or starved or not account.judged):
        return None
    late, bound_in = share(account.share(idle_s)), f"{share(bound)} of the steps"
    return Cause(
        id="launch_bound",
        title=f"the device is idle {late} of the time because launches come too late"
        if idle
        else f"the device waits for the host in {bound_in}",
        evidence=texts_of(
            *_launched(facts),
            bound and f"the device had caught up in {bound_in} when forward and backward returned",
        ),
        changes=_fewer_launches(account, facts, idle_s),
        claim=Claim(removes_s=idle_s, device={"host_s": idle_s}) if idle else None,
        confidence="high" if idle else "medium",
        severity=None if idle else "medium",
    )


def _launched(facts: Facts) -> tuple[str, ...]:
    """What a step of the latest capture launches."""
    trace = facts.traces[-1] if facts.traces else None
    if trace is None or not trace.totals.kernels:
        return ()
    kernels, busy_s = trace.totals.kernels, trace.totals.cpu_op_s or 0.0
    short = sum(step.short_kernels or 0 for step in trace.steps) / max(1, len(trace.steps))
    mostly = f"; {share(short / kernels)} of them take less than 10 µs"
    return (
        (
            f"a step launches {count(round(kernels))} kernels, and its operators keep the host "
            f"busy for {duration(busy_s)}{mostly if short >= LIMITS.mostly * kernels else ''}"
        ),
    )
