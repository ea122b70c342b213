"""Checks of what is timed: warm-up, steady steps, the unit of throughput, the same loss."""

from trainperf.analysis.doctor.base import (
    MEASURE_IT,
    Case,
    Outcome,
    failed,
    passed,
    reason,
    unknown,
)
from trainperf.analysis.rules.base import setting
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, plural, share, times, words
from trainperf.core.loop_kind import STEP_CLOCK, imported_from
from trainperf.core.readings import (
    ALLREDUCE_TAIL_S,
    DATA_STALL_FRACTION,
    EFFECTIVE_TOKENS_PER_S,
    FIRST_STEP_S,
    H2D_S,
    HOST_BOUND_FRACTION,
    OPTIMIZER_STEPS_PER_S,
    PADDING_FRACTION,
    SAMPLES_PER_S,
    STEP_IQR_S,
    STEP_MEAN_S,
    STEP_S,
)


EVENTS = (DATA_STALL_FRACTION, H2D_S, HOST_BOUND_FRACTION, ALLREDUCE_TAIL_S)
"""Readings that come from timing events of the device."""


def warmed_up(case: Case) -> Outcome:
    """Timings are warmed up and synchronised or event-based.

    Fails with fewer than 20 steady steps, and on a GPU when no timing event was read.

    Wrong where: the run is a short one on purpose: nothing is wrong with the training.
    To confirm: `steady_steps` of the summary.
    """
    summary = case.summary
    run = summary.run
    step_s = _step_s(summary)
    steady = f"{plural(run.steady_steps, 'steady step')} of {run.steps:,}"
    if step_s is None or run.steady_steps < LIMITS.steps:
        more = f"run on: {LIMITS.steps} steady steps are the least to judge by"
        return unknown(steady, more) if run.state == "running" else failed(more, steady)
    spread_s = summary.value(STEP_IQR_S)
    spread = "" if spread_s is None else f", middle half within {duration(spread_s)}"
    clock = _clock(summary)
    if clock is None and imported_from(run.config):
        times = run.config.get(STEP_CLOCK) or "the log does not tell what its times are"
        return unknown(f"{times}", MEASURE_IT)
    if clock is None:
        return failed(
            f"{case.loop.everything}: its events time the device without waiting for it",
            f"no timing event was read on {run.device}: only the host's clock is known",
        )
    return passed(f"{duration(step_s)} per step over {steady}{spread}", clock)


def _step_s(summary: Summary) -> float | None:
    """The steady step; of a log that has only means, their mean."""
    step_s = summary.value(STEP_S)
    if step_s is None and imported_from(summary.run.config) and summary.run.steady_steps:
        return summary.value(STEP_MEAN_S)
    return step_s


def _clock(summary: Summary) -> str | None:
    """What the times stand on; `None` if nothing tells when the device is done."""
    if imported_from(summary.run.config):
        return None
    if summary.run.device == "cpu":
        return "on a CPU an operator has run when it returns: the host's clock is exact"
    timed = [name for name in EVENTS if summary.value(name) is not None]
    return f"device times from timing events ({', '.join(timed)})" if timed else None


def steady_state(case: Case) -> Outcome:
    """Steady-state, not first step, is reported.

    Fails when the warm-up was never seen to end, or when the first step counts as steady.

    Wrong where: lengths or shapes differ so much that no warm-up can be seen to end.
    To confirm: the reading `step_iqr_s`, and a longer run.
    """
    summary = case.summary
    run, step_s = summary.run, _step_s(summary)
    first_s = summary.value(FIRST_STEP_S)
    if not run.steps:
        return unknown("no step was recorded", "run some steps")
    if step_s is None:
        more = "run until the warm-up is over: the report says when"
        why = f"{reason(summary, STEP_S)} in {plural(run.steps, 'step')}"
        return unknown(why, more) if run.state == "running" else failed(more, why)
    if run.steady_steps == run.steps:
        return failed(
            "exclude the first steps: compilation, allocation and autotuning are in them",
            f"all {plural(run.steps, 'step')} count, the first one too",
        )
    first = ""
    if first_s is not None:
        first = f"first step {duration(first_s)}, {times(first_s / step_s)} a steady one"
    excluded = ", ".join(f"{steps:,} {words(tag)}" for tag, steps in summary.excluded.items())
    return passed(f"{duration(step_s)} per steady step", first, f"excluded: {excluded}")


def throughput_unit(case: Case) -> Outcome:
    """Throughput is effective tokens/s or the right unit.

    Fails for sequences without a mask, and when only updates are counted.  Unknown without steps.

    Wrong where: the mask is not the one that the loss uses.
    To confirm: `run.notes` of the summary names the mask that was counted.
    """
    summary = case.summary
    effective, padded = summary.value(EFFECTIVE_TOKENS_PER_S), summary.value(PADDING_FRACTION)
    samples, updates = summary.value(SAMPLES_PER_S), summary.value(OPTIMIZER_STEPS_PER_S)
    if effective is not None:
        mask = summary.run.notes.get("tokens", "mask")
        less = "" if padded is None else f"padding of {share(padded)} is not counted"
        return passed(f"{count(round(effective))} effective tokens/s ({mask})", less)
    length = setting(summary, "sequence_length")
    if imported_from(summary.run.config) and (length is not None or samples is None):
        return unknown("the log does not tell which tokens count", MEASURE_IT)
    if length is not None:
        return failed(
            f"{case.loop.tokens} says which tokens count",
            f"sequences of {count(length)} tokens, but no mask: padding would count as work",
        )
    if samples is not None:
        return passed(f"{count(samples)} samples/s; the batch has no known tokens")
    if updates is None:
        return unknown(reason(summary, SAMPLES_PER_S), "run past the warm-up")
    return failed(
        f"make samples the batch's first dimension, or {case.loop.tokens}",
        f"only updates are counted, {count(updates)}/s: they grow when batches shrink",
    )


def loss_parity(case: Case) -> Outcome:
    """Loss still matches the baseline.

    Fails when the losses at equal work are more than 2 % apart, and more than noise explains.
    Unknown without a baseline.

    Wrong where: seeds or the order of the data differ: equal work is then not the same work.
    To confirm: `trainperf compare` of repeats with several seeds.
    """
    parity = case.parity
    if parity is None:
        return unknown("no baseline was given", "--baseline the run before the change")
    if parity.verdict == "unknown":
        return unknown(parity.why, "train both runs further, on the same data")
    limit = f"tolerance {share(parity.tolerance)}"
    if parity.verdict == "differs":
        return failed("undo the change, or prove it right before you go on", parity.why, limit)
    return passed(parity.why, limit)
