"""Checks of lower precision: it pays off, and the GradScaler skips few updates."""

from trainperf.analysis.doctor.base import (
    MEASURE_IT,
    Case,
    Outcome,
    failed,
    failed_by,
    fails_on,
    measured,
    not_applicable,
    passed,
    reason,
    unknown,
)
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.formatting.units import duration, scale_factor, share, size, times
from trainperf.core.loop_kind import imported_from
from trainperf.core.readings import LOSS_SCALE, MEMORY_PEAK_BYTES, OVERFLOW_RATE, STEP_S


def mixed_precision(case: Case) -> Outcome:
    """AMP/bf16 really reduces step time and memory.

    Fails on `autocast_casts` and `half_sensitive`, and when, against the same training in fp32, the
    step is not faster by the intervals or peak memory is not lower; a trial of autocast in the fp32
    run decides on both before the comparison does.  A run in fp32 passes where such a trial of its
    own was faster and took no more memory.  Unknown without a trial and a baseline in fp32.

    Wrong where: the baseline differs in more than its precision.
    To confirm: `trainperf try --only autocast_bf16 SCRIPT` in the run in fp32.
    """
    used = precision(case.summary)
    if used is None and imported_from(case.summary.run.config):
        return unknown("the log does not tell the precision", MEASURE_IT)
    if used is None:
        return _in_fp32(case.summary)
    bad = failed_by(case, ("autocast_casts", "half_sensitive"))
    if bad is not None:
        return bad
    if case.baseline is None:
        return unknown(f"{used} without a run in fp32 to compare with", "--baseline a run in fp32")
    return _against(case.baseline.summary, case.summary, used)


def _against(before: Summary, summary: Summary, used: str) -> Outcome:
    """By what was tried in the run in fp32, else by the two runs."""
    if precision(before) is not None:
        difference = f"the baseline computes in {precision(before)} too"
        return unknown(difference, "--baseline a run in fp32")
    if _work(summary) != _work(before):
        difference = f"{_described(summary)} here, {_described(before)} in the baseline"
        return unknown(difference, "--baseline a run of the same model and batch")
    trial = _autocast(before, used)
    if trial is None or trial.verdict == "undecided":
        return _compared(summary, before, used)
    return _kept(trial) if _pays(trial) else failed(_STAY.format(used), *_facts(trial))


_STAY = "stay in fp32, or find out what {} converts: it does not pay here"


def _in_fp32(summary: Summary) -> Outcome:
    """Right if lower precision was tried and brought nothing; it pays where it was faster."""
    trial = _autocast(summary)
    if trial is None:
        return not_applicable("the run computes in fp32")
    if _pays(trial):
        return _kept(trial)
    if trial.verdict == "undecided":
        return unknown(measured(trial), f"trainperf try --only {trial.id} --minutes 5 SCRIPT")
    rightly = "" if trial.verdict == "faster" else ", rightly"
    return not_applicable(f"the run computes in fp32{rightly}: {', '.join(_facts(trial))}")


def _pays(trial: TrialResult) -> bool:
    """Whether it was faster, and took no more memory where that was measured."""
    before, after = trial.memory_before, trial.memory_after
    return trial.verdict == "faster" and (before is None or after is None or after <= before)


def _autocast(summary: Summary, used: str = "") -> TrialResult | None:
    """The trial of autocast, in that precision or in any, that came to something; the best."""
    trials = summary.trials.trials if summary.trials is not None else ()
    return next(
        (
            trial
            for trial in trials
            if trial.id.startswith("autocast_")
            and (trial.counts or trial.verdict == "loss differs")
            and (not used or ("bf16" in trial.id) == ("bf" in used))
        ),
        None,
    )


def _kept(trial: TrialResult) -> Outcome:
    return passed(*_facts(trial), f"to keep it: {trial.apply}" if trial.apply else "")


def _facts(trial: TrialResult) -> tuple[str, ...]:
    """Speed, loss and memory."""
    loss = ""
    if trial.loss_before is not None and trial.loss_after is not None:
        loss = f"loss {trial.loss_before:.4g} without and {trial.loss_after:.4g} with it"
    if trial.memory_before is None or trial.memory_after is None:
        return (measured(trial), loss, "memory was not measured: a CPU tells no peak")
    memory = f"peak memory {size(trial.memory_before)} without and {size(trial.memory_after)}"
    return (measured(trial), loss, f"{memory} with it")


def _compared(after: Summary, before: Summary, used: str) -> Outcome:
    new, old = after.readings[STEP_S], before.readings[STEP_S]
    if new.value is None or old.value is None:
        return unknown("one of the two has no steady state", "train both past the warm-up")
    speed = f"{duration(old.value)} in fp32, {duration(new.value)} in {used}"
    speedup = f"{speed}: {times(old.value / new.value)} as fast"
    # Where an interval is missing, its value stands for both ends.
    fast = (new.high or new.value) < (old.low or old.value)
    peaks = [summary.value(MEMORY_PEAK_BYTES) for summary in (before, after)]
    if None in peaks:
        memory, small = "memory of the device was not measured", True
    else:
        memory = f"peak memory {size(peaks[0] or 0.0)} and {size(peaks[1] or 0.0)}"
        small = (peaks[1] or 0.0) < (peaks[0] or 0.0)
    if fast and small:
        return passed(speedup, memory)
    return failed(_STAY.format(used), speedup, memory)


def precision(summary: Summary) -> str | None:
    """The lower precision that a run computes in; `None` for fp32 or more."""
    config = summary.run.config
    for name in ("autocast", "precision"):
        setting = str(config.get(name) or "")
        if "16" in setting or "transformer-engine" in setting:
            return setting
    return None


def _work(summary: Summary) -> tuple[object, ...]:
    names = ("model", "parameters", "batch_size", "sequence_length", "accumulate_grad_batches")
    config = summary.run.config
    return (*(config.get(name) for name in names), summary.run.world_size)


def _described(summary: Summary) -> str:
    config = summary.run.config
    return f"{config.get('model')} with batches of {config.get('batch_size')}"


@fails_on("overflow")
def overflows(case: Case) -> Outcome:
    """GradScaler does not overflow often.

    Fails on `overflow`.  Unknown without a GradScaler's counts.

    Wrong where: the scaler is custom, and its skips are counted elsewhere.
    To confirm: the readings `overflow_rate` and `loss_scale`.
    """
    summary = case.summary
    lost, scale = summary.value(OVERFLOW_RATE), summary.value(LOSS_SCALE)
    if lost is None:
        why = reason(summary, OVERFLOW_RATE)
        if "not applicable" in why or "no GradScaler" in why:
            return not_applicable(why.removeprefix("not applicable: "))
        return unknown(why, case.loop.measures["scaler"])
    at = "" if scale is None else f"loss scale {scale_factor(scale)}"
    return passed(f"{share(lost)} of the updates overflowed", at)
