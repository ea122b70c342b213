"""Checks of the precision that a run computes in: whether it pays, and overflows."""

from collections.abc import Callable, Mapping

from trainperf.analysis.diagnosis.tried import sentence
from trainperf.analysis.doctor.base import Case, Check, answer, imported, measured, shown
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.formatting.units import duration, scale_factor, share, size
from trainperf.core.readings import LOSS_SCALE, MEMORY_PEAK_BYTES, OVERFLOW_RATE, STEP_S


_NOT_TRIED = TrialResult(id="", kind="change", title="", verdict="not applicable")


def _half(config: Mapping[str, object]) -> str:
    """The lower precision that a run computes in; empty for fp32 or more."""
    named = (str(config.get(name) or "") for name in ("autocast", "precision"))
    return next((name for name in named if "16" in name or "transformer-engine" in name), "")


def _autocast(case: Case) -> TrialResult:
    """The trial of autocast that came to something, in the run in fp32."""
    used, trials = _half(case.facts.settings), _in_fp32(case).trials
    own = [
        trial
        for trial in (() if trials is None else trials.trials)
        if trial.id.startswith("autocast_") and (trial.counts or trial.verdict == "loss differs")
    ]
    alike = (trial for trial in own if not used or ("bf16" in trial.id) == ("bf" in used))
    return next(alike, _NOT_TRIED)


def _in_fp32(case: Case) -> Summary:
    """The run in fp32: the baseline, where there is one."""
    return (case.baseline or case.evidence).summary


def _pays(case: Case) -> bool:
    """Whether autocast was faster, and took no more memory where that was measured."""
    trial = _autocast(case)
    most = trial.memory_before or trial.memory_after or 0
    return trial.verdict == "faster" and (trial.memory_after or 0) <= most


_TRIED = (
    lambda case: sentence(_autocast(case)),
    lambda case: (
        "loss "
        + _without_and_with(
            _autocast(case).loss_before, _autocast(case).loss_after, "{:.4g}".format
        )
    ),
    lambda case: (
        "peak memory "
        + _without_and_with(_autocast(case).memory_before, _autocast(case).memory_after, size)
    ),
)


def _without_and_with(
    before: float | None, after: float | None, unit: Callable[[float], str]
) -> str:
    """E.g. `3.00 GiB without and 2.00 GiB with it`."""
    if before is None or after is None:
        return "not measured"
    return f"{unit(before)} without and {unit(after)} with it"


_WORK = ("model", "parameters", "batch_size", "sequence_length", "accumulate_grad_batches")


def _is_unlike(case: Case) -> bool:
    """Whether the baseline is no run in fp32, or one of another model or batch, or other ranks."""
    runs = (_in_fp32(case).run, case.summary.run)
    before, after = ([run.world_size, *map(run.config.get, _WORK)] for run in runs)
    return bool(_half(runs[0].config)) or before != after


def _is_better(case: Case) -> bool:
    """Whether its step is shorter by the intervals, and its peak lower where both are known."""
    before, after = _in_fp32(case), case.summary
    old, new = before.readings[STEP_S], after.readings[STEP_S]
    less, more = after.value(MEMORY_PEAK_BYTES), before.value(MEMORY_PEAK_BYTES)
    # Where an interval is missing, its value stands for both ends.
    faster = (new.high or new.value or 0.0) < (old.low or old.value or 0.0)
    return faster and (less is None or more is None or less < more)


_COMPARED = (
    lambda case: (
        "a step takes "
        + _without_and_with(_in_fp32(case).value(STEP_S), case.summary.value(STEP_S), duration)
    ),
    lambda case: (
        "peak memory "
        + _without_and_with(
            _in_fp32(case).value(MEMORY_PEAK_BYTES), case.summary.value(MEMORY_PEAK_BYTES), size
        )
    ),
)


_BASELINE = "--baseline a run in fp32"


_STAY = "stay in fp32, or find out what is converted: lower precision does not pay here"


PRECISION_CHECKS: tuple[Check, ...] = (
    Check(
        id="mixed_precision",
        about="""AMP/bf16 really reduces step time and memory.

        Fails on `autocast_casts` and `half_sensitive`, and when, against the same training in fp32,
        the step is not faster by the intervals or peak memory is not lower; a trial of autocast in
        the fp32 run decides on both before the comparison does.  A run in fp32 passes where such a
        trial of its own was faster and took no more memory.  Unknown without a trial and a baseline
        in fp32.

        Wrong where: the baseline differs in more than its precision.
        To confirm: `trainperf try --only autocast_bf16 SCRIPT` in the run in fp32.
        """,
        causes=("autocast_casts", "half_sensitive"),
        of_training=True,
        first=[
            answer(
                "unknown",
                "the log does not tell the precision",
                action="{loop.everything}",
                when=lambda case: imported(case) and not _half(case.facts.settings),
            ),
            answer(
                "pass",
                *_TRIED,
                lambda case: f"to keep it: {_autocast(case).apply}",
                when=lambda case: not _half(case.facts.settings) and _pays(case),
            ),
            answer(
                "unknown",
                *_TRIED,
                action="trainperf try --only autocast_bf16 --minutes 5 SCRIPT",
                when=lambda case: (
                    not _half(case.facts.settings) and _autocast(case).verdict == "undecided"
                ),
            ),
            answer(
                "not_applicable",
                "the run computes in fp32",
                *_TRIED,
                when=lambda case: not _half(case.facts.settings) and _autocast(case).id,
            ),
            answer(
                "not_applicable",
                "the run computes in fp32",
                when=lambda case: not _half(case.facts.settings),
            ),
        ],
        looks=[
            answer(
                "unknown",
                "no run in fp32 to compare with",
                action=_BASELINE,
                when=lambda case: case.baseline is None,
            ),
            answer(
                "unknown",
                "the baseline computes in lower precision too, or is of another model or batch",
                action=_BASELINE,
                when=_is_unlike,
            ),
            answer("pass", *_TRIED, when=_pays),
            answer(
                "fail",
                *_TRIED,
                action=_STAY,
                when=lambda case: _autocast(case).verdict not in ("undecided", "not applicable"),
            ),
            answer(
                "unknown",
                "one of the two has no steady state",
                action="train both past the warm-up",
                when=lambda case: (
                    None in (_in_fp32(case).value(STEP_S), case.summary.value(STEP_S))
                ),
            ),
            answer("pass", *_COMPARED, when=_is_better),
            answer("fail", *_COMPARED, action=_STAY),
        ],
    ),
    Check(
        id="overflows",
        about="""GradScaler does not overflow often.

        Fails on `overflow`.  Unknown without a GradScaler's counts.

        Wrong where: the scaler is custom, and its skips are counted elsewhere.
        To confirm: the readings `overflow_rate` and `loss_scale`.
        """,
        causes=("overflow",),
        of_training=True,
        looks=[
            *measured(OVERFLOW_RATE, "{loop.measures[scaler]}"),
            answer(
                "pass",
                shown(OVERFLOW_RATE, "{} of the updates overflowed", share),
                shown(LOSS_SCALE, "loss scale {}", scale_factor),
            ),
        ],
    ),
)
"""In the order in which they are shown."""
