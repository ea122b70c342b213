"""Rule about an update that is made of many micro-batches, each of which is over in a moment."""

from trainperf.analysis.rules.base import Evidence, steady_step_s
from trainperf.analysis.rules.host.launch_bound import launch_bound
from trainperf.analysis.rules.input.base import micro_batches
from trainperf.analysis.rules.memory.base import room_for
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import count, duration, size
from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.core.readings import (
    HOST_BOUND_FRACTION,
    PHASE_BACKWARD_S,
    PHASE_FORWARD_S,
    SAMPLES_PER_S,
)


BRIEF_S = 0.010
"""Forward and backward of a micro-batch on a CPU: below that much of it is launching operators, of
which a model of four layers has hundreds, at some 10 µs each."""


def small_micro_batches(evidence: Evidence) -> Finding | None:
    """Gradients are accumulated over micro-batches that are brief, where a larger one would fit.

    On a device: where it waits for its host.  A larger micro-batch launches as much once as each of
    them does; what that gains is not known beforehand, so no bound is given.

    Wrong where: the loss or a norm is taken over the micro-batch, or summed over them undivided,
    as transformers 5.23 does for classifiers; or rows are so unlike in length that it is padded
    more.
    To confirm: `trainperf prove` with the larger micro-batch, in samples per second.
    """
    summary, number = evidence.summary, micro_batches(evidence.summary)
    passes_s = _passes_s(summary)
    room = room_for(summary, number)
    if number < 2 or passes_s is None or room is None or not _brief(summary, passes_s / number):
        return None
    if launch_bound(evidence) is not None:  # it says so, with a bound
        return None
    return Finding(
        id="small_micro_batches",
        title=f"an update is {count(number)} micro-batches of {duration(passes_s / number)} each",
        advice="Take larger micro-batches",
        evidence=(
            f"{duration(passes_s)} of forward and backward per step",
            f"{size(room[0])} of {size(room[1])} at the peak: one of all their rows would fit",
        ),
        action=_action(summary, number),
        confidence="medium",
        confirm="trainperf compare BEFORE AFTER in samples per second",
    )


def _passes_s(summary: Summary) -> float | None:
    """Forward and backward of a step; `None` where these are not told apart, or too few."""
    parts = [summary.value(name) for name in (PHASE_FORWARD_S, PHASE_BACKWARD_S)]
    spent = [part for part in parts if part]
    return sum(spent) if len(spent) == len(parts) and steady_step_s(summary) else None


def _brief(summary: Summary, each_s: float) -> bool:
    if summary.run.device == "cpu":
        return each_s < BRIEF_S
    return (summary.value(HOST_BOUND_FRACTION) or 0.0) >= LIMITS.host_bound


def _action(summary: Summary, number: int) -> str:
    rate, step_s = summary.value(SAMPLES_PER_S), steady_step_s(summary)
    if summary.run.loop is HUGGING_FACE and rate and step_s:
        rows = max(1, round(rate * step_s / summary.run.world_size))
        return (
            f"TrainingArguments(per_device_train_batch_size={rows}, gradient_accumulation_steps=1)"
        )
    return (
        f"a micro-batch {count(number)} times as large and no {summary.run.loop.accumulation}: "
        "the same samples in each update"
    )
