"""Account of a run, or of an imported log, from its summary and its documents."""

from math import inf

from trainperf.analysis.diagnosis.account import (
    OWN,
    WORK,
    Basis,
    DeviceAccount,
    LoaderAccount,
    Meeting,
    Region,
    StepAccount,
)
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.law import ROUND_TRIP_S
from trainperf.analysis.diagnosis.regions import (
    as_sampled,
    on_device,
    on_host,
    pooled,
    unexplained_s,
)
from trainperf.analysis.diagnosis.workers import sampled_workers
from trainperf.analysis.roofline.roofline import Roofline, faster, roofline
from trainperf.analysis.roofline.speed_of_light import traced_operators
from trainperf.analysis.summary.schema import SyncPoint, with_named_phases
from trainperf.core.artifacts.folder import Documents
from trainperf.core.choice import first_that_holds
from trainperf.core.findings import LIMITS
from trainperf.core.machine.chips import chip_of
from trainperf.core.phases import PHASES, Gap
from trainperf.core.readings import (
    DATA_STALL_FRACTION,
    FLOPS_PER_S,
    H2D_FRACTION,
    HOST_BOUND_FRACTION,
    OVERHEAD_S,
    STEP_MEAN_S,
    phase_reading,
)
from trainperf.meters.fold import not_covered
from trainperf.traces.results import TraceTotals


def account_of(facts: Facts) -> StepAccount:
    """The mean steady step of a run; without enough steady steps it has no seconds to share out.

    Where a log holds one mean of all steps it is that of all.
    """
    summary, run = facts.summary, facts.run
    judged = run.steady_steps >= LIMITS.steps
    step_s = (facts.value(STEP_MEAN_S) or 0.0) if judged else 0.0
    loop_s = _loop_s(facts) if step_s else {}
    if run.steps >= LIMITS.steps and not_covered(facts.summary.reading(STEP_MEAN_S)):
        loop_s = summary.phases_s()
        step_s = sum(loop_s.values())
    device = None if run.device == "cpu" else _device(facts, step_s)
    regions, basis = _regions(facts, loop_s, device)
    if basis == "audited":
        pool_s = pooled(regions, loop_s)
        forward = summary.lines_in("forward")
        if forward.samples and regions and pool_s == loop_s:
            regions = as_sampled(regions, forward, loop_s.get("forward", 0.0))
        loop_s = pool_s
    waits_s = summary.ledger_s.get(Gap.OTHERS_TURN.label, 0.0)
    return StepAccount(
        step_s=step_s,
        loop_s=loop_s,
        regions=regions,
        regions_basis=basis,
        unexplained_s=unexplained_s(regions, loop_s) if basis == "audited" else {},
        device=device,
        loader=_loader(facts, loop_s, step_s, device) if step_s else None,
        # Other threads of Python that compute for what the loop hands to them.
        threads_s={
            name: spent_s
            for name, spent_s in summary.threads_s.items()
            if name not in _SERVE_THE_LOADER
        },
        meetings={
            point.point: Meeting(
                wait_s=max(point.wait_s, default=0.0),
                transfer_s=point.transfer_s,
                late=_late_s(point, loop_s),
            )
            for point in summary.synchronisation
        },
        cpus=None if summary.host is None else summary.host.cpus_per_rank,
        model_threads=1 if summary.host is None else summary.host.threads,
        others_cpus=_others_cpus(facts),
        kernel_s=0.0 if summary.host is None else (summary.host.kernel or 0.0) * step_s,
        fit_s=run.fit_s - waits_s,
        before_s=run.before_s,
        steps_s=sum(summary.ledger_s.get(phase.label, 0.0) for phase in PHASES),
        steps=run.steps,
        pauses_s={
            name: spent_s
            for name, spent_s in summary.ledger_s.items()
            if name not in {phase.label for phase in PHASES} and name != Gap.OTHERS_TURN.label
        },
        judged=judged,
    )


def _late_s(point: SyncPoint, loop_s: dict[str, float]) -> dict[str, float]:
    """Slot to the seconds by which the latest rank is late because of it.

    What lies between update and forward, where a loader is told apart, is late like all of it.
    """
    late_s = {
        late.cause: late.cause_s or 0.0
        for late in sorted(point.late, key=lambda late: late.cause_s or 0.0)
        if late.cause
    }
    waited_s, own_s = loop_s.get("data_wait", 0.0), loop_s.get("between", 0.0)
    if "data_wait" in late_s and own_s:
        late_s["between"] = late_s["data_wait"] * own_s / (waited_s + own_s)
        late_s["data_wait"] -= late_s["between"]
    return late_s


def _loop_s(facts: Facts) -> dict[str, float]:
    """Slots of the training thread, each on the rank where it is largest.

    Ours is in callbacks, else outside every phase.  There a Trainer's rank 0 sends all ranks their
    batches, too: that is the others' wait for data, not work of its own.
    """
    loop_s = {
        phase.label: spent_s
        for phase in PHASES
        if (spent_s := facts.worst(phase_reading(phase.label))) is not None
    }
    slots = [slot for slot in ("callbacks", "other") if slot in loop_s]
    if len(facts.run.ranks) > 1 and facts.settings.get("loader") == "DataLoaderDispatcher":
        for slot in slots:
            others_s = facts.summary.readings[phase_reading(slot)].per_rank[1:]
            loop_s[slot] = max((s for s in others_s if s is not None), default=0.0)
    overhead_s = facts.value(OVERHEAD_S) or 0.0
    loop_s[OWN] = 0.0
    for slot in slots:
        ours_s = min(overhead_s - loop_s[OWN], loop_s[slot])
        loop_s[OWN] += ours_s
        loop_s[slot] -= ours_s
    return _told_apart(facts, with_named_phases(loop_s, facts.summary.named_phases))


def _told_apart(facts: Facts, loop_s: dict[str, float]) -> dict[str, float]:
    """A wait that is all from update to forward, divided by the samples that were in a loader.

    With too few samples it is the loader's where there is one.
    """
    if not facts.loop.data_wait_is_bound:
        return loop_s
    loads = facts.loads
    if loads is None:
        loads = 0.0 if facts.number("num_workers") is None else 1.0
    waited_s = loop_s.get("data_wait", 0.0)
    own_s = waited_s * (1.0 - loads)
    return {**loop_s, "data_wait": waited_s - own_s, "between": own_s}


def _regions(
    facts: Facts, loop_s: dict[str, float], device: DeviceAccount | None
) -> tuple[tuple[Region, ...], Basis]:
    """Of a step that is like the audited one; empty without one."""
    audit, typical = facts.documents.audit, facts.typical
    if audit is None or typical is None or not loop_s or facts.value(FLOPS_PER_S) is None:
        return (), "audited"
    if audit.timed:
        host = facts.summary.host
        waited = 0.0 if host is None else host.waited_fraction or 0.0
        slowed = 1 / (1 - min(waited, LIMITS.mostly))
        return on_host(typical, loop_s, slowed), "audited"
    work_s = sum(loop_s.get(slot, 0.0) for slot in WORK)
    if device is not None and not device.host_decides:
        waits_s = (device.data_s or 0.0) + (device.copies_s or 0.0)
        work_s = device.busy_s or max(0.0, (facts.value(STEP_MEAN_S) or 0.0) - waits_s)
    return on_device(typical.own, work_s, traced_operators(facts.captures))


def _device(facts: Facts, step_s: float) -> DeviceAccount:
    """By the always-on marks; what only a capture shows, by the slowest rank of the latest one."""
    stalled, copied = facts.worst(DATA_STALL_FRACTION), facts.worst(H2D_FRACTION)
    latest = facts.captures[-1].ranks if facts.captures else ()
    traced = [rank for rank in latest if rank.device_worked]
    slowest = max(traced, key=lambda rank: rank.period_s, default=None)
    totals = TraceTotals(step_s=0.0, steps=0) if slowest is None else slowest.totals
    hidden = totals.h2d_overlap_fraction or 0.0
    starved = (stalled or 0.0) >= LIMITS.notable
    offloaded = facts.settings.get("optimizer_device") == "cpu"
    return DeviceAccount(
        host_s=_part_s(totals.idle_host_bound_fraction, step_s),
        data_s=_part_s(stalled, step_s),
        copies_s=_part_s(copied, step_s * (1.0 - hidden)),
        value_s=_part_s(totals.idle_sync_fraction, step_s),
        communication_s=totals.comm_exposed_s,
        busy_s=totals.gpu_busy_s,
        host_bound=None if starved or offloaded else facts.value(HOST_BOUND_FRACTION),
    )


def _part_s(fraction: float | None, step_s: float) -> float | None:
    """A share of a step in seconds, where it was measured."""
    return None if fraction is None else fraction * step_s


def _loader(
    facts: Facts, loop_s: dict[str, float], step_s: float, device: DeviceAccount | None
) -> LoaderAccount | None:
    """What makes the batches, by the wait for them and what its workers computed.

    Without workers a batch takes as long to make as it is waited for.  Of workers that are waited
    for it is not known whether they make or hand over: what they computed is the least that making
    takes, all of their time the most.  The least counts where it is so little that the wait must be
    for handing over.
    """
    workers, waited_s = facts.number("num_workers"), loop_s.get("data_wait", 0.0)
    sampled = sampled_workers(facts)
    at_work = min(workers or 0, facts.number("dataset_shards") or inf)
    batches, host = facts.micro_batches, facts.summary.host
    if sampled is not None:
        workers, at_work = len(sampled.making), sampled.at_work
    idle = int((workers or 0) - at_work)
    transport_s = ROUND_TRIP_S * batches
    if sampled is not None and sampled.hands_over:  # this process takes over as fast as it can
        at_work, transport_s = sum(sampled.making), waited_s
    ran = None if host is None else host.workers_ran
    ran_s = (ran or 0.0) * step_s
    if workers is None:
        return None
    # Of workers that nobody waits for, and of a wait that is for handing over, what they compute is
    # what making takes; workers that are waited for otherwise are busy all the time.
    waits = waited_s >= LIMITS.worth * step_s
    hands_over = ran is not None and ran_s < waited_s < HANDED_OVER_S * batches
    return LoaderAccount(
        workers=int(workers),
        making_s=first_that_holds(
            (waited_s, not workers), (at_work * step_s, waits and not hands_over), (ran_s, True)
        ),
        transport_s=transport_s,
        computes_s=ran_s,
        batches=batches,
        idle=idle,
        asleep=_asleep(facts, waited_s, step_s, computes=device is None),
    )


HANDED_OVER_S = 8 * ROUND_TRIP_S
"""A longer wait for a batch than that is not for its way from a worker."""


def _asleep(facts: Facts, waited_s: float, step_s: float, *, computes: bool) -> float:
    """Share of the time in the loader, at least, for which its thread neither ran nor was ready to.

    It waited for a disk, a network or a timer then.  0 where that is not known.  A host that
    computes runs in forward, backward and update, whatever it does in the rest of the step.
    """
    host = facts.summary.host
    beside = len(facts.run.ranks) > 1 or facts.number("num_workers")
    if host is None or host.ran_fraction is None or host.waited_fraction is None:
        return 0.0
    asleep_s = (1.0 - host.ran_fraction - host.waited_fraction) * step_s
    works_s = sum(facts.summary.phases_s().get(slot, 0.0) for slot in WORK) if computes else 0.0
    rest_s = max(0.0, step_s - waited_s - works_s)
    part = (asleep_s - rest_s) / waited_s if waited_s and not beside else 0.0
    return min(max(part, 0.0), 1.0)


_SERVE_THE_LOADER = frozenset({"_pin_memory_loop", "QueueFeederThread"})


def _others_cpus(facts: Facts) -> float:
    """CPUs that other processes kept busy for most of the run."""
    causes = () if len(facts.run.ranks) > 1 else facts.machine_causes
    lasting = (c for c in causes if c.cause == "host shared" and c.fraction >= LIMITS.mostly)
    return max((cause.values.get("others_cpus", 0.0) for cause in lasting), default=0.0)


def light_of(documents: Documents, step_s: float | None = None) -> Roofline | None:
    """Floors of the audited step on the chip it ran on: the measured one, else the table's.

    Args:
        documents: Those of the run.
        step_s: What a steady step takes.  A chip that was measured cannot be slower than that:
            where its floor says so, others used the machine meanwhile, and its rates are raised.
    """
    audit, measured = documents.audit, documents.chip
    listed = None if audit is None else chip_of(audit.device_name)
    chip = listed if measured is None else measured.chip
    if audit is None or chip is None:
        return None
    light = roofline(audit, chip)
    if not step_s or light.step.floor_s <= step_s or listed is not None:
        return light
    return roofline(audit, faster(chip, light.step.floor_s / step_s))
