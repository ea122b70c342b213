"""Detectors of several ranks: late ones, reductions, one process for several devices."""

from math import ceil, inf
from statistics import median

from trainperf.analysis.diagnosis.account import WORK, Claim, Meeting, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.code import of_plain_code
from trainperf.analysis.diagnosis.detectors.lines import sampled
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.memory_room import FULL
from trainperf.analysis.summary.late_ranks import (
    late_and_why,
    lateness,
    who,
    within,
)
from trainperf.analysis.summary.ranks import saved_s
from trainperf.analysis.summary.schema import LineShare, SyncPoint
from trainperf.core.artifacts.lines import OBJECTS, SENDS_BUFFERS
from trainperf.core.choice import all_that_hold, first_that_holds, texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, plural, rate, share, size
from trainperf.core.groups import grouped, summed
from trainperf.core.readings import phase_reading


BUCKET_MB = 25
"""What DDP takes by itself."""


def straggler(account: StepAccount, facts: Facts) -> Cause | None:
    """The ranks lose a notable part of the step to skew; those that are always late are named.

    Removed is what a step would save if every rank were as fast as the typical one: what the late
    rank does longer is its own, and what the others wait for it is nobody else's.

    Wrong where: ranks meet at a point that is not timed, before the one that is: the wait is
    attributed late.
    To confirm: swap the hosts of two ranks: a slow host keeps the name, slow data does not.
    """
    if facts.stragglers:
        return _in_capture(account, facts)
    points = facts.summary.synchronisation
    named = sorted((p for p in points if p.late), key=lambda point: -point.named_s)
    lost_s = saved_s(facts.summary, "even_s")
    # A few steps with a long wait are no habit of the ranks.
    usual_s = max((point.skew_s or 0.0 for point in points), default=0.0)
    habit_s, least = (lost_s, LIMITS.worth) if named else (min(lost_s, usual_s), LIMITS.notable)
    if account.share(habit_s) < least:
        return None
    line = _line(named[0], facts) if named else None
    more = _works_more(named[0], facts) if named else ""
    without_s = max(0.0, account.step_s - saved_s(facts.summary, "named_s"))
    return Cause(
        id="straggler",
        title=f"{share(account.share(lost_s))} of the step is lost to stragglers; "
        f"{late_and_why(named)}{f', in {line.subject}' if line else ''}",
        evidence=(
            *(lateness(point, facts.settings) for point in points),
            *texts_of(
                named
                and f"as fast as the median rank, a step would take {duration(without_s)} instead "
                f"of {duration(account.step_s)}"
            ),
            *sampled(line),
            *texts_of(more),
        ),
        changes=(
            _mend(named[0], line, facts)
            if named and not more
            # Of what a named rank does too much the others get their part.
            else Use(
                change="even_work",
                realises=1 - len(named[0].late) / len(facts.run.ranks) if more else None,
            ),
        ),
        claim=Claim(
            owns_s=_late_and_waiting(account), removes_s=lost_s, device=_waits(account, lost_s)
        ),
        where="" if line is None else line.where,
        confidence="high" if named else "medium",
    )


def _works_more(point: SyncPoint, facts: Facts) -> str:
    """How much longer a rank takes for forward, too, where it is late in computing; else empty.

    Nobody waits in forward: what is longer there as well is no wait, and no single piece of code.
    """
    late = {each.rank for each in point.late}
    reading = facts.summary.reading(phase_reading("forward"))
    spent = dict(zip(facts.run.ranks, () if reading is None else reading.per_rank, strict=False))
    own_s = [s for rank, s in spent.items() if rank in late and s is not None]
    others_s = [s for rank, s in spent.items() if rank not in late and s is not None]
    elsewhere = {each.cause for each in point.late} - set(WORK) or not own_s or not others_s
    if elsewhere or min(own_s) < (1 + LIMITS.critical) * median(others_s):
        return ""
    return (
        f"forward takes {duration(min(own_s))} there and {duration(median(others_s))} on the "
        "others: more work, or slower CPUs"
    )


def _line(point: SyncPoint, facts: Facts) -> LineShare | None:
    """The function in which a rank is late; the samples are of rank 0."""
    causes = [late.cause for late in point.late if late.rank == 0]
    return facts.owner_of_phase(causes[0]) if causes and causes[0] else None


def _waits(account: StepAccount, lost_s: float) -> dict[str, float]:
    """The same seconds of a device: they pass inside of its collectives."""
    return {} if account.device is None else {"communication_s": lost_s}


def _late_and_waiting(account: StepAccount) -> dict[str, float]:
    """What late ranks do longer, and what the others wait for them beyond what all wait."""
    return summed(
        pair
        for slot, meeting in account.meetings.items()
        for pair in ((slot, meeting.wait_s - meeting.transfer_s), *meeting.late.items())
    )


@worth(LIMITS.worth)
def _in_capture(account: StepAccount, facts: Facts) -> Cause | None:
    """Other ranks wait in collectives for the same rank, by what each spends there."""
    waits = grouped((wait.rank, wait.wait_s) for wait in facts.stragglers)
    steps = len({wait.step for wait in facts.stragglers})
    rank, late = max(waits.items(), key=lambda item: (sum(item[1]), -item[0]))
    lost_s = sum(late) / steps
    others = ", ".join(map(str, sorted(waits.keys() - {rank})))
    also = f"; also late: {others}" if others else ""
    return Cause(
        id="straggler",
        title=f"the other ranks wait for rank {rank}",
        evidence=(
            (
                f"up to {duration(max(late))} in collectives, late in {len(late)} of {steps} "
                f"steps{also}"
            ),
        ),
        changes=(
            Use(change="look_at_rank", values={"who": f"rank {rank}", "does": "does before them"}),
        ),
        claim=Claim(removes_s=lost_s, device=_waits(account, lost_s)),
    )


def _mend(point: SyncPoint, line: LineShare | None, facts: Facts) -> Use:
    causes = {each.cause for each in point.late}
    cause = min(causes, key=str) if len(causes) == 1 else None
    does = "does" if point.host or len(point.late) == 1 else "do"
    change = first_that_holds(
        (
            "faster_loader_of_rank",
            causes == {"data_wait"} and not (line and facts.loop.data_wait_is_bound),
        ),
        ("look_at_rank", line is not None or any(causes)),
        ("compare_hosts", True),
    )
    where = f"does in {line.subject}" if line else f"{does} {within(cause)}" if cause else does
    return Use(change=change, values={"who": who(point), "does": where})


def object_collectives(account: StepAccount, facts: Facts) -> Cause | None:
    """Objects are sent between ranks in a step: pickled, through the host.

    By samples of steady steps, which name the line.  Where each rank gathers the objects of all, it
    then does the work of all on them: of what follows in the same function only its own part is
    needed.  At most all of the function goes.

    Wrong where: the objects are few numbers, and what is seen there is a wait for another rank.
    To confirm: `trainperf prove` with counts that are summed, and the same score.
    """
    calls = [
        (lines.slot, call)
        for lines in facts.summary.lines
        for call in lines.stalls
        if call.name.endswith(OBJECTS) and account.spent(lines.slot)
    ]
    others = 1 - 1 / max(1, facts.run.world_size)
    most_s = sum(account.spent(slot) * call.inside for slot, call in calls)
    sends_s = summed((slot, account.spent(slot) * call.fraction) for slot, call in calls)
    twice_s = summed(
        (slot, account.spent(slot) * (call.inside - call.fraction) * others)
        for slot, call in calls
        if call.name.endswith(OBJECTS[0])
    )
    owns_s = summed([*sends_s.items(), *twice_s.items()])
    if account.share(sum(owns_s.values())) < LIMITS.worth:
        return None
    first = max(calls, key=lambda each: account.spent(each[0]) * each[1].inside)[1]
    twice = sum(twice_s.values())
    takes = "and what each rank does with all that it gathers take" if twice else "takes"
    return Cause(
        id="object_collectives",
        title=f"{first.name} {takes} {share(account.share(sum(owns_s.values())))} of the step",
        evidence=(
            *(f"{call.name} at {call.where}: pickled, on the host" for _, call in calls[:2]),
            f"{duration(sum(sends_s.values()))} per step in these calls",
            *texts_of(twice and f"{duration(twice)} per step in what every rank does for all"),
        ),
        changes=(Use(change="send_no_objects", values={"where": first.where}),),
        claim=Claim(owns_s=owns_s, removes_s=sum(owns_s.values()), at_most_s=most_s),
        where=first.where,
        confidence="medium",
    )


def redundant(facts: Facts) -> float:
    """Share of the all-reduces that an accumulating loop could hold back; 0 where not known.

    Of a step's reductions one per backward of its last micro-batch is needed.
    """
    reduced, passes = facts.number("allreduces_per_step"), facts.number("micro_batches_per_step")
    if reduced is None or passes is None or passes <= 1 or reduced <= 1:
        return 0.0
    return 1 - max(1.0, reduced / passes) / reduced


def _reduction_s(account: StepAccount, facts: Facts) -> float:
    """What gradient reductions take of a step at most; 0 where that is not measured.

    The tail is that of one bucket at least; on a host the others compete with backward for a CPU
    while it runs: all of them, or backward as a whole, is a bound there.  On a device it is what a
    capture saw of communication, or else the tail that nothing hides.
    """
    meeting = account.meetings.get("backward")
    if meeting is None:
        return 0.0
    if account.device is not None:
        return max(meeting.transfer_s, account.device.communication_s or 0.0)
    return min(account.spent("backward"), meeting.transfer_s * (facts.number("ddp_buckets") or inf))


def no_sync(account: StepAccount, facts: Facts) -> Cause | None:
    """Gradient accumulation with an all-reduce in every micro-batch: all but the last are wasted.

    Removed is their part of what reductions take at most.

    Wrong where: the gradients are needed after every micro-batch, for clipping for instance.
    To confirm: `trainperf prove` with `no_sync()` around all but the last micro-batch, and the same
    loss.
    """
    extra, whole_s = redundant(facts), _reduction_s(account, facts)
    # Two micro-batches per step waste half of them.
    if extra < 0.25 or not whole_s or not account.step_s:
        return None
    reduced, passes = facts.number("allreduces_per_step"), facts.number("micro_batches_per_step")
    most_s = lost_s = extra * whole_s
    if account.device is None:  # what operators of backward compute is no reduction
        computes_s = sum(region.run_s for region in account.regions if region.slot == "backward")
        free_s = account.spent("backward") - computes_s
        lost_s = min(lost_s, max(free_s, extra * account.meetings["backward"].transfer_s))
    return Cause(
        id="no_sync",
        title=f"{share(extra)} of the all-reduces are in micro-batches that do not update",
        evidence=(
            f"{count(reduced or 0)} all-reduces for {count(passes or 0)} micro-batches per step",
            f"up to {duration(whole_s)} of {duration(account.step_s)} per step in reductions",
        ),
        changes=(Use(change="no_sync"),),
        claim=Claim(
            owns_s={"backward": min(lost_s, account.spent("backward"))},
            removes_s=lost_s,
            at_most_s=most_s,
            device=_waits(account, lost_s),
        ),
        confidence="medium",
    )


def allreduce_tail(account: StepAccount, facts: Facts) -> Cause | None:
    """Ranks communicate for a notable part of the step while nothing is computed.

    After backward even the last rank waits for its gradients to be reduced: every run shows that
    tail.  What else runs with no kernel of the computing next to it, a capture of a device shows: a
    twentieth of the step is worth a word there.  At most it is what reductions take as a whole.

    Wrong where: it ends a step that another rank began late: see `straggler` first.
    To confirm: `trainperf try --only no_reduction SCRIPT` is the ceiling; a trace shows the
    collectives.
    """
    meeting, needed = account.meetings.get("backward", Meeting()), 1 - redundant(facts)
    # What operators of backward have claimed is no wait after it.
    tail_s = min(needed * meeting.transfer_s, account.spent("backward"))
    exposed_s = (account.device and account.device.communication_s) or 0.0
    if account.share(tail_s) < LIMITS.notable and account.share(exposed_s) < LIMITS.worth:
        return None
    lost_s, most_s = max(tail_s, exposed_s), needed * _reduction_s(account, facts)
    return Cause(
        id="allreduce_tail",
        title=f"{share(account.share(lost_s))} of the step is communication that nothing hides",
        evidence=(
            *texts_of(
                tail_s
                and f"{duration(tail_s)} of {duration(account.step_s)} per step after backward"
            ),
            *_collectives(facts, exposed_s),
            *_settings(facts),
        ),
        changes=_send_less(facts, tail_s),
        claim=Claim(
            owns_s={"backward": tail_s},
            removes_s=lost_s,
            at_most_s=max(lost_s, most_s),
            device=_waits(account, lost_s),
        ),
        confidence="medium" if tail_s else "high",
    )


def _collectives(facts: Facts, exposed_s: float) -> tuple[str, ...]:
    """What a capture saw of them, on the rank that communicates longest."""
    trace = max(facts.traces, key=lambda rank: rank.totals.comm_s or 0.0, default=None)
    if trace is None or trace.totals.comm_s is None:
        return ()
    after_s = trace.totals.allreduce_tail_s
    after = f"; {duration(after_s)} of it after backward has ended" if after_s else ""
    rates = [each.bus_bytes_per_s for each in trace.collectives if each.kind == "all_reduce"]
    slowest = min(filter(None, rates), default=None)
    return texts_of(
        f"no computation hides {duration(exposed_s)} of {duration(trace.totals.comm_s)}{after}",
        slowest and f"all-reduces move {rate(slowest)} over the slowest link",
    )


def usual_buckets(facts: Facts) -> int:
    """Four times as many as DDP makes by itself, from which on there are too many.

    The first bucket is a small one, so that reducing can begin early.
    """
    return 4 * (1 + ceil((facts.number("gradient_bytes") or 0.0) / (BUCKET_MB << 20)))


def buckets(facts: Facts) -> tuple[str, ...]:
    """How many DDP has, and how large they are."""
    number, gradients = facts.number("ddp_buckets"), facts.number("gradient_bytes")
    return texts_of(
        number
        and gradients is not None
        and f"{plural(round(number), 'bucket')} of {size(gradients / number)} on average"
    )


def _settings(facts: Facts) -> tuple[str, ...]:
    ways, pace, links = facts.settings.get("nccl_ways"), _gloo_bytes_per_s(facts), _nvlinks(facts)
    name = facts.settings.get("GLOO_SOCKET_IFNAME")
    return texts_of(
        *buckets(facts),
        facts.number("ddp_unused_bytes") == 0
        and "find_unused_parameters=True, and every parameter is used",
        ways and f"NCCL sends via {ways}, by its log",
        links and f"a device has {plural(links, 'active link')} of NVLink",
        pace and f"gloo sends over {name}, a link of {rate(pace)}",
    )


def _nvlinks(facts: Facts) -> int:
    """Active ones of the device that has most."""
    return max((at.nvlinks for host in facts.summary.hosts for at in host.devices), default=0)


def _gloo_bytes_per_s(facts: Facts) -> float:
    """By the interface that it was told to take to other hosts; 0 where it sends none."""
    hosts = (facts.number("local_world_size") or inf) < facts.run.world_size
    sends = hosts and facts.settings.get("backend") == "gloo"
    return (facts.number("gloo_bytes_per_s") or 0.0) if sends else 0.0


def _other_way(facts: Facts) -> tuple[Use, ...]:
    """A faster way between ranks than the one that is taken, where both are known."""
    ways, settings = str(facts.settings.get("nccl_ways") or ""), facts.settings
    fastest = facts.number("fastest_bytes_per_s") or 0.0
    infiniband = settings.get("NCCL_IB_DISABLE") == "1" or settings.get("infiniband")
    no_links = settings.get("NCCL_P2P_DISABLE") == "1"
    return all_that_hold(
        (Use(change="use_infiniband"), "NET/Socket" in ways and infiniband),
        (Use(change="use_links"), "SHM" in ways and no_links),
        (Use(change="use_nvlink"), "SHM" in ways and not no_links and _nvlinks(facts)),
        (
            Use(
                change="faster_interface",
                values={"name": settings.get("fastest_interface"), "rate": rate(fastest)},
            ),
            fastest >= 2 * _gloo_bytes_per_s(facts) > 0,
        ),
    )


def _stays_gathered(facts: Facts) -> bool:
    """Whether FSDP gathers parameters twice that would fit once they are there."""
    left = FULL * (facts.number("device_memory_bytes") or 0.0) - (facts.peak_bytes or inf)
    whole = facts.run.world_size * (facts.number("gradient_bytes") or inf)
    return facts.settings.get("fsdp_reshard") is True and whole <= left


def _send_less(facts: Facts, tail_s: float) -> tuple[Use, ...]:
    """What there is to change about gradients, else about what a capture shows.

    What comes after backward has nothing left to overlap.
    """
    number, gradients = facts.number("ddp_buckets"), facts.number("gradient_bytes") or 0.0
    collectives = [each for trace in facts.traces for each in trace.collectives]
    small = [each for each in collectives if each.many_small]
    after = tail_s or any(trace.totals.allreduce_tail_s for trace in facts.traces)
    change = first_that_holds(
        ("larger_buckets", gradients and number and number > usual_buckets(facts)),
        (
            "smaller_buckets",
            number
            and gradients / number >= 2 * BUCKET_MB << 20
            and (facts.number("ddp_bucket_cap_mb") or 0.0) >= 2 * BUCKET_MB,
        ),
        ("no_unused_parameters", facts.number("ddp_unused_bytes") == 0),
        ("keep_gathered", _stays_gathered(facts)),
        ("larger_messages", small),
        ("bucket_views", facts.settings.get("ddp_gradient_as_bucket_view") is False),
        ("overlap_communication", collectives and not after),
        ("reduce_less", True),
    )
    kind = next((each.kind for each in (*small, *collectives)), "")
    return (
        *_other_way(facts),
        Use(change=change, values={"megabytes": BUCKET_MB, "kind": kind}),
        *all_that_hold(
            (
                Use(change="static_graph"),
                facts.settings.get("ddp_static_graph") is False
                and facts.number("ddp_unused_bytes"),
            )
        ),
    )


def broadcast_buffers(account: StepAccount, facts: Facts) -> Cause | None:
    """DDP sends buffers from rank 0 before every forward, and that takes long.

    They are a tenth of the gradients, or samples saw a tenth of the step in it: few bytes take long
    on a link of high latency.  Masks, tables and caches that are buffers never change, or are
    the same on all ranks.  Removed is what samples saw of it on the host; on a device nothing tells
    it from the rest of forward.

    Wrong where: the buffers differ between ranks, and have to be rank 0's.
    To confirm: `trainperf prove` with `broadcast_buffers=False`, and the same loss.
    """
    sent, gradients = facts.number("buffer_bytes") or 0.0, facts.number("gradient_bytes") or 0.0
    host = facts.summary.lines_in("forward").host
    code = host if host is not None and SENDS_BUFFERS in host.names[:1] else None
    claim = of_plain_code(account, "forward", code) if code else Claim()
    # Statistics of normalisations are far less.
    large = sent >= max(1 << 20, LIMITS.notable * gradients)
    sends = facts.settings.get("ddp_broadcast_buffers") is True and facts.run.world_size > 1
    if not sends or not (large or account.share(claim.removes_s) >= LIMITS.notable):
        return None
    return Cause(
        id="broadcast_buffers",
        title=f"DDP sends {size(sent)} of buffers before every forward",
        evidence=(
            f"{size(gradients)} of gradients are reduced behind it",
            *(sampled(code.line) if code else ()),
        ),
        changes=(Use(change="no_broadcast"),),
        claim=claim if code else None,
        confidence="high" if code else "medium",
        severity=None if code else "medium",
    )


def data_parallel(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 a setting
    """One process drives all devices: it copies the module to each of them in every forward.

    How much that costs depends on the devices, so no bound is given.

    Wrong where: only one device is used: the wrapper then costs next to nothing.
    To confirm: `trainperf prove` with DistributedDataParallel on the same devices.
    """
    if facts.settings.get("wrapper") != "DataParallel":
        return None
    devices = round(facts.number("data_parallel_devices") or 0)
    alone = devices < 2
    return Cause(
        id="data_parallel",
        title="DataParallel wraps the model and has no second device"
        if alone
        else f"DataParallel drives {plural(devices, 'device')} from one process",
        evidence=(
            "there is no second device: the wrapper only passes the batch on"
            if alone
            else "the model is copied to each of them in every forward, by one process",
        ),
        changes=(
            Use(change="no_wrapper" if alone else "distributed", values={"devices": devices}),
        ),
        confidence="medium",
        severity="low" if alone else "high",
    )
