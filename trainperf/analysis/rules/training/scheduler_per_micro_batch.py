"""Rule about learning-rate schedules that outrun the updates."""

from trainperf.analysis.rules.base import Evidence, setting
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import count, times
from trainperf.core.loop_kind import OUTSIDE, PLAIN


def scheduler_per_micro_batch(evidence: Evidence) -> Finding | None:
    """The scheduler steps with every micro-batch, or more than once an update.

    Nothing gets faster without it: the learning rate is not what was asked for, so the run ends
    with another loss.

    On several ranks Accelerate steps a schedule that it has prepared once for each of them: what
    looks like that is left alone.

    Wrong where: the schedule was written for micro-batches, its length included.
    To confirm: print the learning rate at the end of an epoch, and hold it against the one you
    planned.
    """
    summary = evidence.summary
    stepped, updates = setting(summary, "scheduler_steps"), setting(summary, "updates")
    passes = setting(summary, "micro_batches")
    if stepped is None or not updates or passes is None or updates < LIMITS.steps:
        return None
    fast = stepped / updates
    if fast < 1.5:  # one is right, and less is a schedule by the epoch
        return None
    if _by_accelerate(summary, fast):
        return None
    with_each = abs(stepped - passes) <= LIMITS.notable * passes
    names = summary.run.config.get("schedulers") or "the scheduler"
    return Finding(
        id="scheduler_per_micro_batch",
        title=f"the learning-rate schedule runs {times(fast)} as fast as the updates",
        advice="Step the scheduler once per update" if with_each else "Step the scheduler less",
        evidence=(
            f"{names}: {count(stepped)} steps in {count(updates)} updates",
            f"{count(passes)} micro-batches make these updates",
        ),
        action="call scheduler.step() only after optimizer.step(), not in every micro-batch"
        if with_each
        else "call scheduler.step() once after each optimizer.step()",
        severity="high",
        urgent=True,
        confirm="scheduler_steps and updates in the run's configuration are equal",
    )


def _by_accelerate(summary: Summary, fast: float) -> bool:
    """Whether it may be Accelerate that steps for all ranks; a Trainer's it leaves alone."""
    run, ranks = summary.run, summary.run.world_size
    if ranks < 2 or "accelerate" not in run.software or run.loop not in (PLAIN, OUTSIDE):
        return False
    return abs(fast - ranks) <= LIMITS.notable * ranks
