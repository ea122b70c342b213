"""Detectors of several ranks: late ones, reductions, one process for several devices."""

from collections.abc import Sequence
from math import ceil

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.summary.ranks import saved_s
from trainperf.analysis.summary.schema import SyncPoint
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import (
    count,
    duration,
    plural,
    ranks_named,
    rate,
    share,
    size,
    words,
)
from trainperf.core.loop_kind import meeting_place
from trainperf.core.steps.records import Scalar


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
    points = facts.points
    if not account.step_s or not points:
        return None
    lost_s = saved_s(points, "even_s", in_step=facts.host_computes)
    named = sorted((p for p in points if p.late), key=lambda point: -point.named_s)
    # A few steps with a long wait are no habit of the ranks.
    usual_s = max(point.skew_s or 0.0 for point in points)
    if not named and account.share(min(lost_s, usual_s)) < LIMITS.notable:
        return None
    first = named[0] if named else None
    return Cause(
        id="straggler",
        title=f"{share(account.share(lost_s))} of the step is lost to stragglers; {_names(named)}",
        evidence=(*(lateness(point, facts.settings) for point in points), *_without_them(facts)),
        changes=(_mend(first),),
        claim=Claim(owns_s=_late_and_waiting(account), removes_s=lost_s),
        confidence="medium" if first is None else "high",
    )


def _late_and_waiting(account: StepAccount) -> dict[str, float]:
    """What late ranks do longer, and what the others wait for them beyond what all wait."""
    owns_s: dict[str, float] = {}
    for slot, meeting in account.meetings.items():
        owns_s[slot] = owns_s.get(slot, 0.0) + meeting.wait_s - meeting.transfer_s
        for cause, late_s in meeting.late.items():
            owns_s[cause] = owns_s.get(cause, 0.0) + late_s
    return owns_s


def _in_capture(account: StepAccount, facts: Facts) -> Cause | None:
    """Other ranks wait in collectives for the same rank, by what each spends there."""
    waits: dict[int, list[float]] = {}
    for wait in facts.stragglers:
        waits.setdefault(wait.rank, []).append(wait.wait_s)
    steps = len({wait.step for wait in facts.stragglers})
    rank, late = max(waits.items(), key=lambda item: (sum(item[1]), -item[0]))
    lost_s = sum(late) / steps
    if account.share(lost_s) < LIMITS.worth:
        return None
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
        claim=Claim(removes_s=lost_s, device={"communication_s": lost_s}),
    )


def _names(named: Sequence[SyncPoint]) -> str:
    """Who is late, and why; e.g. `rank 3, data wait`."""
    if not named:
        return "not always the same rank"
    if any(point.host for point in named):
        return _ranks(named[0])
    by_cause: dict[str | None, list[int]] = {}
    for late in (late for point in named for late in point.late):
        by_cause.setdefault(late.cause, []).append(late.rank)
    return " and ".join(
        f"{ranks_named(ranks)}{f', {_place(cause)}' if cause else ''}"
        for cause, ranks in by_cause.items()
    )


def _ranks(point: SyncPoint) -> str:
    """The ranks that are late at a point, or their host."""
    ranks = [late.rank for late in point.late]
    if point.host:
        return f"host {plain(point.host)} ({plural(len(ranks), 'rank')})"
    return ranks_named(ranks)


def _place(phase: str) -> str:
    return "outside every phase" if phase == "other" else words(phase)


def _without_them(facts: Facts) -> tuple[str, ...]:
    """What the step would be if the named ranks were as fast as the others."""
    predicted = facts.what_if
    if predicted is None or not predicted.ranks:
        return ()
    without = f"{duration(predicted.without_ranks_s)} instead of {duration(predicted.step_s)}"
    return (f"as fast as the median rank, a step would take {without}",)


def lateness(point: SyncPoint, settings: "dict[str, Scalar] | object") -> str:
    """One synchronisation point in a line, e.g. for a report's block about ranks."""
    place = meeting_place(point.point, settings)  # type: ignore[arg-type]
    if not point.late:
        often = "" if point.who == "nobody" else ", not always for the same rank"
        return f"{duration(point.even_s)} per step at {place}{often}"
    if len(point.late) > 2:
        most = max(late.late_s for late in point.late)
        causes = dict.fromkeys(_place(late.cause) for late in point.late if late.cause)
        return (
            f"{_ranks(point)} late by up to {duration(most)} at {place}, "
            f"{share(point.late_fraction)} of steps: {' and '.join(causes) or 'no host phase'}"
        )
    return "; ".join(
        f"rank {late.rank} late by {duration(late.late_s)} at {place}, "
        f"{share(point.late_fraction)} of steps: "
        + (
            f"{duration(late.cause_s)} {'' if late.cause == 'other' else 'in '}{_place(late.cause)}"
            if late.cause and late.cause_s is not None
            else "no host phase explains it: a slower device?"
        )
        for late in point.late
    )


def _mend(point: SyncPoint | None) -> Use:
    if point is None:
        return Use(change="even_work")
    causes, ranks = {each.cause for each in point.late}, _ranks(point)
    does = "does" if point.host or len(point.late) == 1 else "do"
    if causes == {"data_wait"}:
        return Use(change="faster_loader_of_rank", values={"who": ranks})
    if not any(causes):
        return Use(change="compare_hosts", values={"who": ranks})
    cause = next(iter(causes)) if len(causes) == 1 else None
    within = "" if cause is None else f" {'' if cause == 'other' else 'in '}{_place(cause)}"
    return Use(change="look_at_rank", values={"who": ranks, "does": f"{does}{within}"})


def redundant(facts: Facts) -> float:
    """Share of the all-reduces that an accumulating loop could hold back; 0 where not known.

    Of a step's reductions one per backward of its last micro-batch is needed.
    """
    reduced, passes = facts.number("allreduces_per_step"), facts.number("micro_batches_per_step")
    if reduced is None or passes is None or passes <= 1 or reduced <= 1:
        return 0.0
    return 1 - max(1.0, reduced / passes) / reduced


def _reduction_s(account: StepAccount, facts: Facts) -> float | None:
    """What gradient reductions take of a step at most; `None` if not measured.

    The tail is that of one bucket at least; on a host the others compete with backward for a CPU
    while it runs: all of them, or backward as a whole, is a bound there.  On a device it is what a
    capture saw of communication, or else the tail that nothing hides.
    """
    meeting = account.meetings.get("backward")
    if meeting is None:
        return None
    if account.device is not None:
        return max(meeting.transfer_s, account.device.communication_s or 0.0)
    buckets, backward_s = facts.number("ddp_buckets"), account.spent("backward")
    return backward_s if buckets is None else min(backward_s, meeting.transfer_s * buckets)


def no_sync(account: StepAccount, facts: Facts) -> Cause | None:
    """Gradient accumulation with an all-reduce in every micro-batch: all but the last are wasted.

    Removed is their part of what reductions take at most.

    Wrong where: the gradients are needed after every micro-batch, for clipping for instance.
    To confirm: `trainperf prove` with `no_sync()` around all but the last micro-batch, and the same
    loss.
    """
    extra, whole_s = redundant(facts), _reduction_s(account, facts)
    # Two micro-batches per step waste half of them.
    if extra < 0.25 or whole_s is None or not account.step_s:
        return None
    reduced, passes = facts.number("allreduces_per_step"), facts.number("micro_batches_per_step")
    lost_s = extra * whole_s
    return Cause(
        id="no_sync",
        title=f"{share(extra)} of the all-reduces are in micro-batches that do not update",
        evidence=(
            f"{count(reduced or 0)} all-reduces for {count(passes or 0)} micro-batches per step",
            f"up to {duration(whole_s)} of {duration(account.step_s)} per step in reductions",
        ),
        changes=(Use(change="no_sync"),),
        claim=Claim(owns_s={"backward": lost_s}, removes_s=lost_s),
        confidence="medium",
    )


def allreduce_tail(account: StepAccount, facts: Facts) -> Cause | None:
    """Even the last rank waits for the all-reduce when its backward has nothing left to do.

    What the rank that arrives last still waits at the end of backward is the transfer, without
    what an accumulating loop can hold back.

    Wrong where: it ends a step that another rank began late: see `straggler` first.
    To confirm: `trainperf try --only no_reduction SCRIPT` is the ceiling; a trace shows the
    collectives.
    """
    meeting, most_s = account.meetings.get("backward"), _reduction_s(account, facts)
    if meeting is None or most_s is None:
        return None
    needed = 1 - redundant(facts)
    waited_s = needed * meeting.transfer_s
    if account.share(waited_s) < LIMITS.notable:
        return None
    lost_s = max(waited_s, needed * most_s)
    buckets, gradients = facts.number("ddp_buckets"), facts.number("gradient_bytes")
    unused = facts.number("ddp_unused_bytes") == 0
    device = {} if account.device is None else {"communication_s": lost_s}
    return Cause(
        id="allreduce_tail",
        title=f"{share(account.share(waited_s))} of the step waits for gradients to be reduced",
        evidence=(
            f"{duration(meeting.transfer_s)} of {duration(account.step_s)} per step, on every rank",
            *(
                (f"{plural(round(buckets), 'bucket')} of {size(gradients / buckets)} on average",)
                if buckets and gradients is not None
                else ()
            ),
            *(("find_unused_parameters=True, and every parameter is used",) if unused else ()),
            *_links(facts),
        ),
        changes=(
            Use(
                change=_reduce(facts, buckets, gradients, unused=unused),
                values={"megabytes": BUCKET_MB},
            ),
        ),
        claim=Claim(owns_s={"backward": lost_s}, removes_s=lost_s, device=device),
        confidence="medium",
    )


def _reduce(facts: Facts, buckets: float | None, gradients: float | None, *, unused: bool) -> str:
    # The first bucket is a small one, so that reducing can begin early.  Four times are too many.
    if (
        buckets
        and gradients is not None
        and buckets > 4 * (1 + ceil(gradients / (BUCKET_MB << 20)))
    ):
        return "larger_buckets"
    if unused:
        return "no_unused_parameters"
    views = facts.settings.get("ddp_gradient_as_bucket_view")
    return "bucket_views" if views is False else "reduce_less"


def _links(facts: Facts) -> tuple[str, ...]:
    """What a capture saw of the all-reduces."""
    rates = [
        collective.bus_bytes_per_s
        for trace in facts.traces
        for collective in trace.collectives
        if collective.kind == "all_reduce" and collective.bus_bytes_per_s
    ]
    return (f"all-reduces move {rate(min(rates))} over the slowest link",) if rates else ()


def exposed_communication(account: StepAccount, facts: Facts) -> Cause | None:
    """Collectives run for a twentieth of the step or more with no compute kernel next to them.

    By a capture.  The wait for the slowest rank is inside the collectives' kernels, and so in this
    share.  Of collectives on the host it is not known what hides them: they have no bound.

    Wrong where: a rank comes late: its wait is `straggler`'s, and no overlap removes it.
    To confirm: the reading `allreduce_tail_s`; `trainperf try --only no_reduction SCRIPT`.
    """
    trace = facts.traces[-1] if facts.traces else None
    if trace is None or not account.step_s:
        return None
    spent_s, exposed_s = trace.totals.comm_s or 0.0, trace.totals.comm_exposed_s
    lost_s = (
        spent_s if exposed_s is None else (account.device and account.device.communication_s) or 0.0
    )
    if account.share(lost_s) < LIMITS.worth:
        return None
    tail_s = trace.totals.allreduce_tail_s or 0.0
    small = [collective.kind for collective in trace.collectives if collective.many_small]
    after = f"; {duration(tail_s)} of it after backward has ended" if tail_s else ""
    kind = trace.collectives[0].kind if trace.collectives else ""
    change = "larger_messages" if small else "reduce_less" if tail_s else "overlap_communication"
    if exposed_s is None:
        title = f"collectives run on the host during {share(account.share(lost_s))} of the step"
        exposure = f"{duration(spent_s)} per step; whether anything overlaps them is unknown"
    else:
        title = f"{share(account.share(lost_s))} of the step is exposed communication"
        exposure = f"no computation hides {duration(lost_s)} of {duration(spent_s)} per step{after}"
    claim = Claim(removes_s=lost_s, device={"communication_s": lost_s})
    return Cause(
        id="exposed_communication",
        title=title,
        evidence=(exposure,),
        changes=(Use(change=change, values={"kind": small[0] if small else kind}),),
        claim=None if exposed_s is None else claim,
        confidence="low" if exposed_s is None else "high",
        severity="low" if exposed_s is None else None,
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
    if devices < 2:
        return Cause(
            id="data_parallel",
            title="DataParallel wraps the model and has no second device",
            evidence=("there is no second device: the wrapper only passes the batch on",),
            changes=(Use(change="no_wrapper"),),
            confidence="medium",
            severity="low",
        )
    return Cause(
        id="data_parallel",
        title=f"DataParallel drives {plural(devices, 'device')} from one process",
        evidence=("the model is copied to each of them in every forward, by one process",),
        changes=(Use(change="distributed", values={"devices": devices}),),
        confidence="medium",
        severity="high",
    )
